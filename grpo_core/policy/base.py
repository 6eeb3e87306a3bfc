"""What the trainer needs of a policy."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from grpo_core.config import GenerationConfig
from grpo_core.policy.sampling import Generated


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
        """Token ids of a prompt."""
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
        """An independent policy with the same weights."""
        ...

    def build_critic(self) -> nn.Module:
        """A value function: token ids [B, T] to the value [B, T] of the state before each token."""
        ...
