"""Which cells get further seeds: not those that are certainly broken, nor those that cannot win.

A decision is made between two waves of seeds. It depends on the ends of all trials up to there and
on nothing else, so a sweep that is killed and taken up again decides the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sweeps.alarm import CRITICAL
from sweeps.plan import TrialSpec
from sweeps.record import TrialEnd
from sweeps.statistics import Interval, pass_rate_estimate, seed_intervals

SURE = 0.9
"""Least confidence of a critical diagnosis that drops a cell."""
SPREAD = 0.1
"""Standard deviation between seeds, pass rate, that is assumed until it was measured."""
ENOUGH = 4
"""Degrees of freedom from which the spread between seeds counts as measured."""
REACH = 1.96
"""Half of a 95 % interval in standard errors, where the spread is known."""

Ends = Mapping[str, TrialEnd]
"""Trial id -> how it ended."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The trials of one configuration that are run."""

    name: str
    """Its levels, for people."""
    config_hash: str
    """12 hex characters."""
    trials: tuple[TrialSpec, ...]
    """One for each wave, in order; at the end some may be missing."""

    @property
    def prompts(self) -> int:
        """Prompts of the judge's final look."""
        return int(self.trials[0].config["evaluation"]["prompts"])

    def ends(self, ends: Ends, waves: int) -> list[TrialEnd]:
        """Of the first `waves` trials, those that have ended."""
        return [ends[spec.id] for spec in self.trials[:waves] if spec.id in ends]

    def finals(self, ends: Ends, waves: int) -> list[float]:
        """Their final pass rates, where there are any."""
        return [end.final for end in self.ends(ends, waves) if end.final is not None]


def decide(cells: Sequence[Cell], ends: Ends, waves: int) -> dict[str, str]:
    """The cells that get no further seeds after `waves` of them, with the reason.

    Args:
        cells: Those that have not been dropped yet; all their trials of these waves have ended.
        ends: How trials ended; those of later waves are left out of account.
        waves: How many waves have ended.
    """
    dropped = {cell.config_hash: reason for cell in cells if (reason := _broken(cell, ends, waves))}
    left = [cell for cell in cells if cell.config_hash not in dropped]
    intervals = _intervals(left, ends, waves, _most_prompts(cells))
    leaders = [
        cell for cell in left if cell.config_hash in intervals and _healthy(cell, ends, waves)
    ]
    if not leaders:
        return dropped
    best = max(leaders, key=lambda cell: intervals[cell.config_hash].low)
    least = intervals[best.config_hash].low
    for name, interval in intervals.items():
        if interval.high < least:
            dropped[name] = (
                f"its final pass rate, {interval.mean:.2f} [{interval.low:.2f}, "
                f"{interval.high:.2f}], does not reach that of {best.name}, at least {least:.2f}"
            )
    return dropped


def is_certain(cell: Cell, rivals: Sequence[Cell], ends: Ends, waves: int) -> bool:
    """Whether `decide` will keep the cell, however the trials that still run may end.

    Its own trials of these waves must have ended. The interval of the cell is taken as narrow as it
    may become, those of its rivals as high: a trial that runs may still pass everything.

    Args:
        cell: The one in question.
        rivals: All cells that have not been dropped, with this one.
        ends: How trials ended.
        waves: The wave that runs, counted from 1.
    """
    own = cell.ends(ends, waves)
    if len(own) < len(cell.trials[:waves]) or _broken(cell, ends, waves):
        return False
    finals = cell.finals(ends, waves)
    if not finals:
        return True
    prompts = _most_prompts(rivals)
    high = float(np.mean(finals)) + _least_reach(finals, prompts, waves)
    return all(high >= _highest_low(rival, ends, waves, prompts) for rival in rivals)


def _broken(cell: Cell, ends: Ends, waves: int) -> str | None:
    """The critical and sure symptom of one of its seeds, in words."""
    for end in cell.ends(ends, waves):
        found = end.diagnosis
        if found.symptom in CRITICAL and found.outcome == "unhealthy" and found.confidence >= SURE:
            where = f" at stage {found.stage}" if found.stage else ""
            return f"{found.symptom}{where}, confidence {found.confidence:.2f}"
    return None


def _healthy(cell: Cell, ends: Ends, waves: int) -> bool:
    return all(end.diagnosis.outcome == "healthy" for end in cell.ends(ends, waves))


def _most_prompts(cells: Sequence[Cell]) -> int:
    return max((cell.prompts for cell in cells), default=1)


def _intervals(
    cells: Sequence[Cell], ends: Ends, waves: int, most_prompts: int
) -> dict[str, Interval]:
    """Intervals of the final pass rates by cell; never narrower than the assumed spread allows."""
    finals = {cell.config_hash: cell.finals(ends, waves) for cell in cells}
    measured = {name: values for name, values in finals.items() if values}
    if not measured:
        return {}
    groups = list(measured.values())
    intervals = seed_intervals(groups, trials_per_value=most_prompts)
    if sum(len(group) - 1 for group in groups) < ENOUGH:
        pairs = zip(intervals, groups, strict=True)
        intervals = [_widened(interval, len(group)) for interval, group in pairs]
    return dict(zip(measured, intervals, strict=True))


def _widened(interval: Interval, seeds: int) -> Interval:
    reach = REACH * SPREAD / float(np.sqrt(seeds))
    low, high = min(interval.low, interval.mean - reach), max(interval.high, interval.mean + reach)
    return Interval(interval.mean, max(low, 0.0), min(high, 1.0))


def _least_reach(finals: Sequence[float], prompts: int, waves: int) -> float:
    """Half of an interval that no other end can make narrower."""
    error = pass_rate_estimate(float(np.mean(finals)), prompts).error
    # After the first wave nothing is known of the spread, so the assumed one stands.
    floor = max(error, SPREAD) if waves == 1 else error
    return REACH * floor / float(np.sqrt(len(finals)))


def _highest_low(rival: Cell, ends: Ends, waves: int, prompts: int) -> float:
    """The highest lower end that a rival may get; that of a cell that leads is 0 at least."""
    running = len(rival.trials[:waves]) - len(rival.ends(ends, waves))
    finals = [*rival.finals(ends, waves), *[1.0] * running]
    if not finals or not _healthy(rival, ends, waves):
        return 0.0
    return max(0.0, float(np.mean(finals)) - _least_reach(finals, prompts, waves))
