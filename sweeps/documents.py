"""Reading YAML that somebody else wrote: safely, with every refusal in words."""

import re
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from grpo_core.errors import ConfigError

LARGEST_FILE = 1_000_000
"""Bytes; no configuration comes near it."""
LARGEST_DOCUMENT = 100_000
"""Nodes after aliases are expanded; a YAML bomb goes far beyond."""
DEEPEST_DOCUMENT = 60
"""Levels of nesting."""


_TAG = "tag:yaml.org,2002:"
PLAIN_TAGS = frozenset(
    f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq", "merge")
)
"""What a document may consist of."""


class _Loader(yaml.SafeLoader):
    """Plain values; keys are text; `1e-3` is a number and a date is text, as in YAML 1.2."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                key.tag = f"{_TAG}str"
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in PLAIN_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


def load_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        ConfigError: the file cannot be read, is no YAML, is too large, has tags, or is no mapping.
    """  # noqa: DOC502 - raised by what it calls
    return parse_mapping(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: it cannot be read, or is too large to be a configuration.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError([f"{path}: larger than {LARGEST_FILE} bytes, no configuration"])
        return content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: cannot be read: it is not UTF-8 text"]) from error


def parse_mapping(text: str, source: str) -> dict[str, Any]:
    """The mapping in a YAML text; `source` names it in messages.

    Raises:
        ConfigError: it is no YAML, too large, has tags, or is no mapping.
    """
    try:
        document = _construct(text)
    except _RefusedError as error:
        raise ConfigError([f"{source}:{error}"]) from error
    except yaml.MarkedYAMLError as error:
        where = _where(error.problem_mark or error.context_mark)
        words = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError([f"{source}:{where} {words}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{source}: nested deeper than {DEEPEST_DOCUMENT} levels"]) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError([f"{source}: is not YAML: {error}"]) from error
    if not isinstance(document, dict):
        kind = "nothing" if document is None else f"a {type(document).__name__}"
        raise ConfigError([f"{source}: wanted a mapping of keys to values, got {kind}"])
    return document


class _RefusedError(Exception):
    """A document that is YAML, but no configuration."""


def _construct(text: str) -> object:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _where(mark: yaml.Mark | None) -> str:
    return f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""


def _check(root: yaml.Node) -> None:
    """Refuse bombs, cycles, tags and repeated keys.

    Raises:
        _RefusedError: one of them is there.
    """
    sizes: dict[int, tuple[int, int]] = {}

    def measure(node: yaml.Node, above: frozenset[int]) -> tuple[int, int]:
        """Values and levels of a node, aliases expanded.

        Raises:
            _RefusedError: it contains itself, or is nested too deeply.
        """
        if id(node) in above:
            raise _RefusedError(f"{_where(node.start_mark)} a value contains itself")
        if len(above) > DEEPEST_DOCUMENT:
            raise _RefusedError(f" nested deeper than {DEEPEST_DOCUMENT} levels")
        if id(node) not in sizes:
            _check_node(node)
            inside = above | {id(node)}
            parts = [measure(child, inside) for child in _children(node)]
            size = 1 + sum(size for size, _ in parts)
            sizes[id(node)] = size, 1 + max((depth for _, depth in parts), default=0)
        return sizes[id(node)]

    size, depth = measure(root, frozenset())
    if size > LARGEST_DOCUMENT:
        raise _RefusedError(
            f" expands to {size} values through aliases; wanted at most {LARGEST_DOCUMENT}"
        )
    if depth > DEEPEST_DOCUMENT:
        raise _RefusedError(f" nested deeper than {DEEPEST_DOCUMENT} levels")


def _check_node(node: yaml.Node) -> None:
    """Refuse tags and repeated keys.

    Raises:
        _RefusedError: one of them is there.
    """
    if node.tag not in PLAIN_TAGS:
        tag = node.tag.replace(_TAG, "!!")
        raise _RefusedError(
            f"{_where(node.start_mark)} the tag {tag} is refused; write plain values"
        )
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _RefusedError(f"{_where(key.start_mark)} a key must be plain text")
        if key.value in seen:
            raise _RefusedError(f"{_where(key.start_mark)} the key {key.value!r} is given twice")
        seen.add(key.value)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
