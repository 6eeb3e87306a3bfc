"""The recommended configuration as the smallest change to the user's own AReaL file."""

import copy
import io
import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.anchor import Anchor
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.util import load_yaml_guess_indent
from typing_extensions import override

from grpo_core.config import NormConfig
from grpo_core.errors import ConfigError
from grpo_core.profiles import PROFILES, SCALE_KEYS
from sweeps.documents import parse_mapping, read_text
from sweeps.dotted import contains, lookup
from sweeps.keys import KEYS, OURS
from sweeps.record import SweepHeader
from sweeps.results import ConfigurationResult, Results

GROUP_SIZE = "${gconfig.n_samples}"
"""What a group-level norm's `group_size` has to be in a production file."""
NORMS = ("actor.reward_norm", "actor.adv_norm")
"""Sections that have a `group_size`."""


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

    @property
    def after(self) -> str:
        """The new value as on a command line."""
        return _flow(self.value)

    @property
    def override(self) -> str:
        """`key=value` for AReaL's Hydra command line; `+` where the file lacks the key."""
        return f"{'+' if self.added else ''}{self.key}={self.after}"


@dataclass(frozen=True, slots=True)
class Promotion:
    """A configuration ready for production."""

    text: str
    """The AReaL YAML."""
    changes: tuple[Change, ...]
    """What it changes in the user's file."""
    notices: tuple[str, ...]
    """What could not or should not be carried over."""

    @property
    def overrides(self) -> tuple[str, ...]:
        """The changes as AReaL (Hydra) command-line overrides."""
        return tuple(change.override for change in self.changes)


def promote(
    results: Results, choice: ConfigurationResult, base: Path, provenance: dict[str, str]
) -> Promotion:
    """Lay the swept settings of `choice` over the file `base`, keeping everything else.

    Raises:
        ConfigError: the file cannot be read, or one of its values is in the way.
    """  # noqa: DOC502 - raised by what it calls
    text = read_text(base)
    plain = parse_mapping(text, str(base))
    changes, notices = _changes(choice, plain)
    header = {"Promoted by grpo-sweeps from sweep": results.sweep} | provenance
    header |= {change.key: f"{change.before} -> {change.after}" for change in changes}
    lines = [f"# {name}: {' '.join(value.split())}\n" for name, value in header.items()]
    return Promotion(
        text="".join(lines) + _edited(text, changes, str(base)),
        changes=tuple(changes),
        notices=tuple(notices),
    )


def choose(results: Results, wanted: str | None) -> ConfigurationResult:
    """The configuration with the hash or name `wanted`; the recommended one for None.

    Raises:
        ConfigError: there is no such configuration, or none is recommended.
    """
    if wanted is None:
        if results.recommended is None:
            raise ConfigError([f"nothing to promote: {results.reason}; --config names one"])
        return results.recommended
    for configuration in results.configurations:
        if wanted in (configuration.config_hash, configuration.name):
            return configuration
    names = ", ".join(f"{c.config_hash} ({c.name})" for c in results.configurations)
    raise ConfigError([f"--config: got {wanted!r}, wanted one of {names}"])


def provenance_of(header: SweepHeader, choice: ConfigurationResult) -> dict[str, str]:
    """Where a promoted configuration comes from, as lines of its header."""
    verdict = choice.verdict
    return {
        "question": header.question or "(none)",
        "configuration": f"{choice.name} (hash {choice.config_hash})",
        "verdict": f"{verdict.outcome}, {verdict.healthy} of {verdict.seeds} seeds healthy",
        "seeds": ", ".join(str(trial.spec.seed) for trial in choice.trials) or "(none ended)",
        "grpo-sweeps": f"version {header.version}, sweep content {header.content}",
    }


def write_promotion(promotion: Promotion, out: Path, *, overwrite: bool) -> None:
    """Write the file in one piece.

    Raises:
        ConfigError: it exists and may not be overwritten, or cannot be written.
    """
    if out.exists() and not overwrite:
        raise ConfigError([f"--out: {out} exists; --force overwrites it"])
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(f".{out.name}.partial")
        partial.write_text(promotion.text, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        raise ConfigError([f"--out: {out}: cannot be written: {error.strerror}"]) from error


def command_line(promotion: Promotion) -> str:
    """The overrides as a shell takes them."""
    return " ".join(shlex.quote(override) for override in promotion.overrides)


def _changes(choice: ConfigurationResult, plain: dict[str, Any]) -> tuple[list[Change], list[str]]:
    """The settings in which `choice` differs from the file, and what was left out."""
    config = choice.config
    changes: dict[str, Change] = {}
    notices = []
    for key in _whole_sections(choice.swept, config, plain):
        value = lookup(config, key)
        reason = _not_for_production(key, value, choice)
        if reason is None:
            changes |= {change.key: change for change in _differences(key, value, plain)}
        else:
            notices.append(f"{key}={_flow(value)}: {reason}, not written")
    for key in NORMS:
        changes |= {change.key: change for change in _group_size(key, plain, changes)}
    notices += _unswept(choice, plain)
    return list(changes.values()), notices


def _whole_sections(
    swept: dict[str, Any], config: dict[str, Any], plain: dict[str, Any]
) -> list[str]:
    """The swept keys; in place of one inside a section that is off on either side, the section."""
    keys = []
    for key in swept:
        off = [s for s in _sections(key) if lookup(config, s) is None or lookup(plain, s) is None]
        keys.append(off[0] if off else key)
    return [k for k in dict.fromkeys(keys) if not any(k.startswith(f"{o}.") for o in keys)]


def _sections(key: str) -> list[str]:
    """The sections around a key that can be off, the outermost first."""
    parts = key.split(".")
    above = [".".join(parts[:depth]) for depth in range(1, len(parts))]
    return [section for section in above if KEYS[section].nullable]


def _not_for_production(key: str, value: object, choice: ConfigurationResult) -> str | None:
    """Why a setting does not belong into a production file; None if it does."""
    if _is_ours(key):
        return "AReaL has no such setting"
    profile = PROFILES.get(choice.config["policy"])
    if profile is None or key not in profile.defaults:
        return None
    untouched = key not in choice.levels and value == profile.defaults[key]
    return "belongs to the diagnostic model's scale" if key in SCALE_KEYS or untouched else None


def _is_ours(key: str) -> bool:
    return key == "seed" or key.split(".", maxsplit=1)[0] in OURS


def _differences(key: str, value: object, plain: dict[str, Any]) -> list[Change]:
    """What has to change for `key` to have `value`; within a section, setting by setting."""
    current = lookup(plain, key)
    if not isinstance(value, dict):
        return [] if _equal(_effective(plain, key), value) else [_change(key, value, plain)]
    if not isinstance(current, dict):
        return [_change(key, _section(value), plain)]
    return [
        change
        for part, item in value.items()
        if part != "group_size"
        for change in _differences(f"{key}.{part}", item, plain)
    ]


def _change(key: str, value: object, plain: dict[str, Any]) -> Change:
    present = contains(plain, key)
    before = _flow(lookup(plain, key)) if present else "not set"
    return Change(key, value, before, added=not present)


def _section(value: dict[str, Any]) -> dict[str, Any]:
    """A section as a production file writes it: a norm's levels, and what is not default."""
    defaults = NormConfig().model_dump() if "mean_level" in value else {}
    always = ("mean_level", "std_level")
    return {
        name: item
        for name, item in value.items()
        if name in always or name not in defaults or item != defaults[name]
    }


def _group_size(key: str, plain: dict[str, Any], changes: dict[str, Change]) -> list[Change]:
    """A norm that becomes one over groups needs their size in production."""
    section = lookup(plain, key)
    after = dict(section) if isinstance(section, dict) else {}
    whole = changes.get(key)
    inside = {k.rpartition(".")[2]: c.value for k, c in changes.items() if k.startswith(f"{key}.")}
    if whole is None and not inside:
        return []
    if whole is not None:
        after = dict(whole.value) if isinstance(whole.value, dict) else {}
    after |= inside
    sizes = (GROUP_SIZE, lookup(plain, "gconfig.n_samples"))
    if "group" not in (after.get("mean_level"), after.get("std_level")):
        return []
    if after.get("group_size") in sizes and after.get("group_size") is not None:
        return []
    if whole is None:
        return [_change(f"{key}.group_size", GROUP_SIZE, plain)]
    return [Change(key, after | {"group_size": GROUP_SIZE}, whole.before, added=whole.added)]


def _unswept(choice: ConfigurationResult, plain: dict[str, Any]) -> list[str]:
    """Where the file differs from what was run, in settings that the sweep did not vary."""
    profile = PROFILES.get(choice.config["policy"])
    scale = () if profile is None else profile.defaults
    differing = []
    for key, known in KEYS.items():
        if known.section or key in scale or key.endswith(".group_size") or _is_ours(key):
            continue
        if any(key == swept or key.startswith(f"{swept}.") for swept in choice.swept):
            continue
        ran = lookup(choice.config, key)
        has = _effective(plain, key)
        if not _equal(has, ran) and not (isinstance(has, str) and "${" in has):
            differing.append(f"{key} {_flow(has)} (sweep: {_flow(ran)})")
    if not differing:
        return []
    names = ", ".join(differing)
    return [f"the file keeps its own values of settings that were not swept: {names}"]


def _effective(plain: dict[str, Any], key: str) -> object:
    """What a file means for a setting: its value, else AReaL's default; None in what is off."""
    if contains(plain, key):
        return lookup(plain, key)
    off = any(lookup(plain, section) is None for section in _sections(key))
    return None if off else KEYS[key].default


def _equal(current: object, value: object) -> bool:
    """The same setting; an interpolation is never known to be."""
    if isinstance(current, bool) or isinstance(value, bool):
        return current is value
    return current == value


def _edited(text: str, changes: list[Change], source: str) -> str:
    """The file with the changes in it."""
    _, indent, offset = load_yaml_guess_indent(text)
    yaml = YAML(typ="rt")
    yaml.Representer = _Representer
    yaml.preserve_quotes = True
    yaml.width = 4096
    if indent is not None:
        yaml.indent(mapping=2, sequence=indent, offset=offset or 0)
    document = yaml.load(text)
    for change in changes:
        _set(document, change, source)
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


class _Representer(RoundTripRepresenter):
    """Writes `null` in full, as AReaL's files do."""

    @override
    def represent_none(self, _data: None) -> ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:null", "null")


_Representer.add_representer(type(None), _Representer.represent_none)


def _set(document: CommentedMap, change: Change, source: str) -> None:
    """Put one change in place.

    Raises:
        ConfigError: a plain value stands where a section is needed.
    """
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
        if _is_shared(document, inner):
            # Another section is an alias of this one, and has to stay as it is.
            inner = place[section] = inner.copy()
            setattr(inner, Anchor.attrib, Anchor())
        place = inner
    place[last] = copy.deepcopy(change.value)


def _is_shared(document: object, section: CommentedMap) -> bool:
    def count(node: object) -> int:
        if isinstance(node, dict):
            return (node is section) + sum(count(value) for value in node.values())
        return sum(count(item) for item in node) if isinstance(node, list) else 0

    return count(document) > 1


def _flow(value: object) -> str:
    """A value as on Hydra's command line."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, default=str)
