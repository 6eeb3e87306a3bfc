"""The same trial gives the same numbers: alone, beside another, killed, taken up again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_core.config import TrialConfig
from sweeps.trial import TrialRun
from tests.sweeps_made import planned

pytestmark = pytest.mark.slow

STEPS = 8
WORKER = """
import json, sys
from pathlib import Path
import torch
from grpo_core.config import TrialConfig
from sweeps.trial import TrialRun

torch.set_num_threads(1)
config = TrialConfig.model_validate_json(sys.argv[1])
run = TrialRun(config, Path(sys.argv[2]))
finished = False
while not finished:
    chunk = run.advance(seconds=0.0)
    finished = chunk.finished
    for step in chunk.steps:
        print(json.dumps(step.to_json()), flush=True)
"""
"""One step per chunk and a checkpoint behind each: the most interrupted way to run."""


@pytest.fixture(
    scope="module",
    params=["{}", "{rollout.max_head_offpolicyness: 2}"],
    ids=["on-policy", "two-versions-stale"],
)
def config(request: pytest.FixtureRequest) -> TrialConfig:
    """A small trial with everything that has a state: optimizer, stale versions, judge."""
    space = (
        f"space: {{x: {{one: {request.param}}}}}\nseeds: [3]\nbudget: {{steps: {STEPS}}}\n"
        "base: {actor: {adv_norm: {}}, evaluation: {prompts: 32, interim_prompts: 16, every: 3}, "
        "train_dataset: {batch_size: 6}, gconfig: {n_samples: 4}}\n"
    )
    return TrialConfig.model_validate(planned(space).trials[0].config)


@pytest.fixture(scope="module")
def alone(config: TrialConfig, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The steps of the trial in one go, in this process."""
    chunk = TrialRun(config, tmp_path_factory.mktemp("alone") / "trial").advance(seconds=600.0)
    assert chunk.finished
    assert len(chunk.steps) == STEPS
    return [step.to_json() for step in chunk.steps]


def worker(config: TrialConfig, checkpoint: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", WORKER, config.model_dump_json(), str(checkpoint)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def steps_of(process: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


def test_two_processes_side_by_side_give_what_one_gives_alone(
    config: TrialConfig, alone: list[dict[str, Any]], tmp_path: Path
) -> None:
    other = config.model_copy(update={"seed": 4})
    both = [worker(config, tmp_path / "one"), worker(other, tmp_path / "other")]
    same, different = (steps_of(process) for process in both)
    assert same == alone
    assert different != alone


def test_a_trial_that_is_interrupted_and_taken_up_gives_the_same(
    config: TrialConfig, alone: list[dict[str, Any]], tmp_path: Path
) -> None:
    checkpoint = tmp_path / "trial"
    TrialRun(config, checkpoint).advance(seconds=600.0, most_steps=3)
    TrialRun(config, checkpoint).advance(seconds=600.0, most_steps=2)
    chunk = TrialRun(config, checkpoint).advance(seconds=600.0)
    assert chunk.finished
    assert [step.to_json() for step in chunk.steps] == alone


@pytest.mark.parametrize("after", [1, 4])
def test_a_trial_that_is_killed_and_taken_up_gives_the_same(
    config: TrialConfig, alone: list[dict[str, Any]], tmp_path: Path, after: int
) -> None:
    checkpoint = tmp_path / "trial"
    process = worker(config, checkpoint)
    assert process.stdout is not None
    # A step is printed behind its checkpoint: the kill comes into the next step or its saving.
    for _ in range(after):
        assert process.stdout.readline()
    process.kill()
    process.communicate()
    chunk = TrialRun(config, checkpoint).advance(seconds=600.0)
    assert [step.to_json() for step in chunk.steps] == alone
    assert [path.name for path in tmp_path.iterdir()] == ["trial"]


@pytest.mark.parametrize(
    ("leftover", "moved"),
    [
        pytest.param(".trial.partial", False, id="new-one-half-written"),
        pytest.param(".trial.old", True, id="between-moving-old-and-new"),
    ],
)
def test_a_kill_in_the_middle_of_saving_loses_no_checkpoint(
    config: TrialConfig, alone: list[dict[str, Any]], tmp_path: Path, leftover: str, *, moved: bool
) -> None:
    checkpoint, beside = tmp_path / "trial", tmp_path / leftover
    TrialRun(config, checkpoint).advance(seconds=600.0, most_steps=5)
    if moved:
        checkpoint.rename(beside)
    else:
        beside.mkdir()
        (beside / "state.safetensors").write_bytes(b"\x00" * 100)
    run = TrialRun(config, checkpoint)
    first = run.advance(seconds=600.0, most_steps=1)
    assert len(first.steps) == 6
    rest = run.advance(seconds=600.0)
    assert [step.to_json() for step in (*first.steps, *rest.steps)] == alone
    assert [path.name for path in tmp_path.iterdir()] == ["trial"]
