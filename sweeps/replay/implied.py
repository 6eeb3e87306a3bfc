"""Proofs held against a recorded batch: cells that are dead, or repeat another.

A proof speaks of the configuration alone and holds for every batch. A batch that contradicts one
shows a bug of ours and ends in an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_core.config import TrialConfig
from grpo_core.replay import Recorded, Replayed, Replayer, lacking, splits_groups
from sweeps.replay.compare import SAME
from sweeps.replay.dead import DeadProof
from sweeps.replay.proven import Repeats, prove
from sweeps.space import Cell


@dataclass(frozen=True, slots=True)
class Implied:
    """A cell whose result follows without a trial."""

    cell: int
    """Its place in the sequence that was asked about."""
    kind: Literal["dead", "duplicate"]
    """The policy never learns, or the trial would repeat another one bit for bit."""
    of: int | None
    """The cell that it repeats; None for dead ones."""
    proof: str
    """Why, in words."""
    on_batch: str
    """What the recorded batch says to it."""


def imply(
    cells: Sequence[Cell] | Sequence[TrialConfig], batch: Recorded | None = None
) -> list[Implied]:
    """Find the cells that are provably dead or provably repeat an earlier one.

    Args:
        cells: The cells of a plan, or their configurations; seeds are left out of account.
        batch: Recorded rollouts that the proofs are checked on; None for no check.

    Raises:
        RuntimeError: The batch contradicts a proof.
    """  # noqa: DOC502 - raised by the checks
    configs = [cell.config if isinstance(cell, Cell) else cell for cell in cells]
    replayer = None if batch is None else Replayer(batch)
    found: list[Implied] = []
    for i, proof in prove(configs).items():
        match proof:
            case DeadProof(text):
                said = _check_dead(replayer, configs[i], text)
                found.append(Implied(i, "dead", None, text, said))
            case Repeats(of, text):
                said = _check_same(replayer, configs[of], configs[i], text)
                found.append(Implied(i, "duplicate", of, text, said))
    return found


def _check_dead(replayer: Replayer | None, config: TrialConfig, proof: str) -> str:
    result = _replayed(replayer, config)
    if result is None:
        return NOT_CHECKED
    if bool(result.weights.any()):
        raise RuntimeError(_contradiction(f"a weight of {result.weights.abs().max():g}", proof))
    return "every loss weight of the recorded batch is exactly 0"


def _check_same(replayer: Replayer | None, one: TrialConfig, other: TrialConfig, proof: str) -> str:
    results = [_replayed(replayer, config) for config in (one, other)]
    if results[0] is None or results[1] is None or not _fresh(replayer):
        return NOT_CHECKED
    gap = (results[0].weights - results[1].weights).double().norm()
    size = results[0].weights.double().norm()
    if bool(gap > SAME * size):
        raise RuntimeError(_contradiction(f"loss weights that differ by {gap / size:g}", proof))
    return "the loss weights of the recorded batch are the same"


NOT_CHECKED = "not checked: the recorded batch cannot show it"


def _replayed(replayer: Replayer | None, config: TrialConfig) -> Replayed | None:
    """The update on the batch; None where the batch is not one that the configuration samples."""
    if replayer is None or lacking(replayer.recorded, config):
        return None
    recorded = replayer.recorded
    sizes = recorded.experience.group_sizes
    known = recorded.task
    if sizes is None or not splits_groups(sizes, config.gconfig.n_samples) or known is None:
        return None
    if (known.name, known.verifier) != (config.task.name, config.task.verifier):
        return None
    same_rewards = known.reward_right != known.reward_wrong
    if not same_rewards and known != config.task:
        return None
    return replayer.evaluate(config)


def _fresh(replayer: Replayer | None) -> bool:
    return replayer is not None and replayer.recorded.fresh


def _contradiction(what: str, proof: str) -> str:
    return (
        f"the recorded batch has {what}, against the proof: {proof}. This is a bug, please report "
        "it; --no-implied runs every cell"
    )
