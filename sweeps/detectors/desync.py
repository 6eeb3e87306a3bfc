"""The sampler does not follow the trainer."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import changed, departure, finite, typical
from sweeps.findings import Finding
from sweeps.statistics import kendall_trend, sustained_from
from sweeps.trace import Trace


@dataclass(frozen=True, slots=True)
class RolloutDesync:
    """The gap between the sampler's and the trainer's log-probs grows with every step (M14).

    A sampler that lags a fixed number of versions behind has a gap that settles; one that is never
    updated has a gap that only grows, and the sampled reward stands still whatever is learned.
    Look-alike: ratio_instability, where the reward falls.
    """

    symptom: ClassVar[str] = "rollout_desync"
    needs: ClassVar[tuple[str, ...]] = ("logprob_gap",)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 16

    gap: float = 0.02
    """Mean absolute gap, nats, above what reports call healthy (0.010 to 0.018)."""
    grown: float = 3.0
    """Late gap as a multiple of the early one."""
    on: float = 1.2
    """Gap of the last quarter as a multiple of the one before it."""
    moved: float = 0.01
    """The sampler's own distance from the reference, as a share of what the gap amounts to."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A sampler that never left the reference, or a gap that grows next to a flat reward."""
        return self._never_left(trace) or self._grows(trace, curve)

    def _never_left(self, trace: Trace) -> Finding | None:
        """The sampler is still the reference although the trainer is far from the sampler.

        A gap of d nats in log-probs amounts to a KL of about d^2 / 2.
        """
        if "kl_reference" not in trace:
            return None
        steps, (kl, gap) = trace.together("kl_reference", "logprob_gap")
        still = (gap >= self.gap) & (np.abs(kl) < self.moved * gap**2 / 2)
        start = sustained_from(still, max(2, len(steps) // 2))
        if start is None or trace.framework is not None:
            return None
        onset = int(steps[start])
        message = (
            f"the sampler still is the reference (KL {float(kl[-1]):.1g} nats/token) from step "
            f"{onset} on, but its log-probs are {float(np.median(gap[start:])):.2g} nats from the "
            f"trainer's (threshold {self.gap:g}): new weights do not reach the sampler"
        )
        evidence = {"logprob_gap": float(np.median(gap[start:])), "kl_reference": float(kl[-1])}
        return Finding(self.symptom, onset, message, evidence, 0.95)

    def _grows(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        series = finite(trace["logprob_gap"])
        flat = curve.stuck and curve.fall == 0 and not curve.fell_below_start
        if len(series) < self.least_steps or not flat:
            return None
        before, after = typical(series)
        third = typical(series.first(0.75))[1]
        grows = after >= self.grown * before and changed(series) and after >= self.on * third
        if after < self.gap or not grows or kendall_trend(series.values) >= 0.01:
            return None
        onset = departure(series, 0.1)
        message = (
            f"the log-prob gap between sampler and trainer grows with every step, from "
            f"{before:.2g} to {after:.2g} nats (thresholds {self.gap:g} and {self.grown:g} times), "
            f"while the sampled {curve.measure.word} stays at {curve.late.mean:.2f}: new weights "
            "do not reach the sampler"
        )
        evidence = {"logprob_gap": after, "initial_logprob_gap": before}
        return Finding(self.symptom, onset, message, evidence, 0.8)
