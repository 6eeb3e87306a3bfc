"""The KL term holds the policy, or the policy runs away from the reference."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import (
    departure,
    finite,
    first_sustained,
    gained_late,
    mean_first,
    mean_last,
)
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
    needs: ClassVar[tuple[str, ...]] = ("kl_share", "kl_reference", "entropy")
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
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
            f"the {curve.measure.word} stays at {curve.end.mean:.2f}: actor.kl_ctl is too large "
            "for this reward scale (lower it, or raise actor.reward_scaling)"
        )
        evidence = {"kl_share": share, "kl_reference": kl, curve.measure.signal: curve.end.mean}
        return Finding(self.symptom, onset, message, evidence, 0.9, stage="returns")

    def _onset(self, shares: Series) -> int:
        """First step from which the share, smoothed, stays high."""
        high = smooth(shares.values, max(3, len(shares) // 8)) >= self.share
        return first_sustained(shares, high)


@dataclass(frozen=True, slots=True)
class KlRunaway:
    """The policy leaves the reference for good, and the reward pays for it (M05, M13).

    A level alone proves nothing: healthy learning raises KL as well, but slows down once the
    reward does. So either the reward has fallen, or KL still gathers speed while nothing is gained.
    """

    symptom: ClassVar[str] = "kl_runaway"
    needs: ClassVar[tuple[str, ...]] = ("kl_reference",)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 10

    far: float = 1.0
    """KL to the reference, as a multiple of the initial entropy, that counts as far away."""
    faster: float = 2.0
    """What KL gains in the second half, as a multiple of the first half, of a policy on the run;
    one that diffuses gains as much, one that has learned gains less."""
    jump: float = 4.0
    """The same, from which a rising reward is no excuse once KL is far."""
    dearer: float = 20.0
    """What the second half pays in KL for a gain in reward, as a multiple of what the first half
    paid, however the reward goes; healthy learning pays a few times more, KL being quadratic."""
    paid: float = 0.2
    """KL, as a share of the initial entropy, from which the price is looked at."""
    noticed: float = 0.05
    """KL below this share of the initial entropy is no drift worth a word."""
    lasting: int = 40
    """Least steps to tell a drift."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """KL beyond `far` while the reward has fallen from its best, or KL at growing speed."""
        series = finite(trace["kl_reference"])
        if len(series) < self.least_steps:
            return None
        entropy = mean_first(trace["entropy"]) if "entropy" in trace else 0.0
        kl = mean_last(series)
        sick = curve.fall > 0 or curve.fell_below_start
        if not curve.arrived and sick and entropy > 0 and kl >= self.far * entropy:
            return self._fell(series, kl, entropy, curve)
        return self._drifts(series, kl, entropy, curve)

    def _fell(self, series: Series, kl: float, entropy: float, curve: LearningCurve) -> Finding:
        onset = first_sustained(series, np.asarray(series.values >= self.far * entropy))
        message = (
            f"KL to the reference reached {kl:.2g} nats/token, {kl / entropy:.1f} times the "
            f"initial entropy (threshold {self.far:g}), while the {curve.measure.word} fell from "
            f"{curve.top:.2f} to {curve.late.mean:.2f}"
        )
        evidence = {
            "kl_reference": kl,
            "initial_entropy": entropy,
            curve.measure.signal: curve.end.mean,
        }
        return Finding(self.symptom, onset, message, evidence, 0.8)

    def _price(self, first: float, second: float, curve: LearningCurve) -> float:
        """KL per gain of the second half over the first's; small gains count as `rise` / 4."""
        parts = [float(np.mean(part)) for part in np.array_split(curve.series.values, 8)]
        least = curve.rise / 4
        gains = (max(parts[3] - parts[0], least), max(parts[7] - parts[4], least))
        return (second / gains[1]) / max(first / gains[0], 1e-12)

    def _drifts(
        self, series: Series, kl: float, entropy: float, curve: LearningCurve
    ) -> Finding | None:
        """KL that gathers speed while nothing is gained; the embedded trials are too short."""
        if len(series) < self.lasting or curve.solvable or kl < self.noticed * entropy:
            return None
        parts = [float(np.median(part)) for part in np.array_split(series.values, 8)]
        first, second = parts[3] - parts[0], parts[7] - parts[4]
        far = entropy > 0 and kl >= self.far * entropy
        drifts = second >= self.faster * max(first, 0.0) and not gained_late(curve)
        dear = kl >= self.paid * entropy > 0 and self._price(first, second, curve) >= self.dearer
        jumped = (far or dear) and second >= self.jump * max(first, 0.0)
        if second <= 0 or parts[7] <= 2 * parts[3] or not (drifts or jumped):
            return None
        onset = departure(series, 0.1)
        message = (
            f"KL to the reference gathers speed: {first:.2g} nats/token gained in the first half "
            f"of the run, {second:.2g} in the second (threshold {self.faster:g} times as much), up "
            f"to {kl:.2g}, while the {curve.measure.word} went from {curve.start.mean:.2f} to "
            f"{curve.late.mean:.2f}"
        )
        evidence = {"kl_reference": kl, "first_half": first, "second_half": second}
        return Finding(self.symptom, onset, message, evidence, 0.85 if jumped else 0.75)
