"""A search-space file: parsed, validated, every problem reported at once.

name: kl                      # defaults to the file's name
question: How strong may ...  # shown in every report
policy: tiny                  # or set in base
task: think
base: {actor: {kl_ctl: 0.1}}  # inline, or the path of an AReaL YAML file
set: {actor.adv_norm: null}   # dotted keys laid over the base
space:
  actor.kl_ctl: [0.0, 0.1]    # an axis over one key
  algorithm:                  # a linked axis: named levels that set several keys
    grpo: {actor.reward_norm.std_level: group}
    drgrpo: {actor.reward_norm.std_level: null}
exclude: [{algorithm: drgrpo, actor.kl_ctl: 0.1}]
design: grid
seeds: 3                      # 1, 2, 3; or a list
budget: {steps: 40, trials: 100, hours: 2}
"""

import copy
import difflib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field, ValidationError

from grpo_core.config import Count, Section, TrialConfig
from grpo_core.errors import ConfigError
from grpo_core.names import POLICY_NAMES, TASK_NAMES
from grpo_core.profiles import PROFILES, SCALE_KEYS, Profile
from grpo_core.rules import check_rules
from sweeps.documents import load_mapping, parse_mapping
from sweeps.keys import KEYS, is_carried, nearest_key, unknown_key

DEFAULT_SEEDS = 2
MOST_CELLS = 20_000
"""Cells of a grid; beyond it a grid is the wrong design."""


class Budget(Section):
    """What a sweep may cost."""

    steps: Count | None = None
    """Training batches per trial."""
    trials: Count | None = None
    """Most trials; the rest is listed as not run."""
    hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Most wall-clock hours; trials that have not ended by then are listed as not run."""


class SpaceFile(Section):
    """The top level of a search-space file, as written."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")] | None = None
    """Name of the sweep: letters, digits, `_`, `.`, `-`."""
    question: str = ""
    """What the sweep is to answer, in words."""
    policy: str | None = None
    """A name from POLICIES."""
    task: str | dict[str, Any] | None = None
    """A name from TASKS, or the `task` section."""
    base: str | dict[str, Any] = Field(default_factory=dict)
    """The configuration that the axes vary: inline, or the path of an AReaL YAML file."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys laid over the base."""
    space: dict[str, Any]
    """The axes."""
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    """Combinations of levels that are not wanted."""
    design: Literal["grid"] = "grid"
    """How cells are chosen: every combination of levels."""
    seeds: int | list[int] = DEFAULT_SEEDS
    """How many seeds (1, 2, ...), or which."""
    budget: Budget = Budget()
    """What the sweep may cost."""


@dataclass(frozen=True, slots=True)
class Level:
    """One choice of an axis."""

    name: str
    """How people call it."""
    overrides: dict[str, Any]
    """Dotted key -> value."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob, or several that move together."""

    name: str
    """A dotted key, or the name of a linked axis."""
    levels: tuple[Level, ...]
    """Its choices."""

    @property
    def linked(self) -> bool:
        """Its levels are named and set several keys."""
        return self.name not in KEYS


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of levels with its validated configuration."""

    levels: dict[str, Level]
    """Axis name -> level."""
    config: TrialConfig
    """The configuration, with seed 0."""


@dataclass(frozen=True, slots=True)
class Space:
    """A validated search space."""

    name: str
    """Name of the sweep."""
    question: str
    """What it is to answer."""
    source: str
    """Path of the file."""
    base: TrialConfig | None
    """The configuration that the axes vary; None where only its cells are valid."""
    axes: tuple[Axis, ...]
    """The knobs."""
    cells: tuple[Cell, ...]
    """Every combination that is not excluded, in grid order, without duplicates."""
    duplicates: int
    """Combinations left out because an earlier one gives the same configuration."""
    excluded: int
    """Combinations left out by `exclude`."""
    seeds: tuple[int, ...]
    """Seeds of every cell."""
    budget: Budget
    """What the sweep may cost."""
    notices: tuple[str, ...]
    """What the user should know: carried sections, keys that the profile replaces."""


def load_space(path: Path, overrides: tuple[str, ...] = ()) -> Space:
    """The search space in `path`, with `key=value` overrides laid over its base.

    Raises:
        ConfigError: lists every problem of the file.
    """
    return parse_space(load_mapping(path), source=path, overrides=overrides)


def parse_space(
    document: dict[str, Any], *, source: Path, overrides: tuple[str, ...] = ()
) -> Space:
    """The search space in a parsed file.

    Raises:
        ConfigError: lists every problem.
    """
    problems: list[str] = []
    file = _read_file(document, problems)
    settings = _read_overrides(overrides, problems)
    axes = _read_axes(document.get("space"), problems)
    seeds = _read_seeds(document.get("seeds", DEFAULT_SEEDS), problems)
    if file is None:
        raise ConfigError([f"{source}: {problem}" for problem in dict.fromkeys(problems)])
    raw, notices = _read_base(file, source, settings, problems)
    excluded = _excluder(file.exclude, axes, problems)
    combinations = math.prod(len(axis.levels) for axis in axes)
    if combinations > MOST_CELLS:
        problems.append(f"space: {combinations} combinations; wanted at most {MOST_CELLS}")
        axes = ()
    cells = _Cells(raw, axes)
    chosen = cells.build(excluded)
    problems += cells.problems()
    if problems:
        raise ConfigError([f"{source}: {problem}" for problem in dict.fromkeys(problems)])
    return Space(
        name=file.name or source.stem,
        question=file.question.strip(),
        source=str(source),
        base=cells.base(),
        axes=axes,
        cells=chosen,
        duplicates=cells.duplicates,
        excluded=cells.excluded,
        seeds=seeds,
        budget=file.budget,
        notices=notices,
    )


def describe_problems(error: ValidationError, prefix: str = "") -> list[str]:
    """One line per problem: key, what was given, what was wanted."""
    lines = []
    for item in error.errors():
        key = prefix + ".".join(str(part) for part in item["loc"] if part in _plain_parts(item))
        if item["type"] == "extra_forbidden":
            lines.append(
                unknown_key(key) if key.split(".")[0] in _TRIAL_SECTIONS else _no_such(key)
            )
            continue
        if item["type"] == "missing":
            lines.append(f"{key}: missing; it is required")
            continue
        wanted = KEYS[key].kind if key in KEYS else item["msg"].removeprefix("Input should be ")
        lines.append(f"{key}: got {_shown(item['input'])}, wanted {wanted}")
    return list(dict.fromkeys(lines))


_TRIAL_SECTIONS = frozenset(key.split(".")[0] for key in KEYS)


def _plain_parts(item: Any) -> list[Any]:
    """Parts of an error's location that are keys or indices, not pydantic's union branches."""
    return [
        part
        for part in item["loc"]
        if isinstance(part, int) or (isinstance(part, str) and part.isidentifier())
    ]


def _no_such(key: str) -> str:
    names = list(SpaceFile.model_fields) + [f"budget.{name}" for name in Budget.model_fields]
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"wanted one of {', '.join(names)}"
    return f"{key}: no such key in a search space; {hint}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return repr(value) if isinstance(value, str) else text if len(text) < 80 else text[:77] + "..."


def _read_file(document: dict[str, Any], problems: list[str]) -> SpaceFile | None:
    try:
        return SpaceFile.model_validate(document, strict=True)
    except ValidationError as error:
        problems += describe_problems(error)
        return None


def _read_overrides(overrides: tuple[str, ...], problems: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            problems.append(f"--set {override}: wanted key=value")
            continue
        try:
            settings[key.strip()] = parse_mapping(f"value: {value}", "--set")["value"]
        except ConfigError as error:
            problems += [f"--set {override}: {problem}" for problem in error.problems]
    return settings


def _read_seeds(seeds: Any, problems: list[str]) -> tuple[int, ...]:
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            problems.append(f"seeds: got {seeds}, wanted at least 1")
        return tuple(range(1, seeds + 1))
    if isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds):
        if not seeds:
            problems.append("seeds: got an empty list, wanted at least one seed")
        if len(set(seeds)) < len(seeds):
            problems.append(f"seeds: got {seeds}, wanted every seed once")
        return tuple(seeds)
    problems.append(f"seeds: got {_shown(seeds)}, wanted a number of seeds or a list of them")
    return ()


def _read_axes(space: Any, problems: list[str]) -> tuple[Axis, ...]:
    if not isinstance(space, dict):
        return ()
    if not space:
        problems.append("space: got no axis, wanted at least one")
    axes = [_read_axis(str(name), choices, problems) for name, choices in space.items()]
    return tuple(axis for axis in axes if axis is not None)


def _read_axis(name: str, choices: Any, problems: list[str]) -> Axis | None:
    if not isinstance(choices, list | dict):
        problems.append(
            f"space.{name}: got {_shown(choices)}, wanted a list of values or named levels"
        )
        return None
    if not choices:
        problems.append(f"space.{name}: got no level, wanted at least one")
        return None
    if isinstance(choices, list) or name in KEYS:
        if not _may_sweep(name, f"space.{name}", problems):
            return None
        levels = _plain_levels(name, choices)
    else:
        if "." in name:
            problems.append(f"space.{unknown_key(name)}")
            return None
        levels = _linked_levels(name, choices, problems)
    names = [level.name for level in levels]
    repeated = sorted({level for level in names if names.count(level) > 1})
    if repeated:
        problems.append(f"space.{name}: level {', '.join(repeated)} is given more than once")
    return Axis(name, levels)


def _plain_levels(key: str, choices: list[Any] | dict[str, Any]) -> tuple[Level, ...]:
    if isinstance(choices, dict):
        return tuple(Level(str(name), {key: value}) for name, value in choices.items())
    return tuple(Level(level_name(value), {key: value}) for value in choices)


def _linked_levels(name: str, choices: dict[str, Any], problems: list[str]) -> tuple[Level, ...]:
    levels = []
    for level, overrides in choices.items():
        where = f"space.{name}.{level}"
        if not isinstance(overrides, dict):
            problems.append(
                f"{where}: got {_shown(overrides)}, wanted a mapping of dotted keys to values"
                f"; {_misspelt_axis(name)}"
            )
            continue
        flat = flatten(overrides)
        for key in flat:
            _may_sweep(key, f"{where}.{key}", problems)
        levels.append(Level(str(level), flat))
    return tuple(levels)


def _misspelt_axis(name: str) -> str:
    nearest = nearest_key(name)
    return f"or did you mean the key {nearest}?" if nearest else "an axis over one key takes a list"


def _may_sweep(key: str, where: str, problems: list[str]) -> bool:
    if key in ("seed", "policy"):
        instead = "seeds" if key == "seed" else "policy"
        problems.append(f"{where}: cannot be an axis; set it with the file's own key `{instead}`")
        return False
    if key in KEYS:
        return True
    if is_carried(key):
        problems.append(f"{where}: has no effect in a diagnostic run, so there is nothing to sweep")
    else:
        problems.append(where.removesuffix(key) + unknown_key(key))
    return False


def level_name(value: Any) -> str:
    """How a plain value is called in tables."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value == int(value) and abs(value) < 1e6:
        return f"{value:g}"
    if isinstance(value, dict):
        return ",".join(f"{key}={level_name(item)}" for key, item in value.items())
    return str(value)


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as dotted keys; a whole nullable section stays one value.

    `{actor: {kl_ctl: 0}}` and `{actor.kl_ctl: 0}` give the same; `{actor.adv_norm: {...}}` replaces
    that section as a whole.
    """
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        dotted = f"{prefix}{key}"
        known = KEYS.get(dotted)
        whole = known is not None and "null" in known.kind
        if isinstance(value, dict) and value and not whole:
            flat |= flatten(value, f"{dotted}.")
        elif not (isinstance(value, dict) and not whole):
            flat[dotted] = value
    return flat


def _read_base(
    file: SpaceFile, source: Path, settings: dict[str, Any], problems: list[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The base as flat dotted keys, unresolved, on top of the policy's profile."""
    notices: list[str] = []
    if isinstance(file.base, str):
        path = source.parent / file.base
        try:
            flat = flatten(load_mapping(path))
        except ConfigError as error:
            problems += error.problems
            return {}, ()
        where = f"base file {path}: "
    else:
        flat, where = flatten(file.base), "base: "
    chosen = _chosen(file)
    laid_over = flatten(file.set) | flatten(settings)
    policy = laid_over.get("policy", chosen.get("policy", flat.get("policy", "tiny")))
    profile = _profile(policy, problems)
    carried = sorted({key for key in flat if key not in KEYS and is_carried(key)})
    if isinstance(file.base, str):
        notices += _scale_notices(flat, profile)
        flat = {
            key: value
            for key, value in flat.items()
            if key not in profile.defaults or key not in SCALE_KEYS
        }
    for label, keys in ((where, flat), ("set: ", laid_over)):
        problems += [label + unknown_key(key) for key in keys if not _known(key)]
    if carried:
        notices.append(f"carried through, no effect in a diagnostic run: {', '.join(carried)}")
    # Carried values stay until interpolations are resolved: others may refer to them.
    merged = profile.defaults | flat | chosen | laid_over
    if file.budget.steps is not None:
        merged["total_train_steps"] = file.budget.steps
    return merged, tuple(notices)


def _known(key: str) -> bool:
    return key in KEYS or is_carried(key)


def _chosen(file: SpaceFile) -> dict[str, Any]:
    """What the file's own `policy` and `task` keys say."""
    chosen: dict[str, Any] = {} if file.policy is None else {"policy": file.policy}
    if isinstance(file.task, str):
        chosen["task.name"] = file.task
    elif file.task is not None:
        chosen |= flatten({"task": file.task})
    return chosen


def _profile(policy: Any, problems: list[str]) -> Profile:
    if policy in PROFILES:
        return PROFILES[policy]
    problems.append(f"policy: got {_shown(policy)}, wanted one of {', '.join(POLICY_NAMES)}")
    return PROFILES["tiny"]


def _scale_notices(flat: dict[str, Any], profile: Profile) -> list[str]:
    replaced = [key for key in SCALE_KEYS if key in flat and key in profile.defaults]
    shown = [f"{key} {_shown(flat[key])} -> {profile.defaults[key]}" for key in replaced]
    return [f"set to the diagnostic model's scale: {', '.join(shown)}"] if shown else []


def _excluder(
    exclude: list[dict[str, Any]], axes: tuple[Axis, ...], problems: list[str]
) -> Callable[[dict[str, Level]], bool]:
    """A predicate on a combination of levels."""
    known = {axis.name: axis for axis in axes}
    for i, pattern in enumerate(exclude):
        if not pattern:
            problems.append(f"exclude[{i}]: got an empty mapping, which would exclude everything")
        for name, wanted in pattern.items():
            if name not in known:
                problems.append(
                    f"exclude[{i}].{name}: no such axis; wanted one of {', '.join(known)}"
                )
                continue
            names = {level.name for level in known[name].levels}
            for value in wanted if isinstance(wanted, list) else [wanted]:
                if level_name(value) not in names:
                    problems.append(
                        f"exclude[{i}].{name}: got {_shown(value)}, wanted one of its levels"
                        f" {', '.join(sorted(names))}"
                    )

    def excluded(levels: dict[str, Level]) -> bool:
        return any(
            all(
                name in levels
                and levels[name].name
                in {level_name(v) for v in (wanted if isinstance(wanted, list) else [wanted])}
                for name, wanted in pattern.items()
            )
            for pattern in exclude
            if pattern
        )

    return excluded


class _Cells:
    """Builds and validates the configuration of every combination of levels."""

    def __init__(self, raw: dict[str, Any], axes: tuple[Axis, ...]) -> None:
        self.raw, self.axes = raw, axes
        self.duplicates = 0
        self.excluded = 0
        self._broken: dict[str, list[str]] = {}
        self._tried = 0

    def base(self) -> TrialConfig | None:
        """The configuration that the axes vary; None where only its cells are valid."""
        config, broken = _build(self.raw)
        return None if broken else config

    def build(self, excluded: Callable[[dict[str, Level]], bool]) -> tuple[Cell, ...]:
        """Every combination that is not excluded, once."""
        cells: dict[str, Cell] = {}
        for levels in _combinations(self.axes):
            if excluded(levels):
                self.excluded += 1
                continue
            self._tried += 1
            overrides = {k: v for level in levels.values() for k, v in level.overrides.items()}
            config, broken = _build(self.raw | overrides)
            for problem in broken:
                name = " ".join(f"{axis}={level.name}" for axis, level in levels.items())
                self._broken.setdefault(problem, []).append(name)
            if config is None or broken:
                continue
            content = config.model_dump_json()
            self.duplicates += content in cells
            cells.setdefault(content, Cell(levels, config))
        return tuple(cells.values())

    def problems(self) -> list[str]:
        """Every problem once, with the cells that have it unless all do."""
        lines = []
        for problem, names in self._broken.items():
            some = len(names) < self._tried
            where = f" (in {len(names)} of {self._tried} cells, first: {names[0]})" if some else ""
            lines.append(problem + where)
        if self.excluded and not self._tried:
            lines.append(
                f"exclude: removes all {self.excluded} combinations, nothing is left to run"
            )
        return lines


def _build(flat: dict[str, Any]) -> tuple[TrialConfig | None, list[str]]:
    """The configuration of flat dotted keys, and what is wrong with it."""
    resolved, broken = _resolve(flat)
    try:
        config = TrialConfig.model_validate(nest(resolved), strict=True)
    except ValidationError as error:
        return None, broken + describe_problems(error)
    return config, broken + check_rules(config) + _check_names(config)


def _check_names(config: TrialConfig) -> list[str]:
    problems = []
    if config.task.name not in TASK_NAMES:
        problems.append(
            f"task.name: got {config.task.name!r}, wanted one of {', '.join(TASK_NAMES)}"
        )
    longest = PROFILES[config.policy].longest_answer if config.policy in PROFILES else None
    if longest is not None and config.gconfig.max_new_tokens > longest:
        problems.append(
            f"gconfig.max_new_tokens: got {config.gconfig.max_new_tokens}, wanted at most {longest}"
            f" for policy {config.policy}"
        )
    return problems


def _combinations(axes: tuple[Axis, ...]) -> Iterator[dict[str, Level]]:
    if not axes:
        yield {}
        return
    first, *rest = axes
    for level in first.levels:
        for others in _combinations(tuple(rest)):
            yield {first.name: level, **others}


def nest(flat: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested sections; a later key lays over an earlier one."""
    nested: dict[str, Any] = {}
    for dotted, value in flat.items():
        *sections, last = dotted.split(".")
        place = nested
        for section in sections:
            if not isinstance(place.get(section), dict):
                place[section] = {}
            place = place[section]
        place[last] = copy.deepcopy(value)
    return nested


def _resolve(flat: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The settings that a diagnostic run has, with `${...}` interpolations resolved."""
    ours = {key: value for key, value in flat.items() if key in KEYS}
    if "${" not in json.dumps(ours, default=str):
        return ours, []
    whole = OmegaConf.create(nest(flat))
    resolved, broken = {}, []
    for key in ours:
        try:
            value = OmegaConf.select(whole, key, throw_on_missing=True)
            nested = isinstance(value, DictConfig | ListConfig)
            resolved[key] = OmegaConf.to_container(value, resolve=True) if nested else value
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            broken.append(f"{key}: {_shown(ours[key])} cannot be resolved: {reason}")
    return resolved, broken
