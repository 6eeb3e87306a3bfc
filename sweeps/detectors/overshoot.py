"""The first updates were too large, and the policy never recovered."""

from dataclasses import dataclass
from typing import ClassVar

from sweeps.curve import RISE, LearningCurve
from sweeps.detectors.base import mean_first, mean_last, swamped_stage
from sweeps.findings import Finding
from sweeps.trace import Trace


@dataclass(frozen=True, slots=True)
class Overshoot:
    """The pass rate falls below its start before it ever rose, with a large policy move (M21).

    Look-alikes: reward_hacking, where the update follows something else than the task; and
    reward_collapse, where the run had learnt first.
    """

    symptom: ClassVar[str] = "overshoot"
    needs: ClassVar[tuple[str, ...]] = ("pass_rate", "kl_reference", "entropy")
    least_steps: int = 8

    moved: float = 0.3
    """KL to the reference, as a share of the initial entropy, that counts as a large move."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A fall below the start without a rise before it."""
        kl, entropy = mean_last(trace["kl_reference"]), mean_first(trace["entropy"])
        rose_first = curve.best.mean > curve.start.mean + 2 * RISE
        if not curve.fell_below_start or rose_first or not kl >= self.moved * entropy:
            return None
        if swamped_stage(trace) is not None:
            return None
        onset = curve.first_below(curve.start.mean - RISE)
        ratio = float(trace["ratio_max"].values.max()) if "ratio_max" in trace else float("nan")
        message = (
            f"the pass rate fell from {curve.start.mean:.2f} to {curve.end.mean:.2f} without rising "
            f"first, below {curve.start.mean - RISE:.2f} for good from step {onset}; KL to the "
            f"reference {kl:.2g} nats/token, largest importance ratio {ratio:.3g}: the updates are too "
            "large (actor.optimizer.lr, warm-up, gradient clipping)"
        )
        evidence = {"pass_rate": curve.end.mean, "kl_reference": kl, "ratio_max": ratio}
        return Finding(self.symptom, onset, message, evidence, 0.9)
