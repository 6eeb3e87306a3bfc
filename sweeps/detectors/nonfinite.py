"""A tensor held NaN or inf."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sweeps.curve import LearningCurve
from sweeps.findings import Finding
from sweeps.trace import Trace


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Any NaN or inf in the trainer's tensors, or in its loss or gradient norm."""

    symptom: ClassVar[str] = "nonfinite"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    least_steps: int = 1

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:  # noqa: ARG002
        """The first step with a non-finite value."""
        broken = trace.nonfinite or self._in_series(trace)
        if broken is None:
            return None
        step, tensor = broken
        message = f"{tensor} became NaN or inf at step {step}; nothing after it is trustworthy"
        return Finding(self.symptom, step, message, {"first_nonfinite": float(step)}, 1.0)

    def _in_series(self, trace: Trace) -> tuple[int, str] | None:
        found = []
        for name in ("loss", "grad_norm"):
            if name in trace:
                bad = np.flatnonzero(~np.isfinite(trace[name].values))
                found += [(int(trace[name].steps[bad[0]]), name)] if len(bad) else []
        return min(found, default=None)
