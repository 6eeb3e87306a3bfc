"""The scale at which a policy is diagnosed: settings that a model's size decides, not its recipe.

A learning rate for a model of billions of parameters says nothing about one of 61,000. Where a base
configuration leaves these keys open, or comes from a production file, the profile's values are
used.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Profile:
    """Values of the scale keys for one policy."""

    defaults: dict[str, Any]
    """Dotted key -> value."""
    longest_answer: int | None
    """Most generated tokens that the policy has room for; None: no limit known beforehand."""


PROFILES = {
    "tiny": Profile(
        defaults={
            "total_train_steps": 40,
            "train_dataset.batch_size": 12,
            "gconfig.n_samples": 8,
            "gconfig.max_new_tokens": 18,
            "gconfig.min_new_tokens": 0,
            "actor.max_new_tokens": 18,
            "actor.ppo_n_minibatches": 2,
            "actor.optimizer.lr": 5e-4,
            "actor.optimizer.beta2": 0.99,
            "actor.optimizer.weight_decay": 0.0,
            "actor.optimizer.warmup_steps_proportion": 0.25,
        },
        longest_answer=32,
    ),
}

SCALE_KEYS = (
    "total_train_steps",
    "train_dataset.batch_size",
    "gconfig.max_new_tokens",
    "gconfig.min_new_tokens",
    "actor.max_new_tokens",
    "actor.optimizer.lr",
    "actor.optimizer.beta2",
    "actor.optimizer.weight_decay",
    "actor.optimizer.warmup_steps_proportion",
)
"""Keys of a production file that the profile replaces."""
