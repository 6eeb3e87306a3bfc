"""What the trainer needs of a policy."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from grpo_core.config import GenerationConfig
from grpo_core.policy.sampling import Generated
from grpo_core.tasks.base import Prompt


@runtime_checkable
class Policy(Protocol):
    """A language model with a tokenizer."""

    module: nn.Module
    """The weights that are trained."""
    vocabulary: int
    """Number of tokens."""
    longest: int
    """Most tokens of prompt plus answer."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        ...

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, a chat in the model's own form."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of generated tokens, without special tokens."""
        ...

    def generate(
        self, prompts: list[list[int]], config: GenerationConfig, generator: torch.Generator
    ) -> Generated:
        """Sample one answer for each prompt."""
        ...

    def logprobs(self, ids: Int[Tensor, "B T"], temperature: float) -> Float[Tensor, "B T"]:
        """Prediction-aligned log-probs of right-padded rows: entry t belongs to token t + 1."""
        ...

    def copy(self) -> "Policy":
        """A policy with the same weights, trained apart; frozen weights may be shared."""
        ...

    def reference(self) -> "Policy":
        """The policy as it is now, frozen: later updates don't change it."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """What training changes, by name."""
        ...

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Take over what `weights` gave."""
        ...

    def build_critic(self) -> nn.Module:
        """A value function: token ids [B, T] to the value [B, T] of the state before each token."""
        ...
