"""What the pass rate itself shows: hacking, collapse, plateau."""

from dataclasses import dataclass
from typing import ClassVar

from sweeps.curve import RISE, LearningCurve
from sweeps.detectors.base import swamped_stage
from sweeps.findings import Finding
from sweeps.stages import STAGE_SETTINGS
from sweeps.statistics import upper_bound
from sweeps.trace import Trace, stage_signal


@dataclass(frozen=True, slots=True)
class RewardHacking:
    """The update follows something else than the task, and the pass rate falls (M16, M08).

    Look-alike: overshoot, where the advantage still stands for the task.
    """

    symptom: ClassVar[str] = "reward_hacking"
    needs: ClassVar[tuple[str, ...]] = (
        "pass_rate",
        stage_signal("raw", "fidelity"),
        stage_signal("advantage", "fidelity"),
    )
    least_steps: int = 8

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A swamped signal next to a falling pass rate."""
        swamped = swamped_stage(trace)
        fell = curve.fell_below_start or curve.fall > 0
        if swamped is None or not fell:
            return None
        stage, before, after = swamped
        level = curve.top - RISE
        onset = curve.first_below(level)
        message = (
            f"at stage {stage!r} ({STAGE_SETTINGS[stage]}) the share of the signal that stands for "
            f"the task drops from {before:.2f} to {after:.2f}: the policy is paid for something "
            f"else, and the pass rate fell from {curve.top:.2f} to {curve.late.mean:.2f} (below "
            f"{level:.2f} from step {onset})"
        )
        evidence = {"fidelity_before": before, "fidelity": after, "pass_rate": curve.end.mean}
        return Finding(self.symptom, onset, message, evidence, 0.9, stage=stage)


@dataclass(frozen=True, slots=True)
class RewardCollapse:
    """The pass rate fell for good from a level that it had reached."""

    symptom: ClassVar[str] = "reward_collapse"
    needs: ClassVar[tuple[str, ...]] = ("pass_rate",)
    least_steps: int = 10

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:  # noqa: ARG002
        """A significant fall from the best window to the last quarter, or below the start."""
        if curve.fall == 0.0 and not curve.fell_below_start:
            return None
        onset = curve.first_below(curve.top - RISE)
        evidence = {"best": curve.top, "late": curve.late.mean, "pass_rate": curve.end.mean}
        if curve.fall > 0:
            message = (
                f"the pass rate fell from {curve.best.mean:.2f} (best around step "
                f"{curve.best_step}) to {curve.late.mean:.2f} in the last quarter, beyond chance; "
                f"below {curve.top - RISE:.2f} from step {onset}"
            )
        else:
            message = (
                f"the pass rate ended at {curve.end.mean:.2f}, below its start of "
                f"{curve.start.mean:.2f}, beyond chance"
            )
        return Finding(self.symptom, onset, message, evidence, 0.85)


@dataclass(frozen=True, slots=True)
class RewardPlateau:
    """The pass rate stands still below the ceiling, and no rise above `rise` can be hidden in it.

    A plateau is claimed, not assumed: where the noise could hide a rise, the run is inconclusive.
    """

    symptom: ClassVar[str] = "reward_plateau"
    needs: ClassVar[tuple[str, ...]] = ("pass_rate",)
    least_steps: int = 16

    rise: float = RISE
    """Rise over as many steps again that must be excluded (95 %, one-sided)."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A stuck curve whose noise cannot hide a rise."""
        highest = upper_bound(curve.outlook)
        if not curve.stuck or not highest < self.rise:
            return None
        onset = self._onset(curve)
        how = "never left its start" if not curve.rose else "stopped rising"
        message = (
            f"the pass rate {how}: {curve.start.mean:.2f} before, {curve.end.mean:.2f} after "
            f"{len(trace)} steps, flat from step {onset}; as many steps again would bring "
            f"{max(highest, 0.0):.2f} at most (95 %, threshold {self.rise:.2f})"
        )
        evidence = {"start": curve.start.mean, "end": curve.end.mean, "rise_bound": highest}
        swamped = swamped_stage(trace)
        stage = None if swamped is None else swamped[0]
        return Finding(self.symptom, onset, message, evidence, 0.75, stage=stage)

    def _onset(self, curve: LearningCurve) -> int:
        """First step at which the smoothed curve comes within half of RISE of its late mean."""
        close = abs(curve.smoothed.values - curve.late.mean) <= RISE / 2
        return int(curve.smoothed.steps[int(close.argmax())])
