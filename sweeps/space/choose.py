"""Which combinations of levels a design takes, before any of them is run."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.dotted import lay_over, lookup
from sweeps.space.axes import level_name
from sweeps.space.cells import MOST_CELLS, build_config, combinations
from sweeps.space.design import Design
from sweeps.space.pairs import cover_pairs
from sweeps.space.types import Axis, Level

Combination = dict[str, Level]
"""Axis name -> level."""
Excluded = Callable[[Combination], bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a design takes."""

    combinations: Sequence[Combination]
    """In the order in which they are planned; those of a search are its candidates."""
    excluded: int
    """Combinations that it would have taken and `exclude` leaves out."""
    left_out: str
    """What it leaves out, in words; empty for a grid."""


def choose(
    design: Design,
    axes: tuple[Axis, ...],
    excluded: Excluded,
    *,
    settings: dict[str, Any],
    problems: list[str],
) -> Choice:
    """The combinations of a design.

    Args:
        design: How to choose.
        axes: The knobs.
        excluded: Combinations that are not wanted; true of a part means that no whole one with it
            is wanted.
        settings: The base, as dotted keys.
        problems: Why it cannot be done is added here.
    """
    size = math.prod(len(axis.levels) for axis in axes)
    match design.kind:
        case "one-factor":
            return _one_factor(axes, excluded, settings, problems)
        case "pairwise":
            return _pairwise(design, axes, excluded, size)
        case "random":
            return _sample(design, axes, excluded, problems)
        case "grid" | "tpe":
            if size > MOST_CELLS:
                problems.append(_too_many(size, design))
                return Choice((), 0, "")
            wanted, left = _split(combinations(axes), excluded)
            return Choice(wanted, left, _searched(design, len(wanted), problems))


def _too_many(size: int, design: Design) -> str:
    other = "" if design.searches else "; pairwise or random designs take fewer"
    return f"space: {size} combinations; wanted at most {MOST_CELLS}{other}"


def _searched(design: Design, candidates: int, problems: list[str]) -> str:
    if not design.searches or design.cells is None:
        return ""
    if candidates and design.cells > candidates:
        problems.append(
            f"design.cells: got {design.cells}, wanted at most {candidates}: all there are"
        )
    return (
        f"{design.cells} of {candidates} combinations, chosen one by one from the results so far "
        f"(TPE, seed {design.seed})"
    )


def _split(candidates: Iterator[Combination], excluded: Excluded) -> tuple[list[Combination], int]:
    """Those that are wanted, and how many are not."""
    wanted, left = [], 0
    for levels in candidates:
        if excluded(levels):
            left += 1
        else:
            wanted.append(levels)
    return wanted, left


def _one_factor(
    axes: tuple[Axis, ...], excluded: Excluded, settings: dict[str, Any], problems: list[str]
) -> Choice:
    """The base, and each level of each axis alone."""
    config, broken = build_config(settings)
    if config is None or broken:
        problems += [
            f"design: one-factor starts from the base, which is wrong: {p}" for p in broken
        ]
        return Choice((), 0, "")
    base = {axis.name: _base_level(axis, settings, config.model_dump()) for axis in axes}
    alone = [
        base | {axis.name: level}
        for axis in axes
        for level in axis.levels
        if level.name != base[axis.name].name
    ]
    wanted, left = _split(iter([base, *alone]), excluded)
    return Choice(wanted, left, "the base and each change alone; no two changes together")


def _base_level(axis: Axis, settings: dict[str, Any], config: dict[str, Any]) -> Level:
    """The level that leaves the base as it is; one that changes nothing if the axis has none."""
    for level in axis.levels:
        changed, broken = build_config(lay_over(settings, level.overrides))
        if changed is not None and not broken and changed.model_dump() == config:
            return level
    names = {level.name for level in axis.levels}
    value = None if axis.linked else lookup(config, axis.name)
    name = "base" if axis.linked or isinstance(value, dict | list | tuple) else level_name(value)
    return Level(f"({name})" if name in names else name, {})


def _pairwise(design: Design, axes: tuple[Axis, ...], excluded: Excluded, size: int) -> Choice:
    cover = cover_pairs(axes, excluded, random.Random(design.seed))  # noqa: S311
    if not cover.pairs:
        return Choice(cover.rows, size - len(cover.rows), "")
    impossible = cover.pairs - cover.covered
    rest = f"; {impossible} exist only in excluded combinations" if impossible else ""
    left_out = (
        f"{len(cover.rows)} of {size} combinations, which hold {cover.covered} of {cover.pairs} "
        f"pairs of levels{rest}"
    )
    return Choice(cover.rows, 0, left_out)


def _sample(
    design: Design, axes: tuple[Axis, ...], excluded: Excluded, problems: list[str]
) -> Choice:
    """`design.cells` combinations, without replacement, in grid order."""
    wanted = design.cells or 0
    sizes = [len(axis.levels) for axis in axes]
    size = math.prod(sizes)
    rng = random.Random(design.seed)  # noqa: S311
    drawn = rng.sample(range(size), min(size, MOST_CELLS))
    taken: dict[int, Combination] = {}
    for place in drawn:
        if len(taken) == wanted:
            break
        levels = _at(axes, place)
        if not excluded(levels):
            taken[place] = levels
    if len(taken) < wanted:
        some = f"{len(taken)}: all that are not excluded" if size <= MOST_CELLS else str(MOST_CELLS)
        problems.append(f"design.cells: got {wanted}, wanted at most {some}")
    left_out = f"{len(taken)} of {size} combinations, drawn with seed {design.seed}"
    return Choice([taken[place] for place in sorted(taken)], 0, left_out)


def _at(axes: tuple[Axis, ...], place: int) -> Combination:
    """The combination at a place of the grid, whose last axis varies fastest."""
    levels: list[Level] = []
    for axis in reversed(axes):
        place, digit = divmod(place, len(axis.levels))
        levels.append(axis.levels[digit])
    return {axis.name: level for axis, level in zip(axes, reversed(levels), strict=True)}
