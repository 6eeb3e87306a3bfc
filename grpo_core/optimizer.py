"""The optimizer and its learning rate."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn

from grpo_core.config import OptimizerConfig


def build_optimizer(
    parameters: Iterable[nn.Parameter], config: OptimizerConfig
) -> torch.optim.Optimizer:
    """AdamW or plain SGD, as configured."""
    if config.type == "sgd":
        return torch.optim.SGD(parameters, lr=config.lr, weight_decay=config.weight_decay)
    return torch.optim.AdamW(
        parameters,
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=config.weight_decay,
        foreach=True,
    )


def learning_rate(config: OptimizerConfig, step: int, total_steps: int) -> float:
    """Learning rate of batch `step` (from 0): linear warm-up, then the configured shape.

    The first batch already has lr / warm-up steps, so no batch is wasted.
    """
    warmup = round(config.warmup_steps_proportion * total_steps)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    progress = (step - warmup) / max(total_steps - warmup, 1)
    share = _SHAPES[config.lr_scheduler_type](progress)
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * share)


_SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""Share of the way between lr and its minimum, by progress after warm-up."""
