"""Pictures of a sweep: one panel of curves per configuration."""

import math
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sweeps.record import SweepRecord
from sweeps.results import ConfigurationResult, Results

COLOURS = {
    "healthy": "#2a7f3f",
    "unhealthy": "#b3261e",
    "edge": "#b07d00",
    "inconclusive": "#777777",
}
MOST_PANELS = 48
"""Panels of one figure; of a larger sweep the first that many configurations are drawn."""


def draw_curves(record: SweepRecord, results: Results, path: Path) -> None:
    """Strict pass rate over steps, a line per seed, the judge's looks as dots, onset as a line."""
    shown = [c for c in results.configurations if c.trials][:MOST_PANELS]
    if not shown:
        return
    columns = min(4, len(shown))
    rows = math.ceil(len(shown) / columns)
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.0 * columns, 2.1 * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharex=False, sharey=True)
        for panel, configuration in zip(panels.flat, shown, strict=False):
            _draw_panel(panel, record, configuration)
        for panel in panels.flat[len(shown) :]:
            panel.set_axis_off()
        figure.suptitle(f"{results.sweep}: strict pass rate by step (dots: held-out prompts)")
        figure.savefig(path, dpi=120)


def _draw_panel(panel: Axes, record: SweepRecord, configuration: ConfigurationResult) -> None:
    verdict = configuration.verdict
    colour = COLOURS[verdict.outcome]
    for trial in configuration.trials:
        steps = record.steps(trial.spec.id)
        panel.plot(
            [s.step for s in steps], [s.pass_rate for s in steps], color=colour, alpha=0.45, lw=1
        )
        looks = [(s.step, s.eval_pass_rate) for s in steps if s.eval_pass_rate is not None]
        if trial.end.initial is not None:
            looks.insert(0, (-1, trial.end.initial))
        panel.plot(*zip(*looks, strict=True), "o-", color=colour, ms=3, lw=1.2) if looks else None
    if configuration.implied is not None and configuration.final is None:
        panel.text(
            0.5, 0.5, "implied, not run", transform=panel.transAxes, ha="center", va="center"
        )
    elif verdict.onset is not None:
        panel.axvline(verdict.onset, color=colour, ls=":", lw=1)
    words = verdict.symptom or verdict.outcome
    if verdict.stage:
        words += f" at {verdict.stage}"
    panel.set_title(f"{configuration.name}\n{words}", color=colour, fontsize=8)
    panel.set_ylim(-0.03, 1.03)
