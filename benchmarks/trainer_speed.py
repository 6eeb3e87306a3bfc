"""How long a training step takes, and what the signal trace adds to it.

Run by hand or by `make bench`: python benchmarks/trainer_speed.py [--repeats N]
Both variants of a pair run in turn in one process, so that a noisy machine slows both.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from grpo_core.config import TrialConfig
from grpo_core.measure import measure_kl_share, measure_stage_signals
from grpo_core.pipeline import Experience, run_pipeline
from grpo_core.profiles import PROFILES
from grpo_core.rollout import sample_batch
from grpo_core.signal import token_fidelity
from grpo_core.trainer import Trainer
from sweeps.dotted import nest


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    trainer = Trainer(_config())
    for _ in range(3):
        trainer.step()
    batch = sample_batch(trainer.policy, trainer.task, trainer.config, step=3, version=3)
    experience = Experience(
        rewards=batch.rewards,
        loss_mask=batch.loss_mask,
        lengths=batch.lengths,
        truncated=batch.truncated,
        behaviour_logprobs=batch.behaviour_logprobs,
        group_sizes=batch.group_sizes,
    )
    actor = trainer.config.actor
    result = run_pipeline(experience, actor)

    def trace() -> None:
        measure_stage_signals(result, batch)
        measure_kl_share(result, actor)
        token_fidelity(result.advantages, result.counted_mask, batch.passed)

    parts: dict[str, Callable[[], object]] = {
        "whole step": trainer.step,
        "sampling and rewards": lambda: sample_batch(
            trainer.policy, trainer.task, trainer.config, step=3, version=3
        ),
        "pipeline": lambda: run_pipeline(experience, actor),
        "signal trace": trace,
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(repeats):
        for name, part in parts.items():
            times[name].append(_cpu_milliseconds(part))
    whole = statistics.median(times["whole step"])
    print(f"{'part':24}{'CPU ms (median)':>18}{'share of a step':>18}")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:24}{median:>18.2f}{median / whole:>18.1%}")
    print(f"answers per CPU-second: {len(batch.ids) / whole * 1000:.0f}")


def _config() -> TrialConfig:
    settings = PROFILES["tiny"].defaults | {"actor.kl_ctl": 0.0, "total_train_steps": 10_000}
    return TrialConfig.model_validate(nest(settings))


def _cpu_milliseconds(part: Callable[[], object]) -> float:
    started = time.process_time()
    part()
    return (time.process_time() - started) * 1000


if __name__ == "__main__":
    main()
