"""A tensor held NaN or inf."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.findings import Finding
from sweeps.trace import Series, Trace


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Any NaN or inf in the trainer's tensors, or in its loss or gradient norm (M15).

    In a log, a number that was never finite was not measured, and a single bad step that later
    ones forget was skipped by the trainer.
    """

    symptom: ClassVar[str] = "nonfinite"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    or_else: ClassVar[tuple[tuple[str, ...], ...]] = (("grad_norm",),)
    least_steps: int = 1

    lasting: int = 3
    """Bad steps that are no skipped step any more."""

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:  # noqa: ARG002
        """The first step with a non-finite value."""
        broken = trace.nonfinite or self._in_series(trace)
        if broken is None:
            return None
        step, tensor = broken
        message = f"{tensor} became NaN or inf at step {step}; nothing after it is trustworthy"
        return Finding(self.symptom, step, message, {"first_nonfinite": float(step)}, 1.0)

    def _in_series(self, trace: Trace) -> tuple[int, str] | None:
        names = ("loss", "grad_norm", "entropy", "kl_reference", "reward_mean")
        lost = [(self._lost(trace[name]), name) for name in names if name in trace]
        return min(((step, name) for step, name in lost if step is not None), default=None)

    def _lost(self, series: Series) -> int | None:
        bad = np.flatnonzero(~np.isfinite(series.values))
        if len(bad) == 0 or (len(bad) == len(series) > 1):
            return None
        lasts = bad[-1] == len(series) - 1 or len(bad) >= self.lasting
        return int(series.steps[bad[0]]) if lasts else None
