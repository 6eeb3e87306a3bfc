"""Sweeps that are asked to end, that hang, that run out of disk, or whose rewards raise."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos import STOPPED_STATE, family, living, trial_processes
from tests.running_sweeps import RunningSweep, ended, make_sweep, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]

SPACE = """\
question: Does it end as it was asked to?
base:
  actor: {adv_norm: {mean_level: batch, std_level: batch}, kl_ctl: 0.0}
  evaluation: {prompts: 64, every: 0}
space:
  change:
    healthy: {}
    group norm: {actor.reward_norm: {mean_level: group, std_level: group}}
seeds: 1
budget: {steps: 60}
"""
STEPS = 2 * 60
Outcome = tuple[dict[str, Any], dict[str, str]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Results and curves of the sweep when nobody touches it."""
    sweep = make_sweep(tmp_path_factory.mktemp("quiet"), SPACE, "control")
    ran = sweep.run("run")
    assert ran.returncode == 0, ran.stderr
    outcome = sweep.outcome()
    assert sum(text.count("\n") for text in outcome[1].values()) == STEPS
    return outcome


@pytest.fixture
def sweep(tmp_path: Path) -> RunningSweep:
    return make_sweep(tmp_path, SPACE, "control")


def begun(sweep: RunningSweep, *options: str) -> "subprocess.Popen[str]":
    """The sweep at work: some steps are recorded, none of its trials has ended."""
    driver = sweep.start("run", *options)
    wait_until(lambda: sweep.steps() > 0, driver)
    return driver


def goes_on_to(sweep: RunningSweep, undisturbed: Outcome) -> None:
    """The same command finishes the sweep, with the results of an undisturbed one."""
    again = sweep.run("run", "--resume")
    assert again.returncode == 0, again.stderr
    assert sweep.outcome() == undisturbed


# --- asked to end --------------------------------------------------------------------------------


def test_ctrl_c_lets_running_chunks_end_and_says_how_to_go_on(
    sweep: RunningSweep, undisturbed: Outcome
) -> None:
    driver = begun(sweep)
    os.killpg(driver.pid, signal.SIGINT)  # a terminal tells the whole group
    stopped = ended(driver)
    assert stopped.returncode == 3, stopped.stderr
    assert "stopping behind the running chunks; Ctrl-C again stops at once" in stopped.stderr
    assert "trials are unfinished; the same command goes on with them" in stopped.stdout
    assert 0 < sweep.steps() < STEPS
    running = [s.id for s in sweep.record.unfinished() if sweep.record.steps(s.id)]
    assert all(sweep.record.checkpoint(trial).exists() for trial in running)
    assert "Traceback" not in stopped.stderr
    goes_on_to(sweep, undisturbed)


def test_ctrl_c_twice_ends_at_once_and_leaves_no_process(
    sweep: RunningSweep, undisturbed: Outcome
) -> None:
    driver = begun(sweep)
    started = {process.pid for process in family({driver.pid})}
    os.killpg(driver.pid, signal.SIGINT)
    wait_for_line(driver, "Ctrl-C again")
    os.killpg(driver.pid, signal.SIGINT)
    stopped = ended(driver)
    assert stopped.returncode == 3, stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert vanished(started)
    assert 0 < sweep.steps() < STEPS
    goes_on_to(sweep, undisturbed)


def test_a_sweep_is_cancelled_from_elsewhere(sweep: RunningSweep, undisturbed: Outcome) -> None:
    driver = begun(sweep)
    assert json.loads(sweep.run("status", "--json").stdout)["state"] == "running"
    cancelled = sweep.run("cancel")
    assert cancelled.returncode == 0, cancelled.stderr
    assert cancelled.stdout.startswith("control: unfinished · ")
    stopped = ended(driver)
    assert stopped.returncode == 3, stopped.stderr
    assert "the same command goes on with them" in stopped.stdout
    assert sweep.run("cancel").stdout == "control is not running\n"
    goes_on_to(sweep, undisturbed)


def wait_for_line(process: "subprocess.Popen[str]", text: str) -> None:
    """Read the process's errors up to a line with `text`."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"{text!r} was not said")


def vanished(pids: set[int]) -> bool:
    """None of them lives, or soon none does."""
    deadline = time.monotonic() + 30.0
    while pids & set(living()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


# --- a trial that hangs --------------------------------------------------------------------------


def test_a_trial_that_hangs_is_started_again(sweep: RunningSweep, undisturbed: Outcome) -> None:
    driver = begun(sweep, "--stuck-after", "30")
    hung = trial_processes({driver.pid})[0]
    os.kill(hung, signal.SIGSTOP)
    try:
        ran = ended(driver)
        assert ran.returncode == 0, ran.stderr
        assert sweep.outcome() == undisturbed
        left = [p for p in living().values() if p.pid == hung and p.state == STOPPED_STATE]
        assert left == [], "the process that hung still holds its memory"
    finally:
        if hung in living():
            os.kill(hung, signal.SIGKILL)


# --- a full disk ---------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    mounted = subprocess.run(mounting, capture_output=True, text=True, check=False)  # noqa: S603
    if mounted.returncode:
        pytest.skip(f"THE FULL DISK IS NOT TESTED: it takes root to mount one: {mounted.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S603, S607


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves so many bytes of room."""
    room = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(room.f_bavail * room.f_frsize - leave))
    return filler


def test_a_full_disk_ends_the_sweep_with_its_reason_and_the_record_whole(
    tmp_path: Path, disk: Path, undisturbed: Outcome
) -> None:
    sweep = make_sweep(tmp_path, SPACE, "control", storage=disk / "results")
    driver = begun(sweep)
    filler = fill(disk, leave=0)
    stopped = ended(driver)
    assert stopped.returncode == 2, stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert "cannot be written: No space left on device" in stopped.stderr
    assert "run the same command again" in stopped.stderr
    # No trial is taken for one that failed, and what is recorded can be read.
    assert all(sweep.record.end(s.id) is None for s in sweep.record.unfinished())
    for spec in sweep.record.header().trials:
        steps = [step.step for step in sweep.record.steps(spec.id)]
        assert steps == list(range(len(steps)))
    filler.unlink()
    goes_on_to(sweep, undisturbed)


# --- a reward function that raises ---------------------------------------------------------------

REWARDS = """\
def good(prompt, completions, prompt_ids, completion_ids, answer, **entry):
    return float(len(completions))


def brittle(prompt, completions, prompt_ids, completion_ids, answer, **entry):
    if answer == "7":
        raise KeyError("grader has no entry 7")
    return float(len(completions))
"""
QUESTIONS = "".join(
    json.dumps({"question": f"{left}+{right}=?", "answer": str(left + right)}) + "\n"
    for left in range(8)
    for right in range(8)
)


def test_a_reward_that_raises_on_one_sample_fails_that_trial_alone(tmp_path: Path) -> None:
    language_models = pytest.importorskip("tests.language_models")
    model = language_models.write_model(tmp_path / "model")
    (tmp_path / "rewards_for_tests.py").write_text(REWARDS)
    (tmp_path / "sums.jsonl").write_text(QUESTIONS)
    space = f"""\
policy: hf:{model}
task: jsonl:{tmp_path / "sums.jsonl"}
base:
  actor: {{kl_ctl: 0.0, adv_norm: {{mean_level: batch, std_level: batch}}}}
  train_dataset: {{batch_size: 8}}
  gconfig: {{n_samples: 2, max_new_tokens: 4}}
  evaluation: {{prompts: 8, every: 0}}
space:
  task.reward_fn: ["rewards_for_tests:brittle", "rewards_for_tests:good"]
seeds: 1
budget: {{steps: 6}}
"""
    sweep = make_sweep(tmp_path, space, "rewards")
    ran = sweep.run("run", "--json")
    assert ran.returncode == 1, ran.stderr
    ends = [sweep.record.end(spec.id) for spec in sweep.record.header().trials]
    failed, finished = sorted((end for end in ends if end is not None), key=lambda e: e.status)
    assert (failed.status, finished.status) == ("failed", "finished")
    assert failed.error is not None
    assert "grader has no entry 7" in failed.error
    assert "=?" in failed.error, "the sample is named"

    refused = sweep.run("run", "--no-code")
    assert refused.returncode == 2
    assert "task.reward_fn=rewards_for_tests:brittle: --no-code forbids it" in refused.stderr
