"""Updates that carried the policy too far: by their size, or by importance ratios gone wild."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import (
    changed,
    departure,
    finite,
    first_sustained,
    grew,
    logarithms,
    mean_first,
    mean_last,
    spikes,
    stands_still,
    swamped_stage,
    typical,
)
from sweeps.findings import Finding
from sweeps.statistics import smooth
from sweeps.trace import Series, Trace


@dataclass(frozen=True, slots=True)
class Overshoot:
    """The reward falls for good before it ever arrived, while the policy races away (M21).

    In a log without our signals the gradient norm tells: it explodes, or it spikes again and again.
    Look-alikes: reward_hacking, where the update follows something else than the task;
    ratio_instability, where importance weights are worthless; advantage_blowup, where the spikes
    come from the normalization; reward_collapse, after success.
    """

    symptom: ClassVar[str] = "overshoot"
    needs: ClassVar[tuple[str, ...]] = ("kl_reference", "entropy")
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (("grad_norm",),)
    least_steps: int = 8

    stale: float = 1.0
    """From this median staleness on (policy versions), it may be the sampler's lag instead."""
    speed: float = 0.05
    """KL to the reference gained per step until the fall, as a share of the initial entropy."""
    explodes: float = 10.0
    """Late gradient norm as a multiple of the early one, and a spike as a multiple of the 25 steps
    before it: a clipped norm of such a size is noise in its direction."""
    often: float = 0.01
    """Share of steps that spike, at least."""
    lasting: int = 40
    """Least steps to judge by gradient norms alone."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A fall below the start, or from a rise that never arrived, at high speed."""
        if curve.solvable:
            return self._too_fast(trace, curve)
        found = None if trace.missing(self.needs) else self._too_fast(trace, curve)
        return found or self._gradients(trace, curve)

    def _too_fast(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        sick = curve.fell_below_start or curve.fall > 0
        if not sick or curve.peaked or swamped_stage(trace) is not None:
            return None
        if "staleness" in trace and float(np.median(trace["staleness"].values)) >= self.stale:
            return None
        level = curve.top - curve.rise
        onset = curve.first_below(level)
        kl, entropy = trace["kl_reference"], mean_first(trace["entropy"])
        at = min(int(np.searchsorted(kl.steps, onset)), len(kl) - 1)
        reached, took = float(kl.values[at]), int(kl.steps[at]) + 1
        if not entropy > 0 or not reached >= self.speed * took * entropy:
            return None
        speed = reached / took / entropy
        evidence = {curve.measure.signal: curve.end.mean, "speed": speed, "kl_reference": reached}
        ratio = ""
        if "ratio_max" in trace:
            evidence["ratio_max"] = float(np.nanmax(trace["ratio_max"].values))
            ratio = f"; largest importance ratio {evidence['ratio_max']:.3g}"
        message = (
            f"the {curve.measure.word} fell from {curve.top:.2f} to {curve.late.mean:.2f}, below "
            f"{level:.2f} for good from step {onset}, while the policy moved {speed:.0%} of its "
            f"initial entropy away from the reference per step (threshold {self.speed:.0%}{ratio})"
            ": the updates are too large (actor.optimizer.lr, warm-up, gradient clipping)"
        )
        return Finding(self.symptom, onset, message, evidence, 0.9)

    def _gradients(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """The norm explodes for good, or spikes again and again."""
        if "grad_norm" not in trace:
            return None
        norms = finite(trace["grad_norm"])
        if len(norms) < self.lasting:
            return None
        before, after = typical(norms)
        if before > 0 and after >= self.explodes * before and changed(logarithms(norms)):
            onset = departure(logarithms(norms))
            message = (
                f"the gradient norm grew from {before:.2g} to {after:.2g} (threshold "
                f"{self.explodes:g} times), from step {onset} on: the updates are too large "
                "(actor.optimizer.lr, gradient clipping, reward scale)"
            )
            evidence = {"grad_norm": after, "initial_grad_norm": before}
            return Finding(self.symptom, onset, message, evidence, 0.8)
        return self._spikes(norms, curve)

    def _spikes(self, norms: Series, curve: LearningCurve) -> Finding | None:
        found = np.flatnonzero(spikes(norms.values, self.explodes))
        if len(found) < max(3, int(self.often * len(norms))):
            return None
        usual, highest = float(np.median(norms.values)), float(norms.values.max())
        onset = int(norms.steps[found[0]])
        message = (
            f"the gradient norm spikes at {len(found)} steps, the first at {onset}, up to "
            f"{highest:.3g} where {usual:.2g} is usual (threshold {self.explodes:g} times): "
            "single batches dominate the updates (learning rate, gradient clipping, normalization)"
        )
        evidence = {"spikes": float(len(found)), "highest": highest, "usual": usual}
        return Finding(self.symptom, onset, message, evidence, 0.8 if curve.fall > 0 else 0.7)


@dataclass(frozen=True, slots=True)
class RatioInstability:
    """Sampler and trainer are too far apart, and the reward pays for it (M13).

    The mean ratio says nothing (its expectation is 1 however bad the mismatch), so the effective
    sample size is read; in a log without it the gap between log-probs, the largest ratio or the
    share of clipped tokens, each against its own beginning: a sequence-level ratio clips 40 % of
    the tokens from the first step and learns. Look-alike: overshoot, on-policy, where the ratios
    stay near 1.
    """

    symptom: ClassVar[str] = "ratio_instability"
    needs: ClassVar[tuple[str, ...]] = ("effective_samples", "log_ratio_abs")
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("logprob_gap",),
        ("log_ratio_abs",),
        ("ratio_max",),
        ("clip_fraction",),
    )
    least_steps: int = 10

    effective: float = 0.6
    """Median effective sample size, as a share of the tokens, that is too small; read over the
    second half of the steps until the fall, because a stale sampler needs time to fall behind, and
    around the fall itself."""
    grown: float = 3.0
    """Late value of another signal, as a multiple of its early one."""
    gap: float = 0.1
    """Mean absolute log-prob gap, nats, that counts: reports call 0.010 to 0.018 healthy and 0.2
    broken."""
    ratio: float = 10.0
    """Largest importance ratio that counts."""
    clipped: float = 0.2
    """Share of clipped tokens that counts."""
    half: float = 0.4
    """Share of clipped tokens for which growth to twice the beginning is enough: soon half of the
    batch has no gradient."""
    lasting: int = 40
    """Least steps to judge by anything but effective samples."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Few effective samples before and while the reward falls."""
        if trace.missing(self.needs):
            return self._growing(trace, curve)
        if curve.arrived or not (curve.fell_below_start or curve.fall > 0):
            return None
        samples = trace["effective_samples"]
        fall = max(
            curve.first_below(curve.top - curve.rise), int(trace.steps[self.least_steps - 1])
        )
        around = max(5, len(trace) // 8)
        windows = ((fall // 2, fall), (fall - around, fall + around))
        medians = [self._median(samples, *window) for window in windows]
        median, (first, last) = min(zip(medians, windows, strict=True))
        if not median <= self.effective:
            return None
        low = smooth(samples.values, 3) <= self.effective
        onset = min(int(samples.steps[int(low.argmax())]), first_sustained(samples, low))
        gap = float(np.median(trace["log_ratio_abs"].values))
        message = (
            f"the importance weights leave only {median:.0%} effective samples (median of "
            f"steps {max(first, 0)} to {last}, threshold {self.effective:.0%}; mean |log ratio| "
            f"{gap:.2g} nats): sampler and trainer are too far apart, and the "
            f"{curve.measure.word} fell from {curve.top:.2f} to {curve.late.mean:.2f} "
            "(rollout.max_head_offpolicyness, actor.eps_clip, actor.optimizer.lr)"
        )
        evidence = {
            "effective_samples": median,
            "log_ratio_abs": gap,
            curve.measure.signal: curve.end.mean,
        }
        return Finding(self.symptom, onset, message, evidence, 0.85)

    def _median(self, samples: Series, first: int, last: int) -> float:
        inside = (samples.steps >= first) & (samples.steps <= last)
        return float(np.median(samples.values[inside])) if inside.any() else float("inf")

    def _growing(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """One of the other signals grew to a size that counts."""
        limits = {
            "logprob_gap": self.gap,
            "log_ratio_abs": self.gap,
            "ratio_max": self.ratio,
            "clip_fraction": self.clipped,
        }
        for name, limit in limits.items():
            if name not in trace:
                continue
            series = finite(trace[name])
            if len(series) < self.lasting or mean_last(series) < limit:
                continue
            clipped = name == "clip_fraction"
            most = clipped and mean_last(series) >= self.half and grew(series, 2.0)
            if (most or grew(series, self.grown)) and (clipped or stands_still(curve)):
                return self._grew(series, name, limit, curve)
        return None

    def _grew(self, series: Series, name: str, limit: float, curve: LearningCurve) -> Finding:
        before, after = typical(series)
        onset = departure(series)
        words = {
            "logprob_gap": "mean |log-prob gap| between sampler and trainer, nats",
            "log_ratio_abs": "mean |log ratio|, nats",
            "ratio_max": "largest importance ratio",
            "clip_fraction": "share of clipped tokens",
        }
        message = (
            f"the {words[name]} grew from {before:.2g} to {after:.2g} (threshold {limit:g} and "
            f"{self.grown:g} times its beginning), from step {onset} on, while the "
            f"{curve.measure.word} went from {curve.start.mean:.2f} to {curve.late.mean:.2f}: the "
            "policy moves too far from the one that sampled (rollout.max_head_offpolicyness, "
            "actor.eps_clip, actor.optimizer.lr, updates per batch)"
        )
        evidence = {name: after, f"initial_{name}": before}
        return Finding(self.symptom, onset, message, evidence, 0.8 if stands_still(curve) else 0.7)
