"""The durable record of a sweep: plain files, written by the driver alone.

    STORAGE/SWEEP/sweep.json         what was asked: name, content hash, trials in order, and which
                                     of them are left out, with the reason
    STORAGE/SWEEP/trials/ID.jsonl    every step of a trial, once, in order
    STORAGE/SWEEP/trials/ID.json     how the trial ended, with its diagnosis
    STORAGE/SWEEP/checkpoints/ID/    a running trial's checkpoint, written by its worker
    STORAGE/SWEEP/tune/              Ray Tune's own state, never read
    STORAGE/SWEEP/report/            tables and figures
    STORAGE/SWEEP/figures/ID/        a trial's own figures
    STORAGE/SWEEP/rollouts/ID/       a trial's batches (`--record`), written by its worker
    STORAGE/SWEEP/driver.lock        held by the one driver
    STORAGE/SWEEP/mirror.json, summary.json   where and what MLflow shows

Everything else (MLflow, tables, verdicts) is derived from it and can be made again. A line that was
cut by a crash is dropped when the file is next opened; the trial then delivers those steps again.
"""

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from grpo_core.errors import GrpoError
from grpo_core.metrics import StepMetrics
from sweeps.findings import Diagnosis
from sweeps.plan import TrialSpec

IMPLIED = "implied: "
"""Begins the message of a diagnosis that is another trial's."""


class StorageError(GrpoError):
    """A sweep's folder takes nothing more: the disk is full, or gone."""


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How a trial ended."""

    status: str
    """`finished`; `failed` when it raised; `implied` when it was not run, because its result
    follows."""
    diagnosis: Diagnosis
    """The verdict on its curve, or the one that is implied."""
    seconds: float
    """Wall-clock time that its steps took; 0 for an implied one."""
    started: float
    """Unix time of its first step; of an implied one, when that was recorded."""
    initial: float | None
    """The judge's pass rate before training."""
    final: float | None
    """The judge's pass rate after training."""
    kl_reference: float | None = None
    """Last measured KL to the reference, nats per token."""
    error: str | None = None
    """What a failed trial raised."""
    proof: str | None = None
    """Why an implied trial need not run, in words; None for one that ran."""
    of: str | None = None
    """Hash of the configuration that an implied trial repeats; None for one that never learns."""

    @property
    def implied(self) -> bool:
        """Nothing was trained and nothing measured: the verdict follows from `proof`."""
        return self.status == "implied"

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold; one that ran is written as before there were others."""
        only_implied = () if self.implied else ("proof", "of")
        names = [name for name in self.__slots__ if name not in only_implied]
        record = {name: getattr(self, name) for name in names}
        return record | {"diagnosis": self.diagnosis.to_json()}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "TrialEnd":
        """The inverse of `to_json`."""
        return cls(**{**record, "diagnosis": Diagnosis.from_json(record["diagnosis"])})


@dataclass(frozen=True, slots=True)
class SweepHeader:
    """What was asked."""

    name: str
    """Name of the sweep, unique in its storage folder."""
    content: str
    """Hash over the trials and the budget: equal content may be resumed."""
    question: str
    """The question that the search space puts, in words."""
    trials: tuple[TrialSpec, ...]
    """Every planned trial, in running order; a search adds to them while it runs."""
    not_run: tuple[str, ...]
    """Ids of planned trials that are left out: beyond the budget, or dropped."""
    source: str
    """Path of the search-space file."""
    version: str
    """Version of this package."""
    created: float
    """Unix time."""
    base: dict[str, Any] = field(default_factory=dict)
    """The base configuration (TrialConfig as JSON)."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Id of a trial whose cell gets no further seeds -> after which, and why."""


class SweepRecord:
    """One sweep's folder. Only the driver writes; anybody may read, also while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._next_step: dict[str, int] = {}

    @property
    def report_folder(self) -> Path:
        """Where tables and figures go."""
        return self.folder / "report"

    def create(self, header: SweepHeader) -> None:
        """Write the header; an equal one may exist."""
        (self.folder / "trials").mkdir(parents=True, exist_ok=True)
        fields = {name: getattr(header, name) for name in header.__slots__}
        trials = [trial.to_json() for trial in header.trials]
        write_in_one_piece(self.folder / "sweep.json", fields | {"trials": trials})

    def drop(self, dropped: dict[str, str]) -> None:
        """Leave out exactly these trials, beside those beyond the budget: id -> why."""
        header = self.header()
        if dropped == header.dropped:
            return
        beyond = [trial_id for trial_id in header.not_run if trial_id not in header.dropped]
        self.create(replace(header, not_run=(*beyond, *dropped), dropped=dropped))

    def extend(self, trials: Iterable[TrialSpec]) -> None:
        """Plan more trials, behind the others."""
        header = self.header()
        self.create(replace(header, trials=(*header.trials, *trials)))

    def rollouts(self, trial_id: str) -> Path:
        """Where a trial keeps its recorded batches, if it is asked to."""
        return self.folder / "rollouts" / trial_id

    def checkpoint(self, trial_id: str) -> Path:
        """Where a trial keeps its checkpoint while it runs."""
        return self.folder / "checkpoints" / trial_id

    def exists(self) -> bool:
        """A sweep was started in this folder."""
        return (self.folder / "sweep.json").exists()

    def header(self) -> SweepHeader:
        """What was asked.

        Raises:
            GrpoError: the file is damaged, or another version of this package wrote it.
        """
        path = self.folder / "sweep.json"
        try:
            record = json.loads(path.read_text())
            trials = tuple(TrialSpec.from_json(trial) for trial in record.pop("trials"))
            return SweepHeader(**{**record, "trials": trials, "not_run": tuple(record["not_run"])})
        except (ValueError, KeyError, TypeError) as error:
            raise GrpoError(
                f"{path} is damaged, or another version of grpo-sweeps wrote it: {error}"
            ) from error

    def unfinished(self) -> list[TrialSpec]:
        """Trials within the budget that have not ended, in running order."""
        header = self.header()
        left_out = set(header.not_run)
        return [s for s in header.trials if s.id not in left_out and self.end(s.id) is None]

    def begun(self, trial_id: str) -> bool:
        """The trial has recorded steps, or a checkpoint to go on from."""
        return self._steps_path(trial_id).exists() or self.checkpoint(trial_id).exists()

    @contextlib.contextmanager
    def sole_driver(self) -> Iterator[None]:
        """Keep other drivers off this sweep: two of them would record every step twice.

        The system releases the lock when its holder is killed.

        Raises:
            GrpoError: another process has it.
        """
        lock = FileLock(self.folder / "driver.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as held:
            raise GrpoError(
                f"sweep {self.folder.name!r} is being run by another process; a Ray job goes on "
                "when its follower is interrupted: `ray job list` shows it, `ray job stop ID` "
                "ends it"
            ) from held
        try:
            yield
        finally:
            lock.release()

    def driven(self) -> bool:
        """Another driver, or this process, has the sweep now."""
        lock = FileLock(self.folder / "driver.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    def append_steps(self, trial_id: str, steps: Iterable[StepMetrics]) -> int:
        """Add the steps that are not recorded yet; how many those were.

        Raises:
            ValueError: a step is missing between the recorded and the new ones.
            StorageError: they cannot be written; the ones before them stay as they are.
        """  # noqa: DOC502 - raised by what it calls
        with self._lock:
            next_step = self._recover(trial_id)
            fresh = [step for step in steps if step.step >= next_step]
            for expected, step in enumerate(fresh, start=next_step):
                if step.step != expected:
                    raise ValueError(f"trial {trial_id}: expected step {expected}, got {step.step}")
            if fresh:
                text = "".join(json.dumps(step.to_json()) + "\n" for step in fresh)
                # Should writing fail in the middle of a line, the next call cuts that line.
                del self._next_step[trial_id]
                with _writing(self._steps_path(trial_id)):
                    _append(self._steps_path(trial_id), text)
                self._next_step[trial_id] = fresh[-1].step + 1
            return len(fresh)

    def steps(self, trial_id: str, start: int = 0) -> list[StepMetrics]:
        """Every complete recorded step from `start` on, in order; lines before it are skipped."""
        path = self._steps_path(trial_id)
        if not path.exists():
            return []
        with path.open() as file:
            lines = [line for line in itertools.islice(file, start, None) if line.endswith("\n")]
        return [StepMetrics.from_json(json.loads(line)) for line in lines]

    def count_steps(self, trial_id: str) -> int:
        """Number of complete recorded steps."""
        path = self._steps_path(trial_id)
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def finish(self, trial_id: str, end: TrialEnd) -> None:
        """Record how the trial ended.

        Raises:
            StorageError: it cannot be written; the trial counts as not ended.
        """  # noqa: DOC502 - raised by what it calls
        write_in_one_piece(self.folder / "trials" / f"{trial_id}.json", end.to_json())

    def end(self, trial_id: str) -> TrialEnd | None:
        """How the trial ended; None while it has not."""
        path = self.folder / "trials" / f"{trial_id}.json"
        return TrialEnd.from_json(json.loads(path.read_text())) if path.exists() else None

    def _steps_path(self, trial_id: str) -> Path:
        return self.folder / "trials" / f"{trial_id}.jsonl"

    def _recover(self, trial_id: str) -> int:
        """Number of recorded steps; cuts a line that a crash left unfinished."""
        if trial_id not in self._next_step:
            path = self._steps_path(trial_id)
            text = path.read_text() if path.exists() else ""
            complete = text.rpartition("\n")[0] + "\n" if "\n" in text else ""
            if complete != text:
                os.truncate(path, len(complete.encode()))
            self._next_step[trial_id] = complete.count("\n")
        return self._next_step[trial_id]


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say which file a full disk, a quota or a lost mount kept from being written.

    Raises:
        StorageError: in place of the system's own.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror}. What was recorded before is whole; "
            "make room, then run the same command again"
        ) from error


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def write_in_one_piece(path: Path, record: dict[str, Any]) -> None:
    """Replace a file of the sweep's folder; readers see the old or the new one.

    Raises:
        StorageError: it cannot be written; the old one stays.
    """  # noqa: DOC502 - raised by what it calls
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    try:
        with _writing(path):
            _append(partial, json.dumps(record, indent=1))
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
