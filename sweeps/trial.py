"""One trial in a worker process: steps in chunks, a checkpoint behind every chunk.

`TrialRun` does the work and knows nothing of Ray; `RayTrial` is the Tune trainable around it. A
checkpoint holds the policy, the optimizer and every step so far, so a trial that is started again,
by whomever, continues where the checkpoint stands and reports all of its steps anew; the record
drops the ones it has. Ray's own checkpoints are not needed and nothing is ever unpickled.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ray import tune
from safetensors import SafetensorError
from typing_extensions import override

from grpo_core.config import TrialConfig
from grpo_core.errors import CheckpointError, GrpoError
from grpo_core.metrics import StepMetrics
from grpo_core.pipeline import Experience
from grpo_core.rollout import RolloutBatch, evaluate
from grpo_core.trainer import Trainer
from sweeps.alarm import CHECK_EVERY, Alarm, Stop
from sweeps.findings import Diagnosis
from sweeps.replay.files import record_rollout
from sweeps.trace import EMBEDDED_POLICIES, trace_of

_log = logging.getLogger(__name__)

CHUNK_SECONDS = 1.5
"""A trial reports after at least this long: often enough to watch, rare enough for the driver."""
ROLLOUT_MEGABYTES = 64.0
"""Most that `--record` keeps of one trial, in 10^6 bytes; the oldest batches go first."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a trial reports at once."""

    steps: tuple[StepMetrics, ...]
    """Steps since the last report; after a restart, all so far."""
    initial: float | None
    """The judge's pass rate before training."""
    finished: bool
    """There is nothing left to do."""
    seconds: float
    """Wall-clock time in steps so far, over all restarts."""
    error: str | None = None
    """Why the trial failed."""
    stopped: Diagnosis | None = None
    """The critical diagnosis that ended the trial before its last step."""
    final: float | None = None
    """The judge's pass rate of a policy that was stopped."""

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return {
            "steps": [step.to_json() for step in self.steps],
            "initial": self.initial,
            "finished": self.finished,
            "seconds": self.seconds,
            "error": self.error,
            "stopped": None if self.stopped is None else self.stopped.to_json(),
            "final": self.final,
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Chunk":
        """The inverse of `to_json`; other keys are ignored."""
        steps = tuple(StepMetrics.from_json(step) for step in record["steps"])
        names = ("initial", "finished", "seconds", "error", "final")
        stopped = record["stopped"]
        return cls(
            steps=steps,
            stopped=None if stopped is None else Diagnosis.from_json(stopped),
            **{name: record[name] for name in names},
        )


class TrialRun:
    """A trial that can be advanced, killed and taken up again."""

    def __init__(
        self,
        config: TrialConfig,
        checkpoint: Path,
        *,
        device: str = "cpu",
        notify: Callable[[str], None] = lambda _: None,
        rollouts: Path | None = None,
        stop: Stop = "off",
    ) -> None:
        self._alarm = None if stop == "off" else Alarm(stop)
        self._stopped: Diagnosis | None = None
        self._final: float | None = None
        self._checkpoint = checkpoint
        self._notify = notify
        self._trainer = Trainer(config, device=device, notify=notify)
        self._rollouts = rollouts
        self._observe()
        self._steps: list[StepMetrics] = []
        self._reported = 0
        self._seconds = 0.0
        self._recover()
        if checkpoint.exists():
            self._load()
        self._stopped = self._look(len(self._steps) // CHECK_EVERY * CHECK_EVERY)

    def advance(self, seconds: float = CHUNK_SECONDS, most_steps: int | None = None) -> Chunk:
        """Run steps for at least `seconds` (or `most_steps`), checkpoint, report.

        An error that a user can put right (a reward function that raised) ends the trial as a
        result.
        """
        started = time.monotonic()
        initial = error = None
        try:
            initial = self._trainer.initial_evaluation().pass_rate
            done = 0
            while not self._done and (most_steps is None or done < most_steps):
                self._step()
                done += 1
                if time.monotonic() - started >= seconds:
                    break
        except GrpoError as failure:
            error = str(failure)
        self._seconds += time.monotonic() - started
        finished = error is not None or self._done
        if not finished:
            self._save()
        fresh = tuple(self._steps[self._reported :])
        self._reported = len(self._steps)
        return Chunk(fresh, initial, finished, self._seconds, error, self._stopped, self._final)

    @property
    def _done(self) -> bool:
        return self._trainer.finished or self._stopped is not None

    def _step(self) -> None:
        """One more step, and where one is due a look at whether the trial can still be healthy."""
        self._steps.append(self._trainer.step())
        count = len(self._steps)
        if count % CHECK_EVERY or self._trainer.finished:
            return
        self._stopped = self._look(count)
        if self._stopped is not None:
            trainer, prompts = self._trainer, self._trainer.config.evaluation.prompts
            judged = evaluate(trainer.policy, trainer.task, trainer.config, prompts)
            self._final = judged.pass_rate

    def _look(self, count: int) -> Diagnosis | None:
        """What the alarm says of the first `count` steps.

        It remembers one look: the last one before a kill, repeated, makes up for it.
        """
        if self._alarm is None or count == 0:
            return None
        solvable = self._trainer.config.policy in EMBEDDED_POLICIES
        return self._alarm.check(trace_of(self._steps[:count], solvable=solvable))

    def _save(self) -> None:
        """Replace the checkpoint; a kill at any moment leaves the old or the new one.

        A trial whose disk is full goes on without: the record has its steps, and only a kill would
        cost the time since the last checkpoint.
        """
        partial = self._beside(f"partial-{os.getpid()}")
        try:
            self._write(partial)
        except (OSError, SafetensorError) as error:
            _log.warning("no checkpoint in %s: %s", self._checkpoint, error)
            shutil.rmtree(partial, ignore_errors=True)

    def _write(self, partial: Path) -> None:
        partial.mkdir(parents=True)
        self._trainer.save(partial)
        facts = {"steps": [step.to_json() for step in self._steps], "seconds": self._seconds}
        (partial / "steps.json").write_text(json.dumps(facts))
        old = self._beside("old")
        if self._checkpoint.exists():
            self._checkpoint.replace(old)
        partial.replace(self._checkpoint)
        shutil.rmtree(old, ignore_errors=True)

    def _beside(self, part: str) -> Path:
        """Where a checkpoint is on its way in (`partial-PID`) or out (`old`)."""
        return self._checkpoint.with_name(f".{self._checkpoint.name}.{part}")

    def _recover(self) -> None:
        """Clear up what a kill in the middle of `_save` has left."""
        old = self._beside("old")
        if old.exists() and not self._checkpoint.exists():
            old.replace(self._checkpoint)
        for leftover in (*self._checkpoint.parent.glob(f"{self._beside('partial').name}*"), old):
            shutil.rmtree(leftover, ignore_errors=True)

    def _load(self) -> None:
        """Continue from the checkpoint; a damaged one costs its steps, not the trial."""
        try:
            self._trainer.restore(self._checkpoint)
            facts = json.loads((self._checkpoint / "steps.json").read_text())
            self._steps = [StepMetrics.from_json(step) for step in facts["steps"]]
            self._seconds = facts["seconds"]
            self._require_agreement()
        except (CheckpointError, ValueError, KeyError, TypeError, OSError):
            shutil.rmtree(self._checkpoint)
            config, device = self._trainer.config, self._trainer.device
            self._trainer = Trainer(config, device=device, notify=self._notify)
            self._observe()
            self._steps, self._seconds = [], 0.0

    def _require_agreement(self) -> None:
        """Make sure that the checkpoint's parts were written together.

        Raises:
            CheckpointError: they were not.
        """
        if len(self._steps) != self._trainer.steps_done:
            raise CheckpointError(
                f"{self._checkpoint} has {len(self._steps)} steps of a policy that made "
                f"{self._trainer.steps_done}"
            )

    def _observe(self) -> None:
        if self._rollouts is not None:
            self._trainer.observer = self._keep_rollouts

    def _keep_rollouts(self, batch: RolloutBatch, experience: Experience) -> None:
        """Record the batch for `sweeps replay`, on the steps that know the reference policy.

        A full disk costs batches and not the trial, as it does with checkpoints.
        """
        if self._rollouts is None or experience.reference_logprobs is None:
            return
        step = self._trainer.steps_done
        path = self._rollouts / f"step-{step:06d}.safetensors"
        try:
            record_rollout(
                batch,
                experience.reference_logprobs,
                path,
                config=self._trainer.config,
                proximal_logprobs=experience.proximal_logprobs,
                values=experience.values,
                current_version=step,
                most_megabytes=ROLLOUT_MEGABYTES,
            )
        except (OSError, SafetensorError) as error:
            _log.warning("no rollouts in %s: %s", path, error)


class RayTrial(tune.Trainable):
    """The Tune trainable; one actor serves many trials, which leave no state behind."""

    @override
    def setup(self, config: dict[str, Any]) -> None:
        # Several single-threaded trials use the cores better than one with threads, and agree
        # to the last digit wherever they run.
        torch.set_num_threads(1)
        self._begin(config)

    @override
    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    @override
    def step(self) -> dict[str, Any]:
        chunk = self._run.advance()
        return chunk.to_json() | {tune.result.DONE: chunk.finished}

    @override
    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: every chunk is checkpointed by TrialRun."""

    @override
    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Nothing: TrialRun finds its own checkpoint."""

    def _begin(self, config: dict[str, Any]) -> None:
        spec = config["spec"]
        device = "cuda" if torch.cuda.is_available() else "cpu"
        trial_config = TrialConfig.model_validate(spec["config"])
        kept = spec["rollouts"]
        self._run = TrialRun(
            trial_config,
            Path(spec["checkpoint"]),
            device=device,
            rollouts=None if kept is None else Path(kept),
            stop=spec["stop"],
        )
