import json
import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpo_core.errors import GrpoError
from sweeps.cli import app
from sweeps.control import StopRequest, request_stop
from sweeps.record import SweepRecord
from sweeps.shelf.clean import clean
from sweeps.shelf.state import list_sweeps, state_of
from tests.sweep_records import make_step
from tests.sweeps_made import begun, end_of

SPACE = """
space: {actor.kl_ctl: [0.0, 0.1]}
seeds: 1
budget: {steps: 3}
"""


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    """Two trials: the first has ended, the second has two steps."""
    record = begun(tmp_path, SPACE)
    first, second = record.header().trials
    record.append_steps(first.id, [make_step(step) for step in range(3)])
    record.finish(first.id, end_of())
    record.append_steps(second.id, [make_step(step) for step in range(2)])
    for trial in (first, second):
        record.checkpoint(trial.id).mkdir(parents=True)
        (record.checkpoint(trial.id) / "state.json").write_text("{}")
    (record.folder / "tune").mkdir()
    (record.folder / "tune" / "experiment.json").write_text("{}")
    (record.folder / "rollouts").mkdir()
    (record.folder / "rollouts" / "one").write_text("12345")
    return record


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout


# --- state ---------------------------------------------------------------------------------------


def test_the_state_counts_trials_and_steps(record: SweepRecord) -> None:
    state = state_of(record)
    assert (state.state, state.trials, state.ended, state.failed) == ("unfinished", 2, 1, 0)
    assert (state.steps, state.outcomes) == (5, {"healthy": 1})


def test_a_sweep_whose_trials_have_all_ended_is_finished(record: SweepRecord) -> None:
    record.finish(record.header().trials[1].id, end_of(outcome="unhealthy"))
    assert state_of(record).state == "finished"


def test_a_sweep_with_a_driver_is_running(record: SweepRecord) -> None:
    with record.sole_driver():
        assert SweepRecord(record.folder).driven()
        assert state_of(record).state == "running"
    assert not record.driven()


def test_a_damaged_sweep_is_listed_and_hides_no_other(record: SweepRecord) -> None:
    broken = record.folder.parent / "broken"
    broken.mkdir()
    (broken / "sweep.json").write_text("{")
    states = {state.name: state.state for state in list_sweeps(record.folder.parent)}
    assert states == {record.folder.name: "unfinished", "broken": "damaged"}


def test_the_commands_print_what_the_state_is(record: SweepRecord) -> None:
    shelf = str(record.folder.parent)
    code, text = run("list", "--storage", shelf)
    assert code == 0
    assert text == f"{record.folder.name}: unfinished · 1 of 2 trials · 5 steps · 1 healthy\n"
    code, text = run("status", record.folder.name, "--storage", shelf, "--json")
    assert code == 0
    assert json.loads(text)["steps"] == 5
    assert run("cancel", record.folder.name, "--storage", shelf) == (
        0,
        f"{record.folder.name} is not running\n",
    )


def test_an_empty_shelf_is_said_to_be_empty(tmp_path: Path) -> None:
    assert run("list", "--storage", str(tmp_path)) == (0, f"no sweep in {tmp_path}\n")


# --- cleaning ------------------------------------------------------------------------------------


def test_cleaning_keeps_results_steps_and_what_a_resume_needs(record: SweepRecord) -> None:
    first, second = record.header().trials
    before = state_of(record)
    cleaned = clean(record)
    assert cleaned.bytes == 4
    assert not record.checkpoint(first.id).exists()
    assert record.checkpoint(second.id).exists()
    assert list((record.folder / "tune").iterdir()) == []
    assert (record.folder / "rollouts" / "one").exists()
    assert state_of(record) == before


def test_cleaning_takes_rollouts_and_open_checkpoints_only_when_asked(record: SweepRecord) -> None:
    cleaned = clean(record, rollouts=True, unfinished=True)
    assert cleaned.bytes == 11
    assert not (record.folder / "rollouts").exists()
    assert list((record.folder / "checkpoints").iterdir()) == []


def test_a_running_sweep_is_not_cleaned(record: SweepRecord) -> None:
    with record.sole_driver(), pytest.raises(GrpoError, match="is running; `sweeps cancel`"):
        clean(SweepRecord(record.folder))


def test_a_link_in_the_scheduler_folder_is_cut_and_not_followed(
    record: SweepRecord, tmp_path: Path
) -> None:
    kept = tmp_path / "elsewhere"
    kept.mkdir()
    (kept / "precious").write_text("x")
    (record.folder / "tune" / "link").symlink_to(kept)
    clean(record)
    assert (kept / "precious").exists()


# --- asked to end --------------------------------------------------------------------------------


def test_a_request_is_seen_until_it_is_withdrawn(tmp_path: Path) -> None:
    def reason() -> str | None:
        return StopRequest(tmp_path).reason

    assert reason() is None
    request_stop(tmp_path)
    assert reason() == "cancelled"
    for _ in range(2):
        StopRequest(tmp_path).withdraw()
    assert reason() is None


def test_the_first_interrupt_is_a_request_and_the_second_ends_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = StopRequest(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    with request.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert request.reason == "interrupted"
        assert "Ctrl-C again stops at once" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
