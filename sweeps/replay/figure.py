"""What replay found, as a heat map: directions of the updates, and what turns them."""

import textwrap
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sweeps.replay.outcome import KnobOutcome, Outcome

COLOURS = "RdBu"
MOST_BLOCKS = 8
"""Knobs whose levels are compared in a picture of their own."""
NUMBERS_BELOW = 14
"""Cells of a matrix below which the cosines are written into it."""


def draw_outcome(outcome: Outcome, path: Path) -> None:
    """Cosines of all distinct updates, or by level where there are too many; knobs as bars."""
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = _pairwise(outcome) if outcome.matrix else _by_level(outcome)
        figure.savefig(path, dpi=130)


def _pairwise(outcome: Outcome) -> Figure:
    count = len(outcome.matrix_names)
    side = max(3.2, 0.26 * count)
    longest = max(len(name) for name in outcome.matrix_names)
    width = min(0.065 * longest, 4.0)
    figure = Figure(figsize=(side + width + 5.2, side + width + 0.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[side + width, 4.2])
    _draw_matrix(left, np.array(outcome.matrix), outcome.matrix_names, rotate=True)
    _draw_knobs(right, outcome)
    _title(figure, outcome)
    return figure


def _by_level(outcome: Outcome) -> Figure:
    knobs = [knob for knob in outcome.knobs if knob.seen][:MOST_BLOCKS]
    rows = max(1, -(-len(knobs) // 2))
    figure = Figure(figsize=(12.5, 2.9 * rows + 0.9), layout="constrained")
    halves = figure.subfigures(1, 2, squeeze=False, width_ratios=[2.1, 1.0])
    panels = halves[0, 0].subplots(rows, 2, squeeze=False)
    for panel, knob in zip(panels.flat, knobs, strict=False):
        cosines = [[np.nan if x is None else x for x in line] for line in knob.turn.cosines]
        _draw_matrix(panel, np.array(cosines), knob.levels, rotate=False)
        panel.set_title(f"{knob.axis}: mean cosine, all else equal", loc="left")
    for panel in panels.flat[len(knobs) :]:
        panel.set_axis_off()
    _draw_knobs(halves[0, 1].subplots(), outcome)
    _title(figure, outcome)
    return figure


def _draw_matrix(panel: Axes, cosines: np.ndarray, names: tuple[str, ...], *, rotate: bool) -> None:
    colours = mpl.colormaps[COLOURS].with_extremes(bad="#dddddd")
    image = panel.imshow(cosines, vmin=-1, vmax=1, cmap=colours)
    shown = [textwrap.shorten(name, 60, placeholder="...") for name in names]
    panel.set_yticks(range(len(names)), shown)
    if rotate or max(map(len, shown)) * len(names) > 45:
        panel.set_xticks(range(len(names)), shown, rotation=90)
    else:
        panel.set_xticks(range(len(names)), shown)
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)
    if len(names) <= NUMBERS_BELOW:
        for (row, column), value in np.ndenumerate(cosines):
            text = "dead" if np.isnan(value) else f"{value:.2f}"
            ink = "white" if abs(value) > 0.6 else "black"
            panel.text(column, row, text, ha="center", va="center", color=ink, fontsize=7)
    else:
        bar = panel.figure.colorbar(image, ax=panel, shrink=0.5, pad=0.01)
        bar.set_label("cosine of the loss weights")


def _draw_knobs(panel: Axes, outcome: Outcome) -> None:
    knobs = outcome.knobs
    turns = [0.0 if knob.turn.turn is None else knob.turn.turn for knob in knobs]
    panel.barh(range(len(knobs)), turns, color="#33638d", height=0.6)
    labels = [textwrap.fill(knob.axis, 28) for knob in knobs]
    panel.set_yticks(range(len(knobs)), labels)
    panel.invert_yaxis()
    panel.set_xlim(0, max(1.35 * max(turns, default=0.0), 0.05))
    for i, knob in enumerate(knobs):
        text = _describe(knob)
        panel.text(turns[i], i, f" {text}", va="center", fontsize=7, color="#444444")
    panel.set_xlabel("mean 1 - cosine between levels, all else equal")
    panel.set_title("how far each knob turns the update", loc="left")


def _describe(knob: KnobOutcome) -> str:
    turn = knob.turn
    if turn.turn is None:
        return "not seen by replay" if knob.blind else f"one of two dead in {turn.switches} pairs"
    dead = f", {turn.switches} pairs with one dead" if turn.switches else ""
    return f"{turn.turn:.3f}{dead}"


def _title(figure: Figure, outcome: Outcome) -> None:
    counts = outcome.counts
    parts = [f"{counts[what]} {what}" for what in counts if counts[what]]
    figure.suptitle(
        f"{outcome.space}: {len(outcome.cells)} cells, {outcome.distinct} distinct live updates "
        f"({', '.join(parts)})\non {Path(outcome.recording.source).name}: "
        f"{outcome.recording.shape}",
        fontsize=9,
    )
