"""Invariants of the advantage: its bound, its baseline, its place."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import changed, departure, finite, grew, mean_last, typical
from sweeps.findings import Finding
from sweeps.statistics import sustained_from
from sweeps.trace import Trace, stage_signal


@dataclass(frozen=True, slots=True)
class AdvantageBlowup:
    """Normalization divides by a spread of nearly nothing, and single answers dominate (M06).

    With an unbiased group std and the plain group mean no normalized reward can exceed
    (G - 1) / sqrt(G). Look-alike: ratio_instability, whose spikes come with the ratio.
    """

    symptom: ClassVar[str] = "advantage_blowup"
    needs: ClassVar[tuple[str, ...]] = (stage_signal("normalized", "extreme"),)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (("advantage_max",),)
    least_steps: int = 3

    beyond: float = 50.0
    """Largest normalized value that no group of up to 2,500 answers can reach by right."""
    amplified: float = 20.0
    """What normalization makes of the largest value before it, or the late largest advantage of the
    early one, where it counts."""
    often: int = 3
    """Steps at which it must happen."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:  # noqa: ARG002
        """Steps whose largest advantage is beyond every bound."""
        if stage_signal("normalized", "extreme") in trace:
            return self._at_stage(trace)
        return self._in_log(trace)

    def _at_stage(self, trace: Trace) -> Finding | None:
        names = [stage_signal(stage, "extreme") for stage in ("clipped", "normalized")]
        if trace.missing(names):
            return None
        steps, (before, after) = trace.together(*names)
        wild = (after > self.beyond) & (after > self.amplified * before)
        if int(wild.sum()) < self.often:
            return None
        onset, highest = int(steps[int(np.argmax(wild))]), float(after[wild].max())
        message = (
            f"normalization makes values of {highest:.3g} out of rewards of at most "
            f"{float(before[wild].max()):.3g}, at {int(wild.sum())} steps from {onset} on "
            f"(threshold {self.beyond:g}): it divides by a spread of nearly nothing "
            "(actor.reward_norm.std_level, std_unbiased, mean_leave1out, eps)"
        )
        evidence = {"extreme": highest, "steps": float(wild.sum())}
        return Finding(self.symptom, onset, message, evidence, 0.95, stage="normalized")

    def _in_log(self, trace: Trace) -> Finding | None:
        series = finite(trace["advantage_max"])
        if len(series) < self.often:
            return None
        usual = max(typical(series)[0], 1e-12)
        size = trace.settings.get("gconfig.n_samples")
        bound = self.beyond if size is None else 3 * (size - 1) / float(np.sqrt(size))
        wild = (series.values > bound) & (series.values > self.amplified / 4 * usual)
        if int(wild.sum()) < self.often:
            return None
        onset = int(series.steps[int(np.argmax(wild))])
        highest = float(series.values.max())
        message = (
            f"the largest advantage is {highest:.3g} where {usual:.2g} is usual, above {bound:.3g} "
            f"at {int(wild.sum())} steps from {onset} on: normalization divides by a spread of "
            "nearly nothing"
        )
        evidence = {"extreme": highest, "usual": usual, "threshold": bound}
        return Finding(self.symptom, onset, message, evidence, 0.85)


@dataclass(frozen=True, slots=True)
class BaselineCorruption:
    """The baseline is not the group's own: centred rewards whose group means are not 0 (M07).

    Look-alike: noise, which has correct group means.
    """

    symptom: ClassVar[str] = "baseline_corruption"
    needs: ClassVar[tuple[str, ...]] = ("group_mean_max", "advantage_std")
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("advantage_mean", "advantage_std"),
        ("value_loss",),
        ("value_explained",),
    )
    least_steps: int = 4

    off: float = 0.05
    """Largest group mean, as a share of the advantages' spread; rounding stays below 1e-4."""
    skewed: float = 0.5
    """Mean advantage of a log, as a share of the spread: unequal lengths alone reach 0.3."""
    diverged: float = 5.0
    """Late loss of the value function, as a multiple of the early one: where there is a critic, it
    is the baseline."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Group means, or the mean advantage, away from 0 at every step to the end."""
        found = None if self._lacks_means(trace) else self._off_centre(trace)
        return found or self._critic(trace, curve)

    def _lacks_means(self, trace: Trace) -> bool:
        centred = "group_mean_max" in trace or "advantage_mean" in trace
        return not centred or "advantage_std" not in trace

    def _critic(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A value function whose loss diverges, or that explains less than a constant would."""
        if curve.solvable:
            return None
        return self._explains_nothing(trace) or self._diverges(trace)

    def _explains_nothing(self, trace: Trace) -> Finding | None:
        if "value_explained" not in trace:
            return None
        series = finite(trace["value_explained"])
        if len(series) < 20 or not changed(series, falls=True):
            return None
        before, after = typical(series)
        if not after < 0.0 < before:
            return None
        onset = departure(series)
        message = (
            f"the value function explained {before:.0%} of the returns' variance and now explains "
            f"{after:.0%}, less than a constant would, from step {onset} on: the baseline that it "
            "gives is wrong (critic.optimizer.lr, value clipping, returns' scale)"
        )
        evidence = {"value_explained": after, "initial_value_explained": before}
        return Finding(self.symptom, onset, message, evidence, 0.75)

    def _diverges(self, trace: Trace) -> Finding | None:
        if "value_loss" not in trace:
            return None
        series = finite(trace["value_loss"])
        if len(series) < 20 or not grew(series, self.diverged):
            return None
        before, after = typical(series)
        onset = departure(series)
        message = (
            f"the value function's loss grew from {before:.2g} to {after:.2g} (threshold "
            f"{self.diverged:g} times), from step {onset} on: the baseline that it gives is wrong "
            "(critic.optimizer.lr, value clipping, returns' scale)"
        )
        evidence = {"value_loss": after, "initial_value_loss": before}
        return Finding(self.symptom, onset, message, evidence, 0.75)

    def _off_centre(self, trace: Trace) -> Finding | None:
        exact = "group_mean_max" in trace
        name, limit = ("group_mean_max", self.off) if exact else ("advantage_mean", self.skewed)
        steps, (means, spread) = trace.together(name, "advantage_std")
        wrong = np.abs(means) > limit * np.maximum(spread, 1e-12)
        start = sustained_from(wrong & (spread > 0), self.least_steps)
        if start is None or not (exact or start <= len(steps) // 4):
            return None
        onset, largest = int(steps[start]), float(np.abs(means[start:]).max())
        what = "group means of the centred rewards are" if exact else "the mean advantage is"
        message = (
            f"{what} up to {largest:.2g} away from 0 from step {onset} on (threshold {limit:.0%} "
            f"of the spread, {float(np.mean(spread[start:])):.2g}): answers are compared with a "
            "baseline that is not their group's"
        )
        evidence = {name: largest, "advantage_std": float(np.mean(spread[start:]))}
        stage = "normalized" if exact else None
        return Finding(self.symptom, onset, message, evidence, 0.95 if exact else 0.6, stage=stage)


@dataclass(frozen=True, slots=True)
class MisplacedReward:
    """The reward does not sit on the tokens that earned it (M10).

    Our trials compare what the advantage says of answers with what it says of tokens. A log shows
    it where more answers count as cut than their lengths allow. Look-alike: length_explosion, where
    answers really are that long.
    """

    symptom: ClassVar[str] = "misplaced_reward"
    needs: ClassVar[tuple[str, ...]] = ("token_fidelity", stage_signal("advantage", "fidelity"))
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (("truncated", "length_mean"),)
    least_steps: int = 8

    kept: float = 0.3
    """Share of the answers' fidelity that must be left over the tokens."""
    cut: float = 0.5
    """Share of cut answers that can't be, at this share of the limit as mean length."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Answers told apart rightly, tokens not."""
        if "token_fidelity" in trace:
            return self._on_tokens(trace, curve)
        return self._counter(trace)

    def _on_tokens(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        names = ("token_fidelity", stage_signal("advantage", "fidelity"))
        if trace.missing(names) or curve.arrived or curve.rising:
            return None
        steps, (tokens, answers) = trace.together(*names)
        if len(steps) < self.least_steps:
            return None
        token, answer = float(np.median(tokens)), float(np.median(answers))
        if answer < 0.5 or token >= self.kept * answer:
            return None
        onset = int(steps[0])
        message = (
            f"the advantage tells answers apart (fidelity {answer:.2f}) but not their tokens "
            f"({token:.2f}, threshold {self.kept:.0%} of it): the reward does not reach the tokens "
            "that earned it (loss mask, position of the reward, actor.discount, actor.gae_lambda)"
        )
        evidence = {"token_fidelity": token, "fidelity": answer}
        return Finding(self.symptom, onset, message, evidence, 0.8, stage="returns")

    def _counter(self, trace: Trace) -> Finding | None:
        limit = trace.settings.get("gconfig.max_new_tokens")
        if limit is None and "length_max" in trace:
            limit = float(finite(trace["length_max"]).values.max(initial=0.0))
        if not limit:
            return None
        steps, (cut, length) = trace.together("truncated", "length_mean")
        wrong = (cut >= self.cut) & (length < self.cut * self.cut * limit)
        start = sustained_from(wrong, self.least_steps)
        if start is None:
            return None
        onset, share = int(steps[start]), mean_last(trace["truncated"])
        message = (
            f"{share:.0%} of the answers count as cut at the limit of {limit:g} tokens, but their "
            f"mean length is {float(np.mean(length[start:])):.3g}: the end-of-sequence token is "
            "not recognised, so rewards and masks sit at the wrong token"
        )
        evidence = {"truncated": share, "length": float(np.mean(length[start:]))}
        return Finding(self.symptom, onset, message, evidence, 0.85)
