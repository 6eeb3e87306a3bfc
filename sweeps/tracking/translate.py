"""A sweep's record in the words of a tracker: params, tags, metrics, documents.

Tags of a trial's run; those in the second row are empty until it ends, so that every column exists
and an absent value sorts and filters as "":

    kind trial_id sweep seed configuration config_hash
    verdict symptom stage onset state confidence implied first_nonfinite mirrored

A trial that was not run has a run without metrics; `implied` says why. It is empty elsewhere.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_core.metrics import StepMetrics
from sweeps.plan import TrialSpec, digest
from sweeps.record import SweepHeader, TrialEnd
from sweeps.tracking.base import MIRRORED, NONFINITE, Point, RunEnd, RunSheet, SweepPage
from sweeps.tracking.views import saved_views

NOTE = "mlflow.note.content"
"""Tag that trackers of MLflow's kind show as a description."""
BATCH = 1000
"""Most metrics that one delivery may hold."""
_QUIET_PARTS = ("_gain", "_extreme")
_LATER = (
    *("verdict", "symptom", "stage", "onset", "state", "confidence", "implied"),
    *(NONFINITE, MIRRORED),
)


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """What the sweep concluded, for the tracker's page."""

    markdown: str
    """The table of verdicts."""
    recommended: str | None
    """Name of the recommended configuration."""
    ended: float
    """Unix time."""


def sweep_page(header: SweepHeader) -> SweepPage:
    """The page that will hold the sweep's runs."""
    values: dict[str, set[str]] = {}
    for trial in header.trials:
        for key, value in trial.swept.items():
            values.setdefault(key, set()).add(_text(value))
    settings = [key for key, different in values.items() if len(different) > 1]
    configurations = dict.fromkeys(trial.configuration for trial in header.trials)
    return SweepPage(
        name=header.name,
        description=f"{header.question}\n\n{len(header.trials)} trials, no summary yet.",
        tags=_origin(header),
        views=saved_views(tuple(settings or values), tuple(configurations)),
    )


def trial_sheet(header: SweepHeader, trial: TrialSpec, started: float) -> RunSheet:
    """A trial's run as it starts."""
    identity = {
        "kind": "trial",
        "trial_id": trial.id,
        "sweep": header.name,
        "seed": str(trial.seed),
        "configuration": trial.configuration,
        "config_hash": trial.config_hash,
    }
    params = {key: _text(value) for key, value in trial.swept.items()}
    return RunSheet(
        trial_id=trial.id,
        name=trial.name,
        started=started,
        params=params | {"config_hash": trial.config_hash},
        tags=identity | dict.fromkeys(_LATER, ""),
        documents={"config.json": trial.config},
    )


def trial_end(end: TrialEnd, nonfinite: tuple[int, str] | None) -> RunEnd:
    """A trial's run as it ends; `nonfinite` is what `first_nonfinite` found in its steps."""
    diagnosis = end.diagnosis
    message = diagnosis.message if end.error is None else f"{diagnosis.message}\n\n{end.error}"
    tags = {
        "verdict": diagnosis.outcome,
        "symptom": diagnosis.symptom or "",
        "stage": diagnosis.stage or "",
        "onset": "" if diagnosis.onset is None else str(diagnosis.onset),
        "state": diagnosis.state or "",
        "confidence": f"{diagnosis.confidence:.2f}",
        NONFINITE: "" if nonfinite is None else f"{nonfinite[1]} at step {nonfinite[0]}",
        NOTE: message,
        MIRRORED: end_digest(end),
    }
    if end.proof is not None:
        tags["implied"] = end.proof
    totals = {
        "final/pass_rate": end.final,
        "initial/pass_rate": end.initial,
        "final/seconds": None if end.implied else end.seconds,
    }
    finite = {
        key: value for key, value in totals.items() if value is not None and math.isfinite(value)
    }
    return RunEnd(
        status="FAILED" if end.status == "failed" else "FINISHED",
        ended=end.started + end.seconds,
        tags=tags,
        points=tuple(Point(key, round(value, 4), 0) for key, value in finite.items()),
        documents={"diagnosis.json": diagnosis.to_json()},
    )


def end_digest(end: TrialEnd) -> str:
    """Tells one ending from another."""
    return digest(end.to_json(), 8)


def summary_id(header: SweepHeader) -> str:
    """Stands where a trial id would; a sweep that was changed gets a summary of its own."""
    return f"summary-{header.content}"


def summary_sheet(header: SweepHeader) -> RunSheet:
    """The sweep's own run as it starts."""
    return RunSheet(
        trial_id=summary_id(header),
        name="summary",
        started=header.created,
        params={"trials": str(len(header.trials)), "not_run": str(len(header.not_run))},
        tags={
            "kind": "summary",
            "trial_id": summary_id(header),
            "recommended": "",
            **_origin(header),
        },
        documents={"base.json": header.base},
    )


def summary_end(summary: SweepSummary, report: Path) -> RunEnd:
    """The sweep's own run as it ends, with the files of the report."""
    files = sorted(path for path in report.rglob("*") if path.is_file())
    contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    names = [str(path.relative_to(report)) for path in files]
    return RunEnd(
        status="FINISHED",
        ended=summary.ended,
        tags={
            "recommended": summary.recommended or "",
            NOTE: summary.markdown,
            MIRRORED: digest([summary.markdown, summary.recommended, names, contents], 8),
        },
        folder=report if files else None,
    )


def first_nonfinite(steps: Iterable[StepMetrics]) -> tuple[int, str] | None:
    """Step and name of the first tensor or metric that is NaN or inf; None where all are finite."""
    for step in steps:
        name = step.nonfinite or _nonfinite_scalar(step)
        if name is not None:
            return step.step, name
    return None


def batches(
    steps: Sequence[StepMetrics], nonfinite_step: int | None
) -> Iterator[tuple[Point, ...]]:
    """Deliveries of at most BATCH points, each of whole steps."""
    batch: list[Point] = []
    for step in steps:
        points = _points(step, marked=step.step == nonfinite_step)
        if batch and len(batch) + len(points) > BATCH:
            yield tuple(batch)
            batch = []
        batch += points
    if batch:
        yield tuple(batch)


def _points(step: StepMetrics, *, marked: bool) -> list[Point]:
    points = [
        Point(key, value, step.step)
        for key, value in step.scalars().items()
        if math.isfinite(value) and not _is_quiet(key)
    ]
    return [*points, Point(NONFINITE, float(step.step), step.step)] if marked else points


def _is_quiet(key: str) -> bool:
    """Detectors need it; in a chart it is noise."""
    return key.startswith("signal/") and key.endswith(_QUIET_PARTS)


def _nonfinite_scalar(step: StepMetrics) -> str | None:
    return next((key for key, value in step.scalars().items() if not math.isfinite(value)), None)


def _origin(header: SweepHeader) -> dict[str, str]:
    return {
        "sweep": header.name,
        "content": header.content,
        "source": header.source,
        "version": header.version,
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
