"""Rewards that are mostly noise, and losses that change their scale."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import FAITHFUL, finite
from sweeps.detectors.held_out import curve_of
from sweeps.findings import Finding
from sweeps.statistics import point_noise
from sweeps.trace import Trace, stage_signal


@dataclass(frozen=True, slots=True)
class NoiseDominated:
    """What the reward says of two answers to one prompt is mostly chance (M20).

    Our trials compare the raw reward with the strict check. In a log the reward jumps from step to
    step by more than it ever moves. Look-alike: zero_signal with tiny groups.
    """

    symptom: ClassVar[str] = "noise_dominated"
    needs: ClassVar[tuple[str, ...]] = (stage_signal("raw", "fidelity"),)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (("reward_mean",),)
    least_steps: int = 24

    faithful: float = FAITHFUL
    """Fidelity of the raw reward below which it is mostly something else."""
    jumps: float = 1.5
    """Spread of the reward around its trend, in smallest changes that count."""
    lasting: int = 60
    """Least steps to judge by the spread alone."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A reward without a trend whose differences do not stand for the task."""
        if curve.arrived or curve.rising or curve.rose:
            return None
        name = stage_signal("raw", "fidelity")
        if name in trace:
            fidelity = trace[name]
            share = float(np.median(fidelity.first(0.5).values))
            paid = curve_of(trace, "reward_mean", "reward")
            if paid is not None and (paid.rose or paid.fall > 0):
                return None
            if len(trace) < self.least_steps or not abs(share) < self.faithful:
                return None
            message = (
                f"within a group only {share:.0%} of the raw reward's differences stand for the "
                f"strict check (threshold {self.faithful:.0%}), and the {curve.measure.word} went "
                f"from {curve.start.mean:.2f} to {curve.end.mean:.2f}: the verifier pays by chance"
            )
            onset = int(fidelity.steps[0])
            return Finding(self.symptom, onset, message, {"fidelity": share}, 0.8, stage="raw")
        return None if curve.fall > 0 else self._jumps(curve)

    def _jumps(self, curve: LearningCurve) -> Finding | None:
        spread = point_noise(curve.series.values).spread
        if len(curve.series) < self.lasting or not spread >= self.jumps * curve.rise:
            return None
        message = (
            f"the {curve.measure.word} jumps by {spread:.2g} from step to step (threshold "
            f"{self.jumps * curve.rise:.2g}) and has no trend over {len(curve.series)} steps: "
            "batches or groups are too small for what is to be learned"
        )
        onset = int(curve.series.steps[0])
        return Finding(self.symptom, onset, message, {"spread": spread}, 0.6)


@dataclass(frozen=True, slots=True)
class LossScale:
    """The gradient norm jumps to another level and stays there, and nothing else moves (M18).

    Loss aggregation, accumulation or a world size changed. Adam is blind to it, so the verdict says
    telemetry, not harm. Look-alike: overshoot, whose norm keeps growing.
    """

    symptom: ClassVar[str] = "loss_scale"
    needs: ClassVar[tuple[str, ...]] = ("grad_norm", "loss")
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 40

    step: float = 4.0
    """Ratio of the levels before and after."""
    steady: float = 0.5
    """Largest spread of the norm's logarithm on either side, as a share of the jump."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """One jump between two steady levels."""
        norms = finite(trace["grad_norm"])
        values = norms.values
        if len(values) < self.least_steps or not (values > 0).all() or curve.solvable:
            return None
        logs = np.log(values)
        margin = max(len(logs) // 8, 8)
        places = range(margin, len(logs) - margin)
        jumps = [abs(np.median(logs[at : at + 8]) - np.median(logs[at - 8 : at])) for at in places]
        at = margin + int(np.argmax(jumps))
        before, after = logs[:at], logs[at:]
        jump = float(np.median(after) - np.median(before))
        spread = max(float(before.std()), float(after.std()))
        if abs(jump) < np.log(self.step) or spread > self.steady * abs(jump):
            return None
        if max(jumps) < 0.8 * abs(jump):
            return None
        onset = int(norms.steps[at])
        message = (
            f"the gradient norm jumps by a factor of {float(np.exp(abs(jump))):.2g} at step "
            f"{onset} (threshold {self.step:g}) and is steady before and after: the loss is "
            "aggregated differently from there on (batch size, accumulation, world size); an "
            "adaptive optimizer hides it"
        )
        evidence = {"factor": float(np.exp(jump))}
        return Finding(self.symptom, onset, message, evidence, 0.5)
