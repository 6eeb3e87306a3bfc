"""What held-out prompts or an accuracy say beside the reward that is trained on."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve, learning_curve
from sweeps.findings import Finding
from sweeps.measure import Measure, is_share
from sweeps.statistics import difference_is_significant
from sweeps.trace import Series, Trace

LEAST_LOOKS = 5
"""Held-out looks below which their curve says nothing."""


def curve_of(trace: Trace, name: str, word: str) -> LearningCurve | None:
    """The learning curve of another signal of `trace`; None where it is too short."""
    if name not in trace or len(trace[name]) < LEAST_LOOKS:
        return None
    series = trace[name]
    if not np.isfinite(series.values).all():
        return None
    rated = "pass_rate" if is_share(series.values) else "reward_mean"
    renamed = Trace(steps=series.steps, series={rated: series})
    curve = learning_curve(renamed)
    measure: Measure = replace(curve.measure, word=word)
    return replace(curve, measure=measure)


def golden_curve(trace: Trace, curve: LearningCurve) -> LearningCurve | None:
    """The curve of what the user really wants: held-out prompts, else a strict pass rate."""
    held_out = curve_of(trace, "eval_pass_rate", "held-out score")
    if held_out is not None:
        return held_out
    return curve if curve.measure.signal == "pass_rate" else None


def components(trace: Trace) -> dict[str, Series]:
    """The parts of the reward, by name."""
    prefix = "component."
    return {
        name.removeprefix(prefix): series
        for name, series in trace.series.items()
        if name.startswith(prefix) and len(series) >= 2 * LEAST_LOOKS
    }


@dataclass(frozen=True, slots=True)
class GeneralisationGap:
    """The reward on training prompts rises on, the one on held-out prompts does not (M19).

    Look-alike: reward_hacking, where the held-out score falls.
    """

    symptom: ClassVar[str] = "generalisation_gap"
    needs: ClassVar[tuple[str, ...]] = ("reward_mean", "eval_pass_rate")
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 40

    widened: float = 2.0
    """Growth of the gap, in smallest changes that count."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A gap that widens while the held-out curve stays behind."""
        if curve.measure.ceiling is None or not self._rose_in_training(curve):
            return None
        steps, (training, looks) = trace.together(curve.measure.signal, "eval_pass_rate")
        held = curve_of(trace, "eval_pass_rate", "held-out score")
        if held is None or len(steps) < LEAST_LOOKS or held.arrived or held.fall > 0:
            return None
        if not curve.solvable and (held.rising or held.rose):
            return None
        gaps = training - looks
        count = max(2, len(gaps) // 4)
        before, after = float(np.mean(gaps[:count])), float(np.mean(gaps[-3:]))
        limit = self.widened * curve.rise
        if after - max(before, 0.0) < limit or not bool(np.all(gaps[-3:] >= limit / 2)):
            return None
        onset = int(steps[int(np.argmax(gaps >= before + (after - before) / 2))])
        message = (
            f"the {curve.measure.word} on training prompts rose from {curve.first.mean:.2f} to "
            f"{curve.late.mean:.2f}, the held-out score stayed behind at {held.late.mean:.2f}: the "
            f"gap went from {before:.2f} to {after:.2f} (threshold {limit:.2f})"
        )
        evidence = {"gap": after, "initial_gap": before, "held_out": held.late.mean}
        return Finding(self.symptom, onset, message, evidence, 0.75)

    def _rose_in_training(self, curve: LearningCurve) -> bool:
        return difference_is_significant(curve.late, curve.first, least=curve.rise)
