"""How much memory a trial with a real model needs, estimated before anything is loaded.

Sums of what the trainer keeps, from the model's shape and the configuration. Measured numbers lie
around it: the allocator's slack and the libraries' own workspaces are not in it.
"""

from dataclasses import dataclass, fields

from grpo_core.config import TrialConfig
from grpo_core.models import ModelShape

SINGLE, HALF = 4, 2
"""Bytes of a float32 and of a bfloat16 number."""
ROWS_AT_ONCE = 256
"""Rows whose cache exists at once: grpo_core.policy.hf_sampling."""
CHUNK_LOGITS = 2**24
"""Logits that exist at once: grpo_core.policy.logprobs."""
COPIES_OF_A_CHUNK = 3
"""A chunk's logits, their float32 copy and its gradient."""
COPIES_OF_A_DISTRIBUTION = 5
"""Logits, log-probs, noise, their sum, and probabilities for the entropy."""
KEPT_WIDTHS, KEPT_INNER = 12, 4
"""Vectors of the model's width, and of the feed-forward layer's, that a layer keeps of a token for
the backward pass."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of one trial, by what they are for."""

    weights: int
    """The policy's weights, adapters included."""
    reference: int
    """The frozen copy; nothing under LoRA."""
    older: int
    """Weights of past versions and their sampler, with stale rollouts."""
    gradients: int
    """Gradients, as they are and as one vector, and the one before."""
    optimizer: int
    """Adam's moments."""
    cache: int
    """Keys and values while sampling."""
    distributions: int
    """The next token's distribution of every row while sampling."""
    activations: int
    """What layers keep for the backward pass of one minibatch."""
    logits: int
    """The chunk of logits that exists at once."""

    @property
    def total(self) -> int:
        """The peak: sampling and the update never need their part at the same time."""
        kept = self.weights + self.reference + self.older + self.optimizer
        update = self.gradients + self.activations + self.logits
        return kept + max(self.cache + self.distributions, update)

    def render(self) -> str:
        """The total and its parts in GB, the largest part first."""
        parts = sorted(
            ((getattr(self, item.name), item.name) for item in fields(self)), reverse=True
        )
        named = ", ".join(f"{name} {size / 1e9:.2f}" for size, name in parts if size)
        return f"{self.total / 1e9:.1f} GB ({named})"


def estimate_memory(
    shape: ModelShape, config: TrialConfig, *, prompt_tokens: int = 256
) -> MemoryEstimate:
    """What a trial needs.

    Args:
        shape: The model.
        config: The trial.
        prompt_tokens: Length of a prompt.
    """
    actor, lora = config.actor, config.actor.use_lora
    size = HALF if actor.dtype == "bfloat16" else SINGLE
    trained = adapter_weights(shape, actor.lora_rank) if lora else shape.parameters
    versions = config.rollout.max_head_offpolicyness
    rows = config.train_dataset.batch_size * config.gconfig.n_samples
    asked = min(rows, ROWS_AT_ONCE)
    tokens = prompt_tokens + config.gconfig.max_new_tokens
    return MemoryEstimate(
        weights=SINGLE * trained + (size * shape.parameters if lora else 0),
        reference=0 if lora else size * shape.parameters,
        older=SINGLE * trained * (versions + 1 if versions else 0),
        gradients=SINGLE * trained * (3 if actor.ppo_n_minibatches > 1 else 2),
        optimizer=2 * SINGLE * trained if actor.optimizer.type == "adam" else 0,
        cache=asked * tokens * shape.layers * shape.key_values * size,
        distributions=COPIES_OF_A_DISTRIBUTION * SINGLE * asked * shape.vocabulary,
        activations=-(-rows // actor.ppo_n_minibatches)
        * tokens
        * _kept_of_a_token(shape, checkpointing=actor.gradient_checkpointing)
        * size,
        logits=COPIES_OF_A_CHUNK * SINGLE * CHUNK_LOGITS,
    )


def adapter_weights(shape: ModelShape, rank: int) -> int:
    """Weights of adapters on every linear layer of a Llama-like model, its output layer apart."""
    width, half = shape.width, shape.key_values // 2
    attention = 2 * (2 * width) + 2 * (width + half)
    feed_forward = 3 * (width + shape.inner)
    return rank * shape.layers * (attention + feed_forward)


def _kept_of_a_token(shape: ModelShape, *, checkpointing: bool) -> int:
    """Numbers that are kept of one token for the backward pass."""
    layer = KEPT_WIDTHS * shape.width + KEPT_INNER * shape.inner
    if checkpointing:
        return shape.layers * shape.width + layer
    return shape.layers * layer
