"""Random streams, each derived from (seed, purpose, step).

Trials with the same seed share prompts, initial weights and sampling noise (common random numbers),
so that two configurations are compared in pairs; nothing depends on what ran before.
"""

import hashlib

import numpy as np
import torch


def derive_seed(seed: int, purpose: str, step: int = 0) -> int:
    """63 bits that differ for every (seed, purpose, step)."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def torch_stream(seed: int, purpose: str, step: int = 0) -> torch.Generator:
    """A CPU generator for tensors; noise is drawn there and moved, so devices agree."""
    return torch.Generator().manual_seed(derive_seed(seed, purpose, step))


def numpy_stream(seed: int, purpose: str, step: int = 0) -> np.random.Generator:
    """A generator for choices outside tensors."""
    return np.random.default_rng(derive_seed(seed, purpose, step))
