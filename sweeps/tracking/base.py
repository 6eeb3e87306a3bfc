"""What a sweep needs of an experiment tracker, in our words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from grpo_core.errors import GrpoError

POSITION = "reward/mean"
"""The metric that tells how far a run was delivered: every step has it where it is finite."""
NONFINITE = "first_nonfinite"
"""Metric at the first step that holds NaN or inf, where POSITION may be missing; and a tag."""
MIRRORED = "mirrored"
"""Tag with the digest of the ending that a run shows."""


class TrackingError(GrpoError):
    """The tracker could not be reached or refused what it was sent."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric."""

    key: str
    """Slash-separated name: `reward/mean`."""
    value: float
    """A finite number, in the metric's own unit."""
    step: int
    """Training step."""


@dataclass(frozen=True, slots=True)
class View:
    """A saved way to look at the sweep's runs."""

    id: str
    """Ends the deep link; unique within the sweep."""
    name: str
    """What the menu of views shows."""
    mode: str
    """TABLE or CHART."""
    state: dict[str, Any]
    """What the tracker's page shall show, in the tracker's own terms."""


@dataclass(frozen=True, slots=True)
class SweepPage:
    """The page that holds all runs of a sweep."""

    name: str
    """Name of the sweep."""
    description: str
    """Markdown shown until the sweep describes its result."""
    tags: dict[str, str]
    """What the sweep is made from."""
    views: tuple[View, ...]
    """Saved views, the most useful first."""


@dataclass(frozen=True, slots=True)
class RunSheet:
    """A run as it starts."""

    trial_id: str
    """The trial it mirrors; the summary has an id of its own."""
    name: str
    """What people read in lists and legends."""
    started: float
    """Unix time."""
    params: dict[str, str]
    """The settings that set it apart."""
    tags: dict[str, str]
    """What lists filter, sort and group by."""
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    """File name -> content of JSON artifacts."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run as it ends."""

    status: str
    """FINISHED or FAILED."""
    ended: float
    """Unix time."""
    tags: dict[str, str]
    """Tags to set or to overwrite."""
    points: tuple[Point, ...] = ()
    """Metrics of the run as a whole."""
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    """File name -> content of JSON artifacts."""
    folder: Path | None = None
    """Files to attach under `report/`."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run that the tracker holds."""

    run_id: str
    """The tracker's own id."""
    started: float
    """Unix time; the tracker keeps the first one it was told."""
    mirrored: str
    """Digest of the ending it shows; empty while it has none."""


@dataclass(frozen=True, slots=True)
class OpenSweep:
    """What the tracker holds of a sweep."""

    experiment: str
    """The tracker's id of the sweep's page."""
    runs: dict[str, TrackedRun]
    """Trial id -> run; the summary among them."""


class Tracker(Protocol):
    """A place that shows runs. Every method may raise TrackingError and may be called again."""

    @property
    def uri(self) -> str:
        """Where it is, without passwords."""

    def open_sweep(self, page: SweepPage) -> OpenSweep:
        """Find or create the sweep's page."""

    def start_run(self, sheet: RunSheet) -> TrackedRun:
        """Create a run."""

    def complete_run(self, run: TrackedRun, sheet: RunSheet) -> int:
        """Add what a killed driver left out of the sheet; the first step that is not delivered."""

    def log_points(self, run: TrackedRun, points: Sequence[Point]) -> None:
        """Deliver whole steps; all of them or none."""

    def end_run(self, run: TrackedRun, end: RunEnd) -> None:
        """Show how the run ended; again, when that changed."""

    def describe_sweep(self, markdown: str) -> None:
        """Put a text at the head of the sweep's page."""
