"""When a run may be stopped: a critical diagnosis that two checks in a row agree on.

Never because another run is better, and never a run that might still be healthy: looking healthy
early proves nothing, but some ways of being sick do not heal.
"""

from collections.abc import Callable
from typing import Literal

from sweeps.findings import Diagnosis
from sweeps.trace import Trace
from sweeps.verdict import diagnose

Mode = Literal["safe", "aggressive"]
Stop = Literal["off", "safe", "aggressive"]
Judge = Callable[[Trace], Diagnosis]
CHECK_EVERY = 5
"""Steps between two looks at a trial; a fixed number, so that a trial stops at the same step
wherever and however often it is taken up again."""

CRITICAL = frozenset(
    {
        "reward_constant",
        "zero_signal",
        "dead_update",
        "nonfinite",
        "advantage_blowup",
        "reward_hacking",
        "length_collapse",
        "ratio_instability",
        "overshoot",
        "kl_runaway",
        "entropy_explosion",
    }
)
"""Symptoms that do not heal by themselves."""
LASTING = frozenset(
    {
        "kl_pinned",
        "starved_update",
        "rollout_desync",
        "baseline_corruption",
        "entropy_collapse",
        "length_explosion",
        "reward_collapse",
        "reward_plateau",
    }
)
"""Symptoms of a run that stands still or dips: some of these runs move again, or recover."""
LOST = 0.5
"""Share of its best reward below which a collapse is no dip any more, also in safe mode."""
SURE = {"safe": 0.8, "aggressive": 0.7}
"""Least confidence of a diagnosis that counts."""
EARLIEST = {"safe": 15, "aggressive": 10}
"""Steps below which nothing but certainty counts: a slow start is no failure."""


class Alarm:
    """Looks at a growing run again and again.

    Args:
        mode: Which symptoms count, and how sure they must be.
        judge: What diagnoses a run; whoever has diagnosed it already can say so.
    """

    def __init__(self, mode: Mode = "safe", judge: Judge = diagnose) -> None:
        self._mode: Mode = mode
        self._judge = judge
        self._last: tuple[str, int] | None = None

    def check(self, trace: Trace) -> Diagnosis | None:
        """The diagnosis, once it is critical at two checks in a row; None otherwise.

        A check at which the run has not grown counts as the one before it.
        """
        diagnosis = self._judge(trace)
        symptom, steps = diagnosis.symptom, len(trace)
        if symptom is None or not self._critical(diagnosis, steps):
            self._last = None
            return None
        if self._last is not None and self._last[0] == symptom and self._last[1] < steps:
            return diagnosis
        if self._last is None or self._last[0] != symptom:
            self._last = (symptom, steps)
        return None

    def _critical(self, diagnosis: Diagnosis, steps: int) -> bool:
        symptoms = CRITICAL if self._mode == "safe" else CRITICAL | LASTING
        if diagnosis.symptom == "reward_collapse" and _is_deep(diagnosis):
            symptoms |= {"reward_collapse"}
        early = steps < EARLIEST[self._mode] and diagnosis.confidence < 1.0
        sure = diagnosis.confidence >= SURE[self._mode]
        return diagnosis.symptom in symptoms and sure and not early


def _is_deep(collapse: Diagnosis) -> bool:
    """Half of the best reward is gone; a reward below 0 has no halves."""
    best, late = collapse.evidence.get("best", 0.0), collapse.evidence.get("late", 0.0)
    return best > 0 and late < LOST * best
