"""No contrast between answers reaches the loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from grpo_core.metrics import STAGES
from sweeps.curve import LearningCurve
from sweeps.findings import Finding
from sweeps.stages import STAGE_SETTINGS
from sweeps.statistics import sustained_from
from sweeps.trace import Numbers, Trace, stage_signal


@dataclass(frozen=True, slots=True)
class RewardConstant:
    """One and the same raw reward over all prompts: the verifier, not the difficulty (M17).

    Look-alike: zero_signal, where rewards differ between prompts but not within a group. A policy
    that passes everything is saturated, not sick.
    """

    symptom: ClassVar[str] = "reward_constant"
    needs: ClassVar[tuple[str, ...]] = ("reward_distinct", "pass_rate")
    least_steps: int = 4

    passing: float = 0.9
    """Above this pass rate a constant reward is success."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:  # noqa: ARG002
        """The first step from which all rewards are one value."""
        constant = (trace["reward_distinct"].values <= 1) & (
            trace["pass_rate"].values < self.passing
        )
        start = sustained_from(constant, self.least_steps)
        if start is None:
            return None
        onset, steps = int(trace.steps[start]), len(constant) - start
        value = float(trace["reward_mean"].values[-1]) if "reward_mean" in trace else float("nan")
        message = (
            f"every answer to every prompt got the same raw reward ({value:g}) in the last {steps} "
            f"steps, from step {onset}: nothing to learn from; check the verifier, the answer format "
            "and gconfig.max_new_tokens"
        )
        evidence = {"reward": value, "steps": float(steps)}
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

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:  # noqa: ARG002
        """The first step of a silence that lasts to the end, and the first silent stage."""
        unsolved = trace["pass_rate"].values < self.passing
        lasting = self._silent(trace, "advantage") & unsolved
        start = sustained_from(lasting, self.least_steps)
        if start is None:
            return None
        stages = [stage for stage in STAGES if stage_signal(stage, "silent") in trace]
        stage = next(
            s for s in stages if bool(np.all(self._silent(trace, s)[start:])) or s == "advantage"
        )
        return self._finding(trace, start, stage, stages)

    def _silent(self, trace: Trace, stage: str) -> Numbers:
        return trace[stage_signal(stage, "silent")].values >= self.silent

    def _finding(self, trace: Trace, start: int, stage: str, stages: list[str]) -> Finding:
        onset, steps = int(trace.steps[start]), len(trace) - start
        share = float(np.mean(trace[stage_signal(stage, "silent")].values[start:]))
        evidence = {"silent": share, "threshold": self.silent, "steps": float(steps)}
        if stage == "raw":
            passed = float(np.mean(trace["pass_rate"].values[start:]))
            evidence["pass_rate"] = passed
            message = (
                f"{share:.0%} of the groups have no contrast in their raw rewards from step {onset} "
                f"on, at a pass rate of {passed:.2f}: the task gives this policy nothing to compare"
            )
        else:
            before = stages[stages.index(stage) - 1]
            earlier = float(np.mean(trace[stage_signal(before, "silent")].values[start:]))
            evidence["silent_before"] = earlier
            message = (
                f"the reward signal is lost at stage {stage!r} ({STAGE_SETTINGS[stage]}): groups "
                f"without contrast jump from {earlier:.0%} behind {before!r} to {share:.0%}, from "
                f"step {onset} on"
            )
        return Finding(self.symptom, onset, message, evidence, 1.0, stage=stage)
