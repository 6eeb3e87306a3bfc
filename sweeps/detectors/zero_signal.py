"""No contrast between answers reaches the loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from grpo_core.metrics import STAGES
from sweeps.curve import LearningCurve
from sweeps.findings import Finding
from sweeps.stages import STAGE_SETTINGS
from sweeps.statistics import sustained_from
from sweeps.trace import Trace, stage_signal


@dataclass(frozen=True, slots=True)
class RewardConstant:
    """One and the same raw reward over all prompts: the verifier, not the difficulty (M17).

    Look-alike: zero_signal, where rewards differ between prompts but not within a group. A policy
    that passes everything is saturated, not sick.
    """

    symptom: ClassVar[str] = "reward_constant"
    needs: ClassVar[tuple[str, ...]] = ("reward_distinct", "pass_rate")
    least_steps: int = 10

    passing: float = 0.9
    """Above this pass rate a constant reward is success."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:  # noqa: ARG002
        """The first step from which all rewards are one value."""
        steps, (distinct, passed) = trace.together(*self.needs)
        start = sustained_from((distinct <= 1) & (passed < self.passing), self.least_steps)
        if start is None:
            return None
        onset, count = int(steps[start]), len(steps) - start
        evidence = {"steps": float(count)}
        value = ""
        if "reward_mean" in trace:
            evidence["reward"] = float(trace["reward_mean"].values[-1])
            value = f" ({evidence['reward']:g})"
        message = (
            f"every answer to every prompt got the same raw reward{value} in the last {count} "
            f"steps, from step {onset}: nothing to learn from; check the verifier, the answer "
            "format and gconfig.max_new_tokens"
        )
        return Finding(self.symptom, onset, message, evidence, 1.0, stage="raw")


@dataclass(frozen=True, slots=True)
class ZeroSignal:
    """Nearly every group is silent at some stage, so the advantage carries nothing (M01, M02).

    At the raw stage the prompts are too hard (or the group is too small); later a setting has
    flattened the difference. A policy that passes nearly everything is silent because it is done.
    """

    symptom: ClassVar[str] = "zero_signal"
    needs: ClassVar[tuple[str, ...]] = (
        "pass_rate",
        stage_signal("raw", "silent"),
        stage_signal("advantage", "silent"),
    )
    least_steps: int = 4

    silent: float = 0.95
    """Share of groups without contrast from which a stage counts as silent."""
    passing: float = 0.9
    """Above this pass rate silence is success."""
    raw_steps: int = 10
    """Least steps where the raw reward itself is silent: a hard task may take off later."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """The first step of a silence that lasts to the end, and the first silent stage."""
        stages = [stage for stage in STAGES if stage_signal(stage, "silent") in trace]
        steps, (passed, *shares) = trace.together(
            "pass_rate", *(stage_signal(stage, "silent") for stage in stages)
        )
        silence = dict(zip(stages, shares, strict=True))
        dead = (silence["advantage"] >= self.silent) & (passed < self.passing)
        start = sustained_from(dead, self.least_steps)
        if start is None:
            return None
        lost = next(s for s in stages if bool(np.all(silence[s][start:] >= self.silent)))
        means = {stage: float(np.mean(silence[stage][start:])) for stage in stages}
        onset, count = int(steps[start]), len(steps) - start
        if lost != "raw":
            return self._flattened(onset, count, lost, means)
        if curve.arrived or count < self.raw_steps:
            return None
        return self._no_contrast(onset, count, means["raw"], float(np.mean(passed[start:])))

    def _no_contrast(self, onset: int, count: int, share: float, passed: float) -> Finding:
        message = (
            f"{share:.0%} of the groups have no contrast in their raw rewards from step {onset} "
            f"on, at a pass rate of {passed:.2f}: the task gives this policy nothing to compare"
        )
        evidence = {
            "silent": share,
            "threshold": self.silent,
            "steps": float(count),
            "pass_rate": passed,
        }
        return Finding(self.symptom, onset, message, evidence, 1.0, stage="raw")

    def _flattened(self, onset: int, count: int, lost: str, means: dict[str, float]) -> Finding:
        stages = list(means)
        before = stages[stages.index(lost) - 1]
        message = (
            f"the reward signal is lost at stage {lost!r} ({STAGE_SETTINGS[lost]}): groups without "
            f"contrast jump from {means[before]:.0%} behind {before!r} to {means[lost]:.0%}, from "
            f"step {onset} on"
        )
        evidence = {
            "silent": means[lost],
            "silent_before": means[before],
            "threshold": self.silent,
            "steps": float(count),
        }
        return Finding(self.symptom, onset, message, evidence, 1.0, stage=lost)
