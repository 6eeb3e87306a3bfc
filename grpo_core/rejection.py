"""How far the data lag behind the policy: proximal log-probs, the staleness filter, M2PO's mask."""

from dataclasses import dataclass
from typing import Literal, assert_never

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.config import RejectionSamplingConfig, SamplerCorrectionConfig
from grpo_core.kl import kl_estimate

Metric = Literal["ratio", "kl_k1", "kl_k2", "kl_k3", "binary_kl"]
ProximalApproximation = Literal["loglinear", "linear", "rollout"]

PROBABILITY_FLOOR = 1e-8
"""Keeps log(p) and log(1 - p) of binary_kl finite at p = 0 and p = 1 in float32."""


@dataclass(frozen=True, slots=True)
class Staleness:
    """What a staleness filter decided."""

    mask: Bool[Tensor, "B T"]
    """Positions that are trained on after the filter."""
    weight: Float[Tensor, "B T"]
    """Importance weight proximal / behaviour of each position, 0 outside the mask."""
    log_ratio: Float[Tensor, "B T"]
    """Proximal minus behaviour log-probability, in nats, 0 outside `mask`."""
    filtered_fraction: Float[Tensor, ""]
    """Share of masked positions that were dropped or limited."""


def staleness_filter(
    proximal: Float[Tensor, "B T"],
    behaviour: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    settings: RejectionSamplingConfig,
    *,
    areal_compat: bool = False,
) -> Staleness:
    """Drop or limit what the behaviour policy generated too differently from the proximal one.

    The weight of a position is exp(proximal - behaviour); at sequence level with the ratio metric
    it is the row's geometric mean. IcePop (token ratio with two bounds) and KPop (token binary_kl)
    are settings of it. Decoupled objective: AReaL, arXiv 2505.24298 eq. 5; IcePop: arXiv
    2510.18855.

    Args:
        proximal: Policy at the start of the update.
        behaviour: Policy that generated the data.
        mask: Trained positions.
        settings: Level, action, metric, aggregation, bounds.
        areal_compat: Count a log-ratio that is not finite as 0 in weight and ratio metric, so that
            such a token is kept with weight 1; by default it is out of bounds.

    Returns:
        New mask and weights.
    """
    gap = torch.where(mask, proximal - behaviour, 0.0)
    finite = gap.isfinite()
    log_ratio = torch.where(finite, gap, 0.0)
    if settings.metric == "ratio":
        metric = log_ratio if areal_compat else gap
    else:
        metric = token_metric(proximal, behaviour, mask, settings.metric)
    if settings.level == "sequence":
        return _filter_sequences(metric, log_ratio, mask, settings)
    return _filter_tokens(metric, log_ratio, mask, settings)


def token_metric(
    proximal: Float[Tensor, "B T"],
    behaviour: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    metric: Metric,
) -> Float[Tensor, "B T"]:
    """Divergence of each masked position, 0 elsewhere; log-ratio for the ratio metric.

        binary_kl = p log(p / q) + (1 - p) log((1 - p) / (1 - q)), p behaviour, q proximal

    Args:
        proximal: Policy at the start of the update.
        behaviour: Policy that generated the data.
        mask: Trained positions.
        metric: Which divergence.

    Returns:
        One value per position, in nats.
    """
    match metric:
        case "ratio":
            values = proximal - behaviour
        case "kl_k1":
            values = kl_estimate(proximal, behaviour, "k1", clamp=None)
        case "kl_k2":
            values = kl_estimate(proximal, behaviour, "k2", clamp=None)
        case "kl_k3":
            values = kl_estimate(proximal, behaviour, "k3", clamp=None)
        case "binary_kl":
            values = _binary_kl(proximal, behaviour)
        case _:
            assert_never(metric)
    return torch.where(mask, values, 0.0)


def m2_mask(
    behaviour: Float[Tensor, "B T"],
    proximal: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    threshold: float,
) -> Bool[Tensor, "B T"]:
    """Drop the largest squared log-ratios until the mean of the rest is below the threshold.

    At least one masked position stays. M2PO: arXiv 2510.01161 algorithm 1.

    Args:
        behaviour: Policy that generated the data.
        proximal: Policy at the start of the update.
        mask: Trained positions.
        threshold: Largest mean squared log-ratio.

    Returns:
        The positions that stay.
    """
    squares = (torch.where(mask, behaviour - proximal, 0.0) ** 2)[mask]
    if not len(squares):
        return mask
    # Descending, so that among equals the later position stays, as in AReaL.
    order = squares.argsort(descending=True, stable=True).flip(0)
    counts = torch.arange(1, len(squares) + 1, device=squares.device)
    below = squares[order].double().cumsum(0) / counts < threshold
    kept = torch.zeros_like(below)
    # The running mean of ascending values never falls, so `below` is a prefix.
    kept[order] = below | (counts == 1)
    result = torch.zeros_like(mask)
    result[mask] = kept
    return result


def approximate_proximal(
    behaviour: Float[Tensor, "B T"],
    current: Float[Tensor, "B T"],
    versions: Int[Tensor, "B T"],
    current_version: int,
    *,
    method: ProximalApproximation = "loglinear",
) -> Float[Tensor, "B T"]:
    """Guess the proximal policy's log-probs between the behaviour and the current policy's.

    The proximal policy is one version older than the current one:

        alpha = (current_version - 1 - version) / (current_version - version), in [0, 1]

    loglinear mixes log-probabilities, linear probabilities, rollout takes the behaviour policy's.
    Positions without a version (negative) or of the current one have alpha 0.

    Args:
        behaviour: Policy that generated the data.
        current: Policy being trained, without gradient.
        versions: Version that generated each token; negative for prompt tokens.
        current_version: Version being trained.
        method: How to mix.

    Returns:
        Approximate proximal log-probabilities.
    """
    if method == "rollout":
        return behaviour.clone()
    lag = (current_version - versions).to(behaviour.dtype)
    alpha = torch.where((versions >= 0) & (lag > 0), (lag - 1) / lag.clamp(min=1), 0.0)
    if method == "loglinear":
        return behaviour + alpha * (current - behaviour)
    return torch.log((1 - alpha) * behaviour.exp() + alpha * current.exp())


def sampler_weights(
    proximal: Float[Tensor, "B T"],
    behaviour: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    settings: SamplerCorrectionConfig,
) -> Float[Tensor, "B T"]:
    """Weight each position by trainer / sampler probability within bounds, as TRL does.

    At sequence level the weight is the product over the answer, the same for all its positions.

    Args:
        proximal: The trainer's log-probs of the policy that sampled.
        behaviour: The sampler's own log-probs.
        mask: Trained positions.
        settings: Level, action, bounds.

    Returns:
        Weights, 0 where masking dropped a position.
    """
    gap = torch.where(mask, proximal - behaviour, 0.0)
    if settings.level == "sequence":
        gap = gap.sum(1, keepdim=True).expand_as(gap)
    weight = gap.exp()
    lower = 0.0 if settings.lower is None else settings.lower
    upper = torch.inf if settings.upper is None else settings.upper
    if settings.action == "truncate":
        return weight.clamp(lower, upper)
    return torch.where((weight >= lower) & (weight <= upper), weight, 0.0)


def off_policy_rows(
    logprobs: Float[Tensor, "B T"],
    behaviour: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    threshold: float,
) -> Bool[Tensor, "B 1"]:
    """Keep answers that are good or still likely: mean A >= 0 or mean gap <= threshold.

    The gap is behaviour minus current log-prob. DeepSeek-V3.2: arXiv 2512.02556 section 3.1.

    Args:
        logprobs: Policy being trained, without gradient.
        behaviour: Policy that generated the data.
        advantages: Advantage of each position.
        mask: Trained positions.
        threshold: Largest mean gap, in nats.

    Returns:
        One decision per answer.
    """
    gap = row_mean(behaviour - logprobs, mask)
    return (row_mean(advantages, mask) >= 0) | (gap <= threshold)


def row_mean(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Mean of each row over its masked positions; 0 for rows without any."""
    total = torch.where(mask, x, 0.0).sum(1, keepdim=True)
    return total / mask.sum(1, keepdim=True).clamp(min=1)


def _binary_kl(
    proximal: Float[Tensor, "B T"], behaviour: Float[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    p, q = behaviour.exp(), proximal.exp()
    not_p = (-torch.expm1(behaviour)).clamp(min=PROBABILITY_FLOOR)
    not_q = (-torch.expm1(proximal)).clamp(min=PROBABILITY_FLOOR)
    taken = p * (p.clamp(min=PROBABILITY_FLOOR) / q.clamp(min=PROBABILITY_FLOOR)).log()
    return taken + not_p * (not_p / not_q).log()


def _within(metric: Float[Tensor, "*B"], settings: RejectionSamplingConfig) -> Bool[Tensor, "*B"]:
    """Whether values lie in the bounds, both included; NaN does not."""
    inside = metric <= settings.upper
    return inside if settings.lower is None else inside & (metric >= settings.lower)


def _limit(weight: Float[Tensor, "*B"], settings: RejectionSamplingConfig) -> Float[Tensor, "*B"]:
    lower = 0.0 if settings.lower is None else settings.lower
    return weight.clamp(lower, settings.upper)


def _filter_tokens(
    metric: Float[Tensor, "B T"],
    log_ratio: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    settings: RejectionSamplingConfig,
) -> Staleness:
    measured = metric.exp() if settings.metric == "ratio" else metric
    inside = _within(measured, settings) & mask
    weight = log_ratio.exp()
    kept = mask
    if settings.action == "clamp":
        weight = _limit(weight, settings)
    else:
        kept = inside
    return _staleness(kept, weight, log_ratio, touched=mask & ~inside, mask=mask)


def _filter_sequences(
    metric: Float[Tensor, "B T"],
    log_ratio: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    settings: RejectionSamplingConfig,
) -> Staleness:
    measured = _aggregate(metric, mask, settings)
    weight = log_ratio.exp()
    if settings.metric == "ratio":
        measured = measured.exp()
        weight = row_mean(log_ratio, mask).exp().expand_as(log_ratio)
    inside = _within(measured, settings)
    kept, touched = mask, mask & ~inside
    if settings.action == "clamp":
        limited = _limit(weight, settings)
        touched = touched & (limited != weight)
        weight = torch.where(inside, weight, limited)
    else:
        kept = mask & inside
    return _staleness(kept, weight, log_ratio, touched=touched, mask=mask)


def _aggregate(
    metric: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], settings: RejectionSamplingConfig
) -> Float[Tensor, "B 1"]:
    match settings.agg:
        case "mean":
            return row_mean(metric, mask)
        case "sum":
            return torch.where(mask, metric, 0.0).sum(1, keepdim=True)
        case "max":
            largest = torch.where(mask, metric, -torch.inf).amax(1, keepdim=True)
            return torch.where(mask.any(1, keepdim=True), largest, 0.0)
        case _:
            assert_never(settings.agg)


def _staleness(
    kept: Bool[Tensor, "B T"],
    weight: Float[Tensor, "B T"],
    log_ratio: Float[Tensor, "B T"],
    *,
    touched: Bool[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
) -> Staleness:
    fraction = touched.sum() / mask.sum().clamp(min=1)
    return Staleness(
        mask=kept,
        weight=torch.where(kept, weight, 0.0),
        log_ratio=torch.where(kept, log_ratio, 0.0),
        filtered_fraction=fraction.to(weight.dtype),
    )
