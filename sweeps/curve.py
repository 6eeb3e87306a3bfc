"""The learning curve in a few numbers: where it began, peaked and ended, and whether it still moves."""

from dataclasses import dataclass

import numpy as np

from sweeps.statistics import (
    Estimate,
    difference_is_significant,
    kendall_trend,
    smooth,
    window_mean,
)
from sweeps.trace import Series, Trace

CONVERGED = 0.8
"""Pass rate from which a flat curve counts as arrived rather than stuck (the tasks' ceiling is 1)."""
RISE = 0.10
"""Smallest change of a pass rate that is called one; healthy seeds differ by 0.08 at most."""
LATE = 0.5
"""Share of the run, at its end, over which a late trend is read."""


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """A run's pass rate, summarised."""

    series: Series
    """Strict pass rate of every training batch."""
    smoothed: Series
    """The same, as a running mean over an eighth of the run (3 steps at least)."""
    start: Estimate
    """Before training: the judge's, else the first steps'."""
    end: Estimate
    """After training: the judge's, else the last quarter's."""
    late: Estimate
    """Mean over the last quarter of the training batches."""
    best: Estimate
    """The best window of the training batches, an eighth of the run long."""
    best_step: int
    """Its middle."""
    late_rise: Estimate
    """Change from the third to the last quarter."""
    rising: bool
    """A trend upwards in the second half that chance does not explain."""

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
        """Both the end and the last quarter are below the ceiling, and no rise shows any more."""
        return max(self.end.mean, self.late.mean) < CONVERGED and not self.rising

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
    quarter = series.last(0.25).values
    before = series.last(LATE).first(0.5).values
    earlier, later = window_mean(before), window_mean(quarter)
    judge = trace.series.get("eval_pass_rate")
    judged_end = judge is not None and judge.steps[-1] == trace.steps[-1]
    return LearningCurve(
        series=series,
        smoothed=smoothed,
        start=_judged(trace, trace.initial) or window_mean(series.values[:2]),
        end=(_judged(trace, float(judge.values[-1])) if judge and judged_end else None) or later,
        late=later,
        best=window_mean(window),
        best_step=int(series.steps[peak]),
        late_rise=Estimate(
            later.mean - earlier.mean,
            float(np.hypot(later.error, earlier.error)),
            later.freedom + earlier.freedom,
        ),
        rising=_rises(series.last(LATE), earlier, later),
    )


def _judged(trace: Trace, rate: float | None) -> Estimate | None:
    if rate is None or trace.judge_prompts is None:
        return None
    count = trace.judge_prompts
    smoothed = (rate * count + 1) / (count + 2)
    return Estimate(rate, float(np.sqrt(smoothed * (1 - smoothed) / count)), float(count - 1))


def _rises(half: Series, earlier: Estimate, later: Estimate) -> bool:
    """Generous on purpose: a rising curve must never be called a plateau."""
    trend = kendall_trend(half.values) < 0.05
    return trend or difference_is_significant(later, earlier, least=0.0, level=0.05)
