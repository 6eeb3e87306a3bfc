"""What the reward itself shows: hacking, collapse, plateau."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.detectors.base import FAITHFUL, departure, swamped_stage, typical, warms_up
from sweeps.detectors.held_out import components, curve_of, golden_curve
from sweeps.findings import Finding
from sweeps.measure import COMPONENT, task_component
from sweeps.stages import STAGE_SETTINGS
from sweeps.statistics import difference_is_significant, upper_bound
from sweeps.trace import Series, Trace, stage_signal


@dataclass(frozen=True, slots=True)
class RewardHacking:
    """The update follows something else than the task, and the task suffers (M16, M08).

    Our own trials prove it by the stage at which something else drowns the task's signal. In a log
    the reward holds or rises while a strict score falls, or one reward component takes all of the
    rise while the task's own stays low. Look-alike: overshoot, where the advantage still stands for
    the task.
    """

    symptom: ClassVar[str] = "reward_hacking"
    needs: ClassVar[tuple[str, ...]] = (
        stage_signal("raw", "fidelity"),
        stage_signal("advantage", "fidelity"),
    )
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("reward_mean", "eval_pass_rate"),
        ("reward_mean", "component.*"),
    )
    least_steps: int = 8

    dominant: float = 0.8
    """Share of the reward's rise that comes from a component which is not the task."""
    low: float = 0.5
    """Level of the task's own component, as a share of its full value, that is low."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """A swamped signal next to a falling pass rate."""
        swamped = swamped_stage(trace)
        fell = curve.fell_below_start or curve.fall > 0
        if swamped is None:
            return self._score_falls(trace, curve) or self._component_takes_over(trace)
        stage, before, after = swamped
        if not fell or (stage == "raw" and abs(after) < FAITHFUL and not self._is_paid(trace)):
            return None
        level = curve.top - curve.rise
        onset = curve.first_below(level)
        message = (
            f"at stage {stage!r} ({STAGE_SETTINGS[stage]}) the share of the signal that stands for "
            f"the task drops from {before:.2f} to {after:.2f}: the policy is paid for something "
            f"else, and the {curve.measure.word} fell from {curve.top:.2f} to "
            f"{curve.late.mean:.2f} (below {level:.2f} from step {onset})"
        )
        evidence = {
            "fidelity_before": before,
            "fidelity": after,
            curve.measure.signal: curve.end.mean,
        }
        return Finding(self.symptom, onset, message, evidence, 0.9, stage=stage)

    def _is_paid(self, trace: Trace) -> bool:
        """The policy found what the reward pays for; it can't where that is chance."""
        paid = curve_of(trace, "reward_mean", "reward")
        return paid is not None and (paid.rose or paid.rising)

    def _rise_since(self, series: Series, step: int) -> float:
        """From the values around `step` to the end."""
        at = int(np.searchsorted(series.steps, step))
        around = series.values[max(0, at - 3) : at + 4]
        return typical(series)[1] - float(np.mean(around))

    def _score_falls(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """The reward holds what it gained while the strict score loses."""
        golden = golden_curve(trace, curve)
        paid = curve_of(trace, "reward_mean", "reward")
        if curve.solvable or golden is None or paid is None:
            return None
        falls = difference_is_significant(golden.best, golden.late, least=golden.rise, level=0.05)
        if not falls or paid.fall > 0 or not (paid.rose or paid.rising):
            return None
        onset = golden.first_below(golden.top - golden.rise)
        message = (
            f"the {golden.measure.word} fell from {golden.top:.2f} to {golden.late.mean:.2f} "
            f"(below {golden.top - golden.rise:.2f} from step {onset}) while the reward rose from "
            f"{paid.start.mean:.2f} to {paid.late.mean:.2f}: the reward pays for something else"
        )
        evidence = {"score": golden.late.mean, "best": golden.top, "reward": paid.late.mean}
        return Finding(self.symptom, onset, message, evidence, 0.85)

    def _component_takes_over(self, trace: Trace) -> Finding | None:
        """Another component takes the rise, and the task's own stays low."""
        parts, golden = components(trace), task_component(trace)
        if len(parts) < 2 or golden is None:
            return None
        own = golden.removeprefix(COMPONENT)
        task = curve_of(trace, golden, own)
        grown = {name: typical(one)[1] - typical(one)[0] for name, one in parts.items()}
        taker = max(grown.keys() - {own}, key=lambda name: grown[name])
        if task is None or grown[taker] < task.rise:
            return None
        onset = departure(parts[taker])
        rises = {name: self._rise_since(one, onset) for name, one in parts.items()}
        whole = sum(max(rise, 0.0) for rise in rises.values())
        learned = rises[own] >= task.rise or task.late.mean >= task.measure.passing(self.low)
        if learned or whole <= 0 or rises[taker] < self.dominant * whole:
            return None
        message = (
            f"from step {onset} on the reward component {taker!r} takes {rises[taker] / whole:.0%} "
            f"of the rise (threshold {self.dominant:.0%}) while the task's own, {own!r}, stays at "
            f"{task.late.mean:.2f}: the policy learns what is easily paid"
        )
        evidence = {"share": rises[taker] / whole, "task": task.late.mean}
        return Finding(self.symptom, onset, message, evidence, 0.7)


@dataclass(frozen=True, slots=True)
class RewardCollapse:
    """The reward fell for good from a level that it had reached."""

    symptom: ClassVar[str] = "reward_collapse"
    needs: ClassVar[tuple[str, ...]] = ()
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 10

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:  # noqa: ARG002
        """A significant fall from the best window to the last quarter, or below the start."""
        if curve.fall == 0.0 and not curve.fell_below_start:
            return None
        word, level = curve.measure.word, curve.top - curve.rise
        onset = curve.first_below(level)
        evidence = {
            "best": curve.top,
            "late": curve.late.mean,
            curve.measure.signal: curve.end.mean,
        }
        if curve.fall > 0:
            message = (
                f"the {word} fell from {curve.best.mean:.2f} (best around step "
                f"{curve.best_step}) to {curve.late.mean:.2f} in the last quarter, beyond chance; "
                f"below {level:.2f} from step {onset}"
            )
        else:
            message = (
                f"the {word} ended at {curve.end.mean:.2f}, below its start of "
                f"{curve.start.mean:.2f}, beyond chance"
            )
        return Finding(self.symptom, onset, message, evidence, 0.85)


@dataclass(frozen=True, slots=True)
class RewardPlateau:
    """The reward stands still below the ceiling, and no rise can be hidden in its noise.

    A plateau is claimed, not assumed: where the noise could hide a rise, the run is inconclusive.
    """

    symptom: ClassVar[str] = "reward_plateau"
    needs: ClassVar[tuple[str, ...]] = ()
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_steps: int = 24

    rise: float = 1.0
    """Rise that must be excluded, in smallest changes that count: between the judge's two looks, or
    over as many steps again."""
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
            f"the {curve.measure.word} {how}: {curve.start.mean:.2f} before, "
            f"{curve.end.mean:.2f} after {len(trace)} steps, flat from step {onset}; {proof}, "
            f"threshold {self.rise * curve.rise:.2f})"
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
        if not highest < self.rise * curve.rise:
            return None
        return f"it rose by {max(highest, 0.0):.2f} at most (95 %"

    def _from_batches(self, curve: LearningCurve) -> str | None:
        """Why it can't rise any more."""
        ahead = max(len(curve.series), self.ahead)
        highest = upper_bound(curve.slope, 0.99) * ahead
        if not highest < self.rise * curve.rise:
            return None
        return f"{ahead} more steps would bring {max(highest, 0.0):.2f} at most (99 %"

    def _onset(self, curve: LearningCurve) -> int:
        """First step at which the smoothed curve comes within half of `rise` of its late mean."""
        close = abs(curve.smoothed.values - curve.late.mean) <= curve.rise / 2
        return int(curve.smoothed.steps[int(close.argmax())])
