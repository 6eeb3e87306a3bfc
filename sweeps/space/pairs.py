"""Covering designs: few combinations in which every two levels of any two axes meet."""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sweeps.space.types import Axis, Level

Combination = dict[str, Level]
Spot = tuple[int, int]
"""(axis, level) by their places."""
Pair = tuple[Spot, Spot]
"""Two spots of different axes, the earlier axis first."""
TRIES = 20
"""Rows that are built greedily for each one that is taken; more change little."""


@dataclass(frozen=True, slots=True)
class Cover:
    """Combinations and what they cover."""

    rows: list[Combination]
    """In grid order."""
    pairs: int
    """Pairs of levels of two axes."""
    covered: int
    """Of these, in at least one row; the others exist in no wanted combination."""


def cover_pairs(
    axes: tuple[Axis, ...], excluded: Callable[[Combination], bool], rng: random.Random
) -> Cover:
    """Combinations that are not excluded and hold every pair that one of them can hold.

    Greedy, row by row, as AETG does (Cohen et al. 1997): each row begins with a pair that is not
    covered yet, takes the other axes in random order, and of each the level that covers most; the
    best of a number of tries is kept. Of one axis, every level.
    """
    if len(axes) == 1:
        single: list[Combination] = [{axes[0].name: level} for level in axes[0].levels]
        return Cover([row for row in single if not excluded(row)], 0, 0)
    builder = _Builder(axes, excluded, rng)
    every = list(builder.pairs())
    left = set(every)
    rows: list[tuple[int, ...]] = []
    impossible = 0
    for pair in every:
        if pair not in left:
            continue
        row = builder.best_row(pair, left)
        if row is None:
            impossible += 1
            left.discard(pair)
            continue
        rows.append(row)
        left -= _pairs_of(row)
    return Cover(
        [builder.levels(dict(enumerate(row))) for row in sorted(rows)],
        len(every),
        len(every) - impossible,
    )


class _Builder:
    """Builds rows: tuples of the places of levels, axis by axis."""

    def __init__(
        self,
        axes: tuple[Axis, ...],
        excluded: Callable[[Combination], bool],
        rng: random.Random,
    ) -> None:
        self._axes, self._excluded, self._rng = axes, excluded, rng

    def pairs(self) -> Iterator[Pair]:
        """Every pair of levels of two axes."""
        for (i, one), (j, other) in itertools.combinations(enumerate(self._axes), 2):
            for a, b in itertools.product(range(len(one.levels)), range(len(other.levels))):
                yield (i, a), (j, b)

    def levels(self, places: dict[int, int]) -> Combination:
        """The levels at these places."""
        return {self._axes[i].name: self._axes[i].levels[a] for i, a in places.items()}

    def best_row(self, pair: Pair, left: set[Pair]) -> tuple[int, ...] | None:
        """The row with that pair that covers most of `left`; None if no wanted one has it."""
        best: tuple[int, ...] | None = None
        for _ in range(TRIES):
            row = self._row(pair, left)
            if row is None:
                return None
            if best is None or len(_pairs_of(row) & left) > len(_pairs_of(best) & left):
                best = row
        return best

    def _row(self, pair: Pair, left: set[Pair]) -> tuple[int, ...] | None:
        places = dict(pair)
        if self._excluded(self.levels(places)):
            return None
        others = [i for i in range(len(self._axes)) if i not in places]
        self._rng.shuffle(others)
        whole = self._complete(places, others, left)
        return None if whole is None else tuple(whole[i] for i in range(len(self._axes)))

    def _complete(
        self, places: dict[int, int], others: list[int], left: set[Pair]
    ) -> dict[int, int] | None:
        """The places with a level of every other axis, the most useful one where it is wanted."""
        if not others:
            return places
        axis = others[0]
        levels = list(range(len(self._axes[axis].levels)))
        self._rng.shuffle(levels)
        levels.sort(key=lambda level: -_gain((axis, level), places, left))
        for level in levels:
            longer = places | {axis: level}
            if self._excluded(self.levels(longer)):
                continue
            whole = self._complete(longer, others[1:], left)
            if whole is not None:
                return whole
        return None


def _gain(spot: Spot, places: dict[int, int], left: set[Pair]) -> int:
    """Pairs of `left` that a spot makes with those that are taken."""
    pairs = (tuple(sorted((spot, other))) for other in places.items())
    return sum(pair in left for pair in pairs)


def _pairs_of(row: tuple[int, ...]) -> set[Pair]:
    return set(itertools.combinations(enumerate(row), 2))
