"""Policies by name; a new one is one definition and one entry in POLICIES."""

import copy
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from grpo_core.config import GenerationConfig, TrialConfig
from grpo_core.errors import ConfigError
from grpo_core.policy.base import Policy
from grpo_core.policy.sampling import Generated, generate
from grpo_core.policy.tiny import VOCABULARY, CharacterTokenizer, TinyCritic, TinyDecoder
from grpo_core.policy.warm_start import Recipe, warm_start
from grpo_core.tasks.base import Prompt

Notify = Callable[[str], None]


class TinyPolicy:
    """The embedded decoder with its character tokenizer."""

    vocabulary = VOCABULARY

    def __init__(self, decoder: TinyDecoder) -> None:
        self.module: nn.Module = decoder
        self.longest = decoder.shape.positions
        self._decoder = decoder
        self._tokenizer = CharacterTokenizer()

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        return self._tokenizer.encode(text)

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Token ids of the prompt's text."""
        return self.encode(prompt.text)

    def decode(self, ids: list[int]) -> str:
        """The characters of `ids`."""
        return self._tokenizer.decode(ids)

    def generate(
        self, prompts: list[list[int]], config: GenerationConfig, generator: torch.Generator
    ) -> Generated:
        """Sample one answer for each prompt."""
        return generate(self._decoder, prompts, config, generator)

    def logprobs(self, ids: Int[Tensor, "B T"], temperature: float) -> Float[Tensor, "B T"]:
        """Prediction-aligned log-probs; the last column, which predicts nothing, is 0."""
        logits = self.module(ids[:, :-1]) / temperature
        chosen = logits.gather(2, ids[:, 1:, None]).squeeze(2) - logits.logsumexp(2)
        return torch.nn.functional.pad(chosen, (0, 1))

    def copy(self) -> Policy:
        """An independent policy with the same weights."""
        return TinyPolicy(copy.deepcopy(self._decoder))

    def reference(self) -> Policy:
        """A frozen copy."""
        frozen = self.copy()
        frozen.module.requires_grad_(requires_grad=False)
        return frozen

    def weights(self) -> dict[str, Tensor]:
        """All weights."""
        return self.module.state_dict()

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Take over all weights."""
        self.module.load_state_dict(weights)

    def build_critic(self) -> nn.Module:
        """A value function on a copy of the decoder."""
        return TinyCritic(copy.deepcopy(self._decoder))


def _load_tiny(config: TrialConfig, notify: Notify) -> Policy:
    return TinyPolicy(warm_start(Recipe(task=config.task.name), notify))


def _load_hf(config: TrialConfig, notify: Notify) -> Policy:
    # Loads transformers, which takes seconds and is optional.
    from grpo_core.policy.hf_load import load_hf  # noqa: PLC0415

    return load_hf(config, notify)


POLICIES: dict[str, Callable[[TrialConfig, Notify], Policy]] = {
    "tiny": _load_tiny,
    "hf": _load_hf,
}
"""By name, or by what stands before the colon."""


def load_policy(config: TrialConfig, notify: Notify = lambda _: None) -> Policy:
    """The initial policy of a trial.

    Raises:
        ConfigError: there is no policy of that name.
    """
    family, colon, model = config.policy.partition(":")
    if family not in POLICIES or (colon and (family != "hf" or not model)):
        names = ", ".join([*POLICIES, "hf:MODEL"])
        raise ConfigError([f"policy: {config.policy!r} is not a policy; wanted one of {names}"])
    return POLICIES[family](config, notify)


__all__ = ["POLICIES", "Policy", "TinyPolicy", "load_policy"]
