"""What a detector is, and where in the pipeline a signal is lost."""

import itertools
from typing import ClassVar, Protocol

import numpy as np

from grpo_core.metrics import STAGES
from sweeps.curve import LearningCurve
from sweeps.findings import Finding
from sweeps.trace import Series, Trace, stage_signal

SWAMPED = 0.4
"""The advantage is swamped when its fidelity is below this share of the raw reward's."""
FOREIGN_REWARD = 0.75
"""Below this fidelity of the raw reward itself, the reward pays for something besides the task."""


class Detector(Protocol):
    """One symptom. Thresholds are fields; calling it judges a trace."""

    symptom: ClassVar[str]
    """Stable id."""
    needs: ClassVar[tuple[str, ...]]
    """Signals without which it can't tell."""

    @property
    def least_steps(self) -> int:
        """Steps below which it says nothing."""
        ...

    def __call__(self, trace: Trace, curve: LearningCurve) -> Finding | None:
        """The symptom's finding, or None where it is absent."""
        ...


def swamped_stage(trace: Trace) -> tuple[str, float, float] | None:
    """The stage at which something else drowns the task's signal, with fidelity before and after.

    Read where the raw reward still had contrast, in the first half of the run. Says what the update
    follows, not whether the run learns: penalties of k2 and k3 swamp the advantage and still learn.
    """
    fidelities = _early_fidelities(trace)
    if fidelities is None:
        return None
    raw, last = fidelities["raw"], fidelities["advantage"]
    if last >= SWAMPED * max(0.3, raw):
        late = trace[stage_signal("raw", "fidelity")].last(0.25).values
        if float(np.mean(late)) < FOREIGN_REWARD:
            return "raw", 1.0, float(np.mean(late))
        return None
    names = [stage for stage in STAGES if stage in fidelities]
    drops = {
        later: fidelities[earlier] - fidelities[later]
        for earlier, later in itertools.pairwise(names)
    }
    stage = max(drops, key=lambda name: drops[name])
    return stage, fidelities[stage] + drops[stage], fidelities[stage]


def _early_fidelities(trace: Trace) -> dict[str, float] | None:
    wanted = [stage_signal(stage, "fidelity") for stage in ("raw", "advantage")]
    if trace.missing([*wanted, stage_signal("raw", "silent")]):
        return None
    silent = trace[stage_signal("raw", "silent")].first(0.5)
    usable = set(silent.steps[silent.values < 0.9].tolist())
    means = {}
    for stage in STAGES:
        series = trace.series.get(stage_signal(stage, "fidelity"))
        if series is None:
            continue
        chosen = [v for s, v in zip(series.steps, series.values, strict=True) if int(s) in usable]
        if not chosen:
            return None
        means[stage] = float(np.mean(chosen))
    return means


def warms_up(trace: Trace) -> bool:
    """The learning rate still rose in the second half of what was seen."""
    if "learning_rate" not in trace:
        return False
    rates = trace["learning_rate"].last(0.5).values
    return bool(rates.max() > rates[0])


def mean_last(series: Series, share: float = 0.25) -> float:
    """Mean over the last `share` of a series."""
    return float(np.mean(series.last(share).values))


def mean_first(series: Series, share: float = 0.1) -> float:
    """Mean over the first `share` of a series."""
    return float(np.mean(series.first(share).values))


def first_sustained(series: Series, holds: np.ndarray) -> int:
    """First step of the true values that last to the end; the last step if there are none."""
    failing = np.flatnonzero(~holds)
    index = 0 if len(failing) == 0 else min(int(failing[-1]) + 1, len(series) - 1)
    return int(series.steps[index])
