"""`sweeps list`, `status`, `cancel`, `sync` and `clean`."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from grpo_core.errors import GrpoError
from sweeps.control import request_stop
from sweeps.record import SweepRecord
from sweeps.shelf.clean import clean
from sweeps.shelf.state import SweepState, list_sweeps, state_of
from sweeps.storage import find_sweep
from sweeps.workspace import default_storage, tracking_store

SweepName = Annotated[str, typer.Argument(help="Name of a sweep, or its folder.")]
Storage = Annotated[Path | None, typer.Option(help="Folder of the sweeps' records.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CANCEL_SECONDS = 60.0
"""How long `cancel` waits for the driver to end."""
FAILED = 1


def list_command(storage: Storage = None, *, as_json: AsJson = False) -> None:
    """Every sweep in the storage folder, the latest first."""
    shelf = storage or default_storage()
    states = list_sweeps(shelf)
    if as_json:
        print(json.dumps([state.to_json() for state in states], indent=1))
    elif not states:
        print(f"no sweep in {shelf}")
    for state in [] if as_json else states:
        print(_line(state))


def status_command(sweep: SweepName, storage: Storage = None, *, as_json: AsJson = False) -> None:
    """How far a sweep is, also while it runs."""
    state = state_of(find_sweep(sweep, storage))
    if as_json:
        print(json.dumps(state.to_json(), indent=1))
        return
    print(_line(state))
    print(f"  record   {state.folder}")
    print(f"  started  {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(state.created))}")
    print(f"  space    {state.source}")
    if state.state == "unfinished":
        print(f"  go on    sweeps run {state.source}")


def cancel_command(sweep: SweepName, storage: Storage = None) -> None:
    """Ask a running sweep to end behind its running chunks; the same command goes on with it."""
    record = find_sweep(sweep, storage)
    if not record.driven():
        print(f"{record.folder.name} is not running")
        return
    request_stop(record.folder)
    deadline = time.monotonic() + CANCEL_SECONDS
    while record.driven() and time.monotonic() < deadline:
        time.sleep(0.2)
    if record.driven():
        print(f"{record.folder.name} was asked to end and has not yet", file=sys.stderr)
        sys.exit(FAILED)
    print(_line(state_of(record)))


def sync_command(sweep: SweepName, storage: Storage = None) -> None:
    """Deliver to MLflow what a sweep has recorded and the server does not have yet.

    Raises:
        GrpoError: MLflow cannot be reached.
    """
    record = find_sweep(sweep, storage)
    from sweeps.report.waterfall import draw_trial
    from sweeps.tracking import MlflowTracker, TrackingError, check_store, sync

    try:
        status = sync(record, MlflowTracker(check_store(tracking_store())), draw_trial)
    except TrackingError as error:
        raise GrpoError(f"MLflow cannot be reached: {error}") from error
    print(f"{record.folder.name}: {status.shipped} steps delivered, {status.pending} trials left")


def clean_command(
    sweep: SweepName,
    storage: Storage = None,
    *,
    rollouts: Annotated[
        bool, typer.Option("--rollouts", help="Also the batches that --record kept.")
    ] = False,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="Also checkpoints of trials that have not ended."),
    ] = False,
) -> None:
    """Remove scheduler files and old checkpoints; results, curves and MLflow stay whole."""
    record: SweepRecord = find_sweep(sweep, storage)
    cleaned = clean(record, rollouts=rollouts, unfinished=unfinished)
    print(
        f"{record.folder.name}: {len(cleaned.paths)} entries, {cleaned.bytes / 1e6:.1f} MB removed"
    )


def _line(state: SweepState) -> str:
    if state.problem is not None:
        return f"{state.name}: damaged: {state.problem}"
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in state.outcomes.items())
    parts = [f"{state.name}: {state.state}", f"{state.ended} of {state.trials} trials"]
    parts += [f"{state.steps} steps", *([outcomes] if outcomes else [])]
    parts += [f"{state.failed} failed"] if state.failed else []
    parts += [f"{state.implied} implied"] if state.implied else []
    return " · ".join(parts)
