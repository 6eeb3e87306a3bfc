"""What a sweep would cost on this machine, from a few measured steps of its largest cell."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from grpo_core.config import TrialConfig
from grpo_core.trainer import Trainer
from sweeps.plan import TrialSpec

STEPS = 3
"""Steps that are measured, behind one that warms up."""
START_SECONDS = 20.0
"""Until the first trial trains: Ray, and the first import of torch in a worker."""


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate that leaves early stops and racing out of account: at most about so much."""

    configuration: str
    """The largest cell, which was measured."""
    device: str
    """Where."""
    seconds_per_step: float
    """Of that cell."""
    trials: int
    """Trials that would be trained."""
    hours: float
    """Of one device, or one core, for all of them."""
    slots: int
    """Trials at once on this machine."""
    wall_seconds: float
    """Until the last trial ends."""

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return asdict(self)

    @property
    def words(self) -> str:
        """In a line."""
        unit = "GPU" if self.device == "cuda" else "CPU"
        minutes = self.wall_seconds / 60
        wall = f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
        return (
            f"{self.seconds_per_step:.3f} s a step ({self.configuration}): at most about {wall} "
            f"with {self.slots} trials at once, {self.hours:.2f} {unit}-hours; early stops and "
            "racing save some"
        )


def size_of(spec: TrialSpec) -> int:
    """Tokens that a step of the trial may sample: its cost relative to others of a sweep."""
    config = spec.config
    answers = config["train_dataset"]["batch_size"] * config["gconfig"]["n_samples"]
    return int(answers * config["gconfig"]["max_new_tokens"])


def seconds_of(trials: Sequence[TrialSpec], largest: TrialSpec, per_step: float) -> list[float]:
    """How long each trial takes, by its steps and by its size relative to the measured one."""
    return [
        spec.config["total_train_steps"] * per_step * size_of(spec) / size_of(largest)
        for spec in trials
    ]


def wall_of(seconds: Sequence[float], slots: int) -> float:
    """Until the last of these ends, the longest first, on that many slots."""
    ends = [0.0] * slots
    for duration in sorted(seconds, reverse=True):
        first = ends.index(min(ends))
        ends[first] += duration
    return max(ends)


def estimate(
    trials: Sequence[TrialSpec],
    *,
    steps: int = STEPS,
    notify: Callable[[str], None] = lambda _: None,
) -> Cost:
    """Measure the largest of the trials and extrapolate to all.

    Args:
        trials: Those that would be trained; at least one.
        steps: How many steps are measured.
        notify: Told when something takes long.
    """
    largest = max(trials, key=lambda spec: size_of(spec) * spec.config["total_train_steps"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # A core trains one trial; a GPU too, unless --gpus-per-trial says otherwise.
    slots = torch.cuda.device_count() if device == "cuda" else len(os.sched_getaffinity(0))
    per_step = _measure(TrialConfig.model_validate(largest.config), device, steps, notify)
    seconds = seconds_of(trials, largest, per_step)
    return Cost(
        configuration=largest.configuration,
        device=device,
        seconds_per_step=per_step,
        trials=len(trials),
        hours=sum(seconds) / 3600,
        slots=slots,
        wall_seconds=START_SECONDS + wall_of(seconds, slots),
    )


def _measure(config: TrialConfig, device: str, steps: int, notify: Callable[[str], None]) -> float:
    """Seconds of a step with its share of the judge's looks."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainer = Trainer(config, device=device, notify=notify)
        started = time.monotonic()
        trainer.initial_evaluation()
        look = time.monotonic() - started
        trainer.step()
        started = time.monotonic()
        done = 0
        while done < steps and not trainer.finished:
            trainer.step()
            done += 1
        step = (time.monotonic() - started) / max(done, 1)
    finally:
        torch.set_num_threads(threads)
    return step + 2 * look / config.total_train_steps
