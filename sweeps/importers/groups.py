"""What per-sample and per-group rewards say of a batch."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from sweeps.importers.values import parse

REWARD_KEYS = ("reward", "score")
"""The reward of a sample, in a log with a line per sample."""
GROUP_KEYS = ("uid", "group", "group_id", "prompt_id", "prompt_uid", "prompt", "input")
"""What samples of one prompt share there; verl's dump of rollouts has `input`."""
CHECK_KEYS = ("acc", "correct", "is_correct", "accuracy")
"""Whether a sample passed a strict check."""
STEP_ONLY_KEYS = ("loss", "entropy", "grad_norm", "learning_rate")
"""What a step has and a sample has not."""
LIST_KEYS = (
    "rewards",
    "group_rewards",
    "rewards_per_group",
    "per_group_rewards",
    "sample_rewards",
    "per_sample_rewards",
)
"""Lists of rewards in a step's record."""
EQUAL = 1e-6
"""Spread below this share of the batch's largest reward is rounding, not contrast."""


@dataclass(slots=True)
class Batch:
    """The samples of one step, as far as they have been read."""

    step: int | None
    """The step; None where the log does not say."""
    groups: dict[object, list[float]] = field(default_factory=dict)
    """Rewards by prompt."""
    checks: list[float] = field(default_factory=list)
    """Outcomes of the strict check."""


def signals_of_batch(batch: Batch) -> dict[str, float]:
    """The signals of a batch of samples."""
    signals = signals_of_groups(batch.groups.values())
    if batch.checks and set(batch.checks) <= {0.0, 1.0}:
        signals["pass_rate"] = float(np.mean(batch.checks))
    return signals


def signals_of_groups(groups: Iterable[list[float]]) -> dict[str, float]:
    """Mean, spread and silence of rewards that are given per group."""
    listed = [np.asarray(group, dtype=np.float64) for group in groups if group]
    if not listed:
        return {}
    rewards = np.concatenate(listed)
    signals = {
        "reward_mean": float(np.mean(rewards)),
        "reward_min": float(np.min(rewards)),
        "reward_max": float(np.max(rewards)),
    }
    if len(rewards) > 1:
        signals["reward_std"] = float(np.std(rewards, ddof=1))
    several = [group for group in listed if len(group) > 1]
    if several:
        least = EQUAL * float(np.max(np.abs(rewards)))
        signals["raw.silent"] = float(np.mean([np.ptp(group) <= least for group in several]))
        signals["raw.gain"] = float(np.mean([np.std(group, ddof=1) for group in several]))
    return signals


def groups_in(value: object, group_size: int | None) -> list[list[float]]:
    """The groups in a step's list of rewards; a flat list needs the group's size."""
    if not isinstance(value, list):
        return []
    if value and all(isinstance(part, list) for part in value):
        return [_flat(part) for part in value]
    rewards = _flat(value)
    if group_size and group_size > 1 and len(rewards) % group_size == 0:
        return [rewards[at : at + group_size] for at in range(0, len(rewards), group_size)]
    return [[reward] for reward in rewards]


def _flat(value: object) -> list[float]:
    parsed = parse(value)
    if parsed is None:
        return []
    return parsed if isinstance(parsed, list) else [parsed]
