"""What commands print about a sweep."""

from rich.console import Console

from sweeps.record import SweepRecord
from sweeps.report.tables import MOST_NAMES, describe_dropped, describe_implied, render_table
from sweeps.results import Results
from sweeps.tracking import MirrorStatus, mirrored_at, mlflow_command, ui_address, view_link
from sweeps.tracking.translate import sweep_page


def wide_console(*, stderr: bool = False) -> Console:
    """Wide enough for the comparison table where the output is no terminal."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=140)


def say(console: Console, line: str, style: str | None = None) -> None:
    """Print a line as it is: no markup, no folding."""
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def print_results(results: Results, console: Console) -> None:
    """The comparison table, the recommendation, what failed and what was not run."""
    console.print(render_table(results))
    say(console, f"recommended: {results.reason}")
    for trial in results.failed:
        say(console, f"failed: {trial.spec.name}: {trial.end.error}", style="red")
    for line in describe_implied(results):
        say(console, f"implied, not run: {line}")
    for line in describe_dropped(results):
        say(console, line)
    if results.not_run:
        names = ", ".join(spec.name for spec in results.not_run[:MOST_NAMES])
        left = len(results.not_run) - MOST_NAMES
        say(console, f"not run: {names}{f' and {left} more' if left > 0 else ''}")


def where_to_look(record: SweepRecord, status: MirrorStatus | None = None) -> list[str]:
    """Lines on MLflow: the command, the links, and what could not be delivered."""
    lines = []
    if status is not None and status.error is not None:
        lines.append(
            f"MLflow: {status.pending} trials are not delivered yet ({status.error}); the record "
            "has everything, the same command delivers it later"
        )
    place = mirrored_at(record)
    if place is None:
        return lines
    command = mlflow_command(place.uri)
    if command is not None:
        lines.append(f"MLflow   {command}")
    for view in sweep_page(record.header()).views:
        link = view_link(ui_address(place.uri), place.experiment, view)
        lines.append(f"         {view.name}: {link}")
    return lines
