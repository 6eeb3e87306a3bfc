"""The signal reaches the loss, but the weights do not move, or hardly."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import mean_first, mean_last, warms_up
from sweeps.findings import Finding
from sweeps.statistics import sustained_from
from sweeps.trace import Trace, stage_signal


@dataclass(frozen=True, slots=True)
class DeadUpdate:
    """Groups differ, yet the gradient or the weight change is exactly 0 (M02).

    Look-alike: zero_signal, where there is no contrast to begin with. Where a log has no share of
    silent groups, a reward that still varies from step to step stands for contrast.
    """

    symptom: ClassVar[str] = "dead_update"
    needs: ClassVar[tuple[str, ...]] = ("grad_norm",)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 4

    silent: float = 0.95
    """At or above this share of silent groups the signal, not the update, is dead."""
    resting: float = 0.5
    """Share of the run over which a learning rate of 0 is more than a schedule's end."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """The first step from which nothing moves although the advantages differ."""
        silent = stage_signal("advantage", "silent")
        names = [name for name in ("update_norm", silent) if name in trace]
        steps, (gradient, *others) = trace.together("grad_norm", *names)
        known = dict(zip(names, others, strict=True))
        still = gradient == 0
        if "update_norm" in known:
            still |= known["update_norm"] == 0
        if silent in known:
            still &= known[silent] < self.silent
        elif not self._varies(trace, curve):
            return None
        start = sustained_from(still, self.least_steps)
        if start is None:
            return self._no_rate(trace)
        part = "gradient" if gradient[-1] == 0 else "weight change"
        evidence = {"grad_norm": float(gradient[-1])}
        if "update_norm" in known:
            evidence["update_norm"] = float(known["update_norm"][-1])
        return self._finding(trace, int(steps[start]), part, evidence)

    def _no_rate(self, trace: Trace) -> Finding | None:
        """A learning rate of exactly 0, for longer than the last steps of a schedule."""
        if "learning_rate" not in trace or "update_norm" in trace:
            return None
        rate = trace["learning_rate"]
        least = max(self.least_steps, int(np.ceil(self.resting * len(rate))))
        start = sustained_from(rate.values == 0, least)
        if start is None:
            return None
        return self._finding(trace, int(rate.steps[start]), "learning rate", {"learning_rate": 0.0})

    def _finding(self, trace: Trace, onset: int, part: str, evidence: dict[str, float]) -> Finding:
        rate = (
            f" (learning rate {mean_last(trace['learning_rate']):g})"
            if "learning_rate" in trace
            else ""
        )
        message = (
            f"the {part} is exactly 0 from step {onset} on although groups differ{rate}: the "
            "update does not reach the weights"
        )
        return Finding(self.symptom, onset, message, evidence, 1.0)

    def _varies(self, trace: Trace, curve: LearningCurve) -> bool:
        raw = stage_signal("raw", "silent")
        if raw in trace:
            return mean_last(trace[raw], 0.5) < self.silent
        return bool(np.ptp(curve.series.last(0.5).values) > 0)


@dataclass(frozen=True, slots=True)
class StarvedUpdate:
    """The signal is there but the policy hardly moves: step, scale or clip too small (M03).

    Look-alikes: a slow start, whose KL to the reference still grows with the square of the steps;
    kl_pinned, where the KL term holds the policy and its share of the returns is large. A log
    without that share leaves the two together.
    """

    symptom: ClassVar[str] = "starved_update"
    needs: ClassVar[tuple[str, ...]] = ("kl_reference", "entropy", "grad_norm")
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 10

    moved: float = 0.005
    """KL to the reference, as a share of the initial entropy, of a policy that has not moved."""
    patience: float = 10.0
    """Times as many steps that would not move it either; KL grows with their square at most."""
    kl_share: float = 0.25
    """Above this share of the returns' variance, KL is the reason."""
    reach: float = 0.25
    """Of the smallest change that counts: what KL must allow before a rise is believed."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A policy that stays where it was although gradients flow."""
        kl, entropy = mean_last(trace["kl_reference"]), mean_first(trace["entropy"])
        share = mean_last(trace["kl_share"], 0.5) if "kl_share" in trace else None
        gradient = float(np.median(trace["grad_norm"].values))
        learns = (curve.rose or curve.rising) and not self._by_chance(trace, curve, kl)
        if learns or curve.arrived or gradient == 0 or warms_up(trace):
            return None
        if share is not None and share >= self.kl_share:
            return None
        # A log's KL of exactly 0 was not measured: an estimate of a moving policy never is.
        if not kl * self.patience**2 < self.moved * entropy or (kl == 0 and share is None):
            return None
        message = (
            f"the policy has not moved: KL to the reference is {kl:.2g} nats/token after "
            f"{len(trace)} steps, and {self.patience:g} times as many would not bring it to "
            f"{self.moved:.1%} of the initial entropy ({entropy:.2g}), while gradients flow (norm "
            f"{gradient:.2g}): learning rate, reward scale (under SGD) or clip range is too small"
        )
        evidence = {"kl_reference": kl, "grad_norm": gradient}
        if share is None:
            message += ", or actor.kl_ctl is too large (the log does not tell which)"
        else:
            evidence["kl_share"] = share
        confidence = 0.85 if share is not None else 0.7
        return Finding(self.symptom, int(trace.steps[0]), message, evidence, confidence)

    def _by_chance(self, trace: Trace, curve: LearningCurve, kl: float) -> bool:
        """The policy is too close to the reference for any rise: Pinsker's inequality.

        No event's probability changes by more than sqrt(KL / 2), KL over the whole answer.
        """
        if "length_mean" not in trace or curve.measure.ceiling is None:
            return False
        whole = max(kl, 0.0) * mean_last(trace["length_mean"])
        return bool(np.sqrt(whole / 2) < self.reach * curve.rise)
