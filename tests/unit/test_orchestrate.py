import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.tune.experiment import Trial

from grpo_core.errors import GrpoError
from grpo_core.metrics import StepMetrics
from sweeps.conclude import conclude_trial
from sweeps.control import StopRequest, request_stop
from sweeps.findings import Diagnosis
from sweeps.orchestrate import (
    RecordCallback,
    RequestedStop,
    Resources,
    Watchdog,
    _own_errors,
    require_room,
)
from sweeps.record import SweepRecord, TrialEnd
from sweeps.trial import Chunk
from tests.sweep_records import make_step
from tests.sweeps_made import begun, planned

SPACE = "space: {actor.kl_ctl: [0.0, 0.1]}\nseeds: 1\nbudget: {steps: 20}\n"
SPEC = planned(SPACE).trials[0]


@dataclass
class Watcher:
    """A listener that remembers."""

    events: list[tuple[str, str, object]] = field(default_factory=list)

    def trial_started(self, trial_id: str) -> None:
        self.events.append(("started", trial_id, None))

    def trial_advanced(self, trial_id: str, steps: list[StepMetrics]) -> None:
        self.events.append(("advanced", trial_id, [step.step for step in steps]))

    def trial_ended(self, trial_id: str, end: TrialEnd) -> None:
        self.events.append(("ended", trial_id, end.status))


@dataclass
class TuneTrial:
    """What Tune tells of a trial, as far as the callback reads it."""

    config: dict[str, Any]
    error: Exception | None = None

    def get_error(self) -> Exception | None:
        return self.error


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    return begun(tmp_path, SPACE)


def trial(trial_id: str = SPEC.id, error: Exception | None = None) -> Trial:
    return cast("Trial", TuneTrial({"spec": {"trial": trial_id}}, error))


def chunk(first: int, last: int, **facts: Any) -> dict[str, Any]:  # noqa: ANN401 - Chunk's fields
    steps = tuple(make_step(step, reward=0.9) for step in range(first, last + 1))
    usual = {"initial": 0.3, "finished": False, "seconds": 1.0, "error": None}
    return Chunk(steps, **(usual | facts)).to_json()


def test_what_a_trial_reports_is_recorded_and_told_once(record: SweepRecord) -> None:
    watcher = Watcher()
    callback = RecordCallback(record, {SPEC.id: SPEC}, [watcher])
    checkpoint = record.checkpoint(SPEC.id)
    checkpoint.mkdir(parents=True)
    callback.on_trial_start(0, [], trial())
    callback.on_trial_result(0, [], trial(), chunk(0, 4))
    # Its process died and another took it up: everything so far is reported anew.
    callback.on_trial_start(0, [], trial())
    callback.on_trial_result(0, [], trial(), chunk(0, 9))
    # Ray reports the last result twice.
    for _ in range(2):
        callback.on_trial_result(0, [], trial(), chunk(10, 19, finished=True, seconds=5.0))
    assert watcher.events == [
        ("started", SPEC.id, None),
        ("advanced", SPEC.id, [0, 1, 2, 3, 4]),
        ("started", SPEC.id, None),
        ("advanced", SPEC.id, [5, 6, 7, 8, 9]),
        ("advanced", SPEC.id, list(range(10, 20))),
        ("ended", SPEC.id, "finished"),
    ]
    assert [step.step for step in record.steps(SPEC.id)] == list(range(20))
    end = record.end(SPEC.id)
    assert end is not None
    assert end.seconds == 5.0
    assert end.diagnosis.outcome == "healthy"
    assert not checkpoint.exists()


def test_a_process_that_keeps_dying_fails_its_trial_only(record: SweepRecord) -> None:
    callback = RecordCallback(record, {SPEC.id: SPEC}, [])
    callback.on_trial_result(0, [], trial(), chunk(0, 3))
    callback.on_trial_error(0, [], trial(error=RuntimeError("node lost")))
    end = record.end(SPEC.id)
    assert end is not None
    assert end.status == "failed"
    assert end.error == "the trial's process failed 4 times: node lost"
    assert [spec.id for spec in record.unfinished()] == [record.header().trials[1].id]


def test_tune_may_pickle_the_callback_without_what_it_holds(record: SweepRecord) -> None:
    assert RecordCallback(record, {}, [Watcher()]).__getstate__() == {}


def steps_until(last: int, reward: float = 0.9) -> list[StepMetrics]:
    return [make_step(step, reward=reward) for step in range(last + 1)]


def test_a_finished_trial_ends_with_the_judges_last_look() -> None:
    steps = steps_until(20)
    facts = Chunk((), 0.3, finished=True, seconds=7.0)
    end = conclude_trial(steps, SPEC, 100.0, error=None, chunk=facts)
    assert (end.status, end.initial, end.final) == ("finished", 0.3, 0.9)
    assert (end.seconds, end.started) == (7.0, 100.0)
    assert end.kl_reference == pytest.approx(0.2)  # make_step: 0.01 per step
    assert "began at 0.30" in end.diagnosis.message


def test_a_trial_that_failed_has_no_verdict_however_well_it_went() -> None:
    facts = Chunk((), 0.3, finished=True, seconds=7.0, error="the reward raised")
    end = conclude_trial(steps_until(20), SPEC, 100.0, error="the reward raised", chunk=facts)
    assert (end.status, end.final, end.error) == ("failed", None, "the reward raised")
    assert end.diagnosis.outcome == "inconclusive"
    assert end.diagnosis.message == (
        "cannot tell: the trial failed after 21 steps: the reward raised"
    )


def test_a_trial_that_failed_before_its_first_step_ends_too() -> None:
    end = conclude_trial([], SPEC, 100.0, error="no device", chunk=None)
    assert (end.initial, end.final, end.kl_reference, end.seconds) == (None, None, None, 0.0)
    assert end.diagnosis.outcome == "inconclusive"


NODES = [
    {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}},
    {"Alive": True, "Resources": {"CPU": 16.0}},
    {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
]


@pytest.mark.parametrize(
    "resources", [Resources(), Resources(4.0, 0.5), Resources(16.0, 0.0)], ids=str
)
def test_one_node_has_to_hold_a_whole_trial(resources: Resources) -> None:
    require_room(resources, NODES)


@pytest.mark.parametrize(
    "resources", [Resources(5.0, 0.5), Resources(17.0), Resources(1.0, 2.0)], ids=str
)
def test_a_trial_that_no_living_node_can_hold_is_refused(resources: Resources) -> None:
    with pytest.raises(GrpoError, match=r"no node has .* \(nodes: 4 CPU / 1 GPU, 16 CPU / 0 GPU\)"):
        require_room(resources, NODES)


def test_a_trial_that_was_stopped_says_when_and_keeps_the_diagnosis_that_stopped_it() -> None:
    seen = Diagnosis("unhealthy", "no contrast", 1.0, symptom="zero_signal", onset=0)
    facts = Chunk((), 0.3, finished=True, seconds=7.0, stopped=seen, final=0.25)
    end = conclude_trial(steps_until(9), SPEC, 100.0, error=None, chunk=facts)
    planned = SPEC.config["total_train_steps"]
    assert (end.status, end.final) == ("finished", 0.25)
    assert end.diagnosis.symptom == "zero_signal"
    assert end.diagnosis.message == f"no contrast (stopped after 10 of {planned} steps)"


# --- a trial that hangs --------------------------------------------------------------------------


class Actor:
    """Stands for a Ray actor."""


def hanging(status: str) -> Trial:
    trial = cast("Any", TuneTrial({"spec": {"trial": SPEC.id}}, None))
    trial.status = status
    trial.temporary_state = SimpleNamespace(ray_actor=Actor())
    return cast("Trial", trial)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    actors: list[object] = []
    monkeypatch.setattr("sweeps.orchestrate.ray.kill", actors.append)
    return actors


def test_a_trial_that_reports_nothing_is_killed_once_per_limit(killed: list[object]) -> None:
    watchdog, trial = Watchdog(0.05), hanging(Trial.RUNNING)
    watchdog.on_trial_start(0, [trial], trial)
    watchdog.on_step_begin(0, [trial])
    assert killed == []
    time.sleep(0.06)
    watchdog.on_step_begin(0, [trial])
    watchdog.on_step_begin(0, [trial])
    assert len(killed) == 1
    assert watchdog.why(SPEC.id) == "it reported nothing for 0.05 s, 1 times: it hangs"


def test_a_trial_that_reports_or_does_not_run_is_left_alone(killed: list[object]) -> None:
    watchdog, trial, waiting = Watchdog(0.05), hanging(Trial.RUNNING), hanging(Trial.PENDING)
    watchdog.on_trial_start(0, [trial], trial)
    time.sleep(0.06)
    watchdog.on_step_begin(0, [waiting])
    watchdog.on_trial_result(0, [trial], trial, {})
    watchdog.on_step_begin(0, [trial])
    assert killed == []
    assert watchdog.why(SPEC.id) is None


@pytest.mark.usefixtures("killed")
def test_a_trial_that_hangs_to_the_end_says_so(record: SweepRecord) -> None:
    watchdog, stuck = Watchdog(0.01), hanging(Trial.RUNNING)
    watchdog.on_trial_start(0, [stuck], stuck)
    time.sleep(0.02)
    watchdog.on_step_begin(0, [stuck])
    RecordCallback(record, {SPEC.id: SPEC}, [], watchdog).on_trial_error(
        0, [], trial(error=RuntimeError("actor died"))
    )
    end = record.end(SPEC.id)
    assert end is not None
    assert end.error == "it reported nothing for 0.01 s, 1 times: it hangs"


def test_a_request_ends_the_experiment_and_is_never_pickled(tmp_path: Path) -> None:
    stopper = RequestedStop(StopRequest(tmp_path))
    assert not stopper.stop_all()
    assert not stopper("trial", {})
    request_stop(tmp_path)
    assert stopper.stop_all()
    assert not pickle.loads(pickle.dumps(stopper)).stop_all()  # noqa: S301 - our own bytes


def full_disk() -> None:
    raise GrpoError("the disk is full")


def wrapped() -> None:
    try:
        full_disk()
    except GrpoError as error:
        raise RuntimeError("wrapped once") from error


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [(wrapped, GrpoError, "the disk is full"), (lambda: 1 / 0, ZeroDivisionError, "zero")],
)
def test_what_a_callback_raised_for_the_user_comes_through(
    act: Callable[[], object], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words), _own_errors():
        act()
