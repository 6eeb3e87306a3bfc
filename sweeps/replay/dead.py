"""Configurations whose update is zero for every batch, whatever the policy writes.

    rewards in [low, high] -> penalty -> scale -> clip: one value c for all of them
    c = 0, or c minus its own mean: every advantage is exactly 0

Means are taken in float64 over copies of one float32 number, so they are exact. A KL term or a
value function has signals of its own; with either nothing is proven.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grpo_core.config import ActorConfig, NormConfig, TrialConfig

CHECKED_TASKS = frozenset({"think", "sort"})
"""Tasks whose rewards lie between `task.reward_wrong` and `task.reward_right`."""


@dataclass(frozen=True, slots=True)
class Span:
    """Smallest and largest value that a reward can have, in float32."""

    low: np.float32
    high: np.float32

    def mapped(self, one: np.float32, other: np.float32) -> "Span":
        """The span of a monotone map with these ends."""
        return Span(min(one, other), max(one, other))

    @property
    def constant(self) -> bool:
        """There is only one value."""
        return bool(self.low == self.high)


@dataclass(frozen=True, slots=True)
class DeadProof:
    """Why every update of a configuration is exactly zero."""

    text: str
    """The proof in words."""
    stage: str
    """The stage of the pipeline behind which no answer differs from another."""

    @property
    def symptom(self) -> str:
        """What the detectors call it."""
        return "reward_constant" if self.stage == "raw" else "zero_signal"

    @property
    def words(self) -> str:
        """The proof, for people."""
        return self.text

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return {"of": None, "proof": self.text}


def prove_dead(config: TrialConfig) -> DeadProof | None:
    """Why every update of this configuration is exactly zero; None without proof."""
    actor = config.actor
    if actor.kl_ctl > 0 or config.extensions.kl_loss_coef > 0 or config.critic is not None:
        return None
    if not (_keeps_zero(actor.reward_norm) and _keeps_zero(actor.adv_norm)):
        return None
    proof = _zero(actor) or _alone(config) or _constant(config)
    if proof is None:
        return None
    if _one_reward(config):
        proof = replace(proof, stage="raw")
    if actor.optimizer.weight_decay > 0:
        return replace(proof, text=f"{proof.text}; only weight decay moves the policy")
    return proof


def _one_reward(config: TrialConfig) -> bool:
    """The task itself has only one reward."""
    task = config.task
    return task.name in CHECKED_TASKS and task.reward_right == task.reward_wrong


def _zero(actor: ActorConfig) -> DeadProof | None:
    nothing = "every reward becomes 0, and nothing else enters the loss"
    if actor.reward_scaling == 0:
        return DeadProof(f"actor.reward_scaling=0: {nothing}", "scaled")
    if actor.reward_clip == 0:
        return DeadProof(f"actor.reward_clip=0: {nothing}", "clipped")
    return None


def _keeps_zero(norm: NormConfig | None) -> bool:
    """0 / (0 + eps) is 0 only with eps above 0."""
    return norm is None or norm.std_level is None or norm.eps > 0


def _alone(config: TrialConfig) -> DeadProof | None:
    """Groups of one answer, compared with their own mean."""
    if config.gconfig.n_samples != 1:
        return None
    actor = config.actor
    if actor.reward_norm is not None and actor.reward_norm.mean_level == "group":
        return DeadProof(
            "gconfig.n_samples=1 with actor.reward_norm.mean_level=group: each answer is its own "
            "group, and its reward minus its own mean is 0",
            "normalized",
        )
    if actor.adv_norm is not None and actor.adv_norm.mean_level == "group" and _flat(actor):
        return DeadProof(
            "gconfig.n_samples=1 with actor.adv_norm.mean_level=group: all tokens of an answer "
            "have the same advantage, and minus its own mean it is 0",
            "advantage",
        )
    return None


def _constant(config: TrialConfig) -> DeadProof | None:
    span = clipped_span(config)
    if span is None or not span.constant:
        return None
    centred = _centred_by(config)
    if span.low != 0 and centred is None:
        return None
    task = config.task
    given = (
        f"every reward of task {task.name!r} lies in [{min(task.reward_wrong, task.reward_right):g}"
        f", {max(task.reward_wrong, task.reward_right):g}] and becomes {span.low:g} "
        f"({_words(config.actor)})"
    )
    scaled = _scaled_span(config)
    stage = "scaled" if scaled is not None and scaled.constant else "clipped"
    if span.low == 0:
        return DeadProof(f"{given}, so nothing enters the loss", stage)
    return DeadProof(f"{given}; minus its own mean ({centred}) it is 0", stage)


def clipped_span(config: TrialConfig) -> Span | None:
    """What a reward can be behind `reward_clip`; None where the task's rewards are not known.

    Every map on the way is monotone, rounding included, so the ends stay the ends.
    """
    span = _scaled_span(config)
    if span is None:
        return None
    limit = np.float32(config.actor.reward_clip)
    return span.mapped(np.clip(span.low, -limit, limit), np.clip(span.high, -limit, limit))


def _scaled_span(config: TrialConfig) -> Span | None:
    actor, task = config.actor, config.task
    if task.name not in CHECKED_TASKS or config.extensions.multi_objective_aggregation != (
        "sum_then_normalize"
    ):
        return None
    right = np.float32(task.reward_wrong + (task.reward_right - task.reward_wrong))
    wrong = np.float32(task.reward_wrong)
    span = Span(min(wrong, right), max(wrong, right))
    if actor.overlong_reward_penalty:
        if config.areal_compat:
            return None
        factor = np.float32(actor.overlong_penalty_factor or 0.0)
        span = Span(min(span.low, span.low - factor), max(span.high, span.high - factor))
    bias, scale = np.float32(actor.reward_bias), np.float32(actor.reward_scaling)
    with np.errstate(over="ignore"):  # the clip takes care of infinity
        return span.mapped((span.low + bias) * scale, (span.high + bias) * scale)


def _centred_by(config: TrialConfig) -> str | None:
    """The setting that subtracts the mean of equal values exactly."""
    actor = config.actor
    rewards, advantages = actor.reward_norm, actor.adv_norm
    if rewards is not None and _subtracts(rewards, areal_compat=config.areal_compat):
        return f"actor.reward_norm.mean_level={rewards.mean_level}"
    # Truncated answers would be 0 among equal others.
    uniform = rewards is None and not actor.mask_no_eos_with_zero and _flat(actor)
    if advantages is None or not uniform:
        return None
    if _subtracts(advantages, areal_compat=config.areal_compat):
        return f"actor.adv_norm.mean_level={advantages.mean_level}"
    return None


def _subtracts(norm: NormConfig, *, areal_compat: bool) -> bool:
    """AReaL's leave-one-out keeps a lone element as it is."""
    return norm.mean_level is not None and not (areal_compat and norm.mean_leave1out)


def _flat(actor: ActorConfig) -> bool:
    """All trained tokens of an answer get its outcome."""
    return actor.discount == 1.0 and actor.gae_lambda == 1.0 and actor.gae_timestep_unit == "token"


def _words(actor: ActorConfig) -> str:
    return (
        f"actor.reward_bias={actor.reward_bias:g}, actor.reward_scaling={actor.reward_scaling:g}, "
        f"actor.reward_clip={actor.reward_clip:g}"
    )
