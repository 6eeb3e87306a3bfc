"""The one path from a rollout's rewards to what the loss needs, every stage kept.

    rewards -> overlong penalty -> (r + bias) * scaling -> clip -> reward_norm -> truncation
            -> placement and KL -> GAE -> adv_norm -> M2PO mask

The trainer, replay and the golden checker all go through `run_pipeline`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.advantages import (
    Gae,
    Steps,
    bootstrap_values,
    gae_tokens,
    gae_turns,
    lambda_per_row,
    turn_counts,
)
from grpo_core.config import ActorConfig, ExtensionsConfig
from grpo_core.errors import ConfigError
from grpo_core.losses import NO_EXTENSIONS, LossInputs, take_rows
from grpo_core.normalization import normalize
from grpo_core.rejection import m2_mask
from grpo_core.rewards import (
    clip_rewards,
    combine_components,
    kl_rewards,
    normalize_components,
    outcome_positions,
    overlong_penalty,
    padded_width_truncation,
    place_outcome,
    scale_rewards,
)


@dataclass(frozen=True, slots=True)
class Experience:
    """What a rollout hands over; position t belongs to the prediction of token t + 1."""

    rewards: Float[Tensor, " B"]
    """The task's reward of each answer."""
    loss_mask: Bool[Tensor, "B T"]
    """Positions that predict a generated token."""
    lengths: Int[Tensor, " B"]
    """Attended tokens of each row, prompt included."""
    truncated: Bool[Tensor, " B"]
    """Rows whose last token is not the end of the sequence."""
    behaviour_logprobs: Float[Tensor, "B T"]
    """Log-probs under the policy that generated the tokens."""
    group_sizes: Int[Tensor, " G"] | None = None
    """Rows of each group, groups adjacent; None falls back to a norm's `group_size`."""
    reference_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probs under the reference policy."""
    proximal_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probs under the policy at the start of the update."""
    values: Float[Tensor, "B T"] | None = None
    """Value of the state before each predicted token; None without a critic."""
    versions: Int[Tensor, "B T"] | None = None
    """Policy version that generated each predicted token; negative for prompt tokens."""
    turn_ids: Int[Tensor, "B T"] | None = None
    """Turn of each predicted token; negative for none."""
    current_version: int | None = None
    """Policy version that is being trained."""
    reward_components: Float[Tensor, "B F"] | None = None
    """One column per reward function, NaN where not scored; replaces `rewards`."""

    def rows(self, index: Int[Tensor, " b"]) -> "Experience":
        """Take a subset of rows, without group sizes: the caller knows which groups are whole."""
        return take_rows(self, index, dropped=frozenset({"group_sizes"}))


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """Every stage between reward and loss."""

    rewards: Float[Tensor, " B"]
    """Raw reward; weighted sum of components where there are several."""
    penalized: Float[Tensor, " B"]
    """After the overlong penalty."""
    scaled: Float[Tensor, " B"]
    """After bias and scaling."""
    clipped: Float[Tensor, " B"]
    """After the clip."""
    normalized: Float[Tensor, " B"]
    """After `reward_norm`."""
    outcome: Float[Tensor, " B"]
    """After `mask_no_eos_with_zero`."""
    kl_rewards: Float[Tensor, "B T"]
    """KL part of the token rewards."""
    total_rewards: Float[Tensor, "B T"]
    """KL part plus the outcome at its position."""
    raw_advantages: Float[Tensor, "B T"]
    """Advantages before `adv_norm`."""
    advantages: Float[Tensor, "B T"]
    """Advantages that enter the loss."""
    returns: Float[Tensor, "B T"]
    """Targets of the value function: raw advantages plus values."""
    counted_mask: Bool[Tensor, "B T"]
    """Trained positions before M2PO; what denominators count."""
    loss_mask: Bool[Tensor, "B T"]
    """Trained positions after M2PO."""
    truncated: Bool[Tensor, " B"]
    """Rows that were treated as truncated."""
    in_statistics: Bool[Tensor, " B"]
    """Rows that entered the statistics of `reward_norm`."""
    gae_lambda: Float[Tensor, " B"]
    """Lambda of each row."""
    old_logprobs: Float[Tensor, "B T"]
    """Behaviour policy as the loss sees it, 0 outside the mask."""
    proximal_logprobs: Float[Tensor, "B T"] | None
    """Proximal policy; None where it follows from the current log-probs."""
    reference_logprobs: Float[Tensor, "B T"] | None
    """Reference policy."""
    values: Float[Tensor, "B T"] | None
    """Values as given."""
    versions: Int[Tensor, "B T"] | None
    """Versions as the loss uses them."""
    current_version: int | None
    """Policy version that is being trained."""

    def loss_inputs(self) -> LossInputs:
        """What `policy_loss` needs of this."""
        return LossInputs(
            advantages=self.advantages,
            loss_mask=self.loss_mask,
            counted_mask=self.counted_mask,
            old_logprobs=self.old_logprobs,
            proximal_logprobs=self.proximal_logprobs,
            reference_logprobs=self.reference_logprobs,
            versions=self.versions,
            current_version=self.current_version,
        )

    def rows(self, index: Int[Tensor, " b"]) -> "PipelineResult":
        """Take a subset of rows."""
        return take_rows(self, index)


@dataclass(frozen=True, slots=True)
class ShapedRewards:
    """Sequence-level stages."""

    rewards: Float[Tensor, " B"]
    """Raw reward."""
    penalized: Float[Tensor, " B"]
    """After the overlong penalty."""
    scaled: Float[Tensor, " B"]
    """After bias and scaling."""
    clipped: Float[Tensor, " B"]
    """After the clip."""
    normalized: Float[Tensor, " B"]
    """After `reward_norm`."""
    outcome: Float[Tensor, " B"]
    """After `mask_no_eos_with_zero`."""


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """What is decided about each row before its reward counts."""

    truncated: Bool[Tensor, " B"]
    """Rows that are treated as truncated."""
    in_statistics: Bool[Tensor, " B"]
    """Rows that enter the statistics of `reward_norm`."""
    counted_mask: Bool[Tensor, "B T"]
    """Positions that are trained on."""


@dataclass(frozen=True, slots=True)
class TokenAdvantages:
    """Token-level stages."""

    raw: Float[Tensor, "B T"]
    """Before `adv_norm`."""
    returns: Float[Tensor, "B T"]
    """Raw advantages plus values."""
    normalized: Float[Tensor, "B T"]
    """After `adv_norm`."""
    gae_lambda: Float[Tensor, " B"]
    """Lambda of each row."""


def run_pipeline(
    experience: Experience,
    actor: ActorConfig,
    *,
    extensions: ExtensionsConfig = NO_EXTENSIONS,
    areal_compat: bool = False,
) -> PipelineResult:
    """Turn a rollout into everything the policy and value losses need.

    Args:
        experience: The rollout.
        actor: AReaL's settings.
        extensions: Settings beyond AReaL's.
        areal_compat: Reproduce AReaL's defects (docs/areal_differences.md).

    Returns:
        All stages.

    Raises:
        ConfigError: Settings ask for something that the experience lacks.
    """
    problems = missing_inputs(experience, actor, areal_compat=areal_compat)
    if problems:
        raise ConfigError(problems)
    verdict = judge_rows(experience, actor, extensions, areal_compat=areal_compat)
    shaped = shape_rewards(experience, actor, extensions, verdict, areal_compat=areal_compat)
    old, proximal = policy_logprobs(experience, actor)
    kl = _kl_part(experience, old, actor, areal_compat=areal_compat)
    columns = outcome_positions(experience.lengths, experience.loss_mask, areal_compat=areal_compat)
    outcome = place_outcome(shaped.outcome, columns, experience.loss_mask.shape[1])
    token_kl = _without_last_token(kl, experience.lengths) if areal_compat else kl
    steps = Steps(
        rewards=outcome if actor.gae_timestep_unit == "turn" else outcome + token_kl,
        mask=verdict.counted_mask,
        values=experience.values,
        bootstrap=_bootstrap(experience, verdict.truncated, areal_compat=areal_compat),
    )
    advantages = estimate_advantages(experience, steps, token_kl, actor, areal_compat=areal_compat)
    counted = verdict.counted_mask
    loss_mask = counted
    # AReaL applies M2PO inside the loss, per micro-batch; without proximal log-probs we have to.
    if actor.m2_threshold is not None and proximal is not None and not areal_compat:
        loss_mask = m2_mask(old, proximal, counted, actor.m2_threshold)
    return PipelineResult(
        rewards=shaped.rewards,
        penalized=shaped.penalized,
        scaled=shaped.scaled,
        clipped=shaped.clipped,
        normalized=shaped.normalized,
        outcome=shaped.outcome,
        kl_rewards=kl,
        total_rewards=outcome + token_kl,
        raw_advantages=advantages.raw,
        advantages=advantages.normalized,
        returns=advantages.returns,
        counted_mask=counted,
        loss_mask=loss_mask,
        truncated=verdict.truncated,
        in_statistics=verdict.in_statistics,
        gae_lambda=advantages.gae_lambda,
        old_logprobs=old,
        proximal_logprobs=proximal,
        reference_logprobs=experience.reference_logprobs,
        values=experience.values,
        versions=_versions(experience, areal_compat=areal_compat),
        current_version=experience.current_version,
    )


def shape_rewards(
    experience: Experience,
    actor: ActorConfig,
    extensions: ExtensionsConfig,
    verdict: RowVerdict,
    *,
    areal_compat: bool,
) -> ShapedRewards:
    """Run the stages that work on one reward per answer.

    Args:
        experience: The rollout.
        actor: AReaL's settings.
        extensions: Component weights, what the spread is taken around.
        verdict: Rows that are truncated, and rows that normalization counts; the others become 0.
        areal_compat: Reproduce AReaL's defects.

    Returns:
        Each stage.
    """
    raw = penalized = raw_rewards(experience, actor, extensions)
    if actor.overlong_reward_penalty:
        penalized = overlong_penalty(
            raw,
            experience.loss_mask.sum(1),
            overlong_tokens=actor.overlong_tokens or 0,
            factor=actor.overlong_penalty_factor or 0.0,
            max_new_tokens=actor.max_new_tokens,
            areal_compat=areal_compat,
        )
    scaled = scale_rewards(penalized, bias=actor.reward_bias, scaling=actor.reward_scaling)
    clipped = clip_rewards(scaled, actor.reward_clip)
    normalized = torch.where(clipped.isnan(), 0.0, clipped)
    if actor.reward_norm is not None:
        normalized = normalize(
            clipped,
            actor.reward_norm,
            mask=verdict.in_statistics,
            group_sizes=experience.group_sizes,
            areal_compat=areal_compat,
            std_about=extensions.reward_std_about,
        )
    outcome = normalized
    if actor.mask_no_eos_with_zero:
        outcome = torch.where(verdict.truncated, 0.0, normalized)
    return ShapedRewards(raw, penalized, scaled, clipped, normalized, outcome)


def raw_rewards(
    experience: Experience, actor: ActorConfig, extensions: ExtensionsConfig
) -> Float[Tensor, " B"]:
    """Give the task's reward, or the weighted sum of its components.

    Args:
        experience: Rewards, or components.
        actor: `reward_norm.eps`, for components that are normalized one by one.
        extensions: `reward_weights`, `multi_objective_aggregation`.

    Returns:
        One reward per answer, NaN where nothing was scored.

    Raises:
        ConfigError: Weights and components differ in number.
    """
    components = experience.reward_components
    if components is None:
        return experience.rewards
    weights = components.new_ones(components.shape[1])
    if extensions.reward_weights is not None:
        weights = components.new_tensor(extensions.reward_weights)
    if len(weights) != components.shape[1]:
        problem = (
            f"extensions.reward_weights must have {components.shape[1]} entries, one per reward "
            f"component, got {len(weights)}"
        )
        raise ConfigError([problem])
    if extensions.multi_objective_aggregation == "normalize_then_sum":
        norm = actor.reward_norm
        components = normalize_components(
            components,
            eps=0.0 if norm is None else norm.eps,
            group_sizes=experience.group_sizes,
            group_size=1 if norm is None else norm.group_size,
        )
    return combine_components(components, weights)


def policy_logprobs(
    experience: Experience, actor: ActorConfig
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"] | None]:
    """Give behaviour and proximal log-probs as the loss uses them, behaviour 0 outside the mask.

    Without decoupling both are the same: the sampler's, or recomputed ones with
    `recompute_logprob`. With it, the proximal ones are as given, or None where
    `prox_logp_method` derives them from the current policy.

    Args:
        experience: Both kinds of log-probs.
        actor: `use_decoupled_loss`, `recompute_logprob`, `prox_logp_method`.

    Returns:
        Behaviour and proximal log-probs.
    """
    behaviour = experience.behaviour_logprobs
    recomputed = experience.proximal_logprobs
    if not actor.use_decoupled_loss and actor.recompute_logprob and recomputed is not None:
        behaviour = recomputed
    behaviour = torch.where(experience.loss_mask, behaviour, 0.0)
    if not actor.use_decoupled_loss:
        return behaviour, behaviour
    if actor.prox_logp_method in {"loglinear", "reuse_train_logp"}:
        return behaviour, None
    return behaviour, recomputed


def estimate_advantages(
    experience: Experience,
    steps: Steps,
    kl: Float[Tensor, "B T"],
    actor: ActorConfig,
    *,
    areal_compat: bool,
) -> TokenAdvantages:
    """Run GAE and `adv_norm`.

    With `gae_timestep_unit: turn` the KL part stays out of the recursion and is added per position.

    Args:
        experience: Turns and groups.
        steps: What GAE runs over.
        kl: KL part of the token rewards.
        actor: `discount`, `gae_lambda`, `gae_timestep_unit`, `adv_norm`.
        areal_compat: Leave running values outside the mask.

    Returns:
        Raw and normalized advantages, returns, lambdas.
    """
    turns = experience.turn_ids if actor.gae_timestep_unit == "turn" else None
    lambdas, gae_lambda = _lambdas(actor, steps.mask, turns)
    if turns is not None:
        by_turn = gae_turns(steps, turns, discount=actor.discount, gae_lambda=gae_lambda)
        estimate = Gae(by_turn.advantages + kl, by_turn.returns)
    else:
        estimate = gae_tokens(steps, discount=actor.discount, gae_lambda=gae_lambda)
    raw, returns = estimate.advantages, estimate.returns
    if not areal_compat:
        raw, returns = torch.where(steps.mask, raw, 0.0), torch.where(steps.mask, returns, 0.0)
    normalized = raw
    if actor.adv_norm is not None:
        normalized = normalize(
            raw,
            actor.adv_norm,
            mask=steps.mask,
            group_sizes=experience.group_sizes,
            areal_compat=areal_compat,
        )
    return TokenAdvantages(raw, returns, normalized, lambdas)


def judge_rows(
    experience: Experience,
    actor: ActorConfig,
    extensions: ExtensionsConfig,
    *,
    areal_compat: bool,
) -> RowVerdict:
    """Decide which rows are truncated, which are trained on, which `reward_norm` counts.

    Statistics count rows that are scored, have a trained token, and are not cut off where
    `mask_no_eos_with_zero` or `truncated_answers: drop` takes their reward away.

    Args:
        experience: The rollout.
        actor: `mask_no_eos_with_zero`.
        extensions: `truncated_answers`.
        areal_compat: Truncated is what fills the padded width; statistics count every row.

    Returns:
        The decisions.
    """
    mask = experience.loss_mask
    truncated = experience.truncated
    if areal_compat:
        truncated = padded_width_truncation(experience.lengths, mask.shape[1])
    counted_mask = mask
    if extensions.truncated_answers != "keep":
        counted_mask = mask & ~truncated.unsqueeze(1)
    if areal_compat:
        return RowVerdict(truncated, torch.ones_like(truncated), counted_mask)
    in_statistics = mask.any(1) & _scored(experience)
    if actor.mask_no_eos_with_zero or extensions.truncated_answers == "drop":
        in_statistics = in_statistics & ~truncated
    return RowVerdict(truncated, in_statistics, counted_mask)


def missing_inputs(experience: Experience, actor: ActorConfig, *, areal_compat: bool) -> list[str]:
    """Say what the settings need and the experience lacks, all at once."""
    recomputed = actor.use_decoupled_loss and actor.prox_logp_method in {"recompute", "metrics"}
    needs = {
        f"actor.kl_ctl={actor.kl_ctl} needs log-probs of a reference policy and got none; set "
        "actor.kl_ctl to 0 or give a `ref` section": actor.kl_ctl > 0
        and experience.reference_logprobs is None
        and not areal_compat,
        "actor.use_decoupled_loss and actor.recompute_logprob need recomputed log-probs "
        "(proximal_logprobs) and got none": (recomputed or actor.recompute_logprob)
        and experience.proximal_logprobs is None,
        "actor.gae_timestep_unit=turn needs turn_ids and got none; set it to token for "
        "single-turn data": actor.gae_timestep_unit == "turn" and experience.turn_ids is None,
    }
    return [message for message, missing in needs.items() if missing]


def _scored(experience: Experience) -> Bool[Tensor, " B"]:
    """Rows with a reward, or with at least one component of it."""
    if experience.reward_components is None:
        return ~experience.rewards.isnan()
    return ~experience.reward_components.isnan().all(1)


def _bootstrap(
    experience: Experience, truncated: Bool[Tensor, " B"], *, areal_compat: bool
) -> Float[Tensor, " B"] | None:
    """Value after the end of truncated rows; None without a critic."""
    if experience.values is None:
        return None
    return bootstrap_values(
        experience.values, experience.lengths, truncated, areal_compat=areal_compat
    )


def _kl_part(
    experience: Experience, old: Float[Tensor, "B T"], actor: ActorConfig, *, areal_compat: bool
) -> Float[Tensor, "B T"]:
    """KL part of the token rewards; AReaL takes a missing reference as log-prob 0."""
    reference = experience.reference_logprobs
    if actor.kl_ctl == 0 or (reference is None and not areal_compat):
        return torch.zeros_like(old)
    return kl_rewards(
        old,
        torch.zeros_like(old) if reference is None else reference,
        experience.loss_mask,
        kl_ctl=actor.kl_ctl,
        estimator=actor.kl_estimator,
    )


def _without_last_token(
    kl: Float[Tensor, "B T"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B T"]:
    """Clear the column of each row's last token, as AReaL does; no real prompt trains there."""
    rows, width = kl.shape
    columns = (lengths - 1) % width
    return kl.index_put((torch.arange(rows, device=kl.device), columns), kl.new_zeros(()))


def _lambdas(
    actor: ActorConfig, mask: Bool[Tensor, "B T"], turn_ids: Int[Tensor, "B T"] | None
) -> tuple[Float[Tensor, " B"], float | Float[Tensor, " B"]]:
    """Lambda of each row, and the same as one number where it is one."""
    if isinstance(actor.gae_lambda, float):
        return torch.full((len(mask),), actor.gae_lambda, device=mask.device), actor.gae_lambda
    lengths = mask.sum(1) if turn_ids is None else turn_counts(mask, turn_ids)
    rows = lambda_per_row(actor.gae_lambda, actor.gae_lambda_kwargs, lengths)
    return rows, rows


def _versions(experience: Experience, *, areal_compat: bool) -> Int[Tensor, "B T"] | None:
    """Versions as used; AReaL reads token-aligned ones against shifted log-probs, one late."""
    if experience.versions is None or not areal_compat:
        return experience.versions
    return experience.versions.roll(1, dims=1)
