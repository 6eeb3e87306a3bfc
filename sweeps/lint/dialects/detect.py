"""Whose file it is, and how its text becomes dotted keys."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from grpo_core.config import TrialConfig
from grpo_core.errors import ConfigError
from sweeps.carried import CARRIED_SECTIONS
from sweeps.documents import parse_mapping, read_text
from sweeps.dotted import nest
from sweeps.lint.dialects.areal import read_areal
from sweeps.lint.dialects.base import Source
from sweeps.lint.dialects.space import read_space
from sweeps.lint.dialects.trl import TRL_NAMES, read_trl
from sweeps.lint.dialects.verl import read_verl
from sweeps.lint.places import lines_of_keys
from sweeps.lint.settings import leaves
from sweeps.lint.subject import Dialect, Subject

_OVERRIDE = re.compile(r"^\+{0,2}([A-Za-z_][\w.]*)=(.*)$", re.DOTALL)
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_VERL_SECTIONS = frozenset(["actor_rollout_ref", "algorithm", "data", "trainer", "reward_model"])
_AREAL_SECTIONS = CARRIED_SECTIONS | set(TrialConfig.model_fields) - {"seed", "policy", "task"}


@dataclass(frozen=True, slots=True)
class Document:
    """A file, read."""

    path: Path
    """Where it is."""
    text: str
    """Its text."""
    dialect: Dialect
    """Whose vocabulary it uses."""
    subjects: tuple[Subject, ...]
    """Its configuration, or one per cell of a search space."""


def read_document(path: Path, dialect: Dialect | None = None) -> Document:
    """The configurations in a file.

    Args:
        path: A YAML or JSON file, or `key=value` overrides.
        dialect: Whose it is; None finds out.

    Raises:
        ConfigError: lists every problem of the file.
    """  # noqa: DOC502 - raised by what it calls
    text = read_text(path)
    overrides = _overrides(text)
    if overrides is None:
        nested = parse_mapping(text, str(path))
        lines = lines_of_keys(text)
        written = leaves(nested)
    else:
        nested, lines = nest(overrides[0]), overrides[1]
        written = dict(overrides[0])
    chosen = dialect or _detect(nested, path)
    if chosen == "space":
        return Document(path, text, chosen, tuple(read_space(nested, path, lines)))
    source = _resolve(written, lines)
    readers = {"areal": read_areal, "trl": read_trl, "verl": read_verl}
    return Document(path, text, chosen, (readers[chosen](source),))


def _detect(nested: Mapping[str, Any], path: Path) -> Dialect:
    """Whose keys these are.

    Raises:
        ConfigError: nobody's.
    """
    top = {key.partition(".")[0] for key in nested}
    if "space" in top and not top & {"actor", "gconfig"}:
        return "space"
    scores: dict[Dialect, int] = {
        "verl": len(top & _VERL_SECTIONS) * (2 if "actor_rollout_ref" in top else 1),
        "areal": len(top & _AREAL_SECTIONS),
        "trl": len(top & TRL_NAMES),
    }
    best = max(scores, key=lambda name: scores[name])
    if scores[best] == 0:
        wanted = (
            "keys of AReaL (actor, gconfig, ...), of a search space (space), of TRL's GRPOConfig "
            "(beta, epsilon, ...) or of verl (actor_rollout_ref, ...); or give --dialect"
        )
        raise ConfigError([f"{path}: cannot tell whose configuration this is; wanted {wanted}"])
    return best


def _overrides(text: str) -> tuple[dict[str, Any], dict[str, int]] | None:
    """`key=value` words of a text with their lines; None if it is anything else."""
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        bare = re.sub(r"(^|\s)#.*$", "", line).strip().rstrip("\\").strip()
        for word in _WORD.findall(bare):
            match = _OVERRIDE.match(word.strip("'\""))
            if match is None:
                if not values and _starts_document(word):
                    return None
            elif not match[1].isupper():
                values[match[1]] = _plain(match[2])
                lines[match[1]] = number
    return (values, lines) if values else None


def _starts_document(word: str) -> bool:
    """A word with which YAML or JSON begins, and no command line does."""
    return word.endswith(":") or word[0] in "{[}" or word in {"-", "---", "%YAML"}


def _plain(text: str) -> object:
    """The value of an override, as YAML."""
    bare = text.strip("'\"")
    try:
        return parse_mapping(f"value: {bare}", "override")["value"]
    except ConfigError:
        return bare


def _resolve(written: Mapping[str, Any], lines: Mapping[str, int]) -> Source:
    """Values with their `${...}` filled in from the same file."""
    if not any(isinstance(value, str) and "$" in value for value in written.values()):
        return Source(written, lines)
    plain = {key: value for key, value in written.items() if _readable(value)}
    context = OmegaConf.create(nest(plain))
    values: dict[str, Any] = {}
    unresolved = []
    for key, value in written.items():
        if not (isinstance(value, str) and "$" in value):
            values[key] = value
            continue
        if "${" not in value or key not in plain:
            unresolved.append(key)  # a variable of a shell, which only the shell knows
            continue
        try:
            found = OmegaConf.select(context, key, throw_on_missing=True)
        except OmegaConfBaseException:
            unresolved.append(key)
            continue
        nested = isinstance(found, DictConfig | ListConfig)
        values[key] = OmegaConf.to_container(found) if nested else found
    return Source(values, lines, tuple(unresolved))


def _readable(value: object) -> bool:
    try:
        OmegaConf.create({"value": value})
    except OmegaConfBaseException:
        return False
    return True
