"""Tensors of one step in, numbers out: what a step reports."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from grpo_core.advantages import Steps, gae_tokens
from grpo_core.config import ActorConfig, TrialConfig
from grpo_core.kl import kl_estimate
from grpo_core.losses import PolicyLoss
from grpo_core.metrics import StageSignal
from grpo_core.pipeline import PipelineResult
from grpo_core.rollout import RolloutBatch
from grpo_core.signal import kl_share, measure_stages, row_means


@dataclass(frozen=True, slots=True)
class MinibatchMeasure:
    """What one optimizer update was like; sums run over its trained tokens."""

    tokens: int
    """Trained tokens that entered the loss."""
    counted: int
    """Trained tokens before any filter."""
    loss: float
    """The loss."""
    token_losses: tuple[float, float]
    """Sum and sum of squares of the token losses."""
    clipped: int
    """Tokens clipped against their advantage."""
    dual_clipped: int
    """Tokens caught by `c_clip`."""
    ratio_range: tuple[float, float]
    """Smallest and largest importance ratio."""
    weights: tuple[float, float]
    """Sum and sum of squares of the importance ratios."""
    log_ratio_abs: float
    """Sum of absolute log ratios, nats."""
    grad_norm: float
    """Global gradient norm before clipping."""


def measure_minibatch(result: PolicyLoss, grad_norm: float) -> MinibatchMeasure:
    """Reduce one update to numbers."""
    mask = result.mask
    ratios = result.ratio[mask].double()
    token_losses = result.token_loss.detach()[mask].double()
    log_ratios = result.log_ratio[mask].double()
    span = (ratios.min().item(), ratios.max().item()) if len(ratios) else (1.0, 1.0)
    return MinibatchMeasure(
        tokens=len(ratios),
        counted=int(result.entering_mask.sum()),
        loss=result.loss.item(),
        token_losses=(token_losses.sum().item(), token_losses.square().sum().item()),
        clipped=int((result.clip_mask & mask).sum()),
        dual_clipped=int((result.dual_clip_mask & mask).sum()),
        ratio_range=span,
        weights=(ratios.sum().item(), ratios.square().sum().item()),
        log_ratio_abs=log_ratios.abs().sum().item(),
        grad_norm=grad_norm,
    )


def measure_updates(measures: list[MinibatchMeasure], counted: int) -> dict[str, float]:
    """The ratio, clip and loss fields of StepMetrics; `counted`: trained tokens before M2PO."""
    tokens = sum(m.tokens for m in measures)
    share = 1.0 / tokens if tokens else 0.0
    total, squares = (sum(m.token_losses[i] for m in measures) for i in (0, 1))
    weight, weight_squares = (sum(m.weights[i] for m in measures) for i in (0, 1))
    variance = squares * share - (total * share) ** 2
    return {
        "clip_fraction": sum(m.clipped for m in measures) * share,
        "dual_clip_fraction": sum(m.dual_clipped for m in measures) * share,
        "filtered_fraction": 1.0 - tokens / counted if counted else 0.0,
        "ratio_min": min(m.ratio_range[0] for m in measures),
        "ratio_max": max(m.ratio_range[1] for m in measures),
        "log_ratio_abs": sum(m.log_ratio_abs for m in measures) * share,
        "effective_samples": weight**2 * share / weight_squares if weight_squares else 0.0,
        "loss": sum(m.loss for m in measures) / len(measures),
        "loss_std": math.sqrt(variance) if variance > 0 else variance * 0.0,
        "grad_norm": max((m.grad_norm for m in measures), key=_nan_largest),
    }


def _nan_largest(value: float) -> float:
    return math.inf if math.isnan(value) else value


def measure_stage_signals(result: PipelineResult, batch: RolloutBatch) -> dict[str, StageSignal]:
    """The reward signal behind every stage; token-level stages count with each answer's mean."""
    mask = result.counted_mask
    stages = {
        "raw": result.rewards,
        "penalty": result.penalized,
        "scaled": result.scaled,
        "clipped": result.clipped,
        "normalized": result.normalized,
        "truncation": result.outcome,
        "returns": row_means(result.raw_advantages, mask),
        "advantage": row_means(result.advantages, mask),
    }
    return measure_stages(stages, batch.passed, batch.group_sizes)


def measure_kl_share(result: PipelineResult, actor: ActorConfig) -> float:
    """Share of the KL term in the variance of the returns, read before `adv_norm`."""
    if actor.kl_ctl == 0:
        return 0.0
    part = gae_tokens(
        Steps(rewards=result.kl_rewards, mask=result.counted_mask),
        discount=actor.discount,
        gae_lambda=actor.gae_lambda if isinstance(actor.gae_lambda, float) else result.gae_lambda,
    )
    return kl_share(part.advantages, result.raw_advantages, result.counted_mask)


def kl_to_reference(
    logprobs: Float[Tensor, "B T"], reference: Float[Tensor, "B T"], mask: Tensor
) -> float:
    """k3 estimate of KL(policy, reference), nats per token."""
    return kl_estimate(logprobs, reference, "k3")[mask].double().mean().item()


def group_mean_max(
    result: PipelineResult, batch: RolloutBatch, config: TrialConfig
) -> float | None:
    """Largest absolute group mean of rewards that `reward_norm` centred by group."""
    norm = config.actor.reward_norm
    if norm is None or norm.mean_level != "group" or norm.mean_leave1out:
        return None
    groups = torch.repeat_interleave(
        torch.arange(len(batch.group_sizes), device=batch.ids.device), batch.group_sizes
    )
    kept = result.in_statistics
    sums = result.normalized.new_zeros(len(batch.group_sizes)).double()
    sums.index_add_(0, groups[kept], result.normalized[kept].double())
    return (sums / batch.group_sizes).abs().max().item()


def normalized_bound(config: TrialConfig) -> float | None:
    """(G - 1) / sqrt(G), the largest value of unbiased group-normalized rewards."""
    norm, size = config.actor.reward_norm, config.gconfig.n_samples
    applies = (
        norm is not None
        and norm.mean_level == norm.std_level == "group"
        and norm.std_unbiased
        and not norm.mean_leave1out
    )
    return (size - 1) / math.sqrt(size) if applies else None
