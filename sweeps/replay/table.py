"""What replay found, as text for people."""

from rich.console import Console
from rich.table import Table

from sweeps.replay.outcome import CellOutcome, KnobOutcome, Outcome

MOST_ROWS = 60
"""Cells of a table unless told otherwise."""
STYLES = {
    "live": "green",
    "dead": "red",
    "exploding": "red",
    "no contrast": "yellow",
    "not evaluated": "dim",
}


def print_outcome(outcome: Outcome, console: Console, *, most_rows: int = MOST_ROWS) -> None:
    """The batch, the notes, the knobs, the cells."""
    _say(console, f"{outcome.space} on {outcome.recording.source}: {outcome.recording.shape}")
    for note in outcome.notes:
        _say(console, f"note: {note}")
    counts = ", ".join(f"{count} {what}" for what, count in outcome.counts.items() if count)
    _say(
        console,
        f"{len(outcome.cells)} cells: {counts}; {outcome.distinct} distinct updates among live "
        "cells",
    )
    console.print(_knob_table(outcome.knobs))
    console.print(_cell_table(outcome, most_rows))
    left = len(outcome.cells) - most_rows
    if left > 0:
        _say(console, f"and {left} more cells (--json has all of them)")
    for line in _reasons(outcome.cells[:most_rows]):
        _say(console, line)


def _knob_table(knobs: tuple[KnobOutcome, ...]) -> Table:
    table = Table(title="how far each knob turns the update, all else equal")
    table.add_column("knob")
    for name in ("mean 1 - cosine", "size ratio", "pairs", "one dead"):
        table.add_column(name, justify="right")
    table.add_column("what replay cannot see")
    for knob in knobs:
        turn = knob.turn
        scale = None if turn.resize is None else 2.718281828459045**turn.resize
        table.add_row(
            knob.axis,
            "not seen" if turn.turn is None and knob.blind else _number(turn.turn, ".3f"),
            _number(scale, ".3g"),
            str(turn.pairs),
            str(turn.switches),
            knob.blind or "",
        )
    return table


def _cell_table(outcome: Outcome, most_rows: int) -> Table:
    table = Table(title=f"cells (direction and size against {outcome.base})")
    table.add_column("cell", overflow="fold")
    table.add_column("verdict")
    for name in ("cosine", "size", "silent", "max|A| / bound", "clip", "KL"):
        table.add_column(name, justify="right")
    table.add_column("same update as", overflow="fold")
    for cell in outcome.cells[:most_rows]:
        numbers = cell.measured
        known = cell.verdict != "not evaluated"
        bound = f"{numbers.advantage_max:.3g} / {numbers.advantage_bound:.3g}"
        table.add_row(
            cell.name,
            cell.verdict + (" (proven)" if cell.proven else ""),
            _number(cell.cosine, "+.3f"),
            _number(cell.size, ".3g"),
            f"{numbers.silent:.0%}" if known else "",
            bound if known else "",
            f"{numbers.clip_share:.0%}" if known else "",
            f"{numbers.kl_share:.0%}" if known else "",
            _same(cell),
            style=None if cell.verdict == "live" else STYLES[cell.verdict],
        )
    return table


def _same(cell: CellOutcome) -> str:
    if cell.identical_to is not None:
        return f"identical: {cell.identical_to}"
    if cell.indistinguishable_from is not None:
        return f"not distinguishable: {cell.indistinguishable_from}"
    return "same direction as the base" if cell.parallel else ""


def _reasons(cells: tuple[CellOutcome, ...]) -> list[str]:
    """Why cells are not live, and what replay does not see of them; equal reasons once."""
    gathered: dict[str, list[str]] = {}
    for cell in cells:
        if cell.reason is not None:
            gathered.setdefault(f"{cell.verdict}: {cell.reason}", []).append(cell.name)
        for key, why in cell.unseen.items():
            gathered.setdefault(f"unseen: {key}: {why}", []).append(cell.name)
    return [f"{what} [{_listed(names)}]" for what, names in gathered.items()]


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
