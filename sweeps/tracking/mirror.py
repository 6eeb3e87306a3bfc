"""Ships a sweep's record to a tracker, each step exactly once.

The record on disk is the truth and the spool; the tracker holds a copy that can be made again. How
far a run was delivered is asked from the tracker itself, when it is opened and after every failure,
so neither a killed driver nor a lost answer makes a step go missing or appear twice.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from grpo_core.metrics import StepMetrics
from sweeps.plan import TrialSpec
from sweeps.record import SweepHeader, SweepRecord, write_in_one_piece
from sweeps.tracking.base import MIRRORED, RunSheet, TrackedRun, Tracker
from sweeps.tracking.translate import (
    SweepSummary,
    batches,
    end_digest,
    first_nonfinite,
    summary_end,
    summary_id,
    summary_sheet,
    sweep_page,
    trial_end,
    trial_sheet,
)

Stamp = tuple[tuple[int, int] | None, tuple[int, int] | None]
"""(size, mtime in ns) of a trial's two files: what it looked like when it was shipped."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How the mirror spends its time."""

    settle: float = 1.0
    """Seconds after a wake-up in which more may come: larger deliveries cost less."""
    first_retry: float = 1.0
    """Seconds before the first repetition; doubles with every failure."""
    longest_retry: float = 60.0
    """Seconds that it doubles to."""

    def retry(self, failures: int) -> float:
        """Seconds to wait after that many failures in a row."""
        return min(self.first_retry * 2.0 ** min(failures - 1, 30), self.longest_retry)


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """How far the tracker is behind the record."""

    shipped: int
    """Steps that this process delivered."""
    pending: int
    """Trials (and the summary) that hold something undelivered."""
    error: str | None
    """What the last attempt failed with; None when it succeeded."""
    experiment: str | None
    """The tracker's id of the sweep's page; None when it was never reached."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sweep is mirrored."""

    uri: str
    """Address of the tracker, without passwords."""
    experiment: str
    """The tracker's id of the sweep's page."""


def mirrored_at(record: SweepRecord) -> Place | None:
    """Where the sweep's page is; None while it was never mirrored."""
    content = _read_json(_place_path(record))
    return None if content is None else Place(**content)


Illustrate = Callable[[SweepRecord, TrialSpec], Path | None]
"""Draws an ended trial's figures; the folder that holds them, or None."""


def no_figures(_record: SweepRecord, _trial: TrialSpec) -> None:
    """Draw nothing."""
    return


def sync(
    record: SweepRecord, tracker: Tracker, illustrate: Illustrate = no_figures
) -> MirrorStatus:
    """Ship everything that the tracker lacks, in the foreground.

    Raises:
        TrackingError: the tracker cannot be reached or refuses something.
    """  # noqa: DOC502 - raised by the tracker
    delivery = Delivery(record, tracker, illustrate)
    delivery.ship()
    return delivery.status(error=None)


class Mirror:
    """A thread that ships what the record gains and never stops or delays the sweep."""

    def __init__(
        self,
        record: SweepRecord,
        tracker: Tracker,
        pace: Pace | None = None,
        illustrate: Illustrate = no_figures,
    ) -> None:
        self._record = record
        self._pace = pace or Pace()
        self._delivery = Delivery(record, tracker, illustrate)
        self._awake = threading.Event()
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._error: str | None = None
        self._thread = threading.Thread(target=self._serve, name="mirror", daemon=True)

    def start(self) -> None:
        """Begin; what an earlier process left behind is shipped first."""
        self._awake.set()
        self._thread.start()

    def wake(self) -> None:
        """The record has grown. Returns at once."""
        self._awake.set()

    def finish(self, markdown_table: str, recommended: str | None) -> None:
        """Record the summary and have it shipped with the files of the report folder."""
        summary = SweepSummary(markdown_table, recommended, time.time())
        write_in_one_piece(_summary_path(self._record), asdict(summary))
        self.wake()

    def close(self, timeout: float) -> MirrorStatus:
        """Ship what is left for at most `timeout` seconds; the record keeps what is not."""
        self._deadline = time.monotonic() + timeout
        self._closing.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return self.status()

    def status(self) -> MirrorStatus:
        """How far the tracker is behind; may be asked at any time."""
        return self._delivery.status(self._error)

    def _serve(self) -> None:
        failures = 0
        while True:
            self._awake.wait()
            self._closing.wait(self._pace.settle)
            self._awake.clear()
            closing = self._closing.is_set()
            try:
                self._delivery.ship()
            except Exception as error:  # noqa: BLE001 - the sweep must outlive its mirror
                failures += 1
                self._error = f"{type(error).__name__}: {error}"
                if time.monotonic() >= self._deadline:
                    return
                self._rest(failures)
                self._awake.set()
            else:
                failures, self._error = 0, None
                if closing:
                    return

    def _rest(self, failures: int) -> None:
        """Wait before a repetition; not so long that `close` could not see another one."""
        if self._closing.is_set():
            left = max(self._deadline - time.monotonic(), 0.0)
            time.sleep(min(self._pace.first_retry, left))
        else:
            self._closing.wait(self._pace.retry(failures))


class Delivery:
    """What of a record the tracker holds, and how the rest gets there."""

    def __init__(
        self, record: SweepRecord, tracker: Tracker, illustrate: Illustrate = no_figures
    ) -> None:
        self._illustrate = illustrate
        self._record = record
        self._tracker = tracker
        self._header: tuple[tuple[int, int] | None, SweepHeader] | None = None
        self._experiment: str | None = None
        self._runs: dict[str, TrackedRun] | None = None
        self._next_step: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._nonfinite: dict[str, tuple[int, str] | None] = {}
        self._shipped_as: dict[str, Stamp] = {}
        self._attempts: dict[str, int] = {}
        self._shipped = 0

    def ship(self) -> None:
        """Ship everything new; what failed before comes last, so that it delays nothing else.

        Raises:
            TrackingError: the tracker failed; a repetition continues where this one stopped.
        """  # noqa: DOC502 - raised by the tracker
        try:
            runs = self._open()
            for key, stamp in self._waiting():
                self._attempts[key] = self._attempts.get(key, 0) + 1
                self._ship(key, runs)
                self._shipped_as[key] = stamp
                del self._attempts[key]
        except BaseException:
            # Whether the failed call did its work is known to the tracker alone.
            self._runs = None
            self._next_step.clear()
            raise

    def status(self, error: str | None) -> MirrorStatus:
        """How far the tracker is behind."""
        return MirrorStatus(self._shipped, len(self._waiting()), error, self._experiment)

    def _open(self) -> dict[str, TrackedRun]:
        if self._runs is None:
            opened = self._tracker.open_sweep(sweep_page(self._known_header()))
            self._experiment = opened.experiment
            self._runs = dict(opened.runs)
            place = Place(self._tracker.uri, opened.experiment)
            if mirrored_at(self._record) != place:
                write_in_one_piece(_place_path(self._record), asdict(place))
        return self._runs

    def _known_header(self) -> SweepHeader:
        """What was asked; a search plans further trials while it runs."""
        stamp = _stamp(self._record.folder / "sweep.json")
        if self._header is None or self._header[0] != stamp:
            self._header = stamp, self._record.header()
        return self._header[1]

    def _waiting(self) -> list[tuple[str, Stamp]]:
        """Trials (and the summary) whose files are not as they were when they were shipped."""
        if not self._record.exists():
            return []
        folder = self._record.folder / "trials"
        names = [trial.id for trial in self._known_header().trials]
        files = {name: (folder / f"{name}.jsonl", folder / f"{name}.json") for name in names}
        summary = summary_id(self._known_header())
        files[summary] = (_summary_path(self._record), self._record.report_folder)
        stamps = {name: (_stamp(first), _stamp(second)) for name, (first, second) in files.items()}
        if stamps[summary][0] is None:
            del stamps[summary]
        changed = [
            (name, stamp)
            for name, stamp in stamps.items()
            if stamp not in {(None, None), self._shipped_as.get(name)}
        ]
        return sorted(changed, key=lambda item: self._attempts.get(item[0], 0))

    def _ship(self, key: str, runs: dict[str, TrackedRun]) -> None:
        if key == summary_id(self._known_header()):
            self._ship_summary(runs)
        else:
            trial = next(trial for trial in self._known_header().trials if trial.id == key)
            self._ship_trial(trial, runs)

    def _ship_trial(self, trial: TrialSpec, runs: dict[str, TrackedRun]) -> None:
        end = self._record.end(trial.id)  # before the steps: none can follow it
        digest = None if end is None else end_digest(end)
        run = runs.get(trial.id)
        if run is not None and run.mirrored == digest and trial.id not in self._shipped_as:
            return
        started = time.time() if end is None else end.started
        run = self._run_of(trial_sheet(self._known_header(), trial, started), runs)
        fresh = self._fresh_steps(trial.id)
        nonfinite = self._nonfinite[trial.id]
        for batch in batches(fresh, None if nonfinite is None else nonfinite[0]):
            self._tracker.log_points(run, batch)
            reached = batch[-1].step + 1
            self._shipped += reached - self._next_step[trial.id]
            self._next_step[trial.id] = reached
        if end is not None and run.mirrored != digest:
            figures = self._illustrate(self._record, trial)
            self._tracker.end_run(run, replace(trial_end(end, nonfinite), folder=figures))
            runs[trial.id] = replace(run, mirrored=digest or "")

    def _fresh_steps(self, trial_id: str) -> list[StepMetrics]:
        """Steps that are not delivered; of those before, only unseen ones are read."""
        delivered, seen = self._next_step[trial_id], self._seen.get(trial_id, 0)
        steps = self._record.steps(trial_id, min(delivered, seen))
        if self._nonfinite.get(trial_id) is None:
            self._nonfinite[trial_id] = first_nonfinite(steps)
        if steps:
            self._seen[trial_id] = steps[-1].step + 1
        return [step for step in steps if step.step >= delivered]

    def _ship_summary(self, runs: dict[str, TrackedRun]) -> None:
        content = _read_json(_summary_path(self._record))
        if content is None:
            return
        summary = SweepSummary(**content)
        report = self._record.report_folder
        end = summary_end(summary, report)
        run = runs.get(summary_id(self._known_header()))
        if run is not None and run.mirrored == end.tags[MIRRORED]:
            return
        sheet = summary_sheet(self._known_header())
        run = self._run_of(sheet, runs)
        self._tracker.describe_sweep(summary.markdown)
        self._tracker.end_run(run, end)
        runs[sheet.trial_id] = replace(run, mirrored=end.tags[MIRRORED])

    def _run_of(self, sheet: RunSheet, runs: dict[str, TrackedRun]) -> TrackedRun:
        """The run of that trial, whole: found, completed or created."""
        key = sheet.trial_id
        if key not in runs:
            runs[key] = self._tracker.start_run(sheet)
            self._next_step[key] = 0
        elif key not in self._next_step:
            self._next_step[key] = self._tracker.complete_run(runs[key], sheet)
        return runs[key]


def _place_path(record: SweepRecord) -> Path:
    return record.folder / "mirror.json"


def _summary_path(record: SweepRecord) -> Path:
    return record.folder / "summary.json"


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _read_json(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.exists() else None
