"""The recommended configuration as the smallest change to the user's own AReaL file."""

import copy
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from grpo_core.config import TrialConfig
from grpo_core.errors import ConfigError
from grpo_core.profiles import PROFILES, SCALE_KEYS
from sweeps.documents import parse_mapping, read_text
from sweeps.plan import lookup
from sweeps.results import ConfigurationResult, Results
from sweeps.space import flatten

GROUP_SIZE = "${gconfig.n_samples}"
"""What a group-level norm's `group_size` has to be in a production file."""
OURS = ("task", "policy", "evaluation", "extensions", "areal_compat", "seed")
"""Sections that AReaL does not have."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that the promoted file changes."""

    key: str
    """Dotted key."""
    value: Any
    """New value."""
    before: str
    """The file's value, or `not set`."""
    added: bool
    """The file did not have the key."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """A configuration ready for production."""

    text: str
    """The AReaL YAML."""
    changes: tuple[Change, ...]
    """What it changes in the user's file."""
    overrides: tuple[str, ...]
    """The same as AReaL (Hydra) command-line overrides."""
    notices: tuple[str, ...]
    """What could not or should not be carried over."""


def promote(
    results: Results, choice: ConfigurationResult, base: Path, provenance: dict[str, str]
) -> Promotion:
    """Lay the swept settings of `choice` over the file `base`, keeping everything else.

    Raises:
        ConfigError: the file cannot be read, or one of its values is in the way.
    """
    text = read_text(base)
    plain = parse_mapping(text, str(base))
    document = _round_trip().load(text)
    changes, notices = _changes(choice, plain)
    for change in changes:
        _set(document, change, str(base))
    header = [f"# {name}: {value}" for name, value in provenance.items()]
    header += [f"# {c.key}: {c.before} -> {_flow(c.value)}" for c in changes]
    stream = io.StringIO()
    _round_trip().dump(document, stream)
    title = f"# Promoted by grpo-sweeps from sweep {results.sweep}"
    return Promotion(
        text="\n".join([title, *header]) + "\n" + stream.getvalue(),
        changes=tuple(changes),
        overrides=tuple(_override(change) for change in changes),
        notices=tuple(notices),
    )


def _round_trip() -> YAML:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096
    return yaml


def _changes(choice: ConfigurationResult, plain: dict[str, Any]) -> tuple[list[Change], list[str]]:
    """The leaf settings in which `choice` differs from the file, and what was left out."""
    policy = choice.trials[0].spec.config["policy"] if choice.trials else "tiny"
    scaled = policy in PROFILES
    have, changes, notices = flatten(plain), [], []
    for key, value in choice.swept.items():
        if key.split(".")[0] in OURS:
            notices.append(f"{key}={_flow(value)}: AReaL has no such setting, not written")
        elif key in SCALE_KEYS and scaled:
            notices.append(
                f"{key}={_flow(value)}: belongs to the diagnostic model's scale, not written"
            )
        else:
            changes += _leaf_changes(key, value, plain, have)
    return changes, notices


def _leaf_changes(
    key: str, value: Any, plain: dict[str, Any], have: dict[str, Any]
) -> list[Change]:
    present = _has(plain, key)
    current = lookup(plain, key)
    if isinstance(value, dict):
        value = _section(value)
        if isinstance(current, dict):
            defaults = _section_defaults(key)
            return [
                change
                for part, item in (defaults | value).items()
                if part != "group_size" or part not in current
                for change in _leaf_changes(f"{key}.{part}", item, plain, have)
                if part in value or part in current
            ]
        return [Change(key, value, _flow(current) if present else "not set", not present)]
    default = lookup(TrialConfig().model_dump(), key)
    if _equal(current if present else default, value):
        return []
    return [Change(key, value, _flow(current) if present else "not set", not present)]


def _section(value: dict[str, Any]) -> dict[str, Any]:
    """A norm as a production file writes it: its levels, what is not default, the group size."""
    shown = {k: v for k, v in value.items() if k in ("mean_level", "std_level")}
    if "mean_level" not in value:
        return dict(value)
    defaults = _norm_defaults()
    shown |= {k: v for k, v in value.items() if k not in shown and v != defaults.get(k)}
    if "group" in (value["mean_level"], value["std_level"]):
        shown["group_size"] = GROUP_SIZE
    return shown


def _section_defaults(key: str) -> dict[str, Any]:
    return _norm_defaults() if key.endswith("_norm") else {}


def _norm_defaults() -> dict[str, Any]:
    from grpo_core.config import NormConfig

    return NormConfig().model_dump()


def _equal(current: Any, value: Any) -> bool:
    """Same setting; an interpolation is never known to be."""
    if isinstance(current, bool) or isinstance(value, bool):
        return current is value
    return bool(current == value)


def _has(plain: dict[str, Any], key: str) -> bool:
    *sections, last = key.split(".")
    place: Any = plain
    for section in sections:
        place = place.get(section) if isinstance(place, dict) else None
    return isinstance(place, dict) and last in place


def _set(document: CommentedMap, change: Change, source: str) -> None:
    *sections, last = change.key.split(".")
    place = document
    for depth, section in enumerate(sections):
        inner = place.get(section)
        if inner is None:
            inner = place[section] = CommentedMap()
        if not isinstance(inner, CommentedMap):
            key = ".".join(sections[: depth + 1])
            raise ConfigError(
                [f"{source}: {key}: got {inner!r}, wanted a section, to set {change.key} in it"]
            )
        place = inner
    place[last] = copy.deepcopy(change.value)


def _override(change: Change) -> str:
    """`key=value` for AReaL's Hydra command line; `+` where the file lacks the key."""
    return f"{'+' if change.added else ''}{change.key}={_flow(change.value)}"


def _flow(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        return value
    return json.dumps(value)
