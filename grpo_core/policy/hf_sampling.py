"""Sampling answers from a transformers model with its own key-value cache."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import DynamicCache

from grpo_core.config import GenerationConfig
from grpo_core.policy.logprobs import Head
from grpo_core.policy.noise import draw_keys, gumbel
from grpo_core.policy.sampling import (
    COMPACT_BELOW,
    Generated,
    draw,
    empty,
    left_pad,
    without_tails,
)

ROWS_AT_ONCE = 256
"""Rows whose cache exists at once."""
STOP_WINDOW = 4
"""Tokens that are looked at per character of a stop text: a token may be a part of a character."""


@dataclass(frozen=True, slots=True)
class Reader:
    """What sampling needs of a model."""

    decoder: nn.Module
    """Token ids to hidden states, with a cache."""
    head: Head
    """Hidden states to logits."""
    vocabulary: int
    """Number of logits."""
    config: Any
    """The model's own configuration, which decides the kind of cache."""
    ends: Int[Tensor, " E"]
    """Token ids that end an answer."""
    decode: Callable[[list[int]], str]
    """Text of token ids."""


def read_on(
    decoder: nn.Module,
    ids: Int[Tensor, "B T"],
    cache: DynamicCache,
    *,
    mask: Int[Tensor, "B S"],
    positions: Int[Tensor, "B T"],
) -> Float[Tensor, "B T D"]:
    """Hidden states of tokens that follow what is in the cache; appends them to it."""
    # Renamed in transformers 5; models outside the library may have the old name.
    taken = inspect.signature(decoder.forward).parameters
    name = "cache" if "cache" in taken else "past_key_values"
    read = decoder(
        input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **{name: cache}
    )
    hidden: Tensor = read.last_hidden_state
    return hidden


@torch.no_grad()
def sample(
    reader: Reader,
    prompts: list[list[int]],
    config: GenerationConfig,
    generator: torch.Generator,
) -> Generated:
    """Sample one answer per prompt by the Gumbel-max rule.

    The noise of row b at token t depends only on the generator, b and t. Equal prompts are read
    once.
    """
    keys = draw_keys(len(prompts), config.max_new_tokens, generator).to(reader.ends.device)
    parts = [
        _sample_rows(reader, prompts[i : i + ROWS_AT_ONCE], config, keys[i : i + ROWS_AT_ONCE])
        for i in range(0, len(prompts), ROWS_AT_ONCE)
    ]
    if len(parts) == 1:
        return parts[0]
    names = ("ids", "logprobs", "entropy", "lengths", "ended")
    return Generated(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


def _sample_rows(
    reader: Reader, prompts: list[list[int]], config: GenerationConfig, keys: Tensor
) -> Generated:
    limit = config.max_new_tokens
    ends = _ends(reader, config)
    out = empty(len(prompts), limit, keys.device)
    state = _Decoding(reader, prompts)
    logits = state.read_prompts()
    for t in range(limit):
        live = state.live
        barred = ends.tolist() if t < config.min_new_tokens else []
        noise = None if config.greedy else gumbel(keys[live, t], reader.vocabulary)
        tokens, logprobs, entropy = draw(logits, noise, config, barred)
        out.ids[live, t] = tokens
        out.logprobs[live, t] = logprobs
        out.entropy[live, t] = entropy
        over = torch.isin(tokens, ends) | _stopped(reader, out.ids[live, : t + 1], config)
        finished = over & ~out.ended[live]
        out.lengths[live[finished]] = t + 1
        out.ended[live[finished]] = True
        alive = ~out.ended[live]
        if t + 1 == limit or not bool(alive.any()):
            break
        logits = state.read_tokens(tokens, alive)
    return without_tails(out)


def _ends(reader: Reader, config: GenerationConfig) -> Int[Tensor, " E"]:
    more = config.stop_token_ids or ()
    return torch.cat([reader.ends, reader.ends.new_tensor(more)])


def _stopped(
    reader: Reader, ids: Int[Tensor, "L T"], config: GenerationConfig
) -> Bool[Tensor, " L"]:
    """Rows whose newest token completes a stop text."""
    found = [False] * len(ids)
    for stop in config.stop or ():
        window = ids[:, -STOP_WINDOW * len(stop) :].tolist()
        found = [one or stop in reader.decode(row) for one, row in zip(found, window, strict=True)]
    return torch.tensor(found, dtype=torch.bool, device=ids.device)


class _Decoding:
    """The rows that are still being written, with their cache."""

    def __init__(self, reader: Reader, prompts: list[list[int]]) -> None:
        device = reader.ends.device
        self._reader = reader
        different = {tuple(prompt): None for prompt in prompts}
        number = {prompt: i for i, prompt in enumerate(different)}
        self._ids, self._pads = left_pad([list(prompt) for prompt in different], device)
        self._prompt_of = torch.tensor([number[tuple(p)] for p in prompts], device=device)
        self._cache = DynamicCache(config=reader.config)
        self.live = torch.arange(len(prompts), device=device)

    def read_prompts(self) -> Float[Tensor, "B V"]:
        """Logits of every row's first token."""
        slots = torch.arange(self._ids.shape[1], device=self._ids.device)
        mask = (slots[None, :] >= self._pads[:, None]).long()
        positions = (slots - self._pads[:, None]).clamp(min=0)
        logits = self._read(self._ids, mask, positions)
        rows = self._prompt_of
        if len(rows) > len(self._ids):
            self._cache.batch_select_indices(rows)
        self._mask, self._pads = mask[rows], self._pads[rows]
        return logits[rows]

    def read_tokens(
        self, tokens: Int[Tensor, " L"], alive: Bool[Tensor, " L"]
    ) -> Float[Tensor, "K V"]:
        """Logits after one more token of every live row; drops rows once enough have ended."""
        if alive.float().mean().item() < COMPACT_BELOW:
            kept = alive.nonzero().squeeze(1)
            self._cache.batch_select_indices(kept)
            self.live, self._pads, tokens = self.live[kept], self._pads[kept], tokens[kept]
            self._mask = self._mask[kept]
        positions = (self._mask.shape[1] - self._pads)[:, None]
        self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=1)
        return self._read(tokens[:, None], self._mask, positions)

    def _read(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Float[Tensor, "B V"]:
        hidden = read_on(self._reader.decoder, ids, self._cache, mask=mask, positions=positions)
        return self._reader.head(hidden[:, -1]).float()
