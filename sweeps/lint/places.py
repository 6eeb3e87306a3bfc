"""Where the keys of a file are, and which findings its comments turn off."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

_IGNORE = re.compile(r"#\s*lint:\s*ignore\s*=\s*([\w-]+(?:\s*,\s*[\w-]+)*)")


@dataclass(frozen=True, slots=True)
class Suppressions:
    """Rules that a file's comments turn off."""

    everywhere: frozenset[str]
    """Named in a comment above the first key."""
    lines: dict[int, frozenset[str]]
    """Named in a comment on the line."""

    def hides(self, rule: str, lines: set[int]) -> bool:
        """The rule is turned off in the file, or on one of these lines."""
        return rule in self.everywhere or any(rule in self.lines.get(n, ()) for n in lines)

    @property
    def names(self) -> frozenset[str]:
        """Every rule that is named."""
        return self.everywhere.union(*self.lines.values())


def lines_of_keys(text: str) -> dict[str, int]:
    """Dotted key -> line, from 1, of a YAML text that has been read without a problem."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return dict(_walk(root, "")) if root is not None else {}


def _walk(node: yaml.Node, prefix: str) -> Iterator[tuple[str, int]]:
    if not isinstance(node, yaml.MappingNode):
        return
    # What is merged in (`<<`) comes first: a key of the mapping itself lays over it.
    for key, value in sorted(node.value, key=lambda pair: pair[0].value != "<<"):
        if key.value == "<<":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for part in merged:
                yield from _walk(part, prefix)
            continue
        dotted = f"{prefix}{key.value}"
        yield dotted, key.start_mark.line + 1
        yield from _walk(value, f"{dotted}.")


def read_suppressions(text: str) -> Suppressions:
    """The `# lint: ignore=id[,id]` comments of a text."""
    everywhere: set[str] = set()
    lines: dict[int, frozenset[str]] = {}
    before_keys = True
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        before_keys = before_keys and (not stripped or stripped[0] in "#%" or stripped == "---")
        names = frozenset(
            name.strip() for match in _IGNORE.finditer(line) for name in match[1].split(",")
        )
        if names and before_keys:
            everywhere |= names
        elif names:
            lines[number] = names
    return Suppressions(frozenset(everywhere), lines)
