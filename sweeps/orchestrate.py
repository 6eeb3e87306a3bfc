"""The Tune experiment: Ray runs the trials that a queue hands out.

Tune is given trials one by one, and only such as have not ended; each finds its own checkpoint. A
sweep is resumed by running it again, whatever was killed, and Tune's own saved state is never read.
`sweeps.environment.prepare_ray` has to run before this module is imported.
"""

import contextlib
import logging
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.search import Searcher
from typing_extensions import override

from grpo_core.errors import GrpoError
from grpo_core.metrics import StepMetrics
from sweeps.alarm import Stop
from sweeps.conclude import conclude_trial
from sweeps.control import StopRequest
from sweeps.plan import TrialSpec
from sweeps.record import SweepRecord, TrialEnd
from sweeps.search.queue import Queue
from sweeps.trial import Chunk, RayTrial

RETRIES = 3
"""Times that a trial is started again after its process died."""
STUCK_SECONDS = 900.0
"""A trial that reports nothing for so long hangs; a report takes a step and about 1.5 s."""


class Listener(Protocol):
    """Somebody who watches a sweep."""

    def trial_started(self, trial_id: str, /) -> None:
        """A trial has a process now."""
        ...

    def trial_advanced(self, trial_id: str, steps: list[StepMetrics], /) -> None:
        """New steps of a trial are in the record."""
        ...

    def trial_ended(self, trial_id: str, end: TrialEnd, /) -> None:
        """The end of a trial is in the record."""
        ...


@dataclass(frozen=True, slots=True)
class Resources:
    """What one trial occupies, and how many run at once."""

    cpus_per_trial: float = 1.0
    """CPU cores."""
    gpus_per_trial: float = 0.0
    """GPUs, fractions allowed."""
    max_concurrent: int | None = None
    """Most trials at once; None: as many as the cluster has room for."""


@dataclass(frozen=True, slots=True)
class Conduct:
    """How every trial of a sweep is run."""

    keep_rollouts: bool = False
    """Record every trial's batches for `sweeps replay`."""
    stop: Stop = "off"
    """End a trial early at a critical diagnosis that two looks in a row agree on."""
    stuck_seconds: float = STUCK_SECONDS
    """Start a trial's process again when it has reported nothing for so long."""


AS_PLANNED = Conduct()
"""Nothing kept, nothing stopped."""


def run_trials(
    record: SweepRecord,
    queue: Queue,
    resources: Resources,
    listeners: list[Listener],
    *,
    hours: float | None = None,
    conduct: Conduct = AS_PLANNED,
) -> None:
    """Run every trial that the queue hands out; returns when all have ended, or when stopped.

    Args:
        record: The sweep.
        queue: Hands out its trials; told about every start and end.
        resources: What a trial occupies.
        listeners: Told about every event, in the driver's loop.
        hours: Wall-clock limit; trials that have not ended by then are left unfinished.
        conduct: How every trial is run.

    Raises:
        GrpoError: Ray cannot be started, or no node can ever hold one trial.
    """  # noqa: DOC502 - raised by what it calls
    if queue.exhausted:
        return
    with ray_for(resources):
        require_room(resources, ray.nodes())  # type: ignore[no-untyped-call]
        request = StopRequest(record.folder)
        request.withdraw()
        watchdog = Watchdog(conduct.stuck_seconds)
        callback = RecordCallback(record, queue.specs, [*listeners, queue], watchdog)
        tuner = tune.Tuner(
            tune.with_resources(
                RayTrial, {"cpu": resources.cpus_per_trial, "gpu": resources.gpus_per_trial}
            ),
            tune_config=tune.TuneConfig(
                search_alg=Supplier(queue, record, conduct),
                num_samples=-1,
                max_concurrent_trials=resources.max_concurrent,
                reuse_actors=True,
                time_budget_s=None if hours is None else hours * 3600,
                trial_dirname_creator=_directory_name,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(record.folder.resolve()),
                verbose=0,
                callbacks=[callback, watchdog],
                stop=RequestedStop(request),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
            ),
        )
        with request.listening(), _own_errors():
            tuner.fit()


@contextlib.contextmanager
def _own_errors() -> Iterator[None]:
    """Let what a callback raised for the user through; Tune wraps it in errors of its own."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, GrpoError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, GrpoError):
            raise cause from error
        raise


def slots(resources: Resources) -> int:
    """Trials that run at once on the cluster as it is; Ray must have been started."""
    have = ray.cluster_resources()  # type: ignore[no-untyped-call]
    room = [have.get("CPU", 0.0) / resources.cpus_per_trial]
    if resources.gpus_per_trial:
        room.append(have.get("GPU", 0.0) / resources.gpus_per_trial)
    if resources.max_concurrent is not None:
        room.append(resources.max_concurrent)
    return max(int(min(room)), 1)


class Supplier(Searcher):
    """Gives Tune the queue's trials; what it holds is not pickled and nothing of it is saved."""

    def __init__(self, queue: Queue, record: SweepRecord, conduct: Conduct) -> None:
        super().__init__()
        self._queue: Queue | None = queue
        self._record, self._conduct = record, conduct

    @override
    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if self._queue is None:
            return None
        spec = self._queue.next()
        if spec is not None:
            return {"spec": _trial_config(self._record, spec, self._conduct)}
        # Tune takes a string for the end, against its own annotation.
        finished: Any = Searcher.FINISHED
        return finished if self._queue.exhausted else None

    @override
    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Nothing: the queue is told when the end is in the record."""

    @override
    def save(self, checkpoint_path: str) -> None:
        """Nothing: the record has everything."""

    @override
    def restore(self, checkpoint_path: str) -> None:
        """Nothing: Tune's state is never read."""

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {"_queue": None}


class RequestedStop(tune.Stopper):
    """Ends the experiment when somebody asks for it; what it holds is not pickled."""

    def __init__(self, request: StopRequest) -> None:
        self._request: StopRequest | None = request

    @override
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    @override
    def stop_all(self) -> bool:
        return self._request is not None and self._request.reason is not None

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {"_request": None}


class Watchdog(tune.Callback):
    """Kills the process of a trial that reports nothing any more, so that it is started again.

    Time counts from the start of the process or its last report. A trial that hangs again and again
    fails like one whose process dies again and again.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._heard: dict[str, float] = {}
        self._killed: dict[str, int] = {}

    def why(self, trial_id: str) -> str | None:
        """Why the trial's process was killed; None where it was not."""
        times = self._killed.get(trial_id)
        if times is None:
            return None
        return f"it reported nothing for {self._seconds:g} s, {times} times: it hangs"

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {}

    @override
    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self._heard[_id_of(trial)] = time.monotonic()

    @override
    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        self._heard[_id_of(trial)] = time.monotonic()

    @override
    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        now = time.monotonic()
        for trial in trials:
            trial_id = _id_of(trial)
            silent = now - self._heard.get(trial_id, now)
            if trial.status != Trial.RUNNING or silent < self._seconds:
                continue
            self._heard[trial_id] = now
            actor = trial.temporary_state.ray_actor
            if actor is not None:
                self._killed[trial_id] = self._killed.get(trial_id, 0) + 1
                ray.kill(actor)


class RecordCallback(tune.Callback):
    """Writes what trials report into the record and tells the listeners.

    Tune pickles its callbacks for a resume that we never make; what can't be pickled is left out.
    """

    def __init__(
        self,
        record: SweepRecord,
        specs: Mapping[str, TrialSpec],
        listeners: list[Listener],
        watchdog: "Watchdog | None" = None,
    ) -> None:
        self._record, self._specs, self._listeners = record, specs, listeners
        self._watchdog = watchdog
        self._started: dict[str, float] = {}

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {}

    @override
    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        trial_id = _id_of(trial)
        self._started.setdefault(trial_id, time.time())
        for listener in self._listeners:
            listener.trial_started(trial_id)

    @override
    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        chunk = Chunk.from_json(result)
        trial_id = _id_of(trial)
        fresh = self._record.append_steps(trial_id, chunk.steps)
        if fresh:
            for listener in self._listeners:
                listener.trial_advanced(trial_id, list(chunk.steps[-fresh:]))
        if chunk.finished:
            self._end(trial_id, chunk.error, chunk)

    @override
    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        trial_id = _id_of(trial)
        hangs = None if self._watchdog is None else self._watchdog.why(trial_id)
        why = hangs or f"the trial's process failed {RETRIES + 1} times: {trial.get_error()}"
        self._end(trial_id, why, None)

    def _end(self, trial_id: str, error: str | None, chunk: Chunk | None) -> None:
        # Ray reports a trial's last result twice; the second changes nothing.
        if self._record.end(trial_id) is not None:
            return
        started = self._started.get(trial_id, time.time())
        end = conclude_trial(
            self._record.steps(trial_id), self._specs[trial_id], started, error=error, chunk=chunk
        )
        self._record.finish(trial_id, end)
        shutil.rmtree(self._record.checkpoint(trial_id), ignore_errors=True)
        for listener in self._listeners:
            listener.trial_ended(trial_id, end)


def _trial_config(record: SweepRecord, spec: TrialSpec, conduct: Conduct) -> dict[str, Any]:
    rollouts = record.rollouts(spec.id).resolve()
    return {
        "trial": spec.id,
        "config": spec.config,
        "checkpoint": str(record.checkpoint(spec.id).resolve()),
        "rollouts": str(rollouts) if conduct.keep_rollouts else None,
        "stop": conduct.stop,
    }


def _id_of(trial: Trial) -> str:
    return str(trial.config["spec"]["trial"])


def _directory_name(trial: Trial) -> str:
    return _id_of(trial)


def require_room(resources: Resources, nodes: list[dict[str, Any]]) -> None:
    """Make sure that one of Ray's nodes can hold a trial.

    Raises:
        GrpoError: none can, so that Ray would wait for ever.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    fits = any(
        node.get("CPU", 0) >= resources.cpus_per_trial
        and node.get("GPU", 0) >= resources.gpus_per_trial
        for node in alive
    )
    if not fits:
        have = ", ".join(f"{n.get('CPU', 0):g} CPU / {n.get('GPU', 0):g} GPU" for n in alive)
        raise GrpoError(
            f"no node has {resources.cpus_per_trial:g} CPU and {resources.gpus_per_trial:g} GPU "
            f"for one trial (nodes: {have}); lower --cpus-per-trial or --gpus-per-trial"
        )


@contextlib.contextmanager
def ray_for(resources: Resources) -> Iterator[None]:
    """Join the cluster that RAY_ADDRESS or a job names, else start Ray on this machine.

    Raises:
        GrpoError: neither works.
    """
    if ray.is_initialized():
        yield
        return
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    joining = bool(os.environ.get("RAY_ADDRESS"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(
                # Without "local" Ray would join any cluster that somebody runs on this machine.
                address=None if joining else "local",
                num_cpus=None if joining else _local_cpus(resources),
                include_dashboard=None if joining else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise GrpoError(f"Ray cannot be started or joined: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _local_cpus(resources: Resources) -> int:
    """One core per trial that may run at once; at least what one trial asks for."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(cores, int(resources.cpus_per_trial))
