"""A tracker in memory: the test double that ships with the library."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from sweeps.tracking.base import (
    MIRRORED,
    NONFINITE,
    POSITION,
    OpenSweep,
    Point,
    RunEnd,
    RunSheet,
    SweepPage,
    TrackedRun,
    Tracker,
    TrackingError,
)


@dataclass(slots=True)
class MemoryRun:
    """Everything that was delivered for one run."""

    name: str
    """Run name."""
    started: float
    """Unix time."""
    params: dict[str, str]
    """Parameters."""
    tags: dict[str, str]
    """Tags."""
    points: list[Point] = field(default_factory=list)
    """Every delivered point, duplicates included."""
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    """JSON artifacts."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Other artifacts."""
    status: str = "RUNNING"
    """RUNNING, FINISHED or FAILED."""
    ended: float | None = None
    """Unix time; None while it runs."""

    def series(self, key: str) -> list[tuple[int, float]]:
        """(step, value) of one metric, in the order of delivery."""
        return [(point.step, point.value) for point in self.points if point.key == key]


@dataclass(slots=True)
class MemoryTracker(Tracker):
    """Holds runs in plain dataclasses and fails when told to."""

    runs: dict[str, MemoryRun] = field(default_factory=dict)
    """Trial id -> run; the summary among them."""
    page: SweepPage | None = None
    """The sweep's page; None before it was opened."""
    description: str = ""
    """Markdown at the head of the page."""
    failures: int = 0
    """That many calls raise TrackingError."""
    successes: int = 0
    """That many calls succeed before."""
    failing_after_writing: bool = False
    """Failing calls do their work first, as when a server's answer is lost."""
    refused: frozenset[str] = frozenset()
    """Trial ids that are always refused."""
    calls: list[str] = field(default_factory=list)
    """Name of every call, failed ones included."""

    @property
    @override
    def uri(self) -> str:
        return "memory"

    @override
    def open_sweep(self, page: SweepPage) -> OpenSweep:
        with self._call("open_sweep"):
            self.page = page
            self.description = self.description or page.description
            runs = {key: _tracked(key, run) for key, run in self.runs.items()}
            return OpenSweep(experiment="1", runs=runs)

    @override
    def start_run(self, sheet: RunSheet) -> TrackedRun:
        with self._call("start_run", sheet.trial_id):
            if sheet.trial_id in self.runs:
                raise ValueError(f"trial {sheet.trial_id} has a run already")
            run = MemoryRun(sheet.name, sheet.started, dict(sheet.params), dict(sheet.tags))
            run.documents.update(sheet.documents)
            self.runs[sheet.trial_id] = run
            return _tracked(sheet.trial_id, run)

    @override
    def complete_run(self, run: TrackedRun, sheet: RunSheet) -> int:
        with self._call("complete_run", run.run_id):
            held = self.runs[run.run_id]
            held.params.update(sheet.params)
            held.documents.update(sheet.documents)
            marks = (POSITION, NONFINITE)
            return max((p.step for p in held.points if p.key in marks), default=-1) + 1

    @override
    def log_points(self, run: TrackedRun, points: Sequence[Point]) -> None:
        with self._call("log_points", run.run_id):
            self.runs[run.run_id].points.extend(points)

    @override
    def end_run(self, run: TrackedRun, end: RunEnd) -> None:
        with self._call("end_run", run.run_id):
            held = self.runs[run.run_id]
            held.status, held.ended = end.status, end.ended
            held.tags.update(end.tags)
            held.points.extend(point for point in end.points if point not in held.points)
            held.documents.update(end.documents)
            if end.folder is not None:
                files = (path for path in end.folder.rglob("*") if path.is_file())
                held.files.update({str(p.relative_to(end.folder)): p.read_bytes() for p in files})

    @override
    def describe_sweep(self, markdown: str) -> None:
        with self._call("describe_sweep"):
            self.description = markdown

    @contextlib.contextmanager
    def _call(self, name: str, trial_id: str | None = None) -> Iterator[None]:
        """Note the call, and fail before or after its work when told to.

        Raises:
            TrackingError: it was told to fail.
        """
        self.calls.append(name)
        if trial_id in self.refused:
            raise TrackingError(f"{name}: trial {trial_id} is refused")
        failing = self.successes == 0 and self.failures > 0
        self.successes = max(self.successes - 1, 0)
        self.failures -= failing
        if failing and not self.failing_after_writing:
            raise TrackingError(f"{name}: told to fail")
        yield
        if failing:
            raise TrackingError(f"{name}: the answer was lost")


def _tracked(run_id: str, run: MemoryRun) -> TrackedRun:
    return TrackedRun(run_id, run.started, run.tags.get(MIRRORED, ""))
