"""Updates that carried the policy too far: by their size, or by importance ratios gone wild."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import CONVERGED, RISE, LearningCurve
from sweeps.detectors.base import first_sustained, mean_first, swamped_stage
from sweeps.findings import Finding
from sweeps.statistics import smooth
from sweeps.trace import Trace


@dataclass(frozen=True, slots=True)
class Overshoot:
    """The pass rate falls for good before it ever arrived, while the policy races away (M21).

    Look-alikes: reward_hacking, where the update follows something else than the task;
    ratio_instability, where importance weights are worthless; reward_collapse, after success.
    """

    symptom: ClassVar[str] = "overshoot"
    needs: ClassVar[tuple[str, ...]] = ("pass_rate", "kl_reference", "entropy")
    least_steps: int = 8

    stale: float = 1.0
    """From this median staleness on (policy versions), it may be the sampler's lag instead."""
    speed: float = 0.05
    """KL to the reference gained per step until the fall, as a share of the initial entropy."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A fall below the start, or from a rise that never arrived, at high speed."""
        sick = curve.fell_below_start or curve.fall > 0
        if not sick or curve.best.mean >= CONVERGED or swamped_stage(trace) is not None:
            return None
        if "staleness" in trace and float(np.median(trace["staleness"].values)) >= self.stale:
            return None
        level = curve.top - RISE
        onset = curve.first_below(level)
        kl, entropy = trace["kl_reference"], mean_first(trace["entropy"])
        at = min(int(np.searchsorted(kl.steps, onset)), len(kl) - 1)
        reached, took = float(kl.values[at]), int(kl.steps[at]) + 1
        if not entropy > 0 or not reached >= self.speed * took * entropy:
            return None
        speed = reached / took / entropy
        evidence = {"pass_rate": curve.end.mean, "speed": speed, "kl_reference": reached}
        ratio = ""
        if "ratio_max" in trace:
            evidence["ratio_max"] = float(np.nanmax(trace["ratio_max"].values))
            ratio = f"; largest importance ratio {evidence['ratio_max']:.3g}"
        message = (
            f"the pass rate fell from {curve.top:.2f} to {curve.late.mean:.2f}, below {level:.2f} "
            f"for good from step {onset}, while the policy moved {speed:.0%} of its initial "
            f"entropy away from the reference per step (threshold {self.speed:.0%}{ratio}): the "
            "updates are too large (actor.optimizer.lr, warm-up, gradient clipping)"
        )
        return Finding(self.symptom, onset, message, evidence, 0.9)


@dataclass(frozen=True, slots=True)
class RatioInstability:
    """Importance weights concentrate on a few tokens, and the pass rate falls (M13).

    The mean ratio says nothing (its expectation is 1 however bad the mismatch), so the effective
    sample size is read. Look-alike: overshoot, on-policy, where the ratios stay near 1.
    """

    symptom: ClassVar[str] = "ratio_instability"
    needs: ClassVar[tuple[str, ...]] = ("pass_rate", "effective_samples", "log_ratio_abs")
    least_steps: int = 10

    effective: float = 0.6
    """Median effective sample size, as a share of the tokens, that is too small; read over the
    second half of the steps until the fall, because a stale sampler needs time to fall behind."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Few effective samples before and while the pass rate falls."""
        if curve.arrived or not (curve.fell_below_start or curve.fall > 0):
            return None
        samples = trace["effective_samples"]
        fall = max(curve.first_below(curve.top - RISE), int(trace.steps[self.least_steps - 1]))
        window = (samples.steps <= fall) & (samples.steps >= fall // 2)
        median = float(np.median(samples.values[window])) if window.any() else np.inf
        if not median <= self.effective:
            return None
        low = smooth(samples.values, 3) <= self.effective
        onset = min(int(samples.steps[int(low.argmax())]), first_sustained(samples, low))
        gap = float(np.median(trace["log_ratio_abs"].values))
        message = (
            f"the importance weights leave only {median:.0%} effective samples (median of "
            f"steps {fall // 2} to {fall}, threshold {self.effective:.0%}; mean |log ratio| "
            f"{gap:.2g} nats): sampler and trainer are too far apart, and the pass rate fell from "
            f"{curve.top:.2f} to {curve.late.mean:.2f} (rollout.max_head_offpolicyness, "
            "actor.eps_clip, actor.optimizer.lr)"
        )
        evidence = {"effective_samples": median, "log_ratio_abs": gap, "pass_rate": curve.end.mean}
        return Finding(self.symptom, onset, message, evidence, 0.85)
