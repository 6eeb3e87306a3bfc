"""Sampling answers with a key-value cache."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.config import GenerationConfig
from grpo_core.policy.tiny import EOS, PAD, KeyValueCache, TinyDecoder

COMPACT_BELOW = 0.75
"""Finished rows are dropped from the cache once fewer than this share of its rows is alive."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Sampled tokens, right-padded with PAD behind the end of each row."""

    ids: Int[Tensor, "B R"]
    """Token ids; a row that ended has EOS as its last real token."""
    logprobs: Float[Tensor, "B R"]
    """Log-probability of each token at the sampling temperature; 0 behind the end."""
    entropy: Float[Tensor, "B R"]
    """Entropy of the distribution that each token was drawn from, nats; 0 behind the end."""
    lengths: Int[Tensor, " B"]
    """Generated tokens of each row, EOS included."""
    ended: Bool[Tensor, " B"]
    """EOS came before the length limit."""


@torch.no_grad()
def generate(
    model: TinyDecoder,
    prompts: list[list[int]],
    config: GenerationConfig,
    generator: torch.Generator,
) -> Generated:
    """Sample one answer per prompt by the Gumbel-max rule.

    The noise of row b at token t depends only on the generator, b and t, never on which other rows
    have ended. Prompts are left-padded inside, so that all rows write the same cache slot.
    """
    device = next(model.parameters()).device
    rows, limit = len(prompts), config.max_new_tokens
    noise = _gumbel((rows, limit, model.head.out_features), generator).to(device)
    state = _Decoding(model, prompts, limit)
    out = empty(rows, limit, device)
    logits = state.read_prompts()
    for t in range(limit):
        live = state.live
        barred = [EOS] if t < config.min_new_tokens else []
        tokens, logprobs, entropy = draw(logits, noise[live, t], config, barred)
        out.ids[live, t] = tokens
        out.logprobs[live, t] = logprobs
        out.entropy[live, t] = entropy
        finished = (tokens == EOS) & ~out.ended[live]
        out.lengths[live[finished]] = t + 1
        out.ended[live[finished]] = True
        alive = ~out.ended[live]
        if t + 1 == limit or not bool(alive.any()):
            break
        logits = state.read_tokens(tokens, alive)
    return without_tails(out)


class _Decoding:
    """The rows that are still being written, with their cache."""

    def __init__(self, model: TinyDecoder, prompts: list[list[int]], limit: int) -> None:
        device = next(model.parameters()).device
        self._model = model
        self._ids, self._pads = left_pad(prompts, device)
        capacity = self._ids.shape[1] + limit
        self._cache = KeyValueCache(model, len(prompts), capacity, device)
        self._slots = torch.arange(capacity, device=device)
        self.live = torch.arange(len(prompts), device=device)

    def read_prompts(self) -> Float[Tensor, "B V"]:
        """Logits of every row's first token."""
        width = self._ids.shape[1]
        slots = self._slots[:width]
        positions = (slots - self._pads[:, None]).clamp(min=0)
        # A padding position sees itself, or its softmax would be empty; nothing real sees it.
        causal = slots[None, :] <= slots[:, None]
        real = slots[None, :] >= self._pads[:, None]
        itself = torch.eye(width, dtype=torch.bool, device=slots.device)
        visible = (causal[None] & real[:, None, :]) | itself
        return self._model.decode_step(self._ids, positions, self._cache, visible[:, None])

    def read_tokens(
        self, tokens: Int[Tensor, " L"], alive: Bool[Tensor, " L"]
    ) -> Float[Tensor, "K V"]:
        """Logits after one more token of every live row; drops rows once enough have ended."""
        if alive.float().mean().item() < COMPACT_BELOW:
            kept = alive.nonzero().squeeze(1)
            self._cache.keep(kept)
            self.live, self._pads, tokens = self.live[kept], self._pads[kept], tokens[kept]
        length = self._cache.length
        visible = self._slots[: length + 1][None, :] >= self._pads[:, None]
        positions = (length - self._pads)[:, None]
        return self._model.decode_step(
            tokens[:, None], positions, self._cache, visible[:, None, None]
        )


def empty(rows: int, limit: int, device: torch.device) -> Generated:
    """Room for `rows` answers of `limit` tokens."""
    return Generated(
        ids=torch.full((rows, limit), PAD, device=device),
        logprobs=torch.zeros(rows, limit, device=device),
        entropy=torch.zeros(rows, limit, device=device),
        lengths=torch.full((rows,), limit, device=device),
        ended=torch.zeros(rows, dtype=torch.bool, device=device),
    )


def without_tails(out: Generated) -> Generated:
    """Clear what rows wrote behind their end while they were still in the cache."""
    behind = torch.arange(out.ids.shape[1], device=out.ids.device)[None, :] >= out.lengths[:, None]
    return Generated(
        ids=out.ids.masked_fill(behind, PAD),
        logprobs=out.logprobs.masked_fill(behind, 0.0),
        entropy=out.entropy.masked_fill(behind, 0.0),
        lengths=out.lengths,
        ended=out.ended,
    )


def left_pad(prompts: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts of one width, and how much padding each has."""
    width = max(map(len, prompts))
    pads = torch.tensor([width - len(prompt) for prompt in prompts], device=device)
    ids = [[PAD] * (width - len(prompt)) + prompt for prompt in prompts]
    return torch.tensor(ids, device=device), pads


def _gumbel(size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    uniform = torch.rand(size, generator=generator)
    tiny = torch.finfo(uniform.dtype).tiny
    exponential = -torch.log(uniform.clamp(min=tiny))
    return -torch.log(exponential.clamp(min=tiny))


def draw(
    logits: Float[Tensor, "B V"],
    noise: Float[Tensor, "B V"] | None,
    config: GenerationConfig,
    barred: list[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, their log-probs and the entropy of the distribution at the sampling temperature.

    What top-k and top-p exclude is not drawn, but log-probs and entropy are those of the whole
    distribution, as the trainer computes them.

    Args:
        logits: Of the next token.
        noise: Gumbel noise; None where `greedy` needs none.
        config: `temperature`, `top_k`, `top_p`, `greedy`.
        barred: Token ids that are left out of the distribution.
    """
    if barred:
        logits = logits.clone()
        logits[:, barred] = -torch.inf
    full = torch.log_softmax(logits / config.temperature, dim=-1)
    candidates = _restrict(full, config)
    noisy = candidates if config.greedy or noise is None else candidates + noise
    tokens = noisy.argmax(-1)
    entropy = -(full.exp() * full.clamp(min=-1e4)).sum(-1)
    return tokens, full.gather(1, tokens[:, None]).squeeze(1), entropy


def _restrict(logprobs: Float[Tensor, "B V"], config: GenerationConfig) -> Float[Tensor, "B V"]:
    """Set what top-k and top-p exclude to -inf."""
    vocabulary = logprobs.shape[1]
    if config.top_k < vocabulary:
        threshold = logprobs.topk(config.top_k, dim=-1).values[:, -1:]
        logprobs = logprobs.masked_fill(logprobs < threshold, -torch.inf)
    if config.top_p < 1.0:
        ordered, order = logprobs.sort(dim=-1, descending=True)
        before = ordered.exp().cumsum(-1) - ordered.exp()
        drop = torch.zeros_like(ordered, dtype=torch.bool).scatter(1, order, before >= config.top_p)
        logprobs = logprobs.masked_fill(drop, -torch.inf)
    return logprobs
