"""What survives of the reward signal at each stage of the pipeline.

For every stage X, a value per answer, and the strict check of the same answers:

    gain     = mean over groups of std(X)
    silent   = share of groups with max(X) - min(X) <= SILENT * max|X| over the batch
    fidelity = sign(c) * c^2 / (v_X v_ok), c, v: covariance and variances pooled within groups

The first stage at which silent jumps to nearly one, or fidelity falls most, names the setting that
loses the reward.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.metrics import StageSignal

SILENT = 1e-6
"""Contrast below this share of the batch's magnitude is rounding, not signal (float32)."""


def measure_stages(
    stages: dict[str, Float[Tensor, " B"]],
    passed: Bool[Tensor, " B"],
    group_sizes: Int[Tensor, " G"],
) -> dict[str, StageSignal]:
    """The signal behind every stage.

    Groups of one answer have no contrast of their own; where all groups are single, the batch is
    taken as one group.
    """
    if int(group_sizes.max()) == 1:
        group_sizes = group_sizes.new_tensor([int(group_sizes.sum())])
    groups = torch.repeat_interleave(
        torch.arange(len(group_sizes), device=group_sizes.device), group_sizes
    )
    sizes = group_sizes.double()
    values = torch.stack([value.double() for value in stages.values()])
    extremes = values.abs().amax(1)
    silent = _silent_groups(values, groups, len(sizes), extremes)
    centred = _centre(values, groups, sizes).masked_fill(silent[:, groups], 0.0)
    truth = _centre(passed.double()[None], groups, sizes)
    variances = _sum(centred.square(), groups, len(sizes)) / (sizes - 1).clamp(min=1)
    gains = variances.sqrt().mean(1)
    fidelities = signed_r2(centred, truth)
    return {
        name: StageSignal(
            gain=gains[i].item(),
            fidelity=fidelities[i],
            silent=silent[i].double().mean().item(),
            extreme=extremes[i].item(),
        )
        for i, name in enumerate(stages)
    }


def token_fidelity(
    advantages: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], passed: Bool[Tensor, " B"]
) -> float | None:
    """Signed R^2 between the advantage of every trained token and its answer's strict check.

    Unlike the stages' fidelity it compares across groups and positions, so it sees a missing
    baseline and a KL term that varies along the answer.
    """
    values = advantages[mask].double()
    truth = passed[:, None].expand_as(mask)[mask].double()
    if not len(values):
        return None
    return signed_r2((values - values.mean())[None], (truth - truth.mean())[None])[0]


def row_means(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Mean over each row's trained positions; 0 for a row without any."""
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)


def kl_share(
    kl_returns: Float[Tensor, "B T"], returns: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> float:
    """Var(KL part) / (Var(KL part) + Var(rest)) of the returns over trained tokens.

    0 without a KL term.
    """
    kl_part = kl_returns[mask].double()
    if len(kl_part) < 2 or not bool(kl_part.any()):
        return 0.0
    rest = returns[mask].double() - kl_part
    kl_variance, rest_variance = kl_part.var().item(), rest.var().item()
    return kl_variance / (kl_variance + rest_variance)


def signed_r2(values: Float[Tensor, "S N"], truth: Float[Tensor, "1 N"]) -> list[float | None]:
    """Signed squared correlation of each centred row with the centred truth.

    0 where a row has no spread; None for all where the truth has none.
    """
    truth_power = truth.square().sum().item()
    if truth_power == 0.0:
        return [None] * len(values)
    covariances = (values * truth).sum(1)
    powers = values.square().sum(1)
    return [
        0.0 if power == 0.0 else covariance * abs(covariance) / (power * truth_power)
        for covariance, power in zip(covariances.tolist(), powers.tolist(), strict=True)
    ]


def _sum(values: Tensor, groups: Tensor, count: int) -> Tensor:
    return values.new_zeros(len(values), count).index_add_(1, groups, values)


def _centre(values: Tensor, groups: Tensor, sizes: Tensor) -> Tensor:
    means = _sum(values, groups, len(sizes)) / sizes
    return values - means[:, groups]


def _silent_groups(values: Tensor, groups: Tensor, count: int, extremes: Tensor) -> Tensor:
    index = groups.expand_as(values)
    shape = (len(values), count)
    highest = values.new_full(shape, -torch.inf).scatter_reduce(1, index, values, "amax")
    lowest = values.new_full(shape, torch.inf).scatter_reduce(1, index, values, "amin")
    return highest - lowest <= SILENT * extremes[:, None]
