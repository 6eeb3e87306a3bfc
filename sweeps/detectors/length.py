"""Answers that become too short to be right, or too long to end."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import (
    changed,
    departure,
    finite,
    gained_late,
    mean_first,
    mean_last,
    shrank,
    stands_still,
    typical,
)
from sweeps.detectors.held_out import golden_curve
from sweeps.findings import Finding
from sweeps.trace import Series, Trace


@dataclass(frozen=True, slots=True)
class LengthCollapse:
    """Answers shrink to nearly nothing and the reward goes with them (M08).

    Healthy training shortens answers as well; there the reward is kept.
    """

    symptom: ClassVar[str] = "length_collapse"
    needs: ClassVar[tuple[str, ...]] = ("length_mean",)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 16

    left: float = 0.35
    """Share of the initial length."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Much shorter answers next to a reward that fell or is stuck."""
        series = finite(trace["length_mean"])
        suffers = curve.fall > 0 or curve.fell_below_start or curve.stuck
        if len(series) < self.least_steps or not suffers or not shrank(series, self.left):
            return None
        before, after = typical(series)
        onset = departure(series)
        message = (
            f"answers shrank from {before:.3g} to {after:.3g} tokens ({after / before:.0%}, "
            f"threshold {self.left:.0%}), from step {onset} on, and the {curve.measure.word} went "
            f"from {curve.top:.2f} to {curve.late.mean:.2f}: short answers are paid too well, or "
            "long ones punished"
        )
        evidence = {"length": after, "initial_length": before}
        return Finding(self.symptom, onset, message, evidence, 0.85)


@dataclass(frozen=True, slots=True)
class LengthExplosion:
    """Answers grow into the length limit, or never end, and nothing is gained (M09).

    Look-alikes: reasoning that grows with its reward (healthy); misplaced_reward, where the counter
    of cut answers is wrong; entropy_explosion, where long answers are noise.
    """

    symptom: ClassVar[str] = "length_explosion"
    needs: ClassVar[tuple[str, ...]] = ("truncated",)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (("length_mean",),)
    least_steps: int = 16

    cut: float = 0.15
    """Share of cut answers, above its beginning, that counts; one trainer's guide acts at 0.05."""
    endless: float = 0.9
    """Share of cut answers of a policy that never stops."""
    many: float = 0.25
    """Share of cut answers that counts whatever the reward does, where it has grown to it."""
    longer: float = 1.6
    """Late length as a multiple of the early one."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """More and more cut answers, or longer and longer ones, without a gain."""
        if "truncated" in trace and (found := self._cut(trace, curve)):
            return found
        return self._longer(trace, curve) if "length_mean" in trace else None

    def _cut(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        series = finite(trace["truncated"])
        if len(series) < self.least_steps:
            return None
        before, after = mean_first(series), mean_last(series)
        if after >= self.endless and curve.stuck:
            message = (
                f"{after:.0%} of the answers are cut at the length limit (threshold "
                f"{self.endless:.0%}): the policy does not stop, so little is ever rewarded "
                "(gconfig.max_new_tokens, end-of-sequence tokens, the prompt template)"
            )
            onset = int(series.steps[int(np.argmax(series.values >= self.endless))])
            return Finding(self.symptom, onset, message, {"truncated": after}, 0.85)
        if after - before < self.cut or not changed(series):
            return None
        harmless = self._at_ceiling(curve) or after < self.many
        if harmless and not self._no_gain(trace, curve):
            return None
        gained = "nothing is gained by it" if self._no_gain(trace, curve) else "it goes on"
        onset = departure(series)
        message = (
            f"the share of answers cut at the length limit rose from {before:.0%} to {after:.0%} "
            f"(threshold {self.cut:.0%} more), from step {onset} on, and {gained}"
        )
        evidence = {"truncated": after, "initial_truncated": before}
        return Finding(self.symptom, onset, message, evidence, 0.8)

    def _longer(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        series = finite(trace["length_mean"])
        if len(series) < 2 * self.least_steps or curve.solvable:
            return None
        before, after = typical(series)
        grows_on = mean_last(series) >= 1.1 * mean_last(Series(series.steps, series.values), 0.5)
        too_long = after >= self.longer * before and changed(series)
        onset = departure(series)
        idle = self._no_gain(trace, curve) or self._no_gain_since(onset, curve)
        if not too_long or not idle or not (grows_on or curve.stuck):
            return None
        message = (
            f"answers grew from {before:.3g} to {after:.3g} tokens (threshold {self.longer:g} "
            f"times), from step {onset} on, and nothing is gained by it: length itself is paid, or "
            "costs nothing"
        )
        return Finding(
            self.symptom, onset, message, {"length": after, "initial_length": before}, 0.7
        )

    def _no_gain_since(self, step: int, curve: LearningCurve) -> bool:
        """The measure of success hardly moved since `step`, and had not arrived."""
        at = min(int(np.searchsorted(curve.smoothed.steps, step)), len(curve.smoothed) - 1)
        gained = curve.late.mean - float(curve.smoothed.values[at])
        return gained < curve.rise and not self._at_ceiling(curve)

    def _at_ceiling(self, curve: LearningCurve) -> bool:
        converged = curve.measure.converged
        return converged is not None and curve.late.mean >= converged

    def _no_gain(self, trace: Trace, curve: LearningCurve) -> bool:
        """Neither the strict score, where there is one, nor the reward gets better late."""
        golden = golden_curve(trace, curve)
        if golden is not None and golden is not curve:
            return not (golden.rising or golden.rose) or golden.fall > 0
        return stands_still(curve) or not (gained_late(curve) or curve.rising or curve.arrived)
