"""MLflow as a tracker.

The client is imported on first use: two seconds of import, and the eight of a new database, belong
in the mirror's thread.
"""
# ruff: noqa: PLC0415

import contextlib
import getpass
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
    View,
)
from sweeps.tracking.store import artifact_folder, calm_environment, public_uri, store_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run, RunTag

NOTE = "mlflow.note.content"
"""Experiment and run tag that the pages show as a description."""
_PAGE_OF_RUNS = 1000
_LONGEST_TAG = 20_000
"""Most characters that MLflow takes for an experiment tag."""


class MlflowTracker(Tracker):
    """One experiment per sweep, one flat run per trial.

    A point's timestamp is a function of its run and step. MLflow keeps equal points once, so a
    delivery that is repeated because its answer was lost leaves no second copy.
    """

    def __init__(self, uri: str | None = None) -> None:
        self._uri = store_uri(uri)
        self._client: MlflowClient | None = None
        self._experiment: str | None = None

    @property
    @override
    def uri(self) -> str:
        return public_uri(self._uri)

    @override
    def open_sweep(self, page: SweepPage) -> OpenSweep:
        with _tracking_errors(self.uri):
            experiment = self._find_or_create(page)
            self._experiment = experiment
            return OpenSweep(experiment=experiment, runs=dict(self._runs(experiment)))

    @override
    def start_run(self, sheet: RunSheet) -> TrackedRun:
        with _tracking_errors(self.uri):
            run = self._connect().create_run(
                self._opened(),
                start_time=_milliseconds(sheet.started),
                tags={**sheet.tags, "mlflow.user": _user()},
                run_name=sheet.name,
            )
            tracked = _tracked(run)
            self._complete(tracked, sheet)
            return tracked

    @override
    def complete_run(self, run: TrackedRun, sheet: RunSheet) -> int:
        with _tracking_errors(self.uri):
            self._complete(run, sheet)
            client = self._connect()
            history = [client.get_metric_history(run.run_id, key) for key in (POSITION, NONFINITE)]
            return max((point.step for points in history for point in points), default=-1) + 1

    @override
    def log_points(self, run: TrackedRun, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        started = _milliseconds(run.started)
        metrics = [Metric(p.key, p.value, started + p.step, p.step) for p in points]
        with _tracking_errors(self.uri):
            self._connect().log_batch(run.run_id, metrics=metrics)

    @override
    def end_run(self, run: TrackedRun, end: RunEnd) -> None:
        from mlflow.entities import Metric

        ended = _milliseconds(end.ended)
        metrics = [Metric(p.key, p.value, ended, p.step) for p in end.points]
        with _tracking_errors(self.uri):
            client = self._connect()
            self._attach(run, end.documents)
            if end.folder is not None:
                client.log_artifacts(run.run_id, str(end.folder), "report")
            client.set_terminated(run.run_id, end.status, ended)
            # Last, because the tag MIRRORED says that all of the above was done.
            client.log_batch(run.run_id, metrics=metrics, tags=_tags(end.tags))

    @override
    def describe_sweep(self, markdown: str) -> None:
        with _tracking_errors(self.uri):
            text = markdown[:_LONGEST_TAG]
            self._connect().set_experiment_tag(self._opened(), NOTE, text)

    def _connect(self) -> "MlflowClient":
        if self._client is None:
            calm_environment()
            from mlflow import MlflowClient

            # Importing MLflow sets its own level; a new database would be announced in ten lines.
            for chatty in ("alembic", "mlflow"):
                logging.getLogger(chatty).setLevel(logging.WARNING)
            self._client = MlflowClient(self._uri)
        return self._client

    def _opened(self) -> str:
        if self._experiment is None:
            raise TrackingError("open_sweep must come before anything about a run")
        return self._experiment

    def _find_or_create(self, page: SweepPage) -> str:
        client = self._connect()
        found = client.get_experiment_by_name(page.name)
        if found is None:
            folder = artifact_folder(self._uri)
            location = None if folder is None else (folder / page.name).as_uri()
            experiment_id = client.create_experiment(page.name, artifact_location=location)
            found = client.get_experiment(experiment_id)
        elif found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        is_new_content = found.tags.get("content") != page.tags["content"]
        for key, value in _experiment_tags(page).items():
            if key not in found.tags or (is_new_content and key != NOTE):
                client.set_experiment_tag(found.experiment_id, key, value)
        return found.experiment_id

    def _runs(self, experiment: str) -> Iterator[tuple[str, TrackedRun]]:
        token: str | None = None
        while True:
            runs = self._connect().search_runs(
                [experiment], max_results=_PAGE_OF_RUNS, page_token=token
            )
            for run in runs:
                if "trial_id" in run.data.tags:
                    yield run.data.tags["trial_id"], _tracked(run)
            token = runs.token
            if not token:
                return

    def _complete(self, run: TrackedRun, sheet: RunSheet) -> None:
        from mlflow.entities import Param

        params = [Param(key, value) for key, value in sheet.params.items()]
        self._connect().log_batch(run.run_id, params=params)
        self._attach(run, sheet.documents)

    def _attach(self, run: TrackedRun, documents: Mapping[str, dict[str, Any]]) -> None:
        for name, content in documents.items():
            self._connect().log_dict(run.run_id, content, name)


def _experiment_tags(page: SweepPage) -> dict[str, str]:
    """Written once for a sweep's content: what people change in the pages afterwards stays."""
    views = {f"mlflow.sharedViewState.{view.id}": _view_tag(view) for view in page.views}
    kind = {"mlflow.experimentKind": "custom_model_development"}
    tags = {NOTE: page.description, **kind, **views, **page.tags}
    return {key: value for key, value in tags.items() if len(value) <= _LONGEST_TAG}


def _view_tag(view: View) -> str:
    state = json.dumps(view.state, separators=(",", ":"))
    return json.dumps({"name": view.name, "createdAt": 0, "updatedAt": 0, "state": state})


def _tracked(run: "Run") -> TrackedRun:
    return TrackedRun(
        run_id=run.info.run_id,
        started=run.info.start_time / 1000,
        mirrored=run.data.tags.get(MIRRORED, ""),
    )


def _tags(tags: dict[str, str]) -> list["RunTag"]:
    from mlflow.entities import RunTag

    return [RunTag(key, value) for key, value in tags.items()]


def _user() -> str:
    """Name of the user, or their number where a container knows no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


@contextlib.contextmanager
def _tracking_errors(uri: str) -> Iterator[None]:
    """Whatever the client raises becomes an error that names the store.

    Raises:
        TrackingError: in place of the client's own.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise TrackingError(f"MLflow at {uri}: {error}") from error
