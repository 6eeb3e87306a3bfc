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

    Look-alike: zero_signal, where there is no contrast to begin with.
    """

    symptom: ClassVar[str] = "dead_update"
    needs: ClassVar[tuple[str, ...]] = (
        "grad_norm",
        "update_norm",
        stage_signal("advantage", "silent"),
    )
    least_steps: int = 4

    silent: float = 0.95
    """At or above this share of silent groups the signal, not the update, is dead."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:  # noqa: ARG002
        """The first step from which nothing moves although the advantages differ."""
        steps, (gradient, update, silent) = trace.together(*self.needs)
        dead = ((gradient == 0) | (update == 0)) & (silent < self.silent)
        start = sustained_from(dead, self.least_steps)
        if start is None:
            return None
        onset = int(steps[start])
        part = "gradient" if gradient[-1] == 0 else "weight change"
        rate = (
            f" (learning rate {mean_last(trace['learning_rate']):g})"
            if "learning_rate" in trace
            else ""
        )
        message = (
            f"the {part} is exactly 0 from step {onset} on although groups differ{rate}: the "
            "update does not reach the weights"
        )
        evidence = {"grad_norm": float(gradient[-1]), "update_norm": float(update[-1])}
        return Finding(self.symptom, onset, message, evidence, 1.0)


@dataclass(frozen=True, slots=True)
class StarvedUpdate:
    """The signal is there but the policy hardly moves: step, scale or clip too small (M03).

    Look-alikes: a slow start, whose KL to the reference still grows with the square of the steps;
    kl_pinned, where the KL term holds the policy and its share of the returns is large.
    """

    symptom: ClassVar[str] = "starved_update"
    needs: ClassVar[tuple[str, ...]] = ("kl_reference", "kl_share", "entropy", "grad_norm")
    least_steps: int = 10

    moved: float = 0.005
    """KL to the reference, as a share of the initial entropy, of a policy that has not moved."""
    patience: float = 10.0
    """Times as many steps that would not move it either; KL grows with their square at most."""
    kl_share: float = 0.25
    """Above this share of the returns' variance, KL is the reason."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A policy that stays where it was although gradients flow."""
        kl, entropy = mean_last(trace["kl_reference"]), mean_first(trace["entropy"])
        share = mean_last(trace["kl_share"], 0.5)
        gradient = float(np.median(trace["grad_norm"].values))
        if curve.rose or curve.rising or curve.arrived or gradient == 0 or warms_up(trace):
            return None
        if share >= self.kl_share or not kl * self.patience**2 < self.moved * entropy:
            return None
        message = (
            f"the policy has not moved: KL to the reference is {kl:.2g} nats/token after "
            f"{len(trace)} steps, and {self.patience:g} times as many would not bring it to "
            f"{self.moved:.1%} of the initial entropy ({entropy:.2g}), while gradients flow (norm "
            f"{gradient:.2g}): learning rate, reward scale (under SGD) or clip range is too small"
        )
        evidence = {"kl_reference": kl, "grad_norm": gradient, "kl_share": share}
        return Finding(self.symptom, int(trace.steps[0]), message, evidence, 0.85)
