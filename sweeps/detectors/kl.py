"""The KL term holds the policy, or the policy runs away from the reference."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import first_sustained, mean_first, mean_last
from sweeps.findings import Finding
from sweeps.statistics import smooth
from sweeps.trace import Series, Trace


@dataclass(frozen=True, slots=True)
class KlPinned:
    """The KL penalty makes up much of the returns, and the reward stands still (M04).

    The share alone proves nothing: k2 and k3 in the reward reach 0.9 and learn. So the curve must
    be stuck as well, and the policy close to the reference and not on its way from there: a slow
    start, whose KL grows with the square of the steps, is no pinned policy.
    """

    symptom: ClassVar[str] = "kl_pinned"
    needs: ClassVar[tuple[str, ...]] = ("kl_share", "kl_reference", "entropy", "pass_rate")
    least_steps: int = 16

    share: float = 0.25
    """Least share of KL in the variance of the returns, second half of the run."""
    near: float = 0.25
    """Largest KL to the reference, as a share of the initial entropy."""
    growth: float = 4.0
    """KL of the last quarter, as a multiple of the second quarter's, of a policy on its way."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A stuck curve next to a dominating KL term."""
        share = mean_last(trace["kl_share"], 0.5)
        kl, entropy = mean_last(trace["kl_reference"]), mean_first(trace["entropy"])
        if not curve.stuck or share < self.share or not kl < self.near * entropy:
            return None
        before = mean_last(trace["kl_reference"].first(0.5), 0.5)
        if not kl < self.growth * before:
            return None
        onset = self._onset(trace["kl_share"])
        message = (
            f"the KL penalty makes up {share:.0%} of the returns' variance (threshold "
            f"{self.share:.0%}) and holds the policy at {kl:.2g} nats/token from the reference; "
            f"the pass rate stays at {curve.end.mean:.2f}: actor.kl_ctl is too large for this "
            "reward scale (lower it, or raise actor.reward_scaling)"
        )
        evidence = {"kl_share": share, "kl_reference": kl, "pass_rate": curve.end.mean}
        return Finding(self.symptom, onset, message, evidence, 0.9, stage="returns")

    def _onset(self, shares: Series) -> int:
        """First step from which the share, smoothed, stays high."""
        high = smooth(shares.values, max(3, len(shares) // 8)) >= self.share
        return first_sustained(shares, high)


@dataclass(frozen=True, slots=True)
class KlRunaway:
    """The policy leaves the reference for good, and the pass rate pays for it (M05, M13).

    A level alone proves nothing: healthy learning raises KL as well.
    """

    symptom: ClassVar[str] = "kl_runaway"
    needs: ClassVar[tuple[str, ...]] = ("kl_reference", "entropy", "pass_rate")
    least_steps: int = 10

    far: float = 1.0
    """KL to the reference, as a multiple of the initial entropy, that counts as far away."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """KL beyond `far` while the pass rate has fallen from its best."""
        kl, entropy = mean_last(trace["kl_reference"]), mean_first(trace["entropy"])
        sick = curve.fall > 0 or curve.fell_below_start
        if curve.arrived or not sick or not entropy > 0 or not kl >= self.far * entropy:
            return None
        series = trace["kl_reference"]
        onset = first_sustained(series, np.asarray(series.values >= self.far * entropy))
        message = (
            f"KL to the reference reached {kl:.2g} nats/token, {kl / entropy:.1f} times the "
            f"initial entropy (threshold {self.far:g}), while the pass rate fell from "
            f"{curve.top:.2f} to {curve.late.mean:.2f}"
        )
        evidence = {"kl_reference": kl, "initial_entropy": entropy, "pass_rate": curve.end.mean}
        return Finding(self.symptom, onset, message, evidence, 0.8)
