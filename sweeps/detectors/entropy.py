"""The policy stops exploring, or dissolves into noise."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import departure, finite, first_sustained, mean_first, mean_last
from sweeps.findings import Finding
from sweeps.measure import CONVERGED, share_of_best
from sweeps.trace import Series, Trace


@dataclass(frozen=True, slots=True)
class EntropyCollapse:
    """Entropy is nearly gone while the reward stands still below the ceiling (M11).

    Healthy runs end with little entropy as well: there the reward is high.
    """

    symptom: ClassVar[str] = "entropy_collapse"
    needs: ClassVar[tuple[str, ...]] = ("entropy",)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 10

    left: float = 0.15
    """Share of the initial entropy below which exploration is over."""
    gone: float = 0.06
    """The same, from which a reward that is still rising well below the ceiling is no excuse."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Low entropy next to a stuck curve."""
        series = finite(trace["entropy"])
        if len(series) < self.least_steps:
            return None
        first, last = mean_first(series), mean_last(series)
        if not first > 0 or not last <= self.left * first:
            return None
        if not self._stuck(curve) and not (last <= self.gone * first and self._below(trace, curve)):
            return None
        low = np.asarray(series.values <= self.left * first)
        onset = first_sustained(series, low) if curve.solvable else departure(series)
        how = "still" if curve.rising else "stuck"
        message = (
            f"entropy fell from {first:.2g} to {last:.2g} nats/token ({last / first:.0%}, below "
            f"the threshold of {self.left:.0%} from step {first_sustained(series, low)}) and the "
            f"{curve.measure.word} is {how} at {curve.end.mean:.2f}"
        )
        evidence = {"entropy": last, "initial_entropy": first, curve.measure.signal: curve.end.mean}
        return Finding(self.symptom, onset, message, evidence, 0.8)

    def _stuck(self, curve: LearningCurve) -> bool:
        """Stuck, or, where the ceiling may be out of reach, flat well below it."""
        converged = curve.measure.converged
        if curve.solvable or converged is None:
            return curve.stuck
        return not curve.rising and curve.late.mean < converged - curve.rise

    def _below(self, trace: Trace, curve: LearningCurve) -> bool:
        """Another trainer's log, below the ceiling."""
        converged, late = curve.measure.converged, curve.late.mean
        if curve.solvable:
            return False
        if converged is not None:
            return late < converged
        share = share_of_best(trace, late)
        return share is not None and share < CONVERGED


@dataclass(frozen=True, slots=True)
class EntropyExplosion:
    """Entropy keeps rising and the reward does not (M12)."""

    symptom: ClassVar[str] = "entropy_explosion"
    needs: ClassVar[tuple[str, ...]] = ("entropy",)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 10

    grown: float = 1.5
    """Multiple of the initial entropy."""
    towards_uniform: float = 0.15
    """Share of the way from the initial to the uniform distribution's entropy."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """High entropy next to a curve that is stuck or has fallen."""
        series = finite(trace["entropy"])
        if len(series) < self.least_steps:
            return None
        first, last = mean_first(series), mean_last(series)
        limit, uniform = self._limit(trace, first)
        fell = not curve.solvable and (curve.fall > 0 or curve.fell_below_start)
        if not (curve.stuck or fell) or not last >= limit:
            return None
        onset = self._onset(series, limit, solvable=curve.solvable)
        message = (
            f"entropy rose from {first:.2g} to {last:.2g} nats/token (threshold {limit:.2g}"
            f"{uniform}) and the {curve.measure.word} is {curve.end.mean:.2f}: the answers "
            "dissolve into noise"
        )
        evidence = {"entropy": last, "initial_entropy": first, "threshold": limit}
        return Finding(self.symptom, onset, message, evidence, 0.8)

    def _limit(self, trace: Trace, first: float) -> tuple[float, str]:
        if "entropy_max" not in trace:
            return self.grown * first, ""
        uniform = float(trace["entropy_max"].values[-1])
        limit = max(self.grown * first, first + self.towards_uniform * (uniform - first))
        return limit, f", uniform {uniform:.2g}"

    def _onset(self, series: Series, limit: float, *, solvable: bool) -> int:
        if solvable:
            return first_sustained(series, np.asarray(series.values >= limit))
        return departure(series)
