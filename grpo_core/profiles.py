"""The scale at which a policy is diagnosed: settings that a model's size decides, not its recipe.

A learning rate for a model of billions of parameters says nothing about one of 61,000. Where a base
configuration leaves these keys open, or comes from a production file, the profile's values are
used.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Profile:
    """Values of the scale keys for one policy."""

    defaults: dict[str, Any]
    """Dotted key -> value."""
    longest_answer: int | None
    """Most generated tokens that the policy has room for; None: no limit known beforehand."""


class Profiles(Mapping[str, Profile]):
    """Profiles by policy; `hf` also stands for every `hf:MODEL`."""

    def __init__(self, profiles: dict[str, Profile]) -> None:
        self._profiles = profiles

    @override
    def __getitem__(self, policy: str) -> Profile:
        """The profile of a policy.

        Raises:
            KeyError: it has none.
        """  # noqa: DOC502 - raised by the dictionary
        family, colon, model = policy.partition(":")
        return self._profiles[family if family == "hf" and colon and model else policy]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    @override
    def __len__(self) -> int:
        return len(self._profiles)


_TINY = {
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
            "actor.path": "",
            "actor.dtype": "float32",
            "actor.use_lora": False,
            "actor.gradient_checkpointing": False,
            "gconfig.stop": None,
            "gconfig.stop_token_ids": None,
        },
        longest_answer=32,
    ),
}
PROFILES = Profiles(
    _TINY
    | {
        # A real model runs at the scale of its own file; only groups of one are never a default.
        "hf": Profile(defaults={"gconfig.n_samples": 8}, longest_answer=None)
    }
)

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
    "actor.path",
    "actor.dtype",
    "actor.use_lora",
    "actor.gradient_checkpointing",
    "gconfig.stop",
    "gconfig.stop_token_ids",
)
"""Keys of a production file that the profile replaces."""
