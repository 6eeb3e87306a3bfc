"""Combinations of levels as validated configurations."""

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from grpo_core.config import TrialConfig
from grpo_core.names import TASK_NAMES
from grpo_core.profiles import PROFILES
from grpo_core.rules import check_rules
from sweeps.dotted import lay_over, nest
from sweeps.keys import KEYS
from sweeps.space.base import unknown_task
from sweeps.space.problems import describe_problems, shown
from sweeps.space.types import Axis, Cell, Level

MOST_CELLS = 20_000
"""Combinations that a design looks at; beyond it a grid is the wrong design."""


class Cells:
    """Builds and validates the configurations of combinations of levels."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.duplicates = 0
        """Combinations that give the same configuration as an earlier one."""
        self._settings = settings
        self._broken: dict[str, list[str]] = {}
        self._tried = 0

    def build(self, wanted: Iterable[dict[str, Level]]) -> tuple[Cell, ...]:
        """Every one of these combinations, once."""
        cells: dict[str, Cell] = {}
        for levels in wanted:
            config = self._build_one(levels)
            if config is None:
                continue
            content = json.dumps(config.model_dump())
            self.duplicates += content in cells
            cells.setdefault(content, Cell(levels, config))
        return tuple(cells.values())

    def problems(self) -> list[str]:
        """Every problem once, with the cells that have it unless all do."""
        lines = []
        for problem, names in self._broken.items():
            some = 0 < len(names) < self._tried
            where = f" (in {len(names)} of {self._tried} cells, first: {names[0]})" if some else ""
            lines.append(problem + where)
        return lines

    def _build_one(self, levels: dict[str, Level]) -> TrialConfig | None:
        self._tried += 1
        flat = self._settings
        for level in levels.values():
            flat = lay_over(flat, level.overrides)
        config, broken = build_config(flat)
        for problem in broken:
            name = " ".join(f"{axis}={level.name}" for axis, level in levels.items())
            self._broken.setdefault(problem, []).append(name)
        return None if broken else config


def build_config(flat: dict[str, Any]) -> tuple[TrialConfig | None, list[str]]:
    """The configuration of flat dotted keys, and what is wrong with it."""
    config, broken = validate(flat)
    if config is None:
        return None, broken
    return config, broken + check_rules(config) + _check_names(config)


def validate(flat: dict[str, Any]) -> tuple[TrialConfig | None, list[str]]:
    """The same without rules that concern several settings at once."""
    resolved, broken = _resolve(flat)
    document = nest(resolved)
    try:
        # As JSON, a list may stand for a tuple, and nothing else is converted.
        return TrialConfig.model_validate_json(json.dumps(document), strict=True), broken
    except ValidationError as error:
        return None, broken + describe_problems(error, document)


def _check_names(config: TrialConfig) -> list[str]:
    problems = []
    if config.task.name not in TASK_NAMES:
        problems.append(unknown_task(config.task.name))
    longest = PROFILES[config.policy].longest_answer if config.policy in PROFILES else None
    if longest is not None and config.gconfig.max_new_tokens > longest:
        problems.append(
            f"gconfig.max_new_tokens: got {config.gconfig.max_new_tokens}, wanted at most {longest}"
            f" for policy {config.policy}"
        )
    return problems


def combinations(axes: tuple[Axis, ...]) -> Iterator[dict[str, Level]]:
    """Every combination of levels, the last axis varying fastest."""
    names = [axis.name for axis in axes]
    for levels in itertools.product(*(axis.levels for axis in axes)):
        yield dict(zip(names, levels, strict=True))


def _resolve(flat: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The settings that a diagnostic run has, with `${...}` interpolations resolved."""
    ours = {key: value for key, value in flat.items() if key in KEYS}
    if not any(_interpolates(value) for value in ours.values()):
        return ours, []
    context = nest({k: v for k, v in flat.items() if _grammar_error(v) is None})
    resolved: dict[str, Any] = {}
    broken = []
    for key, written in ours.items():
        try:
            resolved[key] = _value(written, context) if _interpolates(written) else written
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            broken.append(f"{key}: {shown(written)} cannot be resolved: {reason}")
    return resolved, broken


def _value(written: object, context: dict[str, Any]) -> object:
    """A value in the context of the whole configuration."""
    value = OmegaConf.select(OmegaConf.create(context | {_SLOT: written}), _SLOT)
    nested = isinstance(value, DictConfig | ListConfig)
    return OmegaConf.to_container(value, resolve=True) if nested else value


_SLOT = "the value in question"
"""A key that no configuration has."""


def _interpolates(value: object) -> bool:
    return "${" in json.dumps(value, default=str)


def _grammar_error(value: object) -> str | None:
    """Why a value's `${...}` cannot even be read."""
    if not _interpolates(value):
        return None
    try:
        OmegaConf.create({"value": value})
    except OmegaConfBaseException as error:
        return str(error).splitlines()[0]
    return None
