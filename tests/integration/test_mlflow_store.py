import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Experiment, Run
from typing_extensions import override

from sweeps.record import SweepRecord
from sweeps.tracking import (
    Mirror,
    MlflowTracker,
    Pace,
    TrackingError,
    check_store,
    mirrored_at,
    sync,
)
from sweeps.tracking.base import Point, TrackedRun
from tests.sweep_records import make_end, make_record, make_step, make_trial

pytestmark = [
    pytest.mark.slow,
    # MLflow uses what SQLAlchemy has deprecated, and leaves connections to the garbage collector.
    pytest.mark.filterwarnings("ignore"),
]

LOW = make_trial(0.1)
HIGH = make_trial(10.0)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"


class Store:
    """What the store holds of one sweep."""

    def __init__(self, uri: str, sweep: str) -> None:
        self._client = MlflowClient(uri)
        self._sweep = sweep

    def experiment(self) -> Experiment:
        found = self._client.get_experiment_by_name(self._sweep)
        assert found is not None
        return found

    def run(self, trial_id: str) -> Run:
        (found,) = self._client.search_runs(
            [self.experiment().experiment_id], f"tags.trial_id = '{trial_id}'"
        )
        return found

    def steps(self, trial_id: str, key: str = "reward/mean") -> list[int]:
        history = self._client.get_metric_history(self.run(trial_id).info.run_id, key)
        return sorted(point.step for point in history)

    def count(self, trial_id: str) -> int:
        """Stored steps; 0 while there is no run."""
        found = self._client.search_runs(
            [self.experiment().experiment_id], f"tags.trial_id = '{trial_id}'"
        )
        return len(self.steps(trial_id)) if found else 0

    def artifact(self, trial_id: str, name: str) -> str:
        location = self.run(trial_id).info.artifact_uri
        assert location is not None
        return (Path(location.removeprefix("file://")) / name).read_text()

    def delete_experiment(self) -> None:
        self._client.delete_experiment(self.experiment().experiment_id)

    def delete(self, trial_id: str) -> None:
        self._client.delete_run(self.run(trial_id).info.run_id)


def ended_record(folder: Path, name: str, steps: int = 60) -> SweepRecord:
    record = make_record(folder, LOW, HIGH, name=name)
    for trial, outcome in ((LOW, "healthy"), (HIGH, "unhealthy")):
        record.append_steps(trial.id, [make_step(step) for step in range(steps)])
        record.finish(trial.id, make_end(outcome=outcome))
    return record


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, uri: str) -> SweepRecord:
    """A finished sweep that was mirrored into a new database."""
    record = ended_record(tmp_path_factory.mktemp("whole"), "whole")
    record.report_folder.mkdir()
    (record.report_folder / "table.md").write_text("| a |")
    mirror = Mirror(record, MlflowTracker(uri), Pace(settle=0.0))
    begin = time.monotonic()
    mirror.start()
    assert time.monotonic() - begin < 0.1, "a new database takes seconds, but not the driver's"
    mirror.finish("**kl_ctl=0.1** is healthy.", "kl_ctl=0.1")
    status = mirror.close(timeout=120.0)
    assert (status.shipped, status.pending, status.error) == (120, 0, None)
    return record


@pytest.mark.usefixtures("whole")
def test_a_run_holds_what_the_record_holds_of_its_trial(uri: str) -> None:
    store = Store(uri, "whole")
    run = store.run(HIGH.id)
    assert run.info.run_name == "kl_ctl=10.0 · s1"
    assert run.info.status == "FINISHED"
    assert (run.info.start_time, run.info.end_time) == (1_700_000_100_000, 1_700_000_120_000)
    assert run.data.params["actor.kl_ctl"] == "10.0"
    assert run.data.params["actor.adv_norm"] == '{"std_level": "group"}'
    assert run.data.tags["symptom"] == "zero_signal"
    assert store.run(LOW.id).data.tags["symptom"] == ""
    assert run.data.metrics["final/pass_rate"] == 0.75
    assert store.steps(HIGH.id) == list(range(60))
    assert store.steps(HIGH.id, "eval/pass_rate") == [0, 10, 20, 30, 40, 50]
    assert json.loads(store.artifact(HIGH.id, "config.json")) == HIGH.config
    assert json.loads(store.artifact(HIGH.id, "diagnosis.json"))["onset"] == 3


def test_the_page_of_the_sweep_shows_its_summary_and_views(whole: SweepRecord, uri: str) -> None:
    store = Store(uri, "whole")
    assert store.run("summary-0123456789ab").data.tags["recommended"] == "kl_ctl=0.1"
    assert store.artifact("summary-0123456789ab", "report/table.md") == "| a |"
    experiment = store.experiment()
    assert experiment.tags["mlflow.note.content"] == "**kl_ctl=0.1** is healthy."
    view = json.loads(experiment.tags["mlflow.sharedViewState.verdicts"])
    assert "tags.`verdict`" in json.loads(view["state"])["selectedColumns"]
    place = mirrored_at(whole)
    assert place is not None
    assert place.experiment == experiment.experiment_id


@pytest.mark.usefixtures("whole")
def test_the_check_accepts_what_mlflow_made(uri: str) -> None:
    assert check_store(uri) == uri


class DyingTracker(MlflowTracker):
    """Stops for good after some deliveries, as a killed driver does."""

    def __init__(self, uri: str, deliveries: int) -> None:
        super().__init__(uri)
        self._left = deliveries

    @override
    def log_points(self, run: TrackedRun, points: Sequence[Point]) -> None:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        super().log_points(run, points)


def test_every_step_is_stored_once_though_drivers_died_between_deliveries(
    tmp_path: Path, uri: str
) -> None:
    record = ended_record(tmp_path, "killed")
    for deliveries in (0, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            sync(SweepRecord(record.folder), DyingTracker(uri, deliveries))
    # The dead delivered 0, 1 and 2 times: the three deliveries of the first trial.
    assert sync(SweepRecord(record.folder), MlflowTracker(uri)).shipped == 60
    store = Store(uri, "killed")
    for trial in (LOW, HIGH):
        assert store.steps(trial.id) == list(range(60))
        assert store.steps(trial.id, "train/loss") == list(range(60))
        assert store.run(trial.id).info.status == "FINISHED"


class RepeatingTracker(MlflowTracker):
    """Delivers twice, as when the answer to the first delivery was lost."""

    @override
    def log_points(self, run: TrackedRun, points: Sequence[Point]) -> None:
        super().log_points(run, points[: len(points) // 2])
        super().log_points(run, points)


def test_a_repeated_delivery_leaves_one_copy(tmp_path: Path, uri: str) -> None:
    sync(ended_record(tmp_path, "repeated"), RepeatingTracker(uri))
    assert Store(uri, "repeated").steps(LOW.id) == list(range(60))


def test_nan_is_a_tag_and_a_step_and_not_a_huge_number(tmp_path: Path, uri: str) -> None:
    record = make_record(tmp_path, LOW, name="nan")
    steps = [make_step(0), make_step(1), make_step(2, math.nan, math.inf, "advantage")]
    record.append_steps(LOW.id, steps)
    sync(record, MlflowTracker(uri))
    record.finish(LOW.id, make_end(outcome="unhealthy", final=math.nan))
    sync(SweepRecord(record.folder), MlflowTracker(uri))
    run = Store(uri, "nan").run(LOW.id)
    assert run.data.tags["first_nonfinite"] == "advantage at step 2"
    assert run.data.metrics["first_nonfinite"] == 2.0
    assert max(run.data.metrics.values()) < 1e6
    assert "final/pass_rate" not in run.data.metrics
    assert Store(uri, "nan").steps(LOW.id, "train/entropy") == [0, 1, 2]


def test_a_run_that_somebody_deleted_is_made_again(tmp_path: Path, uri: str) -> None:
    record = ended_record(tmp_path, "deleted", steps=3)
    sync(record, MlflowTracker(uri))
    Store(uri, "deleted").delete(LOW.id)
    sync(record, MlflowTracker(uri))
    assert Store(uri, "deleted").steps(LOW.id) == [0, 1, 2]


def test_an_experiment_that_somebody_deleted_is_restored(tmp_path: Path, uri: str) -> None:
    record = ended_record(tmp_path, "restored", steps=3)
    sync(record, MlflowTracker(uri))
    Store(uri, "restored").delete_experiment()
    assert sync(record, MlflowTracker(uri)).shipped == 0
    assert Store(uri, "restored").steps(LOW.id) == [0, 1, 2]


def test_a_changed_sweep_of_the_same_name_gets_its_own_summary_and_new_columns(
    tmp_path: Path, uri: str
) -> None:
    record = make_record(tmp_path, LOW, name="changed")
    Mirror(record, MlflowTracker(uri)).finish("first", None)
    sync(record, MlflowTracker(uri))
    header = replace(record.header(), content="ba9876543210", trials=(LOW, HIGH))
    changed = SweepRecord(tmp_path / "again")
    changed.create(header)
    Mirror(changed, MlflowTracker(uri)).finish("second", None)
    sync(changed, MlflowTracker(uri))
    store = Store(uri, "changed")
    assert store.run("summary-0123456789ab").data.params["trials"] == "1"
    assert store.run("summary-ba9876543210").data.params["trials"] == "2"
    curves = json.loads(store.experiment().tags["mlflow.sharedViewState.curves"])
    assert len(json.loads(curves["state"])["groupsExpanded"]) == 2
    assert store.experiment().tags["mlflow.note.content"] == "second"


DRIVER = """
import sys
from dataclasses import replace
from pathlib import Path
from sweeps.record import SweepRecord
from sweeps.tracking import Mirror, MlflowTracker, Pace
from tests.sweep_records import make_step, make_trial

record = SweepRecord(Path(sys.argv[1]))
mirror = Mirror(record, MlflowTracker(sys.argv[2]), Pace(settle=0.0))
mirror.start()
for step in range(60):
    record.append_steps(make_trial(0.1).id, [make_step(step)])
    mirror.wake()
    print(step, flush=True)
    sys.stdin.readline()
print("CLOSED", mirror.close(timeout=60.0).error, flush=True)
"""


def start_driver(record: SweepRecord, uri: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", DRIVER, str(record.folder), uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_driver_killed_in_mid_flight_and_resumed_leaves_every_step_once(
    tmp_path: Path, uri: str
) -> None:
    record = make_record(tmp_path, LOW, name="sigkill")
    sync(record, MlflowTracker(uri))
    store = Store(uri, "sigkill")
    for reached in (1, 15, 30):
        with start_driver(record, uri) as driver:
            assert driver.stdin is not None
            while store.count(LOW.id) < reached:
                assert driver.poll() is None
                driver.stdin.write("\n")
                driver.stdin.flush()
                time.sleep(0.05)
            driver.kill()
            driver.stdin.close()
    with start_driver(record, uri) as driver:
        output, errors = driver.communicate("\n" * 60, timeout=120)
    assert output.endswith("CLOSED None\n")
    assert errors == "", "MLflow shall not write into the terminal"
    assert store.steps(LOW.id) == list(range(60))
    assert store.steps(LOW.id, "train/loss") == list(range(60))


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


@pytest.fixture
def server_folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    pid = tmp_path / "server.pid"
    if pid.exists():
        os.killpg(int(pid.read_text()), signal.SIGTERM)


def start_server(folder: Path, uri: str, port: int) -> None:
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    command += ["--artifacts-destination", str(folder / "artifacts"), "--workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(  # noqa: S603
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    (folder / "server.pid").write_text(str(server.pid))


def test_a_server_that_comes_up_late_gets_everything(
    server_folder: Path, uri: str, closed_port: int
) -> None:
    record = ended_record(server_folder, "late")
    address = f"http://127.0.0.1:{closed_port}"
    with pytest.raises(TrackingError, match="no MLflow server answers"):
        check_store(address)
    mirror = Mirror(record, MlflowTracker(address), Pace(settle=0.0, longest_retry=2.0))
    mirror.start()
    start_server(server_folder, uri, closed_port)
    time.sleep(4.0)
    assert mirror.status().error is not None
    status = mirror.close(timeout=120.0)
    assert (status.pending, status.error) == (0, None)
    assert check_store(address) == address
    store = Store(uri, "late")
    assert store.steps(LOW.id) == list(range(60))
    assert store.run(LOW.id).data.tags["verdict"] == "healthy"
