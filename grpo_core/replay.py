"""What one configuration would make of a recorded batch: the gradient it sends to every token.

From rewards, masks and log-probs on, everything up to d loss / d log-prob is a pure function of the
configuration. Replay takes the whole batch as one update at the recorded policy, through the same
`run_pipeline` and `policy_loss` as the trainer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.advantages import Steps, gae_tokens
from grpo_core.config import ActorConfig, NormConfig, TaskConfig, TrialConfig
from grpo_core.losses import PolicyLoss, policy_loss
from grpo_core.metrics import STAGES, StageSignal
from grpo_core.normalization import normalize
from grpo_core.pipeline import Experience, PipelineResult, missing_inputs, run_pipeline
from grpo_core.rewards import accept_groups
from grpo_core.signal import kl_share, measure_stages, row_means

LOSS_FIELDS = (
    "optimizer",
    "temperature",
    "ppo_n_minibatches",
    "eps_clip",
    "eps_clip_higher",
    "c_clip",
    "importance_sampling_level",
    "use_sapo_loss",
    "sapo_tau_pos",
    "sapo_tau_neg",
    "use_cispo_loss",
    "rejection_sampling",
)
"""Fields of `actor` that act behind the pipeline."""
PIPELINE_EXTENSIONS = (
    "reward_std_about",
    "reward_weights",
    "multi_objective_aggregation",
    "truncated_answers",
    "dynamic_sampling",
)
"""Fields of `extensions` that act in the pipeline or before it."""

MOST_KEPT = 64
"""KL parts that are kept for the next configuration."""

_PLAIN_ACTOR = ActorConfig()


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded batch."""

    experience: Experience
    """Rewards, masks and log-probs; `proximal_logprobs` is the policy about to be updated."""
    passed: Bool[Tensor, " B"] | None = None
    """The strict check of each answer."""
    task: TaskConfig | None = None
    """The task that gave the rewards."""
    knows_truncation: bool = True
    """Whether it was recorded which answers were cut off."""

    @property
    def policy_logprobs(self) -> Float[Tensor, "B T"]:
        """The policy about to be updated; the sampler where no other was recorded."""
        recorded = self.experience.proximal_logprobs
        return self.experience.behaviour_logprobs if recorded is None else recorded

    @property
    def fresh(self) -> bool:
        """Every token was sampled from the policy about to be updated, as far as recorded."""
        versions, current = self.experience.versions, self.experience.current_version
        if versions is None or current is None:
            return True
        return bool((versions[self.experience.loss_mask] == current).all())


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a configuration makes of a recorded batch."""

    weights: Float[Tensor, "B T"]
    """d loss / d log-prob of each position at the recorded policy, the batch as one update."""
    stages: dict[str, StageSignal]
    """The reward signal behind every stage of the pipeline."""
    advantage_max: float
    """Largest absolute advantage of a trained token."""
    advantage_bound: float
    """Largest absolute advantage that the outcome alone can have."""
    clip_share: float
    """Share of trained tokens whose loss is the clipped one."""
    kl_share: float
    """Share of the KL term in the variance of the returns."""
    nonfinite: str | None
    """The first stage that holds NaN or infinity."""

    @property
    def silent_stage(self) -> str | None:
        """The first stage at which no group tells its answers apart."""
        return next((name for name in STAGES if self.stages[name].silent == 1.0), None)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The part of a batch that a configuration trains on."""

    experience: Experience
    passed: Bool[Tensor, " B"] | None
    policy: Float[Tensor, "B T"]
    rows: Int[Tensor, " b"]


@dataclass(frozen=True, slots=True)
class _Raw:
    """Everything up to `adv_norm`, the same for all configurations that differ from it on."""

    prepared: _Prepared
    result: PipelineResult
    stages: dict[str, StageSignal]
    kl_share: float


@dataclass(frozen=True, slots=True)
class _Shared:
    """Everything up to the loss, the same for all configurations that differ behind it."""

    raw: _Raw
    result: PipelineResult
    stages: dict[str, StageSignal]
    advantage_max: float
    nonfinite: str | None


class Replayer:
    """Evaluates configurations on one batch; neighbours that share a pipeline compute it once.

    Args:
        recorded: The batch.
        move: Log-ratio of the assumed policy move per token, drawn once from a normal distribution
            of this standard deviation (nats) with `noise`; 0 replays at the recorded policy.
        noise: Draws the move.

    Raises:
        ValueError: A move without noise.
    """

    def __init__(
        self, recorded: Recorded, *, move: float = 0.0, noise: torch.Generator | None = None
    ) -> None:
        if move > 0 and noise is None:
            raise ValueError(f"move={move} needs a torch.Generator, got none")
        self.recorded = recorded
        policy = recorded.policy_logprobs
        if move > 0:
            policy = policy + move * torch.randn(policy.shape, generator=noise)
        mask = recorded.experience.loss_mask
        self.policy: Float[Tensor, "B T"] = torch.where(mask, policy, 0.0)
        self._raw: tuple[object, _Raw] | None = None
        self._shared: tuple[object, _Shared] | None = None
        self._kl: dict[object, Tensor] = {}

    def evaluate(self, config: TrialConfig) -> Replayed:
        """Replay one configuration.

        Raises:
            ConfigError: The batch lacks what the configuration needs; see `lacking`.
        """  # noqa: DOC502 - raised by run_pipeline
        shared = self._share(config)
        prepared = shared.raw.prepared
        weights, outcome = loss_weights(shared.result, prepared.policy, config)
        whole = torch.zeros_like(self.policy)
        whole[prepared.rows] = weights
        trained = int(outcome.mask.sum())
        clipped = int((outcome.clip_mask & outcome.mask).sum())
        finite = bool(torch.isfinite(weights).all())
        return Replayed(
            weights=whole,
            stages=shared.stages,
            advantage_max=shared.advantage_max,
            advantage_bound=advantage_bound(prepared.experience, config.actor),
            clip_share=clipped / trained if trained else 0.0,
            kl_share=shared.raw.kl_share,
            nonfinite=shared.nonfinite or (None if finite else "loss"),
        )

    def _share(self, config: TrialConfig) -> _Shared:
        key = pipeline_key(config)
        if self._shared is None or self._shared[0] != key:
            self._shared = (key, _normalize(self._run_raw(config), config))
        return self._shared[1]

    def _run_raw(self, config: TrialConfig) -> _Raw:
        """The pipeline without `adv_norm`."""
        key = raw_key(config)
        if self._raw is not None and self._raw[0] == key:
            return self._raw[1]
        prepared = _prepare(self.recorded, self.policy, config)
        result = run_pipeline(
            prepared.experience,
            config.actor.model_copy(update={"adv_norm": None}),
            extensions=config.extensions,
            areal_compat=config.areal_compat,
        )
        share = kl_share(
            self._kl_returns(result, config.actor), result.raw_advantages, result.counted_mask
        )
        raw = _Raw(prepared, result, _measure(_stages(result), prepared), share)
        self._raw = (key, raw)
        return raw

    def _kl_returns(self, result: PipelineResult, actor: ActorConfig) -> Tensor:
        """The KL part of the returns; many configurations share it, and its recursion is slow."""
        gae_lambda = actor.gae_lambda if isinstance(actor.gae_lambda, float) else result.gae_lambda
        if actor.kl_ctl == 0:
            return result.kl_rewards
        key = (
            result.kl_rewards.numpy().tobytes(),
            result.counted_mask.numpy().tobytes(),
            actor.discount,
            actor.gae_lambda,
            actor.gae_lambda_kwargs,
        )
        if key not in self._kl:
            if len(self._kl) >= MOST_KEPT:
                self._kl.clear()
            steps = Steps(rewards=result.kl_rewards, mask=result.counted_mask)
            estimate = gae_tokens(steps, discount=actor.discount, gae_lambda=gae_lambda)
            self._kl[key] = estimate.advantages
        return self._kl[key]


def _normalize(raw: _Raw, config: TrialConfig) -> _Shared:
    """Apply `adv_norm`, as `estimate_advantages` does."""
    norm, result, stages = config.actor.adv_norm, raw.result, raw.stages
    if norm is not None:
        advantages = normalize(
            result.raw_advantages,
            norm,
            mask=result.counted_mask,
            group_sizes=raw.prepared.experience.group_sizes,
            areal_compat=config.areal_compat,
        )
        result = replace(result, advantages=advantages)
        last = {"advantage": row_means(advantages, result.counted_mask)}
        stages = stages | _measure(last, raw.prepared)
    trained = result.advantages[result.counted_mask].abs()
    return _Shared(
        raw=raw,
        result=result,
        stages=stages,
        advantage_max=trained.max().item() if len(trained) else 0.0,
        nonfinite=_first_nonfinite(result),
    )


def loss_weights(
    result: PipelineResult, policy: Float[Tensor, "B T"], config: TrialConfig
) -> tuple[Float[Tensor, "B T"], PolicyLoss]:
    """Give d loss / d log-prob of each position at `policy`, and the loss itself.

    Args:
        result: The pipeline's result.
        policy: Log-probs under the policy that is being updated.
        config: Settings of the loss.

    Returns:
        The gradient, 0 outside the mask, and the loss.
    """
    current = policy.detach().clone().requires_grad_()
    outcome = policy_loss(
        current,
        result.loss_inputs(),
        config.actor,
        extensions=config.extensions,
        areal_compat=config.areal_compat,
    )
    (gradient,) = torch.autograd.grad(outcome.loss, current)
    return gradient, outcome


def pipeline_key(config: TrialConfig) -> object:
    """Equal for configurations that differ only behind the pipeline; hashable."""
    actor = config.actor.model_copy(
        update={name: getattr(_PLAIN_ACTOR, name) for name in LOSS_FIELDS}
    )
    extensions = config.extensions
    return (
        actor,
        config.task,
        config.gconfig.n_samples,
        config.areal_compat,
        config.ref is None,
        config.critic is None,
        tuple(getattr(extensions, name) for name in PIPELINE_EXTENSIONS),
    )


def raw_key(config: TrialConfig) -> object:
    """Equal for configurations that differ only from `adv_norm` on; hashable."""
    actor = config.actor.model_copy(update={"adv_norm": None})
    return pipeline_key(config.model_copy(update={"actor": actor}))


def weights_key(config: TrialConfig) -> object:
    """Equal for configurations whose loss weights are the same on every batch; hashable."""
    ignored = ("optimizer", "temperature", "ppo_n_minibatches")
    actor = config.actor.model_copy(update={name: getattr(_PLAIN_ACTOR, name) for name in ignored})
    return pipeline_key(config), actor, config.extensions


def lacking(recorded: Recorded, config: TrialConfig) -> list[str]:
    """Say what the configuration needs and the batch lacks, all at once."""
    experience = _with_policy(recorded, config)
    actor, extensions = config.actor, config.extensions
    loglinear = actor.use_decoupled_loss and actor.prox_logp_method == "loglinear"
    on_truncation = actor.mask_no_eos_with_zero or extensions.truncated_answers != "keep"
    needs = {
        f"extensions.kl_loss_coef={extensions.kl_loss_coef} needs reference log-probs": (
            extensions.kl_loss_coef > 0 and experience.reference_logprobs is None
        ),
        "a critic needs recorded values": config.critic is not None and experience.values is None,
        "actor.prox_logp_method=loglinear needs versions and the current version": loglinear
        and (experience.versions is None or experience.current_version is None),
        "actor.mask_no_eos_with_zero, extensions.truncated_answers and a critic need to know which "
        "answers were truncated": (on_truncation or config.critic is not None)
        and not recorded.knows_truncation,
    }
    found = missing_inputs(experience, actor, areal_compat=config.areal_compat)
    return found + [message for message, missing in needs.items() if missing]


def splits_groups(sizes: Int[Tensor, " G"], n_samples: int) -> bool:
    """Whether every recorded group can be cut into groups of `n_samples` answers."""
    return bool((sizes % n_samples == 0).all())


def reward_map(recorded: TaskConfig | None, task: TaskConfig) -> Callable[[Tensor], Tensor] | None:
    """How recorded rewards turn into those of another `reward_wrong` and `reward_right`.

    Rewards are reward_wrong + merit * (reward_right - reward_wrong).

    Args:
        recorded: The task that gave the rewards; None where unknown.
        task: The task as a configuration has it.

    Returns:
        The map; None where the merit cannot be recovered.
    """
    if recorded is None or (recorded.name, recorded.verifier) != (task.name, task.verifier):
        return None
    if (recorded.reward_wrong, recorded.reward_right) == (task.reward_wrong, task.reward_right):
        return lambda rewards: rewards
    span = recorded.reward_right - recorded.reward_wrong
    if span == 0:
        return None

    def mapped(rewards: Tensor) -> Tensor:
        merit = (rewards.double() - recorded.reward_wrong) / span
        moved = task.reward_wrong + merit * (task.reward_right - task.reward_wrong)
        return moved.to(rewards.dtype)

    return mapped


def advantage_bound(experience: Experience, actor: ActorConfig) -> float:
    """Largest absolute advantage that rewards alone can have, whatever they are.

        no spread: reward_clip, twice that where a mean is subtracted;
        a spread over n values: sqrt(n), or (n - 1) / sqrt(n) with the same level's mean and n - 1

    Samuelson's inequality; n are the answers (reward_norm) or trained tokens (adv_norm) that share
    the spread. What lies beyond comes from the KL term, a value function, or a defect.

    Args:
        experience: Group sizes and mask.
        actor: Both norms and the clip.

    Returns:
        The bound, in units of the advantage.
    """
    bound = actor.reward_clip
    counts = {"reward_norm": torch.ones_like(experience.lengths)}
    counts["adv_norm"] = experience.loss_mask.sum(1)
    for name, count in counts.items():
        norm: NormConfig | None = getattr(actor, name)
        if norm is not None:
            bound = _norm_bound(norm, bound, _largest(count, experience.group_sizes, norm))
    return bound


def _norm_bound(norm: NormConfig, before: float, count: int) -> float:
    """The bound behind a norm; an unbiased spread of one value is taken as 1."""
    if norm.std_level is None or (norm.std_unbiased and count < 2):
        return before if norm.mean_level is None else 2 * before
    centred = norm.mean_level == norm.std_level and not norm.mean_leave1out
    if centred and norm.std_unbiased:
        return max((count - 1) / math.sqrt(count), 1.0)
    return math.sqrt(count)


def _largest(counts: Tensor, group_sizes: Tensor | None, norm: NormConfig) -> int:
    """Most values that share one spread."""
    if norm.std_level == "batch" or group_sizes is None:
        return max(int(counts.sum()), 1)
    groups = torch.repeat_interleave(torch.arange(len(group_sizes)), group_sizes)
    sums = counts.new_zeros(len(group_sizes)).index_add_(0, groups, counts)
    return max(int(sums.max()), 1)


def _with_policy(recorded: Recorded, config: TrialConfig) -> Experience:
    """The experience as this configuration sees it: without what it does not use.

    For fresh data the sampler is the policy about to be updated, so nothing has to be recomputed.
    """
    experience = recorded.experience
    changes: dict[str, Tensor | None] = {}
    if experience.proximal_logprobs is None and recorded.fresh:
        changes["proximal_logprobs"] = experience.behaviour_logprobs
    if config.critic is None:
        changes["values"] = None
    if config.ref is None:
        changes["reference_logprobs"] = None
    return replace(experience, **changes)  # type: ignore[arg-type]


def _prepare(recorded: Recorded, policy: Float[Tensor, "B T"], config: TrialConfig) -> _Prepared:
    experience = _with_policy(recorded, config)
    mapped = reward_map(recorded.task, config.task)
    if mapped is not None and experience.reward_components is None:
        experience = replace(experience, rewards=mapped(experience.rewards))
    rows = torch.arange(len(experience.rewards))
    sizes = experience.group_sizes
    if sizes is not None and splits_groups(sizes, config.gconfig.n_samples):
        number = len(rows) // config.gconfig.n_samples
        sizes = torch.full((number,), config.gconfig.n_samples)
        experience = replace(experience, group_sizes=sizes)
    rule = config.extensions.dynamic_sampling
    if rule is None or sizes is None:
        return _Prepared(experience, recorded.passed, policy, rows)
    accepted = accept_groups(experience.rewards, sizes, rule)
    if not bool(accepted.any()):
        return _Prepared(experience, recorded.passed, policy, rows)
    rows = rows[torch.repeat_interleave(accepted, sizes)]
    passed = None if recorded.passed is None else recorded.passed[rows]
    kept = replace(experience.rows(rows), group_sizes=sizes[accepted])
    return _Prepared(kept, passed, policy[rows], rows)


def _stages(result: PipelineResult) -> dict[str, Float[Tensor, " B"]]:
    """One value per answer behind every stage; token-level stages count with the mean."""
    mask = result.counted_mask
    return {
        "raw": result.rewards,
        "penalty": result.penalized,
        "scaled": result.scaled,
        "clipped": result.clipped,
        "normalized": result.normalized,
        "truncation": result.outcome,
        "returns": row_means(result.raw_advantages, mask),
        "advantage": row_means(result.advantages, mask),
    }


def _measure(values: dict[str, Float[Tensor, " B"]], prepared: _Prepared) -> dict[str, StageSignal]:
    """The reward signal in each; fidelity is None where no strict check was recorded."""
    rows, sizes = len(prepared.rows), prepared.experience.group_sizes
    passed = prepared.passed
    if passed is None:
        passed = torch.zeros(rows, dtype=torch.bool)
    return measure_stages(values, passed, torch.tensor([rows]) if sizes is None else sizes)


def _first_nonfinite(result: PipelineResult) -> str | None:
    mask = result.counted_mask
    stages = {
        "raw": result.rewards,
        "penalty": result.penalized,
        "scaled": result.scaled,
        "clipped": result.clipped,
        "normalized": result.normalized,
        "returns": result.raw_advantages[mask],
        "advantage": result.advantages[mask],
    }
    return next((name for name, x in stages.items() if not bool(torch.isfinite(x).all())), None)
