"""The embedded policy: a decoder of about 60,000 parameters over characters.

Small enough that one GRPO step of 96 answers costs less than a tenth of a CPU-second, large enough
to learn the embedded tasks. The training forward is right-padded and causal; sampling keeps a
key-value cache.
"""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - PyTorch's own convention
from typing_extensions import override

PAD, EOS = 0, 1
CHARACTERS = "^=;#~RSACabcd0123456789+-*"
VOCABULARY = len(CHARACTERS) + 2


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Sizes of the decoder."""

    width: int = 48
    layers: int = 2
    heads: int = 2
    positions: int = 40
    """Longest prompt plus answer, in tokens."""


class CharacterTokenizer:
    """One token per character, PAD and EOS besides."""

    pad_id = PAD
    eos_id = EOS

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`.

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        unknown = sorted(set(text) - set(CHARACTERS))
        if unknown:
            raise ValueError(f"text must use only {CHARACTERS!r}, got {unknown} in {text!r}")
        return [CHARACTERS.index(character) + 2 for character in text]

    def decode(self, ids: list[int]) -> str:
        """The characters of `ids`; PAD and EOS are left out."""
        return "".join(CHARACTERS[i - 2] for i in ids if i >= 2)


class _Block(nn.Module):
    def __init__(self, shape: TinyShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention = nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)
        self.norm_mlp = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def heads_of(self, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each [B, heads, T, D / heads]."""
        rows, length, width = x.shape
        qkv = self.qkv(self.norm_attention(x))
        qkv = qkv.view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def finish(self, x: Float[Tensor, "B T D"], attended: Tensor) -> Float[Tensor, "B T D"]:
        """Residual of attention, then the feed-forward layer."""
        after: Tensor = x + self.out(attended.transpose(1, 2).flatten(2))
        fed: Tensor = self.down(F.relu(self.up(self.norm_mlp(after))))
        return after + fed


class TinyDecoder(nn.Module):
    """Decoder-only transformer with learned positions and a ReLU feed-forward layer."""

    def __init__(self, shape: TinyShape = TinyShape()) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        self.positions = nn.Embedding(shape.positions, shape.width)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY)

    @override
    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Logits for the next token at every position of right-padded rows."""
        logits: Tensor = self.head(self.hidden(ids))
        return logits

    def layers(self) -> list[_Block]:
        """The blocks in order."""
        return cast("list[_Block]", list(self.blocks))

    def hidden(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """What the last layer knows after each token."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.positions(positions)
        for block in self.layers():
            q, k, v = block.heads_of(x)
            x = block.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))
        normed: Tensor = self.norm(x)
        return normed

    def decode_step(
        self,
        ids: Int[Tensor, "B T"],
        positions: Int[Tensor, "B T"],
        cache: "KeyValueCache",
        visible: Bool[Tensor, "B 1 T S"],
    ) -> Float[Tensor, "B V"]:
        """Logits after the last of `ids`; appends their keys and values to `cache`.

        `visible[b, 0, t, s]`: token t of row b may look at cache slot s.
        """
        x = self.tokens(ids) + self.positions(positions)
        for layer, block in enumerate(self.layers()):
            q, k, v = block.heads_of(x)
            keys, values = cache.append(layer, k, v)
            x = block.finish(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=visible))
        cache.length += ids.shape[1]
        logits: Tensor = self.head(self.norm(x[:, -1]))
        return logits

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw all weights: matrices N(0, 0.02), residual outputs scaled down by depth."""
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            scale = 0.02 if "positions" in name or "tokens" in name else parameter.shape[1] ** -0.5
            if name.endswith(("out.weight", "down.weight")):
                scale /= (2 * self.shape.layers) ** 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


class TinyCritic(nn.Module):
    """A value function on a copy of the decoder; it starts at 0 everywhere."""

    def __init__(self, decoder: TinyDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.value = nn.Linear(decoder.shape.width, 1)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)
        # The token head takes no part; without a gradient the optimizer would still decay it.
        self.decoder.head.requires_grad_(requires_grad=False)

    @override
    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Value of the state before each next token; prediction-aligned."""
        values: Tensor = self.value(self.decoder.hidden(ids))
        return values.squeeze(-1)


class KeyValueCache:
    """Keys and values of the tokens read so far; rows can be dropped."""

    def __init__(self, model: TinyDecoder, rows: int, capacity: int, device: torch.device) -> None:
        shape = model.shape
        size = (shape.layers, rows, shape.heads, capacity, shape.width // shape.heads)
        self.keys = torch.zeros(size, device=device)
        self.values = torch.zeros(size, device=device)
        self.length = 0

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store one layer's new keys and values; all of that layer's so far."""
        stop = self.length + keys.shape[2]
        self.keys[layer, :, :, self.length : stop] = keys
        self.values[layer, :, :, self.length : stop] = values
        return self.keys[layer, :, :, :stop], self.values[layer, :, :, :stop]

    def keep(self, rows: Int[Tensor, " K"]) -> None:
        """Forget every row but `rows`."""
        self.keys = self.keys.index_select(1, rows)
        self.values = self.values.index_select(1, rows)
