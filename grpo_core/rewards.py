"""From a task's reward to the reward of each token: penalty, scale, clip, placement, KL."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.config import DynamicSamplingConfig, NormConfig
from grpo_core.kl import KlEstimator, kl_estimate
from grpo_core.normalization import assign_groups, normalize


def combine_components(
    components: Float[Tensor, "B F"], weights: Float[Tensor, " F"]
) -> Float[Tensor, " B"]:
    """Add up weighted reward components; NaN marks a component that was not scored.

    Args:
        components: One column per reward function.
        weights: One weight per reward function.

    Returns:
        Weighted sum of the scored components; NaN where none was scored.
    """
    scored = ~components.isnan()
    total = torch.where(scored, components * weights, 0.0).sum(1)
    return torch.where(scored.any(1), total, torch.nan)


def normalize_components(
    components: Float[Tensor, "B F"],
    *,
    eps: float,
    group_sizes: Int[Tensor, " G"] | None,
    group_size: int = 1,
) -> Float[Tensor, "B F"]:
    """Normalize each component within its groups, NaN left in place.

    GDPO: arXiv 2601.05242; TRL's `multi_objective_aggregation: normalize_then_sum`.

    Args:
        components: One column per reward function.
        eps: Added to the spread.
        group_sizes: Rows of each group; absent means blocks of `group_size`.
        group_size: Rows per group where `group_sizes` is absent.

    Returns:
        Components with mean 0 and unbiased spread 1 in each group.
    """
    norm = NormConfig(mean_level="group", std_level="group", eps=eps, group_size=group_size)
    columns = [
        torch.where(
            column.isnan(),
            torch.nan,
            normalize(column, norm, mask=~column.isnan(), group_sizes=group_sizes),
        )
        for column in components.unbind(1)
    ]
    return torch.stack(columns, dim=1)


def overlong_penalty(
    rewards: Float[Tensor, " B"],
    response_lengths: Int[Tensor, " B"],
    *,
    overlong_tokens: int,
    factor: float,
    max_new_tokens: int,
    areal_compat: bool = False,
) -> Float[Tensor, " B"]:
    """Subtract a penalty that grows linearly over the last `overlong_tokens` tokens.

        r' = r - factor * clip((n - (max_new_tokens - overlong_tokens)) / overlong_tokens, 0, 1)

    DAPO: arXiv 2503.14476 eq. 13. AReaL does not limit it from below (`areal_compat`).

    Args:
        rewards: One reward per answer.
        response_lengths: Trained tokens of each answer, n.
        overlong_tokens: Length of the penalized tail, in tokens.
        factor: Penalty at the full length, in reward units.
        max_new_tokens: Response limit.
        areal_compat: Let the penalty grow beyond `factor`.

    Returns:
        Penalized rewards.

    Raises:
        ValueError: The penalized tail is empty.
    """
    if overlong_tokens < 1:
        raise ValueError(f"overlong_tokens must be at least 1, got {overlong_tokens}")
    excess = response_lengths - (max_new_tokens - overlong_tokens)
    share = (excess / overlong_tokens).clamp(min=0, max=None if areal_compat else 1)
    return rewards - share.to(rewards.dtype) * factor


def scale_rewards(
    rewards: Float[Tensor, " B"], *, bias: float, scaling: float
) -> Float[Tensor, " B"]:
    """Give (r + bias) * scaling."""
    return (rewards + bias) * scaling


def clip_rewards(rewards: Float[Tensor, " B"], limit: float) -> Float[Tensor, " B"]:
    """Limit rewards to [-limit, limit]."""
    return rewards.clamp(-limit, limit)


def padded_width_truncation(lengths: Int[Tensor, " B"], width: int) -> Bool[Tensor, " B"]:
    """Call a row truncated iff it fills the padded width, as AReaL does, whatever its last token.

    Args:
        lengths: Attended tokens of each row, prompt included.
        width: Columns of the batch, T.

    Returns:
        AReaL's "no EOS" flag.
    """
    return lengths == width


def outcome_positions(
    lengths: Int[Tensor, " B"], loss_mask: Bool[Tensor, "B T"], *, areal_compat: bool = False
) -> Int[Tensor, " B"]:
    """Where the outcome reward goes: the prediction of the last trained token.

    AReaL takes the last token, trained or not, so that GAE drops the reward of a row that ends in a
    tool or user message. Without any trained token the position does not matter; it is 0.

    Args:
        lengths: Attended tokens of each row, prompt included.
        loss_mask: Trained positions.
        areal_compat: Take position length - 2, at least 0.

    Returns:
        One column index per row.
    """
    if areal_compat:
        return (lengths - 2).clamp(min=0)
    columns = torch.arange(loss_mask.shape[1], device=loss_mask.device)
    return torch.where(loss_mask, columns, 0).amax(1)


def place_outcome(
    outcome: Float[Tensor, " B"], positions: Int[Tensor, " B"], width: int
) -> Float[Tensor, "B T"]:
    """Put each row's outcome at its position of an otherwise zero [B, width] table."""
    table = outcome.new_zeros(len(outcome), width)
    return table.scatter(1, positions.unsqueeze(1), outcome.unsqueeze(1))


def kl_rewards(
    logprobs: Float[Tensor, "B T"],
    reference: Float[Tensor, "B T"],
    loss_mask: Bool[Tensor, "B T"],
    *,
    kl_ctl: float,
    estimator: KlEstimator,
) -> Float[Tensor, "B T"]:
    """Give -kl_ctl * KL(behaviour || reference) per trained token, 0 elsewhere.

    Args:
        logprobs: Behaviour policy.
        reference: Reference policy.
        loss_mask: Trained positions.
        kl_ctl: Reward units per nat.
        estimator: Which KL estimate.

    Returns:
        The KL part of the per-token reward.
    """
    zeros = torch.zeros_like(logprobs)
    policy = torch.where(loss_mask, logprobs, zeros)
    base = torch.where(loss_mask, reference, zeros)
    return torch.where(loss_mask, -kl_ctl * kl_estimate(policy, base, estimator), zeros)


def accept_groups(
    rewards: Float[Tensor, " B"], group_sizes: Int[Tensor, " G"], rule: DynamicSamplingConfig
) -> Bool[Tensor, " G"]:
    """Say which groups are worth training on.

    Dynamic sampling, DAPO: arXiv 2503.14476 section 3.2.

    Args:
        rewards: The task's own rewards, groups adjacent.
        group_sizes: Rows of each group.
        rule: Bounds on a group's mean reward.

    Returns:
        One decision per group; empty groups are refused.
    """
    groups = assign_groups(len(rewards), 1, group_sizes, device=rewards.device)
    sizes = group_sizes.to(rewards.device)
    sums = rewards.new_zeros(len(sizes)).index_add_(0, groups, rewards)
    means = sums / sizes.clamp(min=1)
    accepted = sizes > 0
    if rule.above is not None:
        accepted = accepted & (means > rule.above)
    if rule.below is not None:
        accepted = accepted & (means < rule.below)
    if rule.at_most is not None:
        accepted = accepted & (means <= rule.at_most)
    if rule.contrast:
        largest = torch.full_like(means, -torch.inf).scatter_reduce(0, groups, rewards, "amax")
        smallest = torch.full_like(means, torch.inf).scatter_reduce(0, groups, rewards, "amin")
        accepted = accepted & (largest > smallest)
    return accepted
