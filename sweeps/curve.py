"""The learning curve in a few numbers: where it began, peaked, ended, and whether it moves."""

from dataclasses import dataclass

import numpy as np

from sweeps.statistics import (
    Estimate,
    Noise,
    difference,
    difference_is_significant,
    kendall_trend,
    pass_rate_estimate,
    point_noise,
    slope_of,
    smooth,
    window_mean,
)
from sweeps.trace import Judge, Series, Trace

CONVERGED = 0.8
"""Pass rate from which a flat curve counts as arrived, not stuck (the tasks' ceiling is 1)."""
RISE = 0.10
"""Smallest change of a pass rate that is called one; healthy seeds differ by 0.08 at most."""
LATE = 0.5
"""Share of the run, at its end, over which a late trend is read."""


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """A run's pass rate, summarised.

    `start` and `end` are of one kind: both the judge's, or both from training batches. What one
    sampling temperature gives must not be compared with what another does.
    """

    series: Series
    """Strict pass rate of every training batch."""
    smoothed: Series
    """The same, as a running mean over an eighth of the run (3 steps at least)."""
    start: Estimate
    """Before training: the judge's, else the first steps'."""
    end: Estimate
    """After training: the judge's, else the last quarter's."""
    first: Estimate
    """Mean over the first two training batches."""
    late: Estimate
    """Mean over the last quarter of the training batches."""
    best: Estimate
    """The best window of the training batches, an eighth of the run long."""
    best_step: int
    """Its middle."""
    gain: Estimate | None
    """Change of the judge's pass rate over the run; None where the judge did not look twice."""
    slope: Estimate
    """Change per batch over the second half."""
    rising: bool
    """A trend upwards that chance does not explain and that has not ended."""

    @property
    def rose(self) -> bool:
        """The end is better than the start, by RISE or more and beyond chance."""
        return difference_is_significant(self.end, self.start, least=RISE, level=0.05)

    @property
    def fell_below_start(self) -> bool:
        """The end is worse than the start, by RISE or more and beyond chance."""
        return difference_is_significant(self.start, self.end, least=RISE, level=0.05)

    @property
    def fall(self) -> float:
        """From the best window down to the last quarter; 0 where that is within chance."""
        fell = difference_is_significant(self.best, self.late, least=1.5 * RISE)
        return self.best.mean - self.late.mean if fell else 0.0

    @property
    def arrived(self) -> bool:
        """It ended near the ceiling and did not fall to get there.

        The end is a snapshot of one policy, and late in a run a single update can make it dip by
        several points; a last quarter above the ceiling outweighs an end just below it.
        """
        held = self.late.mean >= CONVERGED and self.end.mean >= CONVERGED - RISE
        return self.fall == 0.0 and (held or self.end.mean >= CONVERGED)

    @property
    def stuck(self) -> bool:
        """Its end and its last quarter are well below the ceiling, and it rises no more.

        Within RISE of the ceiling nobody calls a run stuck: noise alone moves it across.
        """
        return max(self.end.mean, self.late.mean) < CONVERGED - RISE and not self.rising

    @property
    def top(self) -> float:
        """The best that training batches showed, at their start or later."""
        return max(self.first.mean, self.best.mean)

    def first_below(self, level: float) -> int:
        """First step of the last stretch in which the smoothed curve is below `level`."""
        above = np.flatnonzero(self.smoothed.values >= level)
        index = 0 if len(above) == 0 else min(int(above[-1]) + 1, len(self.smoothed) - 1)
        return int(self.smoothed.steps[index])


def learning_curve(trace: Trace) -> LearningCurve:
    """Summarise the pass rate of `trace`, which must have one."""
    series = trace["pass_rate"]
    width = max(3, len(series) // 8)
    smoothed = Series(series.steps, smooth(series.values, width))
    peak = int(np.argmax(smoothed.values))
    window = series.values[max(0, peak - width // 2) : peak + width - width // 2]
    noise = point_noise(series.values)
    first, late = (
        window_mean(series.values[:2], noise),
        window_mean(series.last(0.25).values, noise),
    )
    judged = _judged(trace.judge)
    half = series.last(LATE)
    return LearningCurve(
        series=series,
        smoothed=smoothed,
        start=first if judged is None else judged[0],
        end=late if judged is None else judged[1],
        first=first,
        late=late,
        best=window_mean(window, noise),
        best_step=int(series.steps[peak]),
        gain=None if judged is None else difference(judged[1], judged[0]),
        slope=slope_of(half.values, noise),
        rising=_rises(series, half, late, noise),
    )


def _judged(judge: Judge | None) -> tuple[Estimate, Estimate] | None:
    """The judge's first and last look; None unless there are both."""
    if judge is None or judge.final is None or judge.final_prompts is None:
        return None
    return (
        pass_rate_estimate(judge.initial, judge.initial_prompts),
        pass_rate_estimate(judge.final, judge.final_prompts),
    )


def _rises(series: Series, half: Series, late: Estimate, noise: Noise) -> bool:
    """Generous on purpose: a rising curve must never be called a plateau.

    A trend over the second half, a last quarter above the third, or, for slow risers, a trend over
    the whole run that the last quarter goes on with, by half of a line's rise at least.
    """
    third = window_mean(half.first(0.5).values, noise)
    if kendall_trend(half.values) < 0.05:
        return True
    if difference_is_significant(late, third, least=0.0, level=0.05):
        return True
    gained = slope_of(series.values).mean * len(series)
    goes_on = late.mean - third.mean >= 0.5 * gained / 4
    return gained >= RISE and goes_on and kendall_trend(series.values) < 0.01
