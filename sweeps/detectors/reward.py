"""What the pass rate itself shows: hacking, collapse, plateau."""

from dataclasses import dataclass
from typing import ClassVar

from sweeps.curve import RISE, LearningCurve
from sweeps.detectors.base import swamped_stage, warms_up
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
    """The pass rate stands still below the ceiling, and no rise can be hidden in its noise.

    A plateau is claimed, not assumed: where the noise could hide a rise, the run is inconclusive.
    """

    symptom: ClassVar[str] = "reward_plateau"
    needs: ClassVar[tuple[str, ...]] = ("pass_rate",)
    least_steps: int = 24

    rise: float = RISE
    """Rise that must be excluded: between the judge's two looks, or over as many steps again."""
    ahead: int = 50
    """Least number of steps to look ahead: a slow riser has climbed little in a short run."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A stuck curve whose noise cannot hide a rise."""
        if not curve.stuck or warms_up(trace):
            return None
        proof = self._from_judge(curve) or self._from_batches(curve)
        if proof is None:
            return None
        onset = self._onset(curve)
        how = "stopped rising" if curve.rose else "never left its start"
        message = (
            f"the pass rate {how}: {curve.start.mean:.2f} before, {curve.end.mean:.2f} after "
            f"{len(trace)} steps, flat from step {onset}; {proof}, threshold {self.rise:.2f})"
        )
        evidence = {"start": curve.start.mean, "end": curve.end.mean, "slope": curve.slope.mean}
        swamped = swamped_stage(trace)
        stage = None if swamped is None else swamped[0]
        return Finding(self.symptom, onset, message, evidence, 0.75, stage=stage)

    def _from_judge(self, curve: LearningCurve) -> str | None:
        """Why the run as a whole can't have risen."""
        if curve.gain is None:
            return None
        highest = upper_bound(curve.gain, 0.95)
        return f"it rose by {max(highest, 0.0):.2f} at most (95 %" if highest < self.rise else None

    def _from_batches(self, curve: LearningCurve) -> str | None:
        """Why it can't rise any more."""
        ahead = max(len(curve.series), self.ahead)
        highest = upper_bound(curve.slope, 0.99) * ahead
        if not highest < self.rise:
            return None
        return f"{ahead} more steps would bring {max(highest, 0.0):.2f} at most (99 %"

    def _onset(self, curve: LearningCurve) -> int:
        """First step at which the smoothed curve comes within half of RISE of its late mean."""
        close = abs(curve.smoothed.values - curve.late.mean) <= RISE / 2
        return int(curve.smoothed.steps[int(close.argmax())])
