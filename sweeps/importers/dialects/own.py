"""Our own metric keys: as our tracker writes them, and the plain names of the signals."""

from dataclasses import fields

from grpo_core.metrics import STAGES, TRACKED_NAMES, StageSignal, StepMetrics
from sweeps.importers.dialects.base import Dialect, Entry
from sweeps.importers.signals import SIGNALS, STAGE_SIGNALS
from sweeps.trace import stage_signal

_TRACKED = [
    field.name
    for field in fields(StepMetrics)
    if field.name not in ("step", "stages", "nonfinite", "eval_pass_rate")
]

SWEEPS = Dialect(
    name="sweeps",
    title="grpo-sweeps",
    source="`grpo_core/metrics.py`",
    how="every trial of ours: a sweep's folder, a trial's file in `trials/`, or its MLflow run",
    entries=(
        Entry(TRACKED_NAMES["eval_pass_rate"], "eval_pass_rate"),
        *(Entry(TRACKED_NAMES.get(name, f"train/{name}"), name) for name in _TRACKED),
        *(
            Entry(f"signal/{stage}_{part}", stage_signal(stage, part))
            for stage in STAGES
            for part in StageSignal.__slots__
        ),
    ),
)

PLAIN = Dialect(
    name="plain",
    title="plain names",
    source="`sweeps/importers/signals.py`",
    how="any log whose columns carry the signals' own names; `component.NAME` for reward functions",
    entries=(
        *(Entry(name, name) for name in (*SIGNALS, *sorted(STAGE_SIGNALS - set(SIGNALS)))),
        Entry("component.{name}", "component.{name}"),
    ),
)
