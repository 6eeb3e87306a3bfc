"""The policy stops exploring, or dissolves into noise."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import first_sustained, mean_first, mean_last
from sweeps.findings import Finding
from sweeps.trace import Trace


@dataclass(frozen=True, slots=True)
class EntropyCollapse:
    """Entropy is nearly gone while the pass rate is stuck below the ceiling (M11).

    Healthy runs end with little entropy as well: there the pass rate is high.
    """

    symptom: ClassVar[str] = "entropy_collapse"
    needs: ClassVar[tuple[str, ...]] = ("entropy", "pass_rate")
    least_steps: int = 10

    left: float = 0.15
    """Share of the initial entropy below which exploration is over."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """Low entropy next to a stuck curve."""
        first, last = mean_first(trace["entropy"]), mean_last(trace["entropy"])
        if not curve.stuck or not first > 0 or not last <= self.left * first:
            return None
        series = trace["entropy"]
        onset = first_sustained(series, np.asarray(series.values <= self.left * first))
        message = (
            f"entropy fell from {first:.2g} to {last:.2g} nats/token ({last / first:.0%}, below "
            f"the threshold of {self.left:.0%} from step {onset}) and the pass rate is stuck at "
            f"{curve.end.mean:.2f}"
        )
        evidence = {"entropy": last, "initial_entropy": first, "pass_rate": curve.end.mean}
        return Finding(self.symptom, onset, message, evidence, 0.8)


@dataclass(frozen=True, slots=True)
class EntropyExplosion:
    """Entropy keeps rising and the pass rate does not (M12)."""

    symptom: ClassVar[str] = "entropy_explosion"
    needs: ClassVar[tuple[str, ...]] = ("entropy", "entropy_max", "pass_rate")
    least_steps: int = 10

    grown: float = 1.5
    """Multiple of the initial entropy."""
    towards_uniform: float = 0.15
    """Share of the way from the initial to the uniform distribution's entropy."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """High entropy next to a curve that is stuck or has fallen."""
        first, last = mean_first(trace["entropy"]), mean_last(trace["entropy"])
        uniform = float(trace["entropy_max"].values[-1])
        limit = max(self.grown * first, first + self.towards_uniform * (uniform - first))
        if not curve.stuck or not last >= limit:
            return None
        series = trace["entropy"]
        onset = first_sustained(series, np.asarray(series.values >= limit))
        message = (
            f"entropy rose from {first:.2g} to {last:.2g} nats/token (threshold {limit:.2g}, "
            f"uniform {uniform:.2g}) and the pass rate is {curve.end.mean:.2f}: the answers "
            "dissolve into noise"
        )
        evidence = {"entropy": last, "initial_entropy": first, "threshold": limit}
        return Finding(self.symptom, onset, message, evidence, 0.8)
