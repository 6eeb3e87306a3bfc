"""Log-probs of given tokens from hidden states, without the logits of a whole batch.

With a vocabulary of 100,000 the logits of one batch need more memory than the model. They are
computed for some positions at a time, and computed anew in the backward pass.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK_LOGITS = 2**24
"""Logits that exist at once: 64 MiB in float32."""

Head = Callable[[Tensor], Tensor]
"""Hidden states [N, D] to logits [N, V]."""


def token_logprobs(
    head: Head,
    hidden: Float[Tensor, "B T D"],
    targets: Int[Tensor, "B T"],
    *,
    temperature: float,
    vocabulary: int,
) -> Float[Tensor, "B T"]:
    """Give log softmax(head(hidden) / temperature) at `targets`, in float32."""
    positions = max(CHUNK_LOGITS // vocabulary, 1)
    states, tokens = hidden.flatten(0, 1), targets.flatten()
    parts = []
    for start in range(0, len(tokens), positions):
        part = (states[start : start + positions], tokens[start : start + positions])
        parts.append(_remade(head, *part, temperature))
    return torch.cat(parts).view(targets.shape)


def _remade(head: Head, states: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """The log-probs of some positions; with gradients their logits are made twice."""
    if not torch.is_grad_enabled():
        return _chosen(head, states, tokens, temperature)
    chosen: Tensor = checkpoint(
        _chosen, head, states, tokens, temperature, use_reentrant=False, preserve_rng_state=False
    )
    return chosen


def _chosen(head: Head, states: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    logits = head(states).float() / temperature
    return logits.gather(1, tokens[:, None]).squeeze(1) - logits.logsumexp(1)
