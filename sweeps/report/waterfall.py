"""The waterfall of a trial: what is left of its reward signal behind every stage."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from grpo_core.metrics import STAGES, StepMetrics
from sweeps.findings import Diagnosis
from sweeps.plan import TrialSpec
from sweeps.record import SweepRecord

EARLY, LATE = 0.15, 0.25
"""Shares of the run, at its begin and its end, that the two panels average over."""
CONTRAST, TASK, LOST = "#c9d6e8", "#2f6db0", "#b3261e"


def draw_trial(record: SweepRecord, trial: TrialSpec) -> Path | None:
    """Draw one trial's waterfall into the sweep's folder; its folder, None without steps."""
    steps, end = record.steps(trial.id), record.end(trial.id)
    if not steps or end is None:
        return None
    folder = record.folder / "figures" / trial.id
    folder.mkdir(parents=True, exist_ok=True)
    draw_waterfall(steps, end.diagnosis, trial.name, folder / "waterfall.png")
    return folder


def draw_waterfall(steps: list[StepMetrics], diagnosis: Diagnosis, name: str, path: Path) -> None:
    """Two panels of bars: groups with contrast (light), and of that the task's share (dark)."""
    early = steps[: max(1, round(len(steps) * EARLY))]
    late = steps[-max(1, round(len(steps) * LATE)) :]
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(8.5, 3.2))
        # By hand: a layout engine would double the time, and every ended trial is drawn.
        figure.subplots_adjust(left=0.07, right=0.99, top=0.84, bottom=0.3, wspace=0.06)
        panels = figure.subplots(1, 2, sharey=True)
        for panel, part, title in zip(panels, (early, late), ("early", "late"), strict=True):
            _draw_part(panel, part, diagnosis.stage)
            passed = float(np.mean([step.pass_rate for step in part]))
            span = f"steps {part[0].step} to {part[-1].step}, pass rate {passed:.2f}"
            panel.set_title(f"{title}: {span}", fontsize=8)
        panels[0].set_ylabel("share of groups")
        handles = [
            Patch(color=CONTRAST, label="groups with contrast"),
            Patch(color=TASK, label="of it, what stands for the task (fidelity)"),
        ]
        figure.legend(handles=handles, loc="lower center", ncols=2, frameon=False)
        figure.suptitle(f"{name}: {_verdict(diagnosis)}", fontsize=9, y=0.98)
        figure.savefig(path, dpi=100)


def surviving(steps: list[StepMetrics], stage: str) -> tuple[float, float]:
    """Mean share of groups with contrast behind `stage`, and of it the part that is the task's."""
    signals = [step.stages[stage] for step in steps if stage in step.stages]
    contrast = float(np.mean([1 - signal.silent for signal in signals])) if signals else 0.0
    known = [signal.fidelity for signal in signals if signal.fidelity is not None]
    fidelity = float(np.mean(known)) if known else 0.0
    return contrast, contrast * max(fidelity, 0.0)


def _draw_part(panel: Axes, steps: list[StepMetrics], culprit: str | None) -> None:
    shares = [surviving(steps, stage) for stage in STAGES]
    positions = np.arange(len(STAGES))
    panel.bar(positions, [contrast for contrast, _ in shares], color=CONTRAST, width=0.75)
    panel.bar(positions, [task for _, task in shares], color=TASK, width=0.75)
    for position, stage in enumerate(STAGES):
        if stage == culprit:
            panel.axvspan(position - 0.5, position + 0.5, color=LOST, alpha=0.12, lw=0, zorder=0)
    panel.set_xticks(positions, STAGES, rotation=35, ha="right")
    for label, stage in zip(panel.get_xticklabels(), STAGES, strict=True):
        if stage == culprit:
            label.set_color(LOST)
            label.set_fontweight("bold")
    panel.set_ylim(0, 1.02)


def _verdict(diagnosis: Diagnosis) -> str:
    what = diagnosis.state or diagnosis.symptom
    where = f" at stage {diagnosis.stage}" if diagnosis.stage else ""
    return f"{diagnosis.outcome}{f' ({what}{where})' if what else ''}"
