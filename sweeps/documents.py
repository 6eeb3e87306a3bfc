"""Reading YAML that somebody else wrote: safely, with every refusal in words."""

import re
from pathlib import Path
from typing import Any

import yaml

from grpo_core.errors import ConfigError

LARGEST_FILE = 1_000_000
"""Bytes; no configuration comes near it."""
LARGEST_DOCUMENT = 100_000
"""Nodes after aliases are expanded; a YAML bomb goes far beyond."""
DEEPEST_DOCUMENT = 60
"""Levels of nesting."""


class _Loader(yaml.SafeLoader):
    """Plain data only; `1e-3` is a number as in YAML 1.2; a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: dict[Any, yaml.Node] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool) and key is not None:
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be plain text", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen[key] = key_node
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


def load_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        ConfigError: the file cannot be read, is no YAML, is too large, has tags, or is no mapping.
    """
    return parse_mapping(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: it cannot be read, or is too large to be a configuration.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise ConfigError([f"{path}: {size} bytes; wanted at most {LARGEST_FILE}"])
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError([f"{path}: cannot be read: {reason}"]) from error


def parse_mapping(text: str, source: str) -> dict[str, Any]:
    """The mapping in a YAML text; `source` names it in messages.

    Raises:
        ConfigError: it is no YAML, too large, has tags, or is no mapping.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _refuse_bombs(node, source)
        document = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError([f"{source}:{where}: {_reason(error)}"]) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError([f"{source}: is not YAML: {error}"]) from error
    finally:
        loader.dispose()
    if not isinstance(document, dict):
        kind = "empty" if document is None else f"a {type(document).__name__}"
        raise ConfigError([f"{source}: wanted a mapping of keys to values, got {kind}"])
    return document


def _reason(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or str(error)
    if "could not determine a constructor" in problem:
        return f"{problem}; tags are refused, write plain values"
    return problem


def _refuse_bombs(root: yaml.Node, source: str) -> None:
    sizes: dict[int, int] = {}

    def expanded(node: yaml.Node, depth: int, path: frozenset[int]) -> int:
        if depth > DEEPEST_DOCUMENT or id(node) in path:
            raise ConfigError([f"{source}: nested deeper than {DEEPEST_DOCUMENT} levels"])
        if id(node) not in sizes:
            inside = path | {id(node)}
            children = _children(node)
            sizes[id(node)] = 1 + sum(expanded(child, depth + 1, inside) for child in children)
        return sizes[id(node)]

    size = expanded(root, 0, frozenset())
    if size > LARGEST_DOCUMENT:
        raise ConfigError(
            [
                f"{source}: expands to {size} values through aliases; wanted at most {LARGEST_DOCUMENT}"
            ]
        )


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
