"""The guard beside a training run: a log that grows, ends, falls silent or is replaced."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from grpo_core.errors import ConfigError
from sweeps.alarm import Mode
from sweeps.diagnose.command import diagnose_command
from sweeps.diagnose.judge import Judged
from sweeps.diagnose.watch import Pace, Watch, Watched
from sweeps.importers import LogError, Options
from tests.training_logs import Row, healthy_run, trl_rows, verl_rows, write_lines

ROOT = Path(__file__).parents[2]
Deed = Callable[[], object]

HEALTHY = trl_rows(healthy_run(60))
SICK = HEALTHY[:30] + [row | {"loss": float("nan")} for row in HEALTHY[30:]]


class Training:
    """Stands for the time between two looks: each sleep does the next thing, then nothing."""

    def __init__(self, deeds: Sequence[Deed]) -> None:
        self.deeds = list(deeds)
        self.now = 0.0
        self.told: list[Judged] = []
        self.warned: list[str] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.deeds:
            self.deeds.pop(0)()

    def watch(self, path: Path, mode: Mode = "safe", *, until_idle: float | None = 50.0) -> Watched:
        watch = Watch(str(path), Options(), mode, tell=self.told.append, warn=self.warned.append)
        return watch.follow(Pace(10.0, until_idle), clock=lambda: self.now, sleep=self.sleep)

    @property
    def symptoms(self) -> list[str | None]:
        return [judged.diagnosis.symptom for judged in self.told]


def append(path: Path, rows: Sequence[Row], end: str = "\n") -> Deed:
    def write() -> None:
        text = "\n".join(json.dumps(row) for row in rows) + end
        with path.open("a") as file:
            file.write(text)

    return write


def grown(path: Path, rows: Sequence[Row], at_once: int = 5) -> list[Deed]:
    """The log growing by so many lines between two looks."""
    return [append(path, rows[at : at + at_once]) for at in range(0, len(rows), at_once)]


def test_a_run_that_falls_sick_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    training = Training(grown(path, SICK))
    ended = training.watch(path)
    assert ended.alarm
    assert ended.last is not None
    assert ended.last.diagnosis.symptom == "nonfinite"
    assert ended.last.diagnosis.onset == 31
    # Seen with the lines 31 to 35 and again with 36 to 40; the rest was never written.
    assert len(ended.last.run.trace) == 40
    assert training.symptoms[-1] == "nonfinite"
    assert training.symptoms.count("nonfinite") == 1
    assert training.warned == [f"{path}: not there yet"]


def test_a_healthy_run_is_let_be_until_it_is_silent(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    training = Training(grown(path, HEALTHY))
    ended = training.watch(path)
    assert not ended.alarm
    assert ended.reason == "nothing new for 50 s"
    assert ended.last is not None
    assert len(ended.last.run.trace) == 60
    assert training.now == 12 * 10.0 + 50.0
    assert all(judged.diagnosis.outcome != "unhealthy" for judged in training.told)


def test_a_run_that_does_not_grow_is_no_second_witness(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "run.jsonl", SICK)
    ended = Training([]).watch(path)
    assert not ended.alarm
    assert ended.last is not None
    assert ended.last.diagnosis.symptom == "nonfinite"


def test_the_end_of_training_ends_the_watch(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    summary = {"train_runtime": 12.5, "train_loss": 0.1, "step": 60}
    training = Training([*grown(path, HEALTHY, 20), append(path, [summary])])
    ended = training.watch(path, until_idle=None)
    assert ended.reason == "training ended"
    assert not ended.alarm


def test_a_line_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    line = json.dumps(HEALTHY[20])
    training = Training(
        [
            append(path, HEALTHY[:20]),
            lambda: path.write_text(path.read_text() + line[:50]),
            lambda: path.write_text(path.read_text() + line[50:] + "\n"),
        ]
    )
    ended = training.watch(path)
    assert ended.last is not None
    assert len(ended.last.run.trace) == 21
    assert ended.last.run.notes == ()


def test_a_rotated_log_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    def rotate() -> None:
        path.rename(tmp_path / "run.jsonl.1")
        append(path, HEALTHY[30:40])()

    training = Training([append(path, HEALTHY[:30]), rotate, append(path, HEALTHY[40:50])])
    ended = training.watch(path)
    assert ended.last is not None
    assert ended.last.run.trace.steps.tolist() == list(range(1, 51))


def test_a_log_that_is_begun_again_replaces_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    again = [row | {"entropy": 5.0} for row in HEALTHY[10:25]]

    def begin_again() -> None:
        path.write_text("")
        append(path, again)()

    training = Training([append(path, HEALTHY[:40]), begin_again])
    ended = training.watch(path)
    assert ended.last is not None
    trace = ended.last.run.trace
    assert trace.steps.tolist() == list(range(1, 26))
    assert (trace["entropy"].values[10:] == 5.0).all()


def test_a_document_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"

    def write(count: int) -> Deed:
        state = {"log_history": SICK[:count], "max_steps": 500, "global_step": count}
        return lambda: path.write_text(json.dumps(state, indent=2))

    def write_half() -> None:
        path.write_text(json.dumps({"log_history": SICK[:45]}, indent=2)[:3])

    ended = Training([write(20), write(35), write_half, write(50)]).watch(path)
    assert ended.alarm
    assert ended.last is not None
    assert len(ended.last.run.trace) == 50


def test_aggressive_counts_a_run_that_stands_still(tmp_path: Path) -> None:
    rewards = np.random.default_rng(1).binomial(128, 0.3, 400) / 128
    still: list[Row] = [
        row | {"data": row["data"] | {"critic/score/mean": float(reward)}}
        for row, reward in zip(verl_rows(healthy_run(400)), rewards, strict=True)
    ]
    alarms = {}
    modes: tuple[Mode, ...] = ("safe", "aggressive")
    for mode in modes:
        path = tmp_path / f"{mode}.jsonl"
        alarms[mode] = Training(grown(path, still, 100)).watch(path, mode)
    assert not alarms["safe"].alarm
    last = alarms["safe"].last
    assert last is not None
    assert last.diagnosis.symptom == "reward_plateau"
    assert alarms["aggressive"].alarm


def test_a_log_that_never_comes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="not there yet"):
        Training([]).watch(tmp_path / "nowhere.jsonl")


def test_a_file_that_never_becomes_a_log_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text("dear diary\n")
    training = Training([])
    with pytest.raises(LogError, match="is no log that is known"):
        training.watch(path)
    assert len(training.warned) == 1


# --- the command -------------------------------------------------------------------------

APP = typer.Typer()
APP.command()(diagnose_command)


def test_the_command_follows_one_log(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "run.jsonl", HEALTHY)
    done = CliRunner().invoke(APP, [str(path), "--watch", "--until-idle", "0"])
    assert done.exit_code == 0
    assert "ended: nothing new for 0 s" in done.output
    sick = write_lines(tmp_path / "sick.jsonl", SICK)
    done = CliRunner().invoke(
        APP, [str(sick), "--watch", "--until-idle", "0", "--fail-on", "unhealthy", "--json"]
    )
    assert done.exit_code == 1
    assert json.loads(done.output.splitlines()[0])["symptom"] == "nonfinite"
    several = CliRunner().invoke(APP, [str(path), str(sick), "--watch"])
    assert isinstance(several.exception, ConfigError)
    assert "--watch follows one log, got 2" in str(several.exception)


@pytest.mark.slow
def test_the_guard_stops_a_real_process(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "run.jsonl", SICK[:28])
    guard = subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-m", "sweeps", "diagnose", str(path), "--watch", "--interval", "0.05"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert guard.stdout is not None
    try:
        assert guard.stdout.readline().startswith("step 28: ")
        for row in SICK[28:40]:
            append(path, [row])()
            time.sleep(0.3)
        output, _ = guard.communicate(timeout=30)
    finally:
        guard.kill()
    assert guard.returncode == 1
    assert "unhealthy: nonfinite from step 31" in output
    assert output.splitlines()[-1] == "ended: a critical diagnosis held"
