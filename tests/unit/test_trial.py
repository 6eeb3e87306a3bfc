import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_core.config import TrialConfig
from sweeps.alarm import CHECK_EVERY, CRITICAL
from sweeps.plan import TrialSpec
from sweeps.trace import trace_of
from sweeps.trial import Chunk, TrialRun
from sweeps.verdict import diagnose
from tests.full_disk import files_up_to
from tests.sweep_records import make_step
from tests.trials import FAILURE, registered_for_tests, small_config


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    with registered_for_tests():
        yield


def finish(run: TrialRun) -> list[dict[str, Any]]:
    """Every step that is left, as JSON."""
    steps = []
    while True:
        chunk = run.advance(seconds=60.0)
        steps += [step.to_json() for step in chunk.steps]
        if chunk.finished:
            assert chunk.error is None
            return steps


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The steps of the trial in one go."""
    return finish(TrialRun(small_config(), tmp_path_factory.mktemp("whole") / "trial"))


@pytest.fixture(scope="module")
def after_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of the trial after 2 of its 4 steps."""
    checkpoint = tmp_path_factory.mktemp("interrupted") / "trial"
    chunk = TrialRun(small_config(), checkpoint).advance(seconds=60.0, most_steps=2)
    assert [step.step for step in chunk.steps] == [0, 1]
    return checkpoint


@pytest.fixture
def checkpoint(after_two: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(after_two, tmp_path / "trial"))


def test_a_chunk_survives_being_sent() -> None:
    chunk = Chunk((make_step(0), make_step(1, loss=float("inf"))), 0.3, finished=True, seconds=2.5)
    record = json.loads(json.dumps(chunk.to_json() | {"done": True}))
    assert Chunk.from_json(record) == chunk


def test_a_trial_reports_each_step_once_and_finishes(tmp_path: Path) -> None:
    run = TrialRun(small_config(), tmp_path / "trial")
    first = run.advance(seconds=60.0, most_steps=1)
    second = run.advance(seconds=60.0, most_steps=1)
    rest = run.advance(seconds=60.0)
    assert [[s.step for s in c.steps] for c in (first, second, rest)] == [[0], [1], [2, 3]]
    assert [c.finished for c in (first, second, rest)] == [False, False, True]
    assert first.initial == rest.initial is not None
    assert rest.steps[-1].eval_pass_rate is not None
    assert 0 < first.seconds < second.seconds < rest.seconds


def test_a_chunk_ends_after_its_time(tmp_path: Path) -> None:
    chunk = TrialRun(small_config(), tmp_path / "trial").advance(seconds=0.0)
    assert len(chunk.steps) == 1


def test_a_resumed_trial_reports_everything_anew_and_goes_on_identically(
    checkpoint: Path, whole: list[dict[str, Any]]
) -> None:
    assert finish(TrialRun(small_config(), checkpoint)) == whole


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param("partial", id="killed-while-writing-the-new-one"),
        pytest.param("old", id="killed-before-the-old-one-was-removed"),
        pytest.param("swap", id="killed-between-moving-the-old-and-the-new-one"),
    ],
)
def test_a_kill_in_the_middle_of_saving_costs_no_more_than_the_chunk(
    checkpoint: Path, whole: list[dict[str, Any]], leave: str
) -> None:
    beside = checkpoint.with_name(".trial.partial-1" if leave == "partial" else ".trial.old")
    if leave == "swap":
        checkpoint.rename(beside)
    else:
        beside.mkdir()
        (beside / "state.safetensors").write_bytes(b"half a ten")
    run = TrialRun(small_config(), checkpoint)
    assert [path.name for path in checkpoint.parent.iterdir()] == ["trial"]
    resumed = run.advance(seconds=60.0, most_steps=1)
    assert [step.step for step in resumed.steps] == [0, 1, 2]
    assert [s.to_json() for s in resumed.steps] + finish(run) == whole


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.safetensors", b"not this"),
        ("state.json", b""),
        ("state.json", b"{}"),
        ("steps.json", b"{}"),
        ("steps.json", b'{"steps": [{}], "seconds": 1.0}'),
        ("steps.json", None),
    ],
)
def test_a_damaged_checkpoint_costs_its_steps_and_not_the_trial(
    checkpoint: Path, whole: list[dict[str, Any]], name: str, content: bytes | None
) -> None:
    if content is None:
        (checkpoint / name).unlink()
    else:
        (checkpoint / name).write_bytes(content)
    assert finish(TrialRun(small_config(), checkpoint)) == whole


def test_a_checkpoint_whose_parts_are_of_two_saves_is_not_taken_up(
    checkpoint: Path, whole: list[dict[str, Any]]
) -> None:
    facts = json.loads((checkpoint / "steps.json").read_text())
    (checkpoint / "steps.json").write_text(json.dumps(facts | {"steps": facts["steps"][:1]}))
    assert finish(TrialRun(small_config(), checkpoint)) == whole


@pytest.mark.parametrize("room", [0, 20_000], ids=["none", "not-for-all-of-it"])
def test_a_trial_without_room_for_a_checkpoint_goes_on_and_the_old_one_stays(
    checkpoint: Path, whole: list[dict[str, Any]], room: int, caplog: pytest.LogCaptureFixture
) -> None:
    run = TrialRun(small_config(), checkpoint)
    before = (checkpoint / "steps.json").read_text()
    with files_up_to(room):
        chunk = run.advance(seconds=60.0, most_steps=1)
    assert "File too large" in caplog.text
    assert [path.name for path in checkpoint.parent.iterdir()] == ["trial"]
    assert (checkpoint / "steps.json").read_text() == before
    assert [step.to_json() for step in chunk.steps] + finish(run) == whole


def test_a_trial_without_room_for_its_rollouts_goes_on(
    tmp_path: Path, whole: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    run = TrialRun(small_config(), tmp_path / "trial", rollouts=tmp_path / "rollouts")
    with files_up_to(0):
        assert finish(run) == whole
    assert "no rollouts in" in caplog.text
    assert list((tmp_path / "rollouts").glob("*.safetensors")) == []


def test_a_trial_whose_checkpoint_folder_cannot_be_made_goes_on(
    checkpoint: Path, whole: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    run = TrialRun(small_config(), checkpoint)
    blocked = checkpoint.with_name(f".trial.partial-{os.getpid()}")
    blocked.touch()
    chunk = run.advance(seconds=60.0, most_steps=1)
    assert "File exists" in caplog.text
    blocked.unlink()
    assert [step.to_json() for step in chunk.steps] + finish(run) == whole


def test_the_checkpoint_of_another_configuration_is_not_taken_up(
    checkpoint: Path, tmp_path: Path
) -> None:
    config = small_config().model_copy(update={"seed": 2})
    assert finish(TrialRun(config, checkpoint)) == finish(TrialRun(config, tmp_path / "fresh"))


def test_a_reward_that_raises_fails_the_trial_with_a_message(tmp_path: Path) -> None:
    chunk = TrialRun(small_config("broken"), tmp_path / "trial").advance()
    assert chunk.finished
    assert chunk.steps == ()
    assert chunk.error is not None
    assert chunk.error.startswith("reward of task 'broken' raised RuntimeError")
    assert FAILURE in chunk.error
    assert chunk.initial is not None  # the judge had looked before


def test_a_reward_that_raises_later_keeps_the_steps_before(tmp_path: Path) -> None:
    run = TrialRun(small_config("brittle", steps=60), tmp_path / "trial")
    chunk = run.advance(seconds=60.0)
    assert chunk.error is not None
    assert chunk.finished
    assert len(chunk.steps) >= 1
    assert [step.step for step in chunk.steps] == list(range(len(chunk.steps)))


def test_a_trial_leaves_nothing_to_the_next_one_in_its_process(
    tmp_path: Path, whole: list[dict[str, Any]]
) -> None:
    finish(TrialRun(small_config().model_copy(update={"seed": 5}), tmp_path / "first"))
    assert finish(TrialRun(small_config(), tmp_path / "second")) == whole


def test_a_trial_is_described_by_its_specification() -> None:
    # What RayTrial gets is JSON: the configuration must come back from it as it was.
    config = small_config()
    spec = TrialSpec("i", "h", "n", "c", 1, {}, {}, json.loads(json.dumps(config.model_dump())))
    assert type(config).model_validate(spec.config) == config


# --- an early stop -------------------------------------------------------------------------------


def dead_config() -> TrialConfig:
    """Every reward is scaled to nothing."""
    config = small_config(steps=30)
    actor = config.actor.model_copy(update={"reward_scaling": 0.0})
    return config.model_copy(update={"actor": actor})


def test_a_trial_stops_at_the_second_look_that_sees_the_same(tmp_path: Path) -> None:
    chunk = TrialRun(dead_config(), tmp_path / "trial", stop="safe").advance(seconds=60.0)
    assert chunk.finished
    count = len(chunk.steps)
    assert count < 30
    assert count % CHECK_EVERY == 0
    assert chunk.stopped is not None
    assert chunk.stopped.symptom in CRITICAL
    looks = [diagnose(trace_of(list(chunk.steps[:n]))) for n in (count - CHECK_EVERY, count)]
    assert [look.symptom for look in looks] == [chunk.stopped.symptom] * 2
    assert chunk.final is not None
    assert Chunk.from_json(json.loads(json.dumps(chunk.to_json()))) == chunk


def test_a_trial_that_may_not_stop_runs_to_its_end_with_the_same_steps(tmp_path: Path) -> None:
    stopped = finish(TrialRun(dead_config(), tmp_path / "one", stop="safe"))
    whole = finish(TrialRun(dead_config(), tmp_path / "two"))
    assert len(whole) == 30
    assert whole[: len(stopped)] == stopped


@pytest.mark.parametrize("first", [3, 5, 7])
def test_a_kill_does_not_move_the_stop(tmp_path: Path, first: int) -> None:
    whole = TrialRun(dead_config(), tmp_path / "one", stop="safe").advance(seconds=60.0)
    TrialRun(dead_config(), tmp_path / "two", stop="safe").advance(60.0, most_steps=first)
    again = TrialRun(dead_config(), tmp_path / "two", stop="safe").advance(seconds=60.0)
    assert again.steps == whole.steps
    assert (again.stopped, again.final) == (whole.stopped, whole.final)
