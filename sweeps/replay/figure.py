"""What replay found, as a heat map: directions of the updates, and what turns them."""

import textwrap
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sweeps.replay.compare import Matrix
from sweeps.replay.outcome import CellOutcome, KnobOutcome, Outcome

MOST_CHARACTERS = 45
"""Of all labels below a panel together, before they are turned."""
BRIGHT = 1.5
"""Sum of red, green and blue from which black is the better ink."""
MOST_BARS = 40
LEAST_BARS = 5
"""Fewer bars are drawn no thicker than so many."""
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
    side = max(3.2, 0.24 * count)
    width = min(0.06 * max(len(name) for name in outcome.matrix_names), 4.0)
    figure = Figure(figsize=(side + width + 5.6, max(side + 1.2, 4.2)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[side + width, 3.8])
    numbered = tuple(f"{name}  ({i})" for i, name in enumerate(outcome.matrix_names, start=1))
    columns = tuple(str(i) for i in range(1, count + 1))
    _draw_matrix(left, np.array(outcome.matrix), (numbered, columns))
    left.set_title("cosine between the updates of distinct live cells", loc="left")
    _draw_ranking(right, outcome)
    _title(figure, outcome)
    return figure


def _by_level(outcome: Outcome) -> Figure:
    knobs = [knob for knob in outcome.knobs if knob.seen][:MOST_BLOCKS]
    rows = max(1, -(-len(knobs) // 2))
    figure = Figure(figsize=(14.0, 2.9 * rows + 0.9), layout="constrained")
    halves = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.7, 1.0])
    panels = halves[0, 0].subplots(rows, 2, squeeze=False)
    for panel, knob in zip(panels.flat, knobs, strict=False):
        cosines = [[np.nan if x is None else x for x in line] for line in knob.turn.cosines]
        _draw_matrix(panel, np.array(cosines), (knob.levels, knob.levels))
        panel.set_title(f"{_label(knob.axis)}: mean cosine", loc="left")
    for panel in panels.flat[len(knobs) :]:
        panel.set_axis_off()
    _draw_ranking(halves[0, 1].subplots(), outcome)
    _title(figure, outcome)
    return figure


def _draw_matrix(
    panel: Axes, cosines: Matrix, names: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """Cosines with the names of rows and of columns; values are written in where there is room."""
    lowest = float(np.nanmin(cosines, initial=1.0, where=~np.isnan(cosines)))
    scale = ("RdBu", -1.0) if lowest < 0 else ("viridis", min(np.floor(lowest * 10) / 10, 0.9))
    colours = mpl.colormaps[scale[0]].with_extremes(bad="#dddddd")
    image = panel.imshow(cosines, vmin=scale[1], vmax=1, cmap=colours)
    rows, columns = ([textwrap.shorten(n, 60, placeholder="...") for n in part] for part in names)
    panel.set_yticks(range(len(rows)), rows)
    turned = max(map(len, columns)) * len(columns) > MOST_CHARACTERS
    panel.set_xticks(range(len(columns)), columns, rotation=90 if turned else 0)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    if len(rows) > NUMBERS_BELOW:
        panel.figure.colorbar(image, ax=panel, shrink=0.6, pad=0.02)
        return
    shades = image.to_rgba(cosines)
    for (row, column), value in np.ndenumerate(cosines):
        text = "none" if np.isnan(value) else f"{value:.2f}"
        ink = "black" if shades[row, column, :3].sum() > BRIGHT else "white"
        panel.text(column, row, text, ha="center", va="center", color=ink, fontsize=7)


def _label(axis: str) -> str:
    return axis.removeprefix("actor.")


def _draw_ranking(panel: Axes, outcome: Outcome) -> None:
    """Knobs by how far they turn the update; of a single knob its levels against the base."""
    if len(outcome.knobs) == 1:
        bars = [_level_bar(cell) for cell in outcome.cells[:MOST_BARS]]
        label = f"1 - cosine to {outcome.base}"
    else:
        bars = [_knob_bar(knob) for knob in outcome.knobs]
        label = "mean 1 - cosine between levels, all else equal"
    lengths = [length for _, length, _ in bars]
    panel.barh(range(len(bars)), lengths, color="#33638d", height=0.6)
    panel.set_yticks(range(len(bars)), [textwrap.fill(name, 28) for name, _, _ in bars])
    panel.set_ylim(max(len(bars), LEAST_BARS) - 0.5, -0.5)
    panel.set_xlim(0, max(2.0 * max(lengths, default=0.0), 0.05))
    for i, (_, length, text) in enumerate(bars):
        panel.text(length, i, f" {text}", va="center", fontsize=7, color="#444444")
    panel.set_xlabel(label)
    panel.set_title("how far each setting turns the update", loc="left")


def _level_bar(cell: CellOutcome) -> tuple[str, float, str]:
    turn = 0.0 if cell.cosine is None else max(0.0, 1.0 - cell.cosine)
    words = cell.verdict if cell.verdict != "live" else f"{turn:.3f}"
    if cell.indistinguishable_from is not None:
        words = "not seen by replay"
    elif cell.identical_to is not None:
        words = f"{turn:.3f}, identical to another"
    return cell.name, turn, words


def _knob_bar(knob: KnobOutcome) -> tuple[str, float, str]:
    return _label(knob.axis), max(0.0, knob.turn.turn or 0.0), _describe(knob)


def _describe(knob: KnobOutcome) -> str:
    turn = knob.turn
    if turn.turn is None:
        return "not seen by replay" if knob.blind else f"one of two dead in {turn.switches} pairs"
    dead = f" ({turn.switches} of {turn.switches + turn.pairs} pairs: one dead)"
    return f"{turn.turn:.3f}{dead if turn.switches else ''}"


def _title(figure: Figure, outcome: Outcome) -> None:
    counts = outcome.counts
    parts = [f"{counts[what]} {what}" for what in counts if counts[what]]
    figure.suptitle(
        f"{outcome.space}: {len(outcome.cells)} cells, {outcome.distinct} distinct live updates "
        f"({', '.join(parts)})\non {Path(outcome.recording.source).name}: "
        f"{outcome.recording.shape}",
        fontsize=9,
    )
