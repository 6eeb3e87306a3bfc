import http.server
import json
import math
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from sweeps.record import SweepRecord
from sweeps.tracking import (
    MemoryTracker,
    Mirror,
    Pace,
    Place,
    TrackingError,
    check_store,
    mirrored_at,
    mlflow_command,
    saved_views,
    store_uri,
    sync,
    ui_address,
    view_link,
)
from sweeps.tracking.base import OpenSweep, SweepPage
from sweeps.tracking.mirror import Delivery
from sweeps.tracking.store import _schema_revisions, public_uri
from sweeps.tracking.translate import batches, sweep_page
from tests.sweep_records import make_end, make_header, make_record, make_step, make_trial
from tests.sweeps_made import implied_end

QUICK = Pace(settle=0.0, first_retry=0.01, longest_retry=0.02)
LOW = make_trial(0.1)
HIGH = make_trial(10.0)


def ended_record(folder: Path, steps: int = 60) -> SweepRecord:
    """Two ended trials with a summary still to come."""
    record = make_record(folder, LOW, HIGH)
    for trial, outcome in ((LOW, "healthy"), (HIGH, "unhealthy")):
        record.append_steps(trial.id, [make_step(step) for step in range(steps)])
        record.finish(trial.id, make_end(outcome=outcome))
    return record


def delivered(tracker: MemoryTracker, trial_id: str) -> list[int]:
    return [step for step, _ in tracker.runs[trial_id].series("reward/mean")]


def test_a_run_shows_what_sets_its_trial_apart_and_how_it_ended(tmp_path: Path) -> None:
    tracker = MemoryTracker()
    sync(ended_record(tmp_path), tracker)
    run = tracker.runs[HIGH.id]
    assert run.name == "kl_ctl=10.0 · s1"
    assert run.params == {
        "actor.kl_ctl": "10.0",
        "actor.adv_norm": '{"std_level": "group"}',
        "config_hash": HIGH.config_hash,
    }
    assert run.tags["kind"] == "trial"
    assert run.tags["verdict"] == "unhealthy"
    assert run.tags["symptom"] == "zero_signal"
    assert run.tags["onset"] == "3"
    assert run.tags["state"] == ""
    assert run.tags["mlflow.note.content"] == "no group has contrast from step 3 on"
    assert run.documents["config.json"] == HIGH.config
    assert run.documents["diagnosis.json"]["symptom"] == "zero_signal"
    assert (run.status, run.started, run.ended) == ("FINISHED", 1_700_000_100.0, 1_700_000_120.0)
    assert run.series("final/pass_rate") == [(0, 0.75)]
    assert run.series("initial/pass_rate") == [(0, 0.25)]


def test_a_running_trial_has_every_column_and_no_verdict(tmp_path: Path) -> None:
    record = make_record(tmp_path, LOW)
    record.append_steps(LOW.id, [make_step(0)])
    tracker = MemoryTracker()
    sync(record, tracker)
    run = tracker.runs[LOW.id]
    columns = ("verdict", "symptom", "stage", "onset", "state", "confidence", "implied")
    assert [run.tags[column] for column in (*columns, "first_nonfinite")] == [""] * 8
    assert run.status == "RUNNING"


def test_a_trial_that_raised_is_failed_and_says_why(tmp_path: Path) -> None:
    record = make_record(tmp_path, LOW)
    record.finish(LOW.id, make_end(status="failed", error="out of memory", final=None))
    tracker = MemoryTracker()
    sync(record, tracker)
    run = tracker.runs[LOW.id]
    assert run.status == "FAILED"
    assert run.tags["mlflow.note.content"].endswith("out of memory")
    assert run.series("final/pass_rate") == []


def test_a_trial_that_was_not_run_has_a_run_without_metrics_that_says_why(tmp_path: Path) -> None:
    record = ended_record(tmp_path)
    dead = make_trial(0.5)
    record.create(make_header(LOW, HIGH, dead))
    record.finish(dead.id, implied_end())
    tracker = MemoryTracker()
    sync(record, tracker)
    run = tracker.runs[dead.id]
    assert run.points == []
    assert run.tags["implied"] == "reward_scaling=0"
    assert (run.tags["verdict"], run.tags["symptom"], run.tags["stage"]) == (
        "unhealthy",
        "zero_signal",
        "scaled",
    )
    assert (run.status, run.started, run.ended) == ("FINISHED", 1_700_000_000.0, 1_700_000_000.0)
    assert tracker.runs[LOW.id].tags["implied"] == ""
    tracker.calls.clear()
    sync(record, tracker)
    assert tracker.calls == ["open_sweep"]


def test_a_trial_without_steps_has_no_run(tmp_path: Path) -> None:
    tracker = MemoryTracker()
    status = sync(make_record(tmp_path, LOW), tracker)
    assert tracker.runs == {}
    assert status.pending == 0


def test_gain_and_extreme_of_stages_stay_in_the_record(tmp_path: Path) -> None:
    tracker = MemoryTracker()
    sync(ended_record(tmp_path, steps=1), tracker)
    keys = {point.key for point in tracker.runs[LOW.id].points}
    assert "signal/advantage_fidelity" in keys
    assert "signal/advantage_silent" in keys
    assert not [key for key in keys if key.endswith(("_gain", "_extreme"))]


def test_a_delivery_holds_whole_steps_and_at_most_a_thousand_points() -> None:
    steps = [make_step(step) for step in range(100)]
    deliveries = list(batches(steps, None))
    assert len(deliveries) > 1
    assert max(len(points) for points in deliveries) <= 1000
    of_delivery = [{point.step for point in points} for points in deliveries]
    assert sum(len(steps) for steps in of_delivery) == 100


def test_a_second_sync_ships_nothing(tmp_path: Path) -> None:
    record = ended_record(tmp_path)
    tracker = MemoryTracker()
    assert sync(record, tracker).shipped == 120
    tracker.calls.clear()
    assert sync(record, tracker).shipped == 0
    assert tracker.calls == ["open_sweep"]


@pytest.mark.parametrize("answer_lost", [False, True], ids=["not-done", "done-but-answer-lost"])
@pytest.mark.parametrize("successes", range(11))
def test_every_step_arrives_once_after_a_kill_at_any_call(
    tmp_path: Path, successes: int, *, answer_lost: bool
) -> None:
    record = ended_record(tmp_path)
    tracker = MemoryTracker(failures=1, successes=successes, failing_after_writing=answer_lost)
    with pytest.raises(TrackingError):  # 11 calls: open; of two trials: start, 3 deliveries, end
        sync(record, tracker)
    sync(record, tracker)
    for trial in (LOW, HIGH):
        assert delivered(tracker, trial.id) == list(range(60))
        assert tracker.runs[trial.id].status == "FINISHED"


def test_a_resumed_sweep_continues_the_runs_of_the_killed_one(tmp_path: Path) -> None:
    record = make_record(tmp_path, LOW)
    tracker = MemoryTracker()
    record.append_steps(LOW.id, [make_step(step) for step in range(5)])
    sync(record, tracker)
    resumed = SweepRecord(record.folder)
    resumed.append_steps(LOW.id, [make_step(step) for step in range(3, 9)])
    resumed.finish(LOW.id, make_end())
    sync(resumed, tracker)
    assert delivered(tracker, LOW.id) == list(range(9))
    assert tracker.runs[LOW.id].tags["verdict"] == "healthy"


def test_a_failed_trial_that_is_run_again_gets_its_new_ending(tmp_path: Path) -> None:
    record = make_record(tmp_path, LOW)
    tracker = MemoryTracker()
    record.append_steps(LOW.id, [make_step(0)])
    record.finish(LOW.id, make_end(status="failed", error="node lost"))
    sync(record, tracker)
    record.append_steps(LOW.id, [make_step(1)])
    record.finish(LOW.id, make_end(status="finished"))
    sync(record, tracker)
    assert delivered(tracker, LOW.id) == [0, 1]
    assert tracker.runs[LOW.id].status == "FINISHED"


def test_nan_is_named_and_never_sent_as_a_number(tmp_path: Path) -> None:
    record = make_record(tmp_path, LOW)
    steps = [make_step(0), make_step(1), make_step(2, math.nan, math.inf, "advantage")]
    record.append_steps(LOW.id, steps)
    record.finish(LOW.id, make_end(outcome="unhealthy"))
    tracker = MemoryTracker()
    sync(record, tracker)
    run = tracker.runs[LOW.id]
    assert run.tags["first_nonfinite"] == "advantage at step 2"
    assert run.series("first_nonfinite") == [(2, 2.0)]
    assert all(math.isfinite(point.value) for point in run.points)
    assert [step for step, _ in run.series("train/entropy")] == [0, 1, 2]


def test_a_step_that_was_not_finite_is_remembered_when_later_ones_are_shipped(
    tmp_path: Path,
) -> None:
    record, tracker = make_record(tmp_path, LOW), MemoryTracker()
    delivery = Delivery(record, tracker)
    record.append_steps(LOW.id, [make_step(0), make_step(1, nonfinite="loss")])
    delivery.ship()
    record.append_steps(LOW.id, [make_step(2)])
    record.finish(LOW.id, make_end())
    delivery.ship()
    assert tracker.runs[LOW.id].tags["first_nonfinite"] == "loss at step 1"


def test_a_trial_that_is_planned_while_the_sweep_runs_is_shipped_too(tmp_path: Path) -> None:
    record, tracker = make_record(tmp_path, LOW), MemoryTracker()
    delivery = Delivery(record, tracker)
    record.append_steps(LOW.id, [make_step(0)])
    delivery.ship()
    record.create(make_header(LOW, HIGH))
    record.append_steps(HIGH.id, [make_step(0)])
    delivery.ship()
    assert delivered(tracker, HIGH.id) == [0]
    assert delivered(tracker, LOW.id) == [0]


def test_a_step_whose_position_is_nan_is_not_sent_again(tmp_path: Path) -> None:
    record = make_record(tmp_path, LOW)
    record.append_steps(LOW.id, [make_step(0), make_step(1, reward=math.nan)])
    tracker = MemoryTracker()
    sync(record, tracker)
    sync(record, tracker)
    assert [step for step, _ in tracker.runs[LOW.id].series("train/entropy")] == [0, 1]
    record.finish(LOW.id, make_end(outcome="unhealthy"))
    sync(record, tracker)
    assert tracker.runs[LOW.id].tags["first_nonfinite"] == "reward/mean at step 1"


def test_the_mirror_ships_while_the_sweep_runs(tmp_path: Path) -> None:
    record = make_record(tmp_path, LOW)
    tracker = MemoryTracker()
    mirror = Mirror(record, tracker, QUICK)
    mirror.start()
    for step in range(20):
        record.append_steps(LOW.id, [make_step(step)])
        mirror.wake()
    record.finish(LOW.id, make_end())
    mirror.finish("| table |", "kl_ctl=0.1")
    status = mirror.close(timeout=10.0)
    assert (status.shipped, status.pending, status.error) == (20, 0, None)
    assert delivered(tracker, LOW.id) == list(range(20))
    assert mirrored_at(record) == Place(uri="memory", experiment="1")


@pytest.mark.parametrize("answer_lost", [False, True], ids=["not-done", "done-but-answer-lost"])
@pytest.mark.parametrize("successes", [0, 1, 2, 5, 9])
def test_the_mirror_recovers_when_the_tracker_comes_back(
    tmp_path: Path, successes: int, *, answer_lost: bool
) -> None:
    record = ended_record(tmp_path)
    tracker = MemoryTracker(failures=3, successes=successes, failing_after_writing=answer_lost)
    mirror = Mirror(record, tracker, QUICK)
    mirror.start()
    status = mirror.close(timeout=10.0)
    assert (status.pending, status.error) == (0, None)
    assert delivered(tracker, LOW.id) == list(range(60))
    assert delivered(tracker, HIGH.id) == list(range(60))


def test_steps_of_a_trial_that_goes_on_are_shipped_before_it_ends_again(tmp_path: Path) -> None:
    record = make_record(tmp_path, LOW)
    record.append_steps(LOW.id, [make_step(0)])
    record.finish(LOW.id, make_end(status="failed", error="node lost"))
    tracker = MemoryTracker()
    delivery = Delivery(record, tracker)
    delivery.ship()
    record.append_steps(LOW.id, [make_step(1)])
    delivery.ship()
    assert delivered(tracker, LOW.id) == [0, 1]


def test_a_tracker_that_stays_down_is_reported_and_not_raised(tmp_path: Path) -> None:
    mirror = Mirror(ended_record(tmp_path), MemoryTracker(failures=10**9), QUICK)
    mirror.start()
    begin = time.monotonic()
    status = mirror.close(timeout=0.3)
    assert time.monotonic() - begin < 2.0
    assert status.pending == 2
    assert status.error == "TrackingError: open_sweep: told to fail"
    assert status.experiment is None


def test_a_tracker_that_hangs_delays_neither_driver_nor_close(tmp_path: Path) -> None:
    release = threading.Event()

    class HangingTracker(MemoryTracker):
        @override
        def open_sweep(self, page: SweepPage) -> OpenSweep:
            release.wait()
            return MemoryTracker.open_sweep(self, page)

    mirror = Mirror(ended_record(tmp_path), HangingTracker(), QUICK)
    begin = time.monotonic()
    mirror.start()
    mirror.wake()
    mirror.finish("| table |", None)
    status = mirror.close(timeout=0.1)
    assert time.monotonic() - begin < 2.0
    assert status.pending == 3
    release.set()


def test_a_refused_trial_delays_no_other(tmp_path: Path) -> None:
    record = ended_record(tmp_path)
    tracker = MemoryTracker(refused=frozenset({LOW.id}))
    mirror = Mirror(record, tracker, QUICK)
    mirror.start()
    mirror.finish("| table |", None)
    status = mirror.close(timeout=2.0)
    assert status.pending == 1
    assert status.error is not None
    assert LOW.id in status.error
    assert delivered(tracker, HIGH.id) == list(range(60))
    assert tracker.description == "| table |"


def test_close_without_start_reports_what_is_pending(tmp_path: Path) -> None:
    assert Mirror(ended_record(tmp_path), MemoryTracker(), QUICK).close(timeout=1.0).pending == 2


def test_waiting_for_a_tracker_doubles_up_to_a_limit() -> None:
    pace = Pace(first_retry=1.0, longest_retry=5.0)
    assert [pace.retry(failures) for failures in (1, 2, 3, 4, 10_000)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_the_summary_carries_recommendation_report_and_description(tmp_path: Path) -> None:
    record = ended_record(tmp_path)
    record.report_folder.mkdir()
    (record.report_folder / "table.md").write_text("| a |")
    mirror = Mirror(record, tracker := MemoryTracker(), QUICK)
    mirror.start()
    mirror.finish("**kl_ctl=0.1** is healthy.", "kl_ctl=0.1")
    mirror.close(timeout=10.0)
    run = tracker.runs["summary-0123456789ab"]
    assert run.tags["kind"] == "summary"
    assert run.tags["recommended"] == "kl_ctl=0.1"
    assert run.tags["content"] == "0123456789ab"
    assert run.params["trials"] == "2"
    assert run.files == {"table.md": b"| a |"}
    assert tracker.description == "**kl_ctl=0.1** is healthy."


def test_a_new_report_is_shipped_again_and_an_equal_one_is_not(tmp_path: Path) -> None:
    record = ended_record(tmp_path)
    record.report_folder.mkdir()
    (record.report_folder / "table.md").write_text("| a |")
    Mirror(record, MemoryTracker(), QUICK).finish("table", None)
    tracker = MemoryTracker()
    sync(record, tracker)
    calls = len(tracker.calls)
    sync(record, tracker)
    assert tracker.calls[calls:] == ["open_sweep"]
    (record.report_folder / "table.md").write_text("| b |")
    sync(record, tracker)
    assert tracker.runs["summary-0123456789ab"].files == {"table.md": b"| b |"}


def test_the_page_says_what_was_asked_until_it_can_say_the_answer(tmp_path: Path) -> None:
    tracker = MemoryTracker()
    sync(make_record(tmp_path, LOW, HIGH), tracker)
    assert tracker.description == "How much KL does it take?\n\n2 trials, no summary yet."


def test_views_have_a_column_for_each_setting_that_differs() -> None:
    views = {view.id: view for view in sweep_page(make_header(LOW, HIGH)).views}
    columns = views["verdicts"].state["selectedColumns"]
    assert "params.`actor.kl_ctl`" in columns
    assert "params.`actor.adv_norm`" not in columns
    assert set(views["verdicts"].state["columnOrder"]) == set(columns)
    assert "tags.verdict = 'unhealthy'" in views["failing"].state["searchFilter"]
    assert all("tags.kind = 'trial'" in view.state["searchFilter"] for view in views.values())


def test_curves_are_grouped_by_configuration_and_limited_when_many() -> None:
    few = saved_views(("a",), ("a=1", "a=2"))[1].state
    many = saved_views(("a",), tuple(f"a={value}" for value in range(31)))[1].state
    assert few["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "configuration"}]
    assert (few["runsHiddenMode"], many["runsHiddenMode"]) == ("SHOW_ALL", "FIRST_20_RUNS")
    sections = {section["uuid"] for section in few["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in few["compareRunCharts"]} <= sections


def test_a_deep_link_opens_the_view() -> None:
    view = saved_views(("a",), ("a=1",))[0]
    assert view_link("http://127.0.0.1:5000/", "7", view) == (
        "http://127.0.0.1:5000/#/experiments/7/runs"
        "?compareRunsMode=TABLE&viewStateShareKey=verdicts&workflowType=machine_learning"
    )


def test_the_default_store_is_sqlite_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert store_uri() == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker:5000")
    assert store_uri() == "http://tracker:5000"
    assert store_uri("sqlite:///other.db") == f"sqlite:///{tmp_path}/other.db"


def test_the_command_names_the_store_and_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "my runs"
    command = mlflow_command(f"sqlite:///{folder}/mlflow.db")
    assert command is not None
    assert f"--backend-store-uri 'sqlite:///{folder}/mlflow.db'" in command
    assert f"--artifacts-destination '{folder}/mlartifacts'" in command
    assert mlflow_command("http://tracker:5000") is None
    assert ui_address("http://tracker:5000/") == "http://tracker:5000"


def test_passwords_are_not_shown() -> None:
    assert public_uri("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert public_uri("http://host:5000/path@x") == "http://host:5000/path@x"


@pytest.mark.parametrize("uri", ["file:./mlruns", "mlruns", "sqlite://"])
def test_a_store_that_mlflow_refuses_is_refused(uri: str) -> None:
    with pytest.raises(TrackingError, match=r"use sqlite:///mlflow\.db"):
        check_store(uri)


def test_a_new_database_is_accepted_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mlflow.db"
    assert check_store(f"sqlite:///{path}") == f"sqlite:///{path}"
    assert not path.exists()


def make_database(path: Path, revision: str) -> str:
    with sqlite3.connect(path) as database:
        database.execute("create table alembic_version (version_num text)")
        database.execute("insert into alembic_version values (?)", (revision,))
    database.close()
    return f"sqlite:///{path}"


def test_a_database_of_another_mlflow_is_refused_with_the_way_out(tmp_path: Path) -> None:
    known, head = _schema_revisions()
    assert head is not None
    assert check_store(make_database(tmp_path / "a.db", head)).endswith("a.db")
    with pytest.raises(TrackingError, match=r"'bogus'.*a newer one"):
        check_store(make_database(tmp_path / "b.db", "bogus"))
    older = next(iter(known - {head}))
    with pytest.raises(TrackingError, match="mlflow db upgrade"):
        check_store(make_database(tmp_path / "c.db", older))


def test_a_file_that_is_no_mlflow_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to have a header" * 10)
    with pytest.raises(TrackingError, match="not a usable SQLite database"):
        check_store(f"sqlite:///{tmp_path}/text.db")
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("create table customers (name text)")
    database.close()
    with pytest.raises(TrackingError, match="not one of MLflow"):
        check_store(f"sqlite:///{tmp_path}/other.db")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match="is not a folder"):
        check_store(f"sqlite:///{tmp_path}/file/mlflow.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(TrackingError, match="read-only"):
        check_store(f"sqlite:///{tmp_path}/mlflow.db")


def test_a_server_that_does_not_answer_is_reported_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    begin = time.monotonic()
    with pytest.raises(TrackingError, match=f"no MLflow server answers at http://127.0.0.1:{port}"):
        check_store(f"http://127.0.0.1:{port}")
    assert time.monotonic() - begin < 2.0


class Doorkeeper(http.server.BaseHTTPRequestHandler):
    """Answers with the status that the first part of the path asks for."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.end_headers()
        self.wfile.write(json.dumps({"experiments": []}).encode())

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Doorkeeper) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def test_a_server_is_asked_whether_it_lets_us_in(server: str) -> None:
    assert check_store(f"{server}/200") == f"{server}/200"
    with pytest.raises(TrackingError, match="MLFLOW_TRACKING_PASSWORD"):
        check_store(f"{server}/401")
    with pytest.raises(TrackingError, match="--allowed-hosts"):
        check_store(f"{server}/403")
    with pytest.raises(TrackingError, match="not one of MLflow"):
        check_store(f"{server}/404")


def test_importing_and_checking_load_no_mlflow(tmp_path: Path) -> None:
    program = (
        "import sys; from sweeps import tracking;"
        "tracking.MlflowTracker(tracking.check_store(sys.argv[1]));"
        "sys.exit('mlflow' in sys.modules or 'sqlalchemy' in sys.modules)"
    )
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    subprocess.run([sys.executable, "-c", program, uri], check=True, timeout=60)  # noqa: S603
