"""Runs in an MLflow store: `runs:/ID`, or all runs of `experiments:/NAME`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sweeps.importers.collector import Collector, Record
from sweeps.importers.errors import LogError
from sweeps.importers.names import EXPERIMENT, RUN
from sweeps.tracking.base import TrackingError
from sweeps.tracking.store import (
    calm_environment,
    check_store,
    public_uri,
    sqlite_path,
    store_uri,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

_PAGE = 1000


def expand(target: str) -> list[str]:
    """The runs that `target` names, as `runs:/ID`.

    Raises:
        LogError: there is no such experiment, or no store.
    """
    if not target.startswith(EXPERIMENT):
        return [f"{RUN}{target.removeprefix(RUN)}"]
    name = target.removeprefix(EXPERIMENT)
    client = _client(target)
    found = client.get_experiment_by_name(name)
    if found is None:
        raise LogError(f"{target}: no such experiment in {public_uri(store_uri())}")
    runs = client.search_runs([found.experiment_id], max_results=_PAGE)
    if not runs:
        raise LogError(f"{target}: has no runs")
    return [f"{RUN}{run.info.run_id}" for run in runs]


class MlflowRun:
    """One run: its whole metric history and its parameters."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.ended = False
        self.name = target

    def read(self, collector: Collector, *, wait: bool = False) -> None:  # noqa: ARG002
        """Add every metric's history, in the order of its time.

        Raises:
            LogError: there is no such run, or no store.
        """
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - seconds of import

        client = _client(self.target)
        try:
            run = client.get_run(self.target.removeprefix(RUN))
            self.name = run.info.run_name or self.target
            self.ended = run.info.status == "FINISHED"
            settings = {key: _setting(text) for key, text in run.data.params.items()}
            collector.add(Record({"params": settings}, 0))
            for place, record in enumerate(_rows(client, run.info.run_id, run.data.metrics)):
                collector.add(Record(record, place + 1))
        except MlflowException as error:
            raise LogError(f"{self.target}: {error.message} ({public_uri(store_uri())})") from error

    def notes(self) -> list[str]:
        """Nothing is odd about a store."""
        return []


def _setting(text: str) -> object:
    """A parameter's value: MLflow keeps text, of Python's or YAML's words."""
    words: dict[str, object] = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _rows(
    client: "MlflowClient", run_id: str, metrics: dict[str, float]
) -> Iterator[dict[str, object]]:
    """The points of all metrics, those of one step together."""
    points = [
        (point.timestamp, point.step, key, point.value)
        for key in metrics
        for point in client.get_metric_history(run_id, key)
    ]
    row: dict[str, object] = {}
    for _, step, key, value in sorted(points, key=lambda point: point[:2]):
        if row and (row["step"] != step or key in row):
            yield row
            row = {}
        row |= {"step": step, key: value}
    if row:
        yield row


def _client(target: str) -> "MlflowClient":
    """A client of the store that counts.

    Raises:
        LogError: the store cannot be used.
    """
    uri = store_uri()
    database = sqlite_path(uri)
    if database is not None and not database.exists():
        raise LogError(f"{target}: no MLflow store at {uri}; MLFLOW_TRACKING_URI names another")
    try:
        check_store(uri)
    except TrackingError as error:
        raise LogError(f"{target}: {error}") from error
    calm_environment()
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import

    return MlflowClient(uri)
