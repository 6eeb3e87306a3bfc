"""Gumbel noise that is computed where it is needed, from one key per token.

Drawing noise for a vocabulary of 100,000 tokens ahead of time would need more memory than the
model's cache. A hash of (key, token id) gives the same noise on every device, whichever rows are
still alive and however they are batched.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 2**21
"""Numbers that are hashed at once: on the way to a float each needs 8 bytes several times."""
_LOW = 0xFFFFFFFF
_GOLDEN, _FIRST, _SECOND = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
"""Odd multipliers; the mixing is the finalizer `lowbias32` of the hash-prospector project."""


def draw_keys(rows: int, limit: int, generator: torch.Generator) -> Int[Tensor, "B R 2"]:
    """Two random 32-bit numbers for every token that may be generated."""
    return torch.randint(0, 2**32, (rows, limit, 2), generator=generator)


def gumbel(keys: Int[Tensor, "B 2"], vocabulary: int) -> Float[Tensor, "B V"]:
    """Standard Gumbel noise for every token id of every row."""
    rows = max(BLOCK // vocabulary, 1)
    return torch.cat([_noise(keys[i : i + rows], vocabulary) for i in range(0, len(keys), rows)])


def _noise(keys: Int[Tensor, "B 2"], vocabulary: int) -> Float[Tensor, "B V"]:
    ids = torch.arange(vocabulary, device=keys.device) * _GOLDEN & _LOW
    bits = _mixed(_mixed(ids[None, :] ^ keys[:, :1]) ^ keys[:, 1:])
    # The middle of one of 2^32 equal cells: never 0 or 1.
    uniform = (bits.double() + 0.5) * 2.0**-32
    return -torch.log(-torch.log(uniform)).float()


def _mixed(x: Int[Tensor, "B V"]) -> Int[Tensor, "B V"]:
    x = (x ^ (x >> 16)) * _FIRST & _LOW
    x = (x ^ (x >> 15)) * _SECOND & _LOW
    return x ^ (x >> 16)
