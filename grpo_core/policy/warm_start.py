"""The embedded policy's initial weights: supervised once, then cached by content.

The file's name is a hash of everything that decides its content. It is written by whichever process
needs it first, under a lock, and appears in one piece or not at all.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - PyTorch's own convention

from grpo_core.errors import CheckpointError
from grpo_core.policy.tiny import PAD, CharacterTokenizer, TinyDecoder, TinyShape
from grpo_core.randomness import numpy_stream, torch_stream
from grpo_core.tasks import TASKS

CACHE_VARIABLE = "GRPO_SWEEPS_CACHE"
RECIPE_VERSION = 1
"""Raised whenever code below or in the embedded tasks changes what the recipe produces."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the warm start is trained."""

    task: str
    shape: TinyShape = field(default_factory=TinyShape)
    steps: int = 600
    batch: int = 128
    lr: float = 3e-3
    seed: int = 0

    def digest(self) -> str:
        """16 hex characters over the recipe, its code version and torch's version."""
        content = {"recipe": asdict(self), "version": RECIPE_VERSION, "torch": torch.__version__}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """`$GRPO_SWEEPS_CACHE`, else `grpo-sweeps` in the user's cache folder."""
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "grpo-sweeps"


def warm_start(recipe: Recipe, notify: Callable[[str], None] = lambda _: None) -> TinyDecoder:
    """The warm-started decoder, from the cache or trained now (about half a CPU-minute).

    Raises:
        CheckpointError: the cached file is damaged.
    """
    path = cache_folder() / "warm_start" / f"{recipe.task}-{recipe.digest()}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            notify(f"warm start for task {recipe.task!r}: trained once, then cached in {path}")
            _save_in_one_piece(train_warm_start(recipe), path)
    model = TinyDecoder(recipe.shape)
    try:
        model.load_state_dict(load_file(path))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} is not a warm start: {error}; delete it and retry"
        ) from error
    return model


def train_warm_start(recipe: Recipe) -> TinyDecoder:
    """Supervised next-token training on the task's imperfect demonstrations."""
    model = TinyDecoder(recipe.shape)
    model.initialize(torch_stream(recipe.seed, "initial-weights"))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.lr, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.lr, total_steps=recipe.steps, pct_start=0.05
    )
    rng = numpy_stream(recipe.seed, "demonstrations")
    for _ in range(recipe.steps):
        ids, weights = _demonstration_batch(recipe, rng)
        losses = F.cross_entropy(
            model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        )
        loss = (losses * weights.flatten()).sum() / weights.sum()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model


def _demonstration_batch(recipe: Recipe, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Token ids [B, T] and, for each predicted position [B, T-1], 1 where the answer is."""
    task, tokenizer = TASKS[recipe.task], CharacterTokenizer()
    rows, starts = [], []
    for prompt in task.training_prompts(rng, recipe.batch):
        answer = task.demonstration(rng, prompt)
        question = tokenizer.encode(prompt.text)
        end = [tokenizer.eos_id] if answer.ended else []
        rows.append(question + tokenizer.encode(answer.text) + end)
        starts.append(len(question))
    width = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    weights = torch.zeros(len(rows), width - 1)
    for weight, row, start in zip(weights, rows, starts, strict=True):
        weight[start - 1 : len(row) - 1] = 1.0
    return ids, weights


def _save_in_one_piece(model: TinyDecoder, path: Path) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    save_file(model.state_dict(), partial)
    partial.replace(path)
