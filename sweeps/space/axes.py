"""Axes: which settings are varied, through which levels, and which combinations are left out."""

import itertools
import math
from collections.abc import Callable
from typing import Any

from sweeps.dotted import flatten
from sweeps.keys import KEYS, is_carried, nearest_key, unknown_key
from sweeps.space.problems import shown
from sweeps.space.types import Axis, Level

NOT_AN_AXIS = {"seed": "seeds", "policy": "policy"}
"""Keys that the file sets for all trials, with its own key for them."""


def read_axes(space: dict[str, Any], problems: list[str]) -> tuple[Axis, ...]:
    """Every axis that can be read."""
    axes = [_read_axis(name, choices, problems) for name, choices in space.items()]
    read = tuple(axis for axis in axes if axis is not None)
    for one, other in itertools.combinations(read, 2):
        problems += [
            f"space: the axes {one.name} and {other.name} both set {key}; one of them would be lost"
            for key in sorted(_shared(one, other))
        ]
    return read


def level_name(value: object) -> str:
    """How a plain value is called in tables."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}" if value == int(value) and abs(value) < 1e6 else str(value)
    if isinstance(value, dict):
        return ",".join(f"{key}={level_name(item)}" for key, item in value.items()) or "{}"
    if isinstance(value, list):
        return ",".join(level_name(item) for item in value) or "[]"
    return str(value)


def read_excluder(
    exclude: list[dict[str, Any]],
    axes: tuple[Axis, ...],
    written: dict[str, Any],
    problems: list[str],
) -> Callable[[dict[str, Level]], bool]:
    """A predicate on a combination of levels.

    Args:
        exclude: Patterns as written: axis name -> level, or a list of levels.
        axes: The axes that could be read.
        written: All axes of the file; one that could not be read is a problem of its own.
        problems: What is wrong is added here.
    """
    known = {axis.name: axis for axis in axes}
    for i, pattern in enumerate(exclude):
        if not pattern:
            problems.append(f"exclude[{i}]: got an empty mapping, which would exclude everything")
        for name, wanted in pattern.items():
            if name in known:
                problems += _foreign_levels(f"exclude[{i}].{name}", known[name], wanted)
            elif name not in written:
                names = ", ".join(written)
                problems.append(f"exclude[{i}].{name}: no such axis; wanted one of {names}")
    patterns = [
        {name: set(_names(wanted)) for name, wanted in pattern.items()}
        for pattern in exclude
        if pattern
    ]

    def excluded(levels: dict[str, Level]) -> bool:
        return any(
            all(name in levels and levels[name].name in names for name, names in pattern.items())
            for pattern in patterns
        )

    return excluded


def _shared(one: Axis, other: Axis) -> set[str]:
    """Keys of either axis that the other sets as well, by itself or with its whole section."""
    return {
        max(a, b, key=len)
        for a, b in itertools.product(one.keys, other.keys)
        if a == b or a.startswith(f"{b}.") or b.startswith(f"{a}.")
    }


def _read_axis(name: str, choices: object, problems: list[str]) -> Axis | None:
    where = f"space.{name}"
    if not isinstance(choices, list | dict):
        problems.append(f"{where}: got {shown(choices)}, wanted a list of values or named levels")
        return None
    if not choices:
        problems.append(f"{where}: got no level, wanted at least one")
        return None
    before = len(problems)
    if isinstance(choices, list) or name in KEYS:
        _check_sweepable(name, where, problems)
        levels = _plain_levels(name, choices)
    else:
        levels = _linked_levels(name, choices, problems)
    names = [level.name for level in levels]
    repeated = sorted({level for level in names if names.count(level) > 1})
    if repeated:
        problems.append(f"{where}: level {', '.join(repeated)} is given more than once")
    return Axis(name, levels) if len(problems) == before else None


def _plain_levels(key: str, choices: list[Any] | dict[str, Any]) -> tuple[Level, ...]:
    if isinstance(choices, dict):
        return tuple(Level(name, {key: value}) for name, value in choices.items())
    return tuple(Level(level_name(value), {key: value}) for value in choices)


def _linked_levels(name: str, choices: dict[str, Any], problems: list[str]) -> tuple[Level, ...]:
    if "." in name:
        problems.append(f"space.{unknown_key(name)}")
        return ()
    levels = []
    for level, overrides in choices.items():
        where = f"space.{name}.{level}"
        if not isinstance(overrides, dict):
            problems.append(
                f"{where}: got {shown(overrides)}, wanted a mapping of dotted keys to values; "
                f"{_misspelt_axis(name)}"
            )
            continue
        flat = flatten(overrides)
        for key in flat:
            _check_sweepable(key, f"{where}.{key}", problems)
        levels.append(Level(level, flat))
    return tuple(levels)


def _misspelt_axis(name: str) -> str:
    nearest = nearest_key(name)
    return f"or did you mean the key {nearest}?" if nearest else "an axis over one key takes a list"


def _check_sweepable(key: str, where: str, problems: list[str]) -> None:
    known = KEYS.get(key)
    if key in NOT_AN_AXIS:
        problems.append(
            f"{where}: cannot be an axis; set it with the file's own key `{NOT_AN_AXIS[key]}`"
        )
    elif known is not None and known.section and not known.nullable:
        problems.append(
            f"{where}: is a group of settings; write the full name of one, e.g. "
            f"{next(other for other in KEYS if other.startswith(f'{key}.'))}"
        )
    elif known is None and is_carried(key):
        problems.append(f"{where}: has no effect in a diagnostic run, so there is nothing to sweep")
    elif known is None:
        problems.append(where.removesuffix(key) + unknown_key(key))


def _names(wanted: object) -> list[str]:
    return [level_name(value) for value in (wanted if isinstance(wanted, list) else [wanted])]


def _foreign_levels(where: str, axis: Axis, wanted: object) -> list[str]:
    names = {level.name for level in axis.levels}
    values = wanted if isinstance(wanted, list) else [wanted]
    quote = "; write names such as 'on' and 'off' in quotes"
    return [
        f"{where}: got {shown(value)}, wanted one of its levels {', '.join(sorted(names))}"
        f"{quote if axis.linked and isinstance(value, bool) else ''}"
        for value in values
        if level_name(value) not in names
    ]
