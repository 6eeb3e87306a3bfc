"""Between packed rows (laid end to end) and padded ones."""

import torch
from torch import Tensor


def unpack(packed: Tensor, boundaries: Tensor) -> Tensor:
    """Lay packed tokens out as padded rows, zero behind each row's end."""
    lengths = boundaries.diff()
    rows = packed.new_zeros(len(lengths), max(int(lengths.max()), 1))
    rows[inside(lengths, rows.shape[1])] = packed
    return rows


def pack(rows: Tensor, boundaries: Tensor) -> Tensor:
    """Lay rows end to end without their padding."""
    lengths = boundaries.diff()
    return rows[inside(lengths, rows.shape[1])]


def inside(lengths: Tensor, width: int) -> Tensor:
    """Mark the positions before each row's end."""
    return torch.arange(width) < lengths.unsqueeze(1)
