"""Which updates agree, and how far apart their directions are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.replay.evaluate import Measured, Weights

SAME = 1e-5
"""Relative distance of two updates that is rounding: a hundred float32 roundings."""
PARALLEL = 1e-9
"""1 - cosine of two updates that differ in size alone: SAME squared, and some."""
AT_ONCE = 64
"""Families compared in one product: 64 of 5 cells with 8192 tokens take 10 MB."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Turn:
    """How a knob's levels turn the update, all else equal."""

    pairs: int
    """Pairs of cells that differ in this knob alone and have a direction both."""
    turn: float | None
    """Mean 1 - cosine over those pairs; None without any."""
    resize: float | None
    """Mean absolute natural logarithm of the ratio of their sizes; None without any."""
    switches: int
    """Pairs of which exactly one is dead."""
    cosines: tuple[tuple[float | None, ...], ...]
    """Mean cosine of each pair of levels; None where no pair has a direction."""


def has_direction(row: Measured) -> bool:
    """The update is neither zero nor non-finite nor missing."""
    return not row.lacking and row.nonfinite is None and row.norm > 0


def group_equal(rows: Sequence[Measured], weights: Weights, *, seed: int = 0) -> list[int | None]:
    """For each row the first row with the same update within rounding; None without direction."""
    found: list[int | None] = [None] * len(rows)
    live = [i for i, row in enumerate(rows) if has_direction(row)]
    probe = np.random.default_rng(seed).standard_normal(weights.shape[1])
    shadow = {i: float(weights[i].astype(np.float64) @ probe) for i in live}
    heads: list[int] = []
    start = 0
    for i in sorted(live, key=lambda i: (rows[i].norm, i)):
        size = rows[i].norm
        while start < len(heads) and rows[heads[start]].norm < size * (1 - SAME):
            start += 1
        reach = SAME * size * math.sqrt(weights.shape[1]) * 2
        near = (head for head in heads[start:] if abs(shadow[head] - shadow[i]) <= reach)
        found[i] = next((head for head in near if _same(weights, head, i, size)), i)
        if found[i] == i:
            heads.append(i)
    return _named_by_first(found)


def _same(weights: Weights, one: int, other: int, size: float) -> bool:
    gap = weights[one].astype(np.float64) - weights[other]
    return float(np.linalg.norm(gap)) <= SAME * size


def _named_by_first(found: list[int | None]) -> list[int | None]:
    first: dict[int, int] = {}
    for i, head in enumerate(found):
        if head is not None:
            first.setdefault(head, i)
    return [None if head is None else first[head] for head in found]


def cosines_to(
    base: int, rows: Sequence[Measured], weights: Weights
) -> tuple[list[float | None], list[float | None]]:
    """Cosine and relative size of every row against one; None where either has no direction."""
    if not has_direction(rows[base]):
        return [None] * len(rows), [None] * len(rows)
    direction = weights[base].astype(np.float64) / rows[base].norm
    cosines: list[float | None] = []
    sizes: list[float | None] = []
    for i, row in enumerate(rows):
        live = has_direction(row)
        cosines.append(_cosine(float(weights[i] @ direction) / row.norm) if live else None)
        sizes.append(row.norm / rows[base].norm if live else None)
    return cosines, sizes


def cosine_matrix(chosen: Sequence[int], rows: Sequence[Measured], weights: Weights) -> Matrix:
    """Cosines between rows that have a direction."""
    units = np.stack([weights[i] / rows[i].norm for i in chosen]).astype(np.float64)
    return np.clip(units @ units.T, -1.0, 1.0)


def measure_turn(families: NDArray[np.int64], rows: Sequence[Measured], weights: Weights) -> Turn:
    """Compare the cells of each family, which differ in one knob alone.

    Args:
        families: Row of each cell [families, levels]; -1 where there is no such cell.
        rows: Every distinct update.
        weights: Their loss weights.
    """
    levels = families.shape[1]
    norms = np.array([row.norm if has_direction(row) else 0.0 for row in rows] + [0.0])
    dead = np.array([not row.lacking and row.nonfinite is None and row.norm == 0 for row in rows])
    dead = np.append(dead, [False])
    total, count = np.zeros((levels, levels)), np.zeros((levels, levels), dtype=np.int64)
    resized, switches = 0.0, 0
    for begin in range(0, len(families), AT_ONCE):
        family = families[begin : begin + AT_ONCE]
        size = norms[family]
        units = np.asarray(weights[family]) / np.where(size > 0, size, 1.0)[..., None]
        products = units.astype(np.float32) @ units.astype(np.float32).transpose(0, 2, 1)
        same = family[:, :, None] == family[:, None, :]
        products = np.where(same, 1.0, np.clip(products.astype(np.float64), -1.0, 1.0))
        both = (size[:, :, None] > 0) & (size[:, None, :] > 0)
        total += np.where(both, products, 0.0).sum(0)
        count += both.sum(0)
        logs = np.log(np.where(size > 0, size, 1.0))
        gaps = np.abs(logs[:, :, None] - logs[:, None, :])
        resized += float(np.where(both, gaps, 0.0).sum()) / 2
        switches += int((dead[family][:, :, None] & (size[:, None, :] > 0)).sum())
    upper = np.triu(np.ones((levels, levels), dtype=bool), k=1)
    pairs = int(count[upper].sum())
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return Turn(
        pairs=pairs,
        turn=1.0 - float(total[upper].sum()) / pairs if pairs else None,
        resize=resized / pairs if pairs else None,
        switches=switches,
        cosines=tuple(tuple(None if math.isnan(x) else float(x) for x in line) for line in mean),
    )


def collect_families(
    levels: Sequence[tuple[str, ...]], row_of: Sequence[int], axis: int, names: Sequence[str]
) -> NDArray[np.int64]:
    """Rows of cells that agree in every axis but one, a line per family of at least two.

    Args:
        levels: Level names of each cell, in order of the axes.
        row_of: Row of each cell.
        axis: The axis that varies.
        names: Its levels, in order.
    """
    place = {name: i for i, name in enumerate(names)}
    families: dict[tuple[str, ...], list[int]] = {}
    for cell, chosen in enumerate(levels):
        rest = (*chosen[:axis], *chosen[axis + 1 :])
        family = families.setdefault(rest, [-1] * len(names))
        family[place[chosen[axis]]] = row_of[cell]
    whole = [family for family in families.values() if sum(row >= 0 for row in family) > 1]
    return np.array(whole, dtype=np.int64).reshape(len(whole), len(names))


def first_of_each(keys: Sequence[object]) -> list[int]:
    """For each entry the first with an equal key."""
    first: dict[object, int] = {}
    return [first.setdefault(key, i) for i, key in enumerate(keys)]


def _cosine(value: float) -> float:
    return min(1.0, max(-1.0, value))
