"""No contrast between answers reaches the loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from grpo_core.metrics import STAGES
from sweeps.curve import LearningCurve
from sweeps.detectors.base import changed, departure, finite, mean_last, shrank, typical
from sweeps.findings import Finding
from sweeps.measure import Measure
from sweeps.stages import STAGE_SETTINGS
from sweeps.statistics import sustained_from
from sweeps.trace import Series, Trace, stage_signal

GROUP = 8
"""Answers per prompt where a log does not say: what most recipes use."""


@dataclass(frozen=True, slots=True)
class RewardConstant:
    """One and the same raw reward over all prompts: the verifier, not the difficulty (M17).

    Look-alike: zero_signal, where rewards differ between prompts but not within a group. A policy
    that passes everything is saturated, not sick.
    """

    symptom: ClassVar[str] = "reward_constant"
    needs: ClassVar[tuple[str, ...]] = ("reward_mean",)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 10

    passing: float = 0.9
    """Above this share of the full reward a constant one is success."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """The first step from which all rewards are one value."""
        steps, same = self._one_value(trace)
        _, (passed,) = trace.together(curve.measure.signal)
        at = np.isin(trace[curve.measure.signal].steps, steps)
        low = _fails(passed[at], curve, self.passing)
        if len(low) != len(same):
            return None
        start = sustained_from(same & low, self.least_steps)
        if start is None:
            return None
        onset, count = int(steps[start]), len(steps) - start
        value = float(trace["reward_mean"].values[-1])
        message = (
            f"every answer to every prompt got the same raw reward ({value:g}) in the last {count} "
            f"steps, from step {onset}: nothing to learn from; check the verifier, the answer "
            "format and gconfig.max_new_tokens"
        )
        evidence = {"steps": float(count), "reward": value}
        return Finding(self.symptom, onset, message, evidence, 1.0, stage="raw")

    def _one_value(self, trace: Trace) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and whether all rewards of the batch were one value, the same as a step before."""
        if "reward_distinct" in trace:
            distinct = trace["reward_distinct"]
            return distinct.steps, distinct.values <= 1
        mean = trace["reward_mean"]
        same = np.zeros(len(mean), dtype=np.bool_)
        same[1:] = np.diff(mean.values) == 0
        for low, high in (("reward_min", "reward_max"),):
            if low in trace and high in trace:
                steps, (lowest, highest) = trace.together(low, high)
                return steps, lowest == highest
        if "reward_std" in trace and len(trace["reward_std"]) == len(mean):
            same &= trace["reward_std"].values == 0
        return mean.steps, same


@dataclass(frozen=True, slots=True)
class ZeroSignal:
    """Nearly every group is silent at some stage, so the advantage carries nothing (M01, M02).

    At the raw stage the prompts are too hard (or the group is too small); later a setting has
    flattened the difference. A policy that passes nearly everything is silent because it is done.
    Where a log has no share of silent groups, a reward near the floor still tells: of groups of G
    answers that pass with probability p, p^G + (1 - p)^G are silent.
    """

    symptom: ClassVar[str] = "zero_signal"
    needs: ClassVar[tuple[str, ...]] = (stage_signal("raw", "silent"),)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (("reward_mean",),)
    least_steps: int = 4

    silent: float = 0.95
    """Share of groups without contrast from which a stage counts as silent."""
    mostly: float = 0.8
    """The same for the raw reward of a run that stands still; a recipe's own limit."""
    passing: float = 0.9
    """Above this pass rate silence is success."""
    raw_steps: int = 10
    """Least steps where the raw reward itself is silent: a hard task may take off later."""
    lasting: int = 30
    """Least steps for anything less than silence."""
    hopeless: float = 0.05
    """Pass rate of a run that stands still at which `often` silent groups are enough."""
    often: float = 0.6
    """Share of silent groups at a hopeless pass rate, and how much more of them there must be than
    independent answers of that pass rate give."""
    spread: float = 0.1
    """Late spread of rewards or advantages, as a share of the early one, that is none."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """The first step of a silence that lasts to the end, and the first silent stage."""
        stages = [stage for stage in STAGES if stage_signal(stage, "silent") in trace]
        if not stages:
            return self._no_spread(trace, curve) or self._expected(trace, curve)
        signal = curve.measure.signal
        steps, (passed, *shares) = trace.together(
            signal, *(stage_signal(stage, "silent") for stage in stages)
        )
        silence = dict(zip(stages, shares, strict=True))
        dead = (silence[stages[-1]] >= self.silent) & _fails(passed, curve, self.passing)
        start = sustained_from(dead, self.least_steps)
        if start is None:
            return self._nearly(trace, curve)
        lost = next(s for s in stages if bool(np.all(silence[s][start:] >= self.silent)))
        means = {stage: float(np.mean(silence[stage][start:])) for stage in stages}
        onset, count = int(steps[start]), len(steps) - start
        if lost != "raw":
            return self._flattened(onset, count, lost, means)
        if curve.arrived or count < self.raw_steps:
            return None
        return self._no_contrast(onset, count, means["raw"], float(np.mean(passed[start:])))

    def _nearly(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Less than silence, and more than a healthy run has."""
        raw = trace[stage_signal("raw", "silent")]
        if curve.solvable:
            return self._mostly(raw, curve)
        copies = self._degenerate(raw, trace, curve)
        return copies or self._mostly(raw, curve) or self._no_spread(trace, curve)

    def _mostly(self, silent: Series, curve: LearningCurve) -> Finding | None:
        """A run that stands still while four of five groups are silent."""
        late = silent.last(0.25).values
        share = float(np.mean(late))
        hopeless = not curve.solvable and curve.late.mean <= curve.measure.passing(self.hopeless)
        least = self.often if hopeless and curve.measure.ceiling is not None else self.mostly
        if len(silent) < self.lasting or not share >= least or not curve.stuck:
            return None
        if not _fails(np.array([curve.late.mean]), curve, self.passing)[0]:
            return None
        high = silent.values >= least
        onset = int(silent.steps[int(np.argmax(high))])
        return self._no_contrast(onset, len(late), share, curve.late.mean, confidence=0.8)

    def _degenerate(self, silent: Series, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Far more silent groups than independent answers of this pass rate can give."""
        if curve.measure.ceiling is None or len(silent) < self.lasting:
            return None
        share, passed = mean_last(silent), float(np.clip(curve.late.mean, 0.0, 1.0))
        usual = self._bound(trace, passed)
        if share < usual + self.often or not changed(silent):
            return None
        onset = departure(silent)
        message = (
            f"{share:.0%} of the groups have no contrast, from step {onset} on, where independent "
            f"answers that pass with {passed:.2f} leave {usual:.0%} (threshold "
            f"{self.often:.0%} more): the answers of a group are copies, or their rewards are"
        )
        evidence = {"silent": share, "expected": usual, "pass_rate": passed}
        return Finding(self.symptom, onset, message, evidence, 0.8, stage="raw")

    def _no_spread(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Rewards or advantages that hardly differ any more although the reward is not full."""
        if curve.measure.ceiling is not None and not _fails(
            np.array([curve.late.mean]), curve, self.passing
        ):
            return None
        for name, series in self._spreads(trace).items():
            if len(series) < self.lasting or not shrank(series, self.spread):
                continue
            before, after = typical(series)
            onset = departure(series)
            message = (
                f"{name} fell from {before:.2g} to {after:.2g} (threshold {self.spread:.0%}), from "
                f"step {onset} on, at a {curve.measure.word} of {curve.late.mean:.2f}: answers "
                "hardly differ any more, so nothing is left to compare"
            )
            evidence = {name: after, f"initial_{name}": before}
            return Finding(self.symptom, onset, message, evidence, 0.75)
        return None

    def _spreads(self, trace: Trace) -> dict[str, Series]:
        """Everything in a log that says how much answers differ."""
        names = ("raw.gain", "reward_std", "advantage_std", "advantage_max")
        spreads = {name: finite(trace[name]) for name in names if name in trace}
        if "reward_max" in trace and "reward_min" in trace:
            steps, (highest, lowest) = trace.together("reward_max", "reward_min")
            spreads["reward_max - reward_min"] = finite(Series(steps, highest - lowest))
        return spreads

    def _bound(self, trace: Trace, passed: float) -> float:
        """Share of groups that are silent by chance."""
        size = _group_size(trace)
        return (1 - passed) ** size + passed**size

    def _expected(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Silence that a reward near the floor implies."""
        size = _group_size(trace)
        if curve.measure.ceiling is None or not curve.stuck or len(curve.series) < self.lasting:
            return None
        reached = float(np.clip(curve.late.mean, 0.0, 1.0))
        share = self._bound(trace, reached)
        if reached > 0.5 or not share >= self.mostly:
            return None
        onset = curve.first_below(max(curve.late.mean, 0.0) + curve.rise / 2)
        return self._no_contrast(
            onset, len(curve.series), share, reached, confidence=0.75, size=size
        )

    def _no_contrast(
        self,
        onset: int,
        count: int,
        share: float,
        passed: float,
        *,
        confidence: float = 1.0,
        size: int | None = None,
    ) -> Finding:
        seen = "have" if size is None else f"of {size} answers are bound to have"
        message = (
            f"{share:.0%} of the groups {seen} no contrast in their raw rewards from step {onset} "
            f"on, at a pass rate of {passed:.2f}: the task gives this policy nothing to compare"
        )
        evidence = {
            "silent": share,
            "threshold": self.silent if confidence == 1.0 else self.mostly,
            "steps": float(count),
            "pass_rate": passed,
        }
        return Finding(self.symptom, onset, message, evidence, confidence, stage="raw")

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


def _group_size(trace: Trace) -> int:
    return int(trace.settings.get("gconfig.n_samples", GROUP))


def _fails(values: np.ndarray, curve: LearningCurve, share: float) -> np.ndarray:
    """Which values are below `share` of the full reward; without a ceiling, whether it ever rose.

    A silent run whose reward rose first is done, as far as anybody can tell.
    """
    measure: Measure = curve.measure
    if measure.ceiling is None:
        return np.full(len(values), not curve.rose)
    return values < measure.passing(share)
