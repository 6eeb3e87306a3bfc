"""Policy losses: importance ratio, surrogate, aggregation; and the value loss.

A surrogate turns ratio and advantage of each position into its loss; LOSSES holds them by name. The
staleness weight, the KL term and the denominator are the same for all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar, assert_never

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.config import ActorConfig, ExtensionsConfig, VespoConfig
from grpo_core.kl import kl_estimate
from grpo_core.rejection import (
    Staleness,
    approximate_proximal,
    m2_mask,
    off_policy_rows,
    row_mean,
    sampler_weights,
    staleness_filter,
)

Aggregation = Literal["token-mean", "sequence-mean", "sequence-sum", "constant"]
Outside = Literal["safe", "zero", "raw"]
LossName = Literal["ppo", "sapo", "cispo", "vespo"]

HUBER_DELTA = 10.0
"""Error beyond which the Huber value loss grows linearly; AReaL's constant."""
VESPO_LOG_RATIO_LIMIT = 20.0
"""Largest log-ratio in VESPO's weight; TRL's constant, exp(20) is about 5e8."""
VESPO_SMALLEST_RATIO = 1e-8
"""Smallest answer ratio in VESPO's weight; TRL's constant."""

NO_EXTENSIONS = ExtensionsConfig()

Record = TypeVar("Record")


def take_rows(
    record: Record, index: Int[Tensor, " b"], *, dropped: frozenset[str] = frozenset()
) -> Record:
    """Take rows of every tensor of a record.

    Args:
        record: A frozen dataclass of tensors [B, ...] and other values.
        index: Rows to take.
        dropped: Fields that become None, because they do not describe rows.

    Returns:
        The same record with fewer rows.
    """
    source: Any = record
    changes: dict[str, Tensor | None] = dict.fromkeys(dropped)
    for field in fields(source):
        value = getattr(source, field.name)
        if isinstance(value, Tensor) and field.name not in dropped:
            changes[field.name] = value[index]
    taken: Record = replace(source, **changes)
    return taken


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What the policy loss needs besides the current log-probs, prediction-aligned."""

    advantages: Float[Tensor, "B T"]
    """Advantage of each position."""
    loss_mask: Bool[Tensor, "B T"]
    """Positions that are trained on."""
    counted_mask: Bool[Tensor, "B T"]
    """Positions that the denominator counts."""
    old_logprobs: Float[Tensor, "B T"]
    """Behaviour policy."""
    proximal_logprobs: Float[Tensor, "B T"] | None = None
    """Policy that ratios are clipped around; None where it follows from the current log-probs."""
    reference_logprobs: Float[Tensor, "B T"] | None = None
    """Reference policy, for a KL term in the loss."""
    versions: Int[Tensor, "B T"] | None = None
    """Version that generated each token, for `prox_logp_method: loglinear`."""
    current_version: int | None = None
    """Version being trained, for `prox_logp_method: loglinear`."""

    def rows(self, index: Int[Tensor, " b"]) -> "LossInputs":
        """Take a minibatch of rows."""
        return take_rows(self, index)


@dataclass(frozen=True, slots=True)
class Gates:
    """SAPO's soft gates."""

    gate: Float[Tensor, "B T"]
    """The gate that each position's advantage chose."""
    positive: Float[Tensor, "B T"]
    """Gate at `sapo_tau_pos`."""
    negative: Float[Tensor, "B T"]
    """Gate at `sapo_tau_neg`."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """Loss of each position before weights, mask and denominator."""

    token_loss: Float[Tensor, "B T"]
    """Loss per position, with gradient."""
    clip_mask: Bool[Tensor, "B T"]
    """Positions whose loss is the clipped one."""
    dual_clip_mask: Bool[Tensor, "B T"]
    """Positions whose loss is capped by `c_clip`."""
    gates: Gates | None = None
    """Present for SAPO."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """The policy loss and everything on the way to it."""

    loss: Float[Tensor, ""]
    """What to differentiate."""
    token_loss: Float[Tensor, "B T"]
    """Weighted loss per position, KL term included, before mask and denominator; detached."""
    ratio: Float[Tensor, "B T"]
    """Importance ratio; detached."""
    log_ratio: Float[Tensor, "B T"]
    """Log-ratio of each token, whatever the level, in nats; detached."""
    clip_mask: Bool[Tensor, "B T"]
    """Positions whose loss is the clipped one."""
    dual_clip_mask: Bool[Tensor, "B T"]
    """Positions whose loss is capped by `c_clip`."""
    entering_mask: Bool[Tensor, "B T"]
    """Trained positions before the staleness filter, after M2PO."""
    mask: Bool[Tensor, "B T"]
    """Positions that the loss sums over."""
    denominator: Float[Tensor, ""]
    """What the sum is divided by."""
    proximal_logprobs: Float[Tensor, "B T"]
    """Policy that ratios were taken against, where decoupled; otherwise the behaviour policy."""
    staleness: Staleness | None = None
    """Outcome of `rejection_sampling`; None without it."""
    sampler_weight: Float[Tensor, "B T"] | None = None
    """Weight of `extensions.sampler_correction`; None without it."""
    kl: Float[Tensor, "B T"] | None = None
    """KL term per position in nats, before its coefficient; None without it; detached."""
    gates: Gates | None = None
    """Present for SAPO."""


@dataclass(frozen=True, slots=True)
class SurrogateInputs:
    """What a surrogate sees."""

    logprobs: Float[Tensor, "B T"]
    """Current policy, with gradient."""
    token_log_ratio: Float[Tensor, "B T"]
    """Log-ratio of each token whatever the level, with gradient, in nats."""
    ratio: Float[Tensor, "B T"]
    """Importance ratio, with gradient."""
    advantages: Float[Tensor, "B T"]
    """Advantage; the row's mean where the ratio is the row's."""
    mask: Bool[Tensor, "B T"]
    """Trained positions."""
    sampler_weight: Float[Tensor, "B T"] | None = None
    """Trainer / sampler weight, for surrogates that take it in themselves."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The two places where a loss finds its settings."""

    actor: ActorConfig
    """AReaL's settings."""
    extensions: ExtensionsConfig
    """Settings beyond AReaL's."""


SurrogateFunction = Callable[[SurrogateInputs, LossSettings], Surrogate]


@dataclass(frozen=True, slots=True)
class LossSpec:
    """A surrogate and how it is fed."""

    function: SurrogateFunction
    """Gives each position's loss."""
    against: Literal["proximal", "behaviour"] = "proximal"
    """Policy in the ratio's denominator."""
    filtered: bool = True
    """Whether the staleness filter applies."""
    own_sampler_weight: bool = False
    """Whether the surrogate itself uses the trainer / sampler weight."""
    areal_outside: Outside = "raw"
    """What AReaL does to token ratios outside the mask; "zero" is before the staleness filter."""


def ppo_surrogate(inputs: SurrogateInputs, settings: LossSettings) -> Surrogate:
    """PPO's clipped surrogate with independent bounds, dual clip and an optional ratio cap.

        L = -min(min(r, cap) A, clip(r, 1 - eps, 1 + eps_high) A), for A < 0 at most c_clip |A|

    PPO: arXiv 1707.06347 eq. 7; bounds: DAPO, arXiv 2503.14476; dual clip: arXiv 1912.09729 eq. 5;
    cap: TRL's `delta`, INTELLECT-2, arXiv 2505.07291.

    Args:
        inputs: Ratio and advantages.
        settings: `eps_clip`, `eps_clip_higher`, `c_clip`, `ratio_cap`.

    Returns:
        Loss per position.
    """
    actor, extensions = settings.actor, settings.extensions
    ratio, advantages = inputs.ratio, inputs.advantages
    lower, upper = clip_bounds(actor)
    clipped = -_clip(ratio, lower, upper) * advantages
    if extensions.ratio_cap is not None:
        ratio = ratio.clamp(max=extensions.ratio_cap)
    plain = -ratio * advantages
    clip_mask = (plain.detach() < clipped.detach()) & inputs.mask
    token_loss = torch.maximum(plain, clipped)
    dual_clip_mask = torch.zeros_like(clip_mask)
    if actor.c_clip is not None:
        cap = actor.c_clip * advantages.abs()
        capped = (advantages < 0) & (cap < token_loss.detach())
        token_loss = torch.where(capped, cap, token_loss)
        dual_clip_mask = capped & inputs.mask
    return Surrogate(token_loss, clip_mask, dual_clip_mask)


def sapo_surrogate(inputs: SurrogateInputs, settings: LossSettings) -> Surrogate:
    """SAPO's soft gate in place of a clip.

        L = -(4 / tau) sigmoid(tau (r - 1)) A, tau = sapo_tau_pos for A > 0, else sapo_tau_neg

    SAPO: arXiv 2511.20347 eq. 6.

    Args:
        inputs: Ratio and advantages.
        settings: `sapo_tau_pos`, `sapo_tau_neg`.

    Returns:
        Loss per position, nothing clipped.
    """
    positive = _gate(inputs.ratio, settings.actor.sapo_tau_pos)
    negative = _gate(inputs.ratio, settings.actor.sapo_tau_neg)
    gate = torch.where(inputs.advantages > 0, positive, negative)
    nothing = torch.zeros_like(inputs.mask)
    gates = Gates(gate.detach(), positive.detach(), negative.detach())
    return Surrogate(-gate * inputs.advantages, nothing, nothing, gates)


def cispo_surrogate(inputs: SurrogateInputs, settings: LossSettings) -> Surrogate:
    """CISPO: a clipped, constant importance weight on every token's gradient.

        L = -sg(clip(r, 1 - eps, 1 + eps_high)) A log pi

    MiniMax-M1: arXiv 2506.13585 eq. 4.

    Args:
        inputs: Ratio, advantages, log-probs.
        settings: `eps_clip`, `eps_clip_higher`.

    Returns:
        Loss per position.
    """
    lower, upper = clip_bounds(settings.actor)
    ratio = inputs.ratio.detach()
    weight = ratio.clamp(lower, upper)
    clip_mask = (weight != ratio) & inputs.mask
    nothing = torch.zeros_like(clip_mask)
    return Surrogate(-weight * inputs.advantages * inputs.logprobs, clip_mask, nothing)


def vespo_surrogate(inputs: SurrogateInputs, settings: LossSettings) -> Surrogate:
    """VESPO: a constant gamma-shaped weight of the whole answer's ratio.

        L = -sg(phi(w)) A log pi;  phi(w) = w^k exp(lambda (1 - w));  w = prod_t r_t

    TRL's `loss_type: vespo`, arXiv 2602.10693.

    Args:
        inputs: Log-ratio per token, advantages, log-probs.
        settings: `vespo`.

    Returns:
        Loss per position, nothing clipped.
    """
    asked = settings.extensions.vespo
    vespo = VespoConfig() if asked is None else asked
    limit, floor = VESPO_LOG_RATIO_LIMIT, torch.tensor(VESPO_SMALLEST_RATIO).log().item()
    per_token = torch.where(inputs.mask, inputs.token_log_ratio.detach(), 0.0).clamp(-limit, limit)
    log_weight = per_token.sum(1, keepdim=True)
    if inputs.sampler_weight is not None:
        sampler = inputs.sampler_weight.log().clamp(floor, limit)
        log_weight = log_weight + torch.where(inputs.mask, sampler, 0.0).sum(1, keepdim=True)
    log_weight = log_weight.clamp(floor, limit)
    good = inputs.advantages >= 0
    power = torch.where(good, vespo.k_pos, vespo.k_neg)
    rate = torch.where(good, vespo.lambda_pos, vespo.lambda_neg)
    phi = torch.exp(power * log_weight + rate * (1 - log_weight.exp()))
    nothing = torch.zeros_like(inputs.mask)
    return Surrogate(-phi * inputs.advantages * inputs.logprobs, nothing, nothing)


LOSSES: dict[LossName, LossSpec] = {
    "ppo": LossSpec(ppo_surrogate, areal_outside="zero"),
    "sapo": LossSpec(sapo_surrogate, against="behaviour", filtered=False),
    "cispo": LossSpec(cispo_surrogate),
    "vespo": LossSpec(vespo_surrogate, own_sampler_weight=True),
}


def loss_name(actor: ActorConfig, extensions: ExtensionsConfig) -> LossName:
    """Name of the surrogate that the settings ask for."""
    if extensions.vespo is not None:
        return "vespo"
    if actor.use_sapo_loss:
        return "sapo"
    return "cispo" if actor.use_cispo_loss else "ppo"


def clip_bounds(actor: ActorConfig) -> tuple[float, float]:
    """Lower and upper bound of a clipped ratio."""
    higher = actor.eps_clip if actor.eps_clip_higher is None else actor.eps_clip_higher
    return 1 - actor.eps_clip, 1 + higher


def policy_loss(
    logprobs: Float[Tensor, "B T"],
    inputs: LossInputs,
    actor: ActorConfig,
    *,
    extensions: ExtensionsConfig = NO_EXTENSIONS,
    areal_compat: bool = False,
    denominator: Float[Tensor, ""] | None = None,
) -> PolicyLoss:
    """Compute the loss of a minibatch, or of a part of it.

        loss = sum over masked positions of (weight * surrogate + kl_loss_coef * KL) / denominator

    Masked positions cannot reach loss or gradient, not even through an overflow; AReaL's gradient
    becomes NaN when a token-level ratio overflows at a masked position (`areal_compat`).

    Args:
        logprobs: Current policy's log-prob of each token, with gradient.
        inputs: Everything else, from `PipelineResult.loss_inputs`.
        actor: The policy's settings.
        extensions: Settings beyond AReaL's.
        areal_compat: Reproduce AReaL's defects.
        denominator: `loss_denominator` of the whole minibatch, where this is only a part of it.

    Returns:
        The loss and every intermediate quantity.
    """
    spec = LOSSES[loss_name(actor, extensions)]
    proximal = resolve_proximal(logprobs.detach(), inputs, actor)
    entering, counted = _entering_masks(inputs, proximal, actor, areal_compat=areal_compat)
    staleness = None
    if spec.filtered and actor.rejection_sampling is not None:
        settings, old = actor.rejection_sampling, inputs.old_logprobs
        staleness = staleness_filter(proximal, old, entering, settings, areal_compat=areal_compat)
    mask = entering if staleness is None else staleness.mask
    weights = _weights(logprobs.detach(), inputs, proximal, mask, extensions=extensions)
    if staleness is not None:
        weights = replace(weights, staleness=staleness.weight)
    outside = spec.areal_outside if areal_compat else "safe"
    against = proximal if spec.against == "proximal" else inputs.old_logprobs
    terms = importance_ratio(
        logprobs,
        against,
        inputs.advantages,
        entering if outside == "zero" and actor.importance_sampling_level == "token" else mask,
        level=actor.importance_sampling_level,
        outside=outside,
    )
    surrogate = spec.function(
        replace(terms, sampler_weight=weights.sampler), LossSettings(actor, extensions)
    )
    token_loss = surrogate.token_loss * weights.product(sampler=not spec.own_sampler_weight)
    kl = kl_in_loss(terms, inputs.reference_logprobs, extensions)
    if kl is not None:
        token_loss = token_loss + extensions.kl_loss_coef * kl
    if denominator is None:
        denominator = loss_denominator(counted, actor, extensions)
    loss = aggregate(
        token_loss, mask, counted, denominator, aggregation=extensions.loss_aggregation
    )
    return PolicyLoss(
        loss=loss,
        token_loss=token_loss.detach(),
        ratio=terms.ratio.detach(),
        log_ratio=terms.token_log_ratio.detach(),
        clip_mask=surrogate.clip_mask,
        dual_clip_mask=surrogate.dual_clip_mask,
        entering_mask=entering,
        mask=mask,
        denominator=denominator,
        proximal_logprobs=proximal,
        staleness=staleness,
        sampler_weight=weights.sampler,
        kl=None if kl is None else kl.detach(),
        gates=surrogate.gates,
    )


def resolve_proximal(
    current: Float[Tensor, "B T"], inputs: LossInputs, actor: ActorConfig
) -> Float[Tensor, "B T"]:
    """Give the policy that ratios are clipped around, whatever `prox_logp_method` says.

    Args:
        current: Current log-probs, without gradient.
        inputs: Proximal and behaviour log-probs, versions.
        actor: `prox_logp_method`, `use_decoupled_loss`.

    Returns:
        Proximal log-probs.

    Raises:
        ValueError: The method needs something that the inputs lack.
    """
    if inputs.proximal_logprobs is not None:
        return inputs.proximal_logprobs
    if not actor.use_decoupled_loss:
        return inputs.old_logprobs
    if actor.prox_logp_method == "reuse_train_logp":
        return current
    if actor.prox_logp_method != "loglinear":
        raise ValueError(
            f"prox_logp_method={actor.prox_logp_method} needs proximal_logprobs, got none"
        )
    if inputs.versions is None or inputs.current_version is None:
        raise ValueError("prox_logp_method=loglinear needs versions and current_version, got none")
    return approximate_proximal(
        inputs.old_logprobs, current, inputs.versions, inputs.current_version
    )


def importance_ratio(
    logprobs: Float[Tensor, "B T"],
    against: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    level: Literal["token", "sequence"],
    outside: Outside = "safe",
) -> SurrogateInputs:
    """Give each position its importance ratio and the advantage that goes with it.

        token: r_t = exp(logp_t - base_t);
        sequence: r = exp(mean_t (logp_t - base_t)), A = mean_t A_t

    Sequence level: GSPO, arXiv 2507.18071 eq. 7; the mean advantage is AReaL's.

    Args:
        logprobs: Current policy, with gradient.
        against: Policy in the denominator.
        advantages: Advantage of each position.
        mask: Trained positions.
        level: One ratio per token or per answer.
        outside: What token ratios are outside the mask: 0 and without gradient; 0 ("zero") or left
            as they come ("raw") with gradients that an overflow turns into NaN, as in AReaL.

    Returns:
        Inputs of a surrogate.
    """
    gap = logprobs - against
    if level == "sequence":
        log_ratio = row_mean(gap, mask).expand_as(gap)
        ratio = torch.where(mask, log_ratio.exp(), 0.0)
        row_advantages = torch.where(mask, row_mean(advantages, mask), 0.0)
        return SurrogateInputs(logprobs, gap, ratio, row_advantages, mask)
    if outside == "safe":
        gap = torch.where(mask, gap, 0.0)
    ratio = gap.exp() if outside == "raw" else torch.where(mask, gap.exp(), 0.0)
    return SurrogateInputs(logprobs, gap, ratio, advantages, mask)


def kl_in_loss(
    terms: SurrogateInputs,
    reference: Float[Tensor, "B T"] | None,
    extensions: ExtensionsConfig,
) -> Float[Tensor, "B T"] | None:
    """KL term of each masked position, with gradient; None when its coefficient is 0.

    DeepSeekMath: arXiv 2402.03300 eq. 4 (k3). Weighted by the ratio it is the unbiased estimate for
    stale data, DeepSeek-V3.2: arXiv 2512.02556 section 3.1.

    Args:
        terms: Current policy, ratio, mask.
        reference: Reference policy.
        extensions: `kl_loss_coef`, `kl_loss_estimator`, `kl_loss_ratio_weighted`.

    Returns:
        Nats per position, without the coefficient.

    Raises:
        ValueError: The reference is missing.
    """
    if extensions.kl_loss_coef == 0:
        return None
    if reference is None:
        raise ValueError(
            f"extensions.kl_loss_coef={extensions.kl_loss_coef} needs reference_logprobs, got none"
        )
    zeros = torch.zeros_like(reference)
    policy = torch.where(terms.mask, terms.logprobs, zeros)
    base = torch.where(terms.mask, reference, zeros)
    kl = kl_estimate(policy, base, extensions.kl_loss_estimator, clamp=None)
    return kl * terms.ratio if extensions.kl_loss_ratio_weighted else kl


def loss_denominator(
    counted_mask: Bool[Tensor, "B T"], actor: ActorConfig, extensions: ExtensionsConfig
) -> Float[Tensor, ""]:
    """What the summed loss of these rows is divided by; at least 1.

    token-mean: counted positions; sequence-mean, sequence-sum: rows; constant: rows *
    actor.max_new_tokens.

    Args:
        counted_mask: Positions that count.
        actor: `max_new_tokens`.
        extensions: `loss_aggregation`.

    Returns:
        The denominator of these rows; those of parts of a minibatch add up to that of the whole.
    """
    rows = len(counted_mask)
    match extensions.loss_aggregation:
        case "token-mean":
            return counted_mask.sum().clamp(min=1).float()
        case "sequence-mean" | "sequence-sum":
            return torch.tensor(float(max(rows, 1)), device=counted_mask.device)
        case "constant":
            total = float(max(rows, 1) * actor.max_new_tokens)
            return torch.tensor(total, device=counted_mask.device)
        case _:
            assert_never(extensions.loss_aggregation)


def aggregate(
    token_loss: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    counted_mask: Bool[Tensor, "B T"],
    denominator: Float[Tensor, ""],
    *,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    """Sum masked token losses over the denominator, for sequence-mean after a mean per row.

    Args:
        token_loss: Loss per position.
        mask: Positions that are summed.
        counted_mask: Positions that a row's own mean counts.
        denominator: See `loss_denominator`.
        aggregation: How rows weigh.

    Returns:
        The loss.
    """
    masked = torch.where(mask, token_loss, 0.0)
    if aggregation == "sequence-mean":
        masked = masked / counted_mask.sum(1, keepdim=True).clamp(min=1)
    return masked.sum() / denominator


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """The value function's loss and what led to it."""

    loss: Float[Tensor, ""]
    """What to differentiate."""
    token_loss: Float[Tensor, "B T"]
    """Loss per position; detached."""
    clip_mask: Bool[Tensor, "B T"]
    """Trained positions whose loss is the clipped one."""


def value_loss(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    eps_clip: float,
    kind: Literal["mse", "huber"] = "mse",
) -> ValueLoss:
    """Clipped value loss, mean over masked positions.

        L = mean_t max(l(V - R), l(clip(V, V_old - eps, V_old + eps) - R)), l(e) = e^2 / 2 or Huber

    The clip is that of PPO's reference implementation; Huber: l(e) = delta (|e| - delta / 2) beyond
    delta.

    Args:
        values: Current values, with gradient.
        old_values: Values when the data were generated.
        returns: Targets.
        mask: Trained positions.
        eps_clip: Largest change of a value.
        kind: Squared error or Huber.

    Returns:
        The loss and its parts.
    """
    clipped = old_values + (values - old_values).clamp(-eps_clip, eps_clip)
    plain_loss = _error_loss(values - returns, kind)
    clipped_loss = _error_loss(clipped - returns, kind)
    token_loss = torch.maximum(plain_loss, clipped_loss)
    clip_mask = (clipped_loss.detach() > plain_loss.detach()) & mask
    masked = torch.where(mask, token_loss, 0.0)
    return ValueLoss(masked.sum() / mask.sum().clamp(min=1), token_loss.detach(), clip_mask)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Constant factors of the surrogate."""

    sampler: Float[Tensor, "B T"] | None
    kept_rows: Bool[Tensor, "B 1"] | None
    staleness: Float[Tensor, "B T"] | None = None

    def product(self, *, sampler: bool) -> Float[Tensor, "*B"] | float:
        """All factors multiplied, the sampler's only if asked for."""
        product: Tensor | float = 1.0
        if self.staleness is not None:
            product = product * self.staleness
        if self.sampler is not None and sampler:
            product = product * self.sampler
        if self.kept_rows is not None:
            product = product * self.kept_rows
        return product


def _weights(
    current: Float[Tensor, "B T"],
    inputs: LossInputs,
    proximal: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    extensions: ExtensionsConfig,
) -> _Weights:
    sampler, kept_rows = None, None
    old = inputs.old_logprobs
    if extensions.sampler_correction is not None:
        sampler = sampler_weights(proximal, old, mask, extensions.sampler_correction)
    if extensions.off_policy_mask_threshold is not None:
        threshold = extensions.off_policy_mask_threshold
        kept_rows = off_policy_rows(current, old, inputs.advantages, mask, threshold=threshold)
    return _Weights(sampler=sampler, kept_rows=kept_rows)


def _entering_masks(
    inputs: LossInputs,
    proximal: Float[Tensor, "B T"],
    actor: ActorConfig,
    *,
    areal_compat: bool,
) -> tuple[Bool[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Masks of trained and of counted positions, M2PO applied where the pipeline could not.

    AReaL drops M2PO's positions from the denominator too, which undoes part of the smaller step.
    """
    entering = inputs.loss_mask
    pending = areal_compat or inputs.proximal_logprobs is None
    if actor.m2_threshold is not None and pending:
        entering = m2_mask(inputs.old_logprobs, proximal, entering, actor.m2_threshold)
    return entering, entering if areal_compat else inputs.counted_mask


def _clip(ratio: Float[Tensor, "B T"], lower: float, upper: float) -> Float[Tensor, "B T"]:
    """Limit a ratio, without gradient at the bounds and beyond.

    At the bound itself both branches of PPO's minimum are equal and share the gradient, so that
    with `eps_clip: 0` a ratio of exactly 1 gets half of it; so does AReaL.
    """
    inside = (ratio > lower) & (ratio < upper)
    return torch.where(inside, ratio, ratio.detach().clamp(lower, upper))


def _gate(ratio: Float[Tensor, "B T"], tau: float) -> Float[Tensor, "B T"]:
    return torch.sigmoid(tau * (ratio - 1)) * (4 / tau)


def _error_loss(error: Float[Tensor, "B T"], kind: Literal["mse", "huber"]) -> Float[Tensor, "B T"]:
    squared = error**2 / 2
    if kind == "mse":
        return squared
    linear = HUBER_DELTA * (error.abs() - HUBER_DELTA / 2)
    return torch.where(error.abs() <= HUBER_DELTA, squared, linear)
