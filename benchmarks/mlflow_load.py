"""How fast a sweep's mirror fills MLflow, and whether anything is lost or doubled on the way.

Run by hand: python benchmarks/mlflow_load.py [--trials N] [--steps N] [--uri URI]

The curves are real: a few steps of one trial, repeated under the step numbers of every trial. A
driver writes chunks of all trials in turn, as fast as the disk takes them, while the mirror ships
them from its thread. Then every stored point is counted. Without --uri the store is a SQLite file.
"""

import argparse
import contextlib
import resource
import sqlite3
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from grpo_core.config import TrialConfig
from grpo_core.metrics import StepMetrics
from grpo_core.profiles import PROFILES
from grpo_core.trainer import Trainer
from sweeps.dotted import nest
from sweeps.findings import Diagnosis
from sweeps.plan import Plan, plan
from sweeps.record import SweepRecord, TrialEnd
from sweeps.space import load_space
from sweeps.storage import open_sweep
from sweeps.tracking import Mirror, MirrorStatus, MlflowTracker
from sweeps.tracking.translate import batches

CHUNK = 20
"""Steps that a trial reports at once."""
REAL_STEPS = 5
SPACE = """
name: load
space: {{actor.optimizer.lr: [5.0e-4]}}
seeds: {trials}
budget: {{steps: {steps}}}
"""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load took and left."""

    seconds: float
    """From the first step in the record to the last point in the store."""
    writing: float
    """Of these, until the driver had written everything."""
    cpu: float
    """CPU seconds of this process: driver and client."""
    memory: float
    """Most resident memory, 10^6 bytes."""
    status: MirrorStatus


def real_steps() -> list[StepMetrics]:
    """The first steps of a trial of the embedded policy."""
    torch.set_num_threads(1)
    trainer = Trainer(TrialConfig.model_validate(nest(PROFILES["tiny"].defaults)))
    return [trainer.step() for _ in range(REAL_STEPS)]


def planned_load(folder: Path, trials: int, steps: int) -> Plan:
    """A sweep of so many trials."""
    space = folder / "load.yaml"
    space.write_text(SPACE.format(trials=trials, steps=steps))
    return plan(load_space(space))


def load(record: SweepRecord, uri: str, curve: list[StepMetrics], steps: int) -> Loaded:
    """Write every trial's steps and its end, and have the mirror ship them."""
    mirror = Mirror(record, MlflowTracker(uri))
    trials = record.header().trials
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    mirror.start()
    for first in range(0, steps, CHUNK):
        numbers = range(first, min(first + CHUNK, steps))
        chunk = [replace(curve[step % len(curve)], step=step) for step in numbers]
        for trial in trials:
            record.append_steps(trial.id, chunk)
            mirror.wake()
    for trial in trials:
        record.finish(trial.id, ended())
        mirror.wake()
    written = time.monotonic()
    status = mirror.close(timeout=24 * 3600.0)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return Loaded(
        seconds=time.monotonic() - started,
        writing=written - started,
        cpu=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        memory=after.ru_maxrss * 1024 / 1e6,
        status=status,
    )


def ended() -> TrialEnd:
    """An end like any other."""
    diagnosis = Diagnosis(outcome="healthy", message="a load test, not judged", confidence=0.0)
    return TrialEnd("finished", diagnosis, 1.0, time.time(), initial=0.3, final=0.9)


def points_per_curve(curve: list[StepMetrics], steps: int) -> Counter[str]:
    """How often each metric occurs in one trial."""
    whole = [replace(curve[step % len(curve)], step=step) for step in range(steps)]
    return Counter(point.key for batch in batches(whole, None) for point in batch)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds of a sweep's curves."""

    runs: int
    points: int
    """Repetitions included."""
    distinct: int
    """Each run, metric and step once."""


def stored(uri: str, sweep: str) -> Stored:
    """Count every point: in the file itself, else by the server's own API."""
    return count_file(uri, sweep) if uri.startswith("sqlite:///") else count_by_client(uri, sweep)


def count_file(uri: str, sweep: str) -> Stored:
    """What a SQLite store holds."""
    query = """
        SELECT COUNT(DISTINCT run), SUM(points), SUM(steps) FROM (
            SELECT metrics.run_uuid AS run, COUNT(*) AS points, COUNT(DISTINCT step) AS steps
            FROM metrics JOIN runs ON runs.run_uuid = metrics.run_uuid
            JOIN experiments ON experiments.experiment_id = runs.experiment_id
            WHERE experiments.name = ? AND metrics.key NOT LIKE 'final/%'
            AND metrics.key NOT LIKE 'initial/%' GROUP BY metrics.run_uuid, metrics.key
        )
    """
    with contextlib.closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as store:
        return Stored(*store.execute(query, (sweep,)).fetchone())


def count_by_client(uri: str, sweep: str) -> Stored:
    """What a server says that it holds; one request per run and metric."""
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds that a file does not need

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(sweep)
    runs = points = distinct = 0
    token = None
    while experiment is not None:
        page = client.search_runs(
            [experiment.experiment_id], "tags.kind = 'trial'", max_results=1000, page_token=token
        )
        for run in page:
            curves = [k for k in run.data.metrics if not k.startswith(("final/", "initial/"))]
            histories = [client.get_metric_history(run.info.run_id, key) for key in curves]
            points += sum(len(history) for history in histories)
            distinct += sum(len({point.step for point in history}) for history in histories)
        runs += len(page)
        token = page.token
        if not token:
            break
    return Stored(runs, points, distinct)


def show(done: Loaded, found: Stored, expected: int) -> None:
    """Print what was measured."""
    print(f"points                          {expected:>12,}")
    print(f"until all are in the store      {done.seconds:>12.1f} s")
    print(f"of these, the driver wrote for  {done.writing:>12.1f} s")
    print(f"points per second               {expected / done.seconds:>12,.0f}")
    print(f"CPU of driver and client        {done.cpu:>12.1f} s")
    print(f"most memory                     {done.memory:>12.0f} MB")
    print(f"runs                            {found.runs:>12}")
    lost, doubled = expected - found.distinct, found.points - found.distinct
    print(f"lost={lost} duplicated={doubled} pending={done.status.pending}")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--uri", help="A store to fill [default: a SQLite file].")
    arguments = parser.parse_args()
    trials, steps = arguments.trials, arguments.steps
    curve = real_steps()
    with tempfile.TemporaryDirectory() as name:
        uri = arguments.uri or f"sqlite:///{name}/mlflow.db"
        planned = planned_load(Path(name), trials, steps)
        record = open_sweep(planned, Path(name), f"load-{time.time_ns()}", resume=False)
        done = load(record, uri, curve, steps)
        found = stored(uri, record.folder.name)
    wanted = points_per_curve(curve, steps)
    print(f"trials x steps x metrics        {trials} x {steps} x {len(wanted)}")
    show(done, found, wanted.total() * trials)


if __name__ == "__main__":
    main()
