"""Every configuration evaluated on one batch: each distinct update once, in several processes."""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from grpo_core.config import TrialConfig
from grpo_core.errors import ConfigError
from grpo_core.replay import (
    Recorded,
    Replayed,
    Replayer,
    lacking,
    pipeline_key,
    raw_key,
    weights_key,
)
from sweeps.replay.inert import ALWAYS, canonical

Weights = NDArray[np.float32]

ALONE_BELOW = 400
"""Distinct updates below which a second process costs more than it saves: it loads torch first."""
CHUNK = 100
"""Updates that a process gets at once."""
MOST_BYTES = 8e9
"""Loss weights of all cells together, kept in a file."""
MOVE_SEED = 0
"""Seed of the assumed policy move: every cell sees the same one."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One distinct update, in numbers."""

    lacking: tuple[str, ...] = ()
    """What the batch lacks for it; then nothing else was measured."""
    norm: float = 0.0
    """Euclidean norm of the loss weights."""
    advantage_max: float = 0.0
    """Largest absolute advantage of a trained token."""
    advantage_bound: float = 0.0
    """Largest absolute advantage that the outcome alone can have."""
    clip_share: float = 0.0
    """Share of trained tokens whose loss is the clipped one."""
    kl_share: float = 0.0
    """Share of the KL term in the variance of the returns."""
    silent: float = 0.0
    """Share of groups without contrast in their advantages."""
    fidelity: float | None = None
    """Signed R^2 of the advantages against the strict check; None where that was not recorded."""
    silent_stage: str | None = None
    """The first stage at which no group has contrast."""
    nonfinite: str | None = None
    """The first stage that holds NaN or infinity."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Every cell's update."""

    configs: tuple[TrialConfig, ...]
    """The cells, inert settings at their defaults."""
    row_of: tuple[int, ...]
    """Cell -> row; cells with the same row have the same update by construction."""
    rows: tuple[Measured, ...]
    """Every distinct update."""
    weights: Weights
    """Loss weights of each row over the trained positions [rows, tokens]."""


@dataclass(frozen=True, slots=True)
class _Job:
    recorded: Recorded
    move: float
    path: Path
    shape: tuple[int, int]


def evaluate(
    configs: Sequence[TrialConfig],
    recorded: Recorded,
    folder: Path,
    *,
    move: float = 0.0,
    processes: int = 1,
    alone_below: int = ALONE_BELOW,
) -> Evaluated:
    """Replay every configuration.

    Args:
        configs: The cells.
        recorded: The batch.
        folder: Where the loss weights are kept meanwhile.
        move: Standard deviation of the assumed policy move, in nats.
        processes: How many work at once.
        alone_below: Distinct updates below which one process does it all.

    Returns:
        Every cell's update.

    Raises:
        ConfigError: The loss weights would take more than MOST_BYTES.
    """
    distinct: dict[object, int] = {}
    ordered: list[TrialConfig] = []
    row_of = []
    plain = tuple(canonical(config, ALWAYS) for config in configs)
    for config in plain:
        key = weights_key(config)
        if key not in distinct:
            distinct[key] = len(ordered)
            ordered.append(config)
        row_of.append(distinct[key])
    shape = (len(ordered), int(recorded.experience.loss_mask.sum()))
    if 4.0 * shape[0] * shape[1] > MOST_BYTES:
        problem = (
            f"{shape[0]} distinct cells x {shape[1]} trained tokens need "
            f"{4e-9 * shape[0] * shape[1]:.0f} GB, wanted at most {MOST_BYTES / 1e9:.0f}; take "
            "fewer groups of the batch (--groups) or a smaller space"
        )
        raise ConfigError([problem])
    job = _Job(recorded, move, folder / "weights.f32", shape)
    weights = np.memmap(job.path, dtype=np.float32, mode="w+", shape=shape)
    measured: dict[int, Measured] = {}
    workers = processes if len(ordered) >= alone_below else 1
    for results in _results(job, _chunks(ordered), workers):
        measured |= results
    numbers = tuple(measured[i] for i in range(len(ordered)))
    return Evaluated(plain, tuple(row_of), numbers, weights)


def build_replayer(recorded: Recorded, move: float) -> Replayer:
    """The replayer of a batch, with the policy move that every cell of a replay sees."""
    return Replayer(recorded, move=move, noise=torch.Generator().manual_seed(MOVE_SEED))


def measure(result: Replayed) -> Measured:
    """Reduce an update to numbers."""
    last = result.stages["advantage"]
    return Measured(
        norm=result.weights.double().norm().item(),
        advantage_max=result.advantage_max,
        advantage_bound=result.advantage_bound,
        clip_share=result.clip_share,
        kl_share=result.kl_share,
        silent=last.silent,
        fidelity=last.fidelity,
        silent_stage=result.silent_stage,
        nonfinite=result.nonfinite,
    )


_Chunk = list[tuple[int, TrialConfig]]


def _chunks(configs: list[TrialConfig]) -> list[_Chunk]:
    """Rows with the same pipeline next to each other, in portions."""
    families: dict[object, dict[object, _Chunk]] = {}
    for row, config in enumerate(configs):
        family = families.setdefault(raw_key(config), {})
        family.setdefault(pipeline_key(config), []).append((row, config))
    portions: list[_Chunk] = [[]]
    for family in families.values():
        for same in family.values():
            if len(portions[-1]) >= CHUNK:
                portions.append([])
            portions[-1] += same
    return portions


def _results(job: _Job, chunks: list[_Chunk], processes: int) -> Iterator[dict[int, Measured]]:
    if processes == 1:
        worker = _Worker(job)
        yield from map(worker.run, chunks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(job,)) as pool:
        yield from pool.map(_run, chunks)


class _Worker:
    """One process's share of the work."""

    def __init__(self, job: _Job) -> None:
        self._replayer = build_replayer(job.recorded, job.move)
        self._mask = job.recorded.experience.loss_mask
        self._weights = np.memmap(job.path, dtype=np.float32, mode="r+", shape=job.shape)

    def run(self, chunk: _Chunk) -> dict[int, Measured]:
        """Evaluate a portion; the loss weights go into the file."""
        return {row: self._evaluate(row, config) for row, config in chunk}

    def _evaluate(self, row: int, config: TrialConfig) -> Measured:
        missing = lacking(self._replayer.recorded, config)
        if missing:
            return Measured(lacking=tuple(missing))
        result = self._replayer.evaluate(config)
        self._weights[row] = result.weights[self._mask].numpy()
        return measure(result)


_state: dict[str, Any] = {}
"""The worker of a process of its own."""


def _begin(job: _Job) -> None:
    torch.set_num_threads(1)
    _state["worker"] = _Worker(job)


def _run(chunk: _Chunk) -> dict[int, Measured]:
    worker: _Worker = _state["worker"]
    return worker.run(chunk)
