"""The learning curve in a few numbers: where it began, peaked, ended, and whether it moves."""

from dataclasses import dataclass

import numpy as np

from sweeps.measure import Measure, measure_of
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
    upper_bound,
    window_mean,
)
from sweeps.trace import Judge, Series, Trace

LATE = 0.5
"""Share of the run, at its end, over which a late trend is read."""
CLOSED = 0.5
"""Share of the way from the start to the ceiling that a flat curve must have gone to count as
arrived, where nobody knows whether the policy can reach the ceiling at all."""
LITTLE = 0.4
"""Below this share of the way a flat curve is stuck; between the two nobody can tell."""
LONG = 0.5
"""A curve that has been flat for this share of the run is stuck however far it went before."""


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """A run's success, summarised: its pass rate, or the reward where a log has nothing better.

    `start` and `end` are of one kind: both the judge's, or both from training batches. What one
    sampling temperature gives must not be compared with what another does.
    """

    measure: Measure
    """What is plotted: the strict pass rate, or whatever reward the log has."""
    series: Series
    """Its value for every training batch."""
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
    solvable: bool
    """The policy is known to be able to reach the ceiling."""

    @property
    def rise(self) -> float:
        """Smallest change that is called one."""
        return self.measure.rise

    @property
    def rose(self) -> bool:
        """The end is better than the start, by `rise` or more and beyond chance."""
        return difference_is_significant(self.end, self.start, least=self.rise, level=0.05)

    @property
    def fell_below_start(self) -> bool:
        """The end is worse than the start, by `rise` or more and beyond chance."""
        return difference_is_significant(self.start, self.end, least=self.rise, level=0.05)

    @property
    def fall(self) -> float:
        """From the best window down to the last quarter; 0 where that is within chance."""
        fell = difference_is_significant(self.best, self.late, least=1.5 * self.rise)
        return self.best.mean - self.late.mean if fell else 0.0

    @property
    def closed(self) -> float:
        """Share of the way from start to ceiling that was gone; infinite without a ceiling."""
        ceiling = self.measure.ceiling
        if ceiling is None or ceiling <= self.start.mean:
            return float("inf")
        return (self.late.mean - self.start.mean) / (ceiling - self.start.mean)

    @property
    def arrived(self) -> bool:
        """It ended near the ceiling and did not fall to get there, or has gone far and settled.

        The end is a snapshot of one policy, and late in a run a single update can make it dip by
        several points; a last quarter above the ceiling outweighs an end just below it. A policy
        that may be unable to reach the ceiling has arrived when it rose by half of the way there
        and is flat; without a known ceiling, when it rose and is flat.
        """
        if self.fall > 0.0:
            return False
        converged = self.measure.converged
        if converged is not None:
            held = self.late.mean >= converged and self.end.mean >= converged - self.rise
            if held or self.end.mean >= converged:
                return True
        settled = self.rose and not self.rising and self.closed >= CLOSED
        if converged is not None and self.flat_since <= 1 - LONG:
            return False
        return not self.solvable and settled

    @property
    def flat_since(self) -> float:
        """Share of the run after which the smoothed curve stays within `rise` / 2 of its end."""
        near = np.abs(self.smoothed.values - self.late.mean) <= self.rise / 2
        outside = np.flatnonzero(~near)
        first = 0 if len(outside) == 0 else int(outside[-1]) + 1
        return first / len(self.smoothed)

    @property
    def stuck(self) -> bool:
        """Its end and its last quarter are well below the ceiling, and it rises no more.

        Within `rise` of the ceiling nobody calls a run stuck: noise alone moves it across.
        """
        if self.rising:
            return False
        converged = self.measure.converged
        if converged is None:
            return not self.rose
        below = max(self.end.mean, self.late.mean) < converged - self.rise
        little = not self.rose or self.closed < LITTLE or self.flat_since <= 1 - LONG
        return below and (self.solvable or little)

    @property
    def peaked(self) -> bool:
        """Some stretch of it was near the ceiling."""
        return self.measure.converged is not None and self.best.mean >= self.measure.converged

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
    """Summarise what `trace` says of success.

    Raises:
        ValueError: it holds neither a pass rate nor a reward.
    """
    measure = measure_of(trace)
    if measure is None:
        raise ValueError("the trace has neither a pass rate nor a reward")
    series = trace[measure.signal]
    width = max(3, len(series) // 8)
    smoothed = Series(series.steps, smooth(series.values, width))
    peak = int(np.argmax(smoothed.values))
    window = series.values[max(0, peak - width // 2) : peak + width - width // 2]
    noise = point_noise(series.values)
    beginning = max(2, len(series) // 20)
    first, late = (
        window_mean(series.values[:beginning], noise),
        window_mean(series.last(0.25).values, noise),
    )
    judged = _judged(trace.judge)
    half = series.last(LATE)
    return LearningCurve(
        measure=measure,
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
        rising=_rises(series, late, noise, measure.rise),
        solvable=trace.solvable,
    )


def _judged(judge: Judge | None) -> tuple[Estimate, Estimate] | None:
    """The judge's first and last look; None unless there are both."""
    if judge is None or judge.final is None or judge.final_prompts is None:
        return None
    return (
        pass_rate_estimate(judge.initial, judge.initial_prompts),
        pass_rate_estimate(judge.final, judge.final_prompts),
    )


def _rises(series: Series, late: Estimate, noise: Noise, rise: float) -> bool:
    """Generous on purpose: a rising curve must never be called a plateau.

    A trend over the second half, a last quarter above the third, or, for slow risers, a trend over
    the whole run that the last quarter goes on with, by half of a line's rise at least. In a long
    log, which shows the smallest trend beyond chance, a last quarter that is certainly less than a
    third of `rise` above the one before it has stopped rising.
    """
    half = series.last(LATE)
    third = window_mean(half.first(0.5).values, noise)
    if len(half) >= 40 and upper_bound(difference(late, third), 0.95) < rise / 3:
        return False
    if kendall_trend(half.values) < 0.05:
        return True
    if difference_is_significant(late, third, least=0.0, level=0.05):
        return True
    gained = slope_of(series.values).mean * len(series)
    goes_on = late.mean - third.mean >= 0.5 * gained / 4
    return gained >= rise and goes_on and kendall_trend(series.values) < 0.01
