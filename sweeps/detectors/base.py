"""What a detector is, and what several of them share."""

import itertools
from typing import ClassVar, Protocol

import numpy as np

from grpo_core.metrics import STAGES
from sweeps.curve import LearningCurve
from sweeps.findings import Finding
from sweeps.statistics import (
    Numbers,
    difference_is_significant,
    point_noise,
    smooth,
    window_mean,
)
from sweeps.trace import Series, Trace, stage_signal

SWAMPED = 0.4
"""The advantage is swamped when its fidelity is below this share of the raw reward's."""
FOREIGN_REWARD = 0.75
"""Below this fidelity of the raw reward itself, the reward pays for something besides the task."""
FAITHFUL = 0.35
"""Fidelity of the raw reward below which it is mostly something else from the first step on."""
EARLY, LATE = 0.15, 0.25
"""Shares of a run that stand for its beginning and its end."""


class Detector(Protocol):
    """One symptom. Thresholds are fields; calling it judges a trace."""

    symptom: ClassVar[str]
    """Stable id."""
    needs: ClassVar[tuple[str, ...]]
    """Signals without which it can't tell."""
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Sets of signals from any of which it can tell too, usually with less confidence."""

    @property
    def least_steps(self) -> int:
        """Steps below which it says nothing."""
        ...

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """The symptom's finding, or None where it is absent."""
        ...


def lacks(detector: Detector, trace: Trace) -> tuple[str, ...]:
    """What keeps `detector` from judging `trace`; empty where it can."""
    absent = trace.missing(detector.needs)
    if not absent or any(not trace.missing(names) for names in detector.or_else):
        return ()
    return absent


def swamped_stage(trace: Trace) -> tuple[str, float, float] | None:
    """The stage at which something else drowns the task's signal, with fidelity before and after.

    Read where the raw reward still had contrast, in the first half of the run. Says what the update
    follows, not whether the run learns: penalties of k2 and k3 swamp the advantage and still learn.
    """
    fidelities = _early_fidelities(trace)
    if fidelities is None:
        return None
    raw, last = fidelities["raw"], fidelities["advantage"]
    if raw < FAITHFUL:
        return "raw", 1.0, raw
    if last >= SWAMPED * max(0.3, raw):
        late = trace[stage_signal("raw", "fidelity")].last(0.25).values
        if float(np.mean(late)) < FOREIGN_REWARD:
            return "raw", 1.0, float(np.mean(late))
        return None
    names = [stage for stage in STAGES if stage in fidelities]
    drops = {
        later: fidelities[earlier] - fidelities[later]
        for earlier, later in itertools.pairwise(names)
    }
    stage = max(drops, key=lambda name: drops[name])
    return stage, fidelities[stage] + drops[stage], fidelities[stage]


def _early_fidelities(trace: Trace) -> dict[str, float] | None:
    wanted = [stage_signal(stage, "fidelity") for stage in ("raw", "advantage")]
    if trace.missing([*wanted, stage_signal("raw", "silent")]):
        return None
    silent = trace[stage_signal("raw", "silent")].first(0.5)
    usable = set(silent.steps[silent.values < 0.9].tolist())
    means = {}
    for stage in STAGES:
        series = trace.series.get(stage_signal(stage, "fidelity"))
        if series is None:
            continue
        chosen = [v for s, v in zip(series.steps, series.values, strict=True) if int(s) in usable]
        if not chosen:
            return None
        means[stage] = float(np.mean(chosen))
    return means


def warms_up(trace: Trace) -> bool:
    """The learning rate still rose in the second half of what was seen."""
    if "learning_rate" not in trace:
        return False
    rates = trace["learning_rate"].last(0.5).values
    return bool(rates.max() > rates[0])


def mean_last(series: Series, share: float = LATE) -> float:
    """Mean over the last `share` of a series."""
    return float(np.mean(series.last(share).values))


def mean_first(series: Series, share: float = 0.1) -> float:
    """Mean over the first `share` of a series."""
    return float(np.mean(series.first(share).values))


def typical(series: Series) -> tuple[float, float]:
    """Median over the beginning and over the end of a series: outliers don't count."""
    return (
        float(np.median(series.first(EARLY).values)),
        float(np.median(series.last(LATE).values)),
    )


def changed(series: Series, *, falls: bool = False) -> bool:
    """The end lies above (or below) the beginning, beyond chance."""
    values = -series.values if falls else series.values
    if len(values) < 8 or not np.isfinite(values).all():
        return False
    noise = point_noise(values)
    first, last = int(np.ceil(len(values) * EARLY)), int(np.floor(len(values) * (1 - LATE)))
    early, late = window_mean(values[: max(first, 2)], noise), window_mean(values[last:], noise)
    return difference_is_significant(late, early, least=0.0)


def grew(series: Series, factor: float) -> bool:
    """The end is `factor` times the beginning or more, beyond chance."""
    before, after = typical(series)
    return after > 0 and after >= factor * before and changed(series)


def shrank(series: Series, share: float) -> bool:
    """The end is at most `share` of the beginning, beyond chance."""
    before, after = typical(series)
    return before > 0 and after <= share * before and changed(series, falls=True)


def departure(series: Series, way: float = 0.25) -> int:
    """First step from which the series, smoothed, is for good past `way` of its whole change."""
    before, after = typical(series)
    gone = smooth(series.values, max(3, len(series) // 20)) - before
    return (
        first_sustained(series, gone >= way * (after - before))
        if after > before
        else (first_sustained(series, gone <= way * (after - before)))
    )


def stands_still(curve: LearningCurve) -> bool:
    """The measure of success is neither arrived nor on its way, or it fell."""
    return curve.fall > 0 or curve.fell_below_start or not (curve.rising or curve.arrived)


def gained_late(curve: LearningCurve) -> bool:
    """The last quarter is better than the second quarter, by `rise` or more."""
    values = curve.series.values
    quarter = values[len(values) // 4 : max(len(values) // 2, len(values) // 4 + 1)]
    return bool(curve.late.mean - float(np.mean(quarter)) >= curve.rise)


def first_sustained(series: Series, holds: np.ndarray) -> int:
    """First step of the true values that last to the end; the last step if there are none."""
    failing = np.flatnonzero(~holds)
    index = 0 if len(failing) == 0 else min(int(failing[-1]) + 1, len(series) - 1)
    return int(series.steps[index])


def finite(series: Series) -> Series:
    """The series without its NaN and inf."""
    good = np.isfinite(series.values)
    return Series(series.steps[good], series.values[good])


def logarithms(series: Series) -> Series:
    """Natural logarithms of a positive series' positive values."""
    good = np.isfinite(series.values) & (series.values > 0)
    return Series(series.steps[good], np.log(series.values[good]))


def spikes(values: Numbers, times: float) -> np.ndarray:
    """Values that exceed `times` the median of the 25 before them."""
    found = np.zeros(len(values), dtype=np.bool_)
    for index in range(5, len(values)):
        usual = float(np.median(values[max(0, index - 25) : index]))
        found[index] = usual > 0 and values[index] > times * usual
    return found
