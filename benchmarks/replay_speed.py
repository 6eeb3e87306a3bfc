"""How long it takes to replay thousands of configurations on a batch of 128 x 64 tokens.

Run by hand or by `make bench`: python benchmarks/replay_speed.py [--cells 10000] [--processes 2]
Three spaces: settings of the pipeline and of the loss together; of the pipeline alone, so that
cells share nothing; and with a value of GAE's lambda that makes its recursion run.
"""

import argparse
import itertools
import os
import time
from typing import Any

import torch

from grpo_core.config import TrialConfig
from grpo_core.pipeline import Experience
from grpo_core.replay import Recorded
from sweeps.replay.outcome import replay_space
from sweeps.replay.recording import Recording
from sweeps.space import Axis, Budget, Cell, Level, Space

ROWS, WIDTH, PROMPT, GROUP = 128, 64, 8, 8
NORMS = {
    "none": None,
    "group/group": {"mean_level": "group", "std_level": "group"},
    "group/none": {"mean_level": "group", "std_level": None},
    "batch/batch": {"mean_level": "batch", "std_level": "batch"},
    "group/batch": {"mean_level": "group", "std_level": "batch"},
}


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    recording = _recording()
    print(f"batch: {recording.shape}; {wanted.processes} processes")
    head = ("space", "cells", "distinct", "replay s", "CPU s", "cells/s")
    print(f"{head[0]:28}" + "".join(f"{name:>10}" for name in head[1:]))
    for name, axes in _spaces().items():
        space = _space(name, axes, wanted.cells)
        started, cpu = time.monotonic(), _cpu_seconds()
        outcome = replay_space(space, recording, move=0.1, processes=wanted.processes)
        seconds = time.monotonic() - started
        count = len(space.cells)
        print(
            f"{name:28}{count:>10}{outcome.distinct:>10}{seconds:>10.1f}"
            f"{_cpu_seconds() - cpu:>10.1f}{count / seconds:>10.0f}"
        )


def _cpu_seconds() -> float:
    """Of this process and of those that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _recording() -> Recording:
    noise = torch.Generator().manual_seed(0)
    lengths = torch.randint(WIDTH // 2, WIDTH - PROMPT, (ROWS,), generator=noise)
    columns = torch.arange(WIDTH)[None, :]
    mask = (columns >= PROMPT - 1) & (columns < PROMPT - 1 + lengths[:, None])
    logprobs = torch.where(mask, -torch.rand(ROWS, WIDTH, generator=noise), 0.0)
    gap = 0.2 * torch.randn(ROWS, WIDTH, generator=noise)
    experience = Experience(
        rewards=torch.rand(ROWS, generator=noise).round(decimals=1),
        loss_mask=mask,
        lengths=lengths + PROMPT,
        truncated=torch.rand(ROWS, generator=noise) < 0.1,
        behaviour_logprobs=logprobs,
        group_sizes=torch.full((ROWS // GROUP,), GROUP),
        reference_logprobs=torch.where(mask, logprobs + gap, 0.0),
    )
    return Recording(Recorded(experience, passed=experience.rewards > 0.5), "synthetic batch")


def _spaces() -> dict[str, dict[str, list[Any]]]:
    pipeline: dict[str, list[Any]] = {
        "actor.reward_norm": list(NORMS.values()),
        "actor.adv_norm": list(NORMS.values()),
        "actor.kl_ctl": [0.0, 0.01, 0.1, 1.0],
        "actor.kl_estimator": ["k1", "k2", "k3"],
        "actor.mask_no_eos_with_zero": [False, True],
    }
    loss: dict[str, list[Any]] = {
        "actor.eps_clip": [0.1, 0.2, 0.3, 1e9],
        "actor.importance_sampling_level": ["token", "sequence"],
        "extensions.loss_aggregation": ["token-mean", "sequence-mean", "constant"],
    }
    scales: dict[str, list[Any]] = {
        "actor.reward_scaling": [0.1, 0.5, 1.0, 2.0, 5.0, 10.0],
        "actor.reward_bias": [-0.5, 0.0, 0.5],
        "actor.reward_clip": [1.0, 5.0, 20.0],
    }
    recursion: dict[str, list[Any]] = {"actor.gae_lambda": [0.9, 0.99]}
    return {
        "pipeline and loss": pipeline | loss,
        "pipeline alone": pipeline | scales,
        "pipeline alone, lambda < 1": pipeline | scales | recursion,
    }


def _space(name: str, axes: dict[str, list[Any]], most: int) -> Space:
    read = tuple(
        Axis(key, tuple(Level(str(i), {key: value}) for i, value in enumerate(values)))
        for key, values in axes.items()
    )
    base = {"gconfig": {"n_samples": GROUP}}
    cells = [
        Cell({axis.name: level for axis, level in zip(read, levels, strict=True)}, _config(levels))
        for levels in itertools.islice(itertools.product(*(axis.levels for axis in read)), most)
    ]
    return Space(
        name=name,
        question="",
        source="synthetic",
        base=TrialConfig.model_validate(base),
        axes=read,
        cells=tuple(cells),
        duplicates=0,
        excluded=0,
        seeds=(1,),
        budget=Budget(),
        notices=(),
    )


def _config(levels: tuple[Level, ...]) -> TrialConfig:
    sections: dict[str, dict[str, Any]] = {"gconfig": {"n_samples": GROUP}}
    for level in levels:
        for key, value in level.overrides.items():
            section, _, field = key.partition(".")
            sections.setdefault(section, {})[field] = value
    return TrialConfig.model_validate(sections)


if __name__ == "__main__":
    main()
