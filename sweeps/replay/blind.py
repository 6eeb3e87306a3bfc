"""Settings that replay cannot see on a given batch, and why.

What is not listed as seen counts as unseen: a new setting is invisible until somebody shows that
the loss weights of one batch tell all of it.
"""

from dataclasses import dataclass
from functools import cache

from grpo_core.config import TrialConfig
from grpo_core.replay import Recorded, Replayer, reward_map, splits_groups
from sweeps.replay.inert import one_fresh_update

SEEN = (
    "actor.reward_norm",
    "actor.reward_scaling",
    "actor.reward_bias",
    "actor.reward_clip",
    "actor.max_new_tokens",
    "actor.discount",
    "actor.gae_lambda",
    "actor.gae_lambda_kwargs",
    "actor.gae_timestep_unit",
    "actor.adv_norm",
    "areal_compat",
    "extensions.loss_aggregation",
    "extensions.reward_std_about",
    "extensions.reward_weights",
    "extensions.multi_objective_aggregation",
)
"""What acts on advantages and denominators alone."""
OVERLONG = (
    "actor.overlong_reward_penalty",
    "actor.overlong_tokens",
    "actor.overlong_penalty_factor",
)
TRUNCATION = ("actor.mask_no_eos_with_zero", "extensions.truncated_answers")
KL = (
    "actor.kl_ctl",
    "actor.kl_estimator",
    "extensions.kl_loss_coef",
    "extensions.kl_loss_estimator",
    "extensions.kl_loss_ratio_weighted",
    "ref",
)
RATIO = (
    "actor.eps_clip",
    "actor.eps_clip_higher",
    "actor.c_clip",
    "actor.m2_threshold",
    "actor.importance_sampling_level",
    "actor.use_sapo_loss",
    "actor.sapo_tau_pos",
    "actor.sapo_tau_neg",
    "actor.use_cispo_loss",
    "actor.use_decoupled_loss",
    "actor.prox_logp_method",
    "actor.recompute_logprob",
    "actor.rejection_sampling",
    "extensions.ratio_cap",
    "extensions.vespo",
    "extensions.sampler_correction",
    "extensions.off_policy_mask_threshold",
)
"""What acts on importance ratios, and on nothing while they are 1."""
NEVER = {
    "actor.optimizer": "decides how far the policy moves, not which way",
    "actor.temperature": "log-probs were recorded at one temperature",
    "actor.ppo_n_minibatches": "the batch is taken as one update",
    "critic": "the value function's own training is not replayed",
    "evaluation": "only looks",
    "extensions.value_loss": "the value function's own training is not replayed",
    "extensions.dynamic_sampling": "refused groups are left out, fresh ones are not sampled",
    "dynamic_bs": "fresh groups are not sampled",
    "gconfig": "decides which answers are sampled; these were given",
    "rollout": "decides which policy samples; these rollouts were given",
    "task": "decides the rewards; these were given",
    "total_train_steps": "replay looks at one update",
    "train_dataset": "decides how many prompts are sampled; these were given",
}
OTHER = "replay does not know what it decides"

MOVED = 1e-4
"""Log-ratio, in nats, beyond which two policies differ by more than float32 rounding."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a batch shows, apart from rewards."""

    moved: bool
    """Some ratio between the recorded policy and the sampler is not 1."""
    kl: bool
    """The recorded policy is away from the reference."""
    truncated: bool
    """Some answer was cut off."""

    @classmethod
    def of(cls, replayer: Replayer) -> "Sight":
        """Look at a batch, with the policy move that is assumed for it."""
        recorded = replayer.recorded
        experience = recorded.experience
        mask = experience.loss_mask
        reference = experience.reference_logprobs
        ratio = (replayer.policy - experience.behaviour_logprobs)[mask].abs()
        gap = None if reference is None else (recorded.policy_logprobs - reference)[mask].abs()
        return cls(
            moved=bool((ratio > MOVED).any()),
            kl=gap is not None and bool((gap > MOVED).any()),
            truncated=bool(experience.truncated.any()),
        )


def blind_spot(key: str, config: TrialConfig, recorded: Recorded, sight: Sight) -> str | None:
    """Why equal updates on this batch say nothing about a setting; None where they say all."""
    if key in {"gconfig.n_samples", "task.reward_right", "task.reward_wrong"}:
        return _given(key, config, recorded)
    if _under(key, RATIO):
        return _ratio(config, sight)
    unexercised = {
        KL: None if sight.kl else "the policy still equals the reference in these rollouts",
        TRUNCATION: None if sight.truncated else "no recorded answer was truncated",
        OVERLONG: "it acts only on answers near the length limit",
        SEEN: None,
    }
    for prefixes, why in unexercised.items():
        if _under(key, prefixes):
            return why
    return next((why for prefix, why in NEVER.items() if _under(key, (prefix,))), OTHER)


def _ratio(config: TrialConfig, sight: Sight) -> str | None:
    if sight.moved:
        return "ratios were seen at one policy move only"
    if one_fresh_update(config):
        return None
    return "every ratio is 1 in these rollouts: it acts from the second update of a batch on"


def _given(key: str, config: TrialConfig, recorded: Recorded) -> str | None:
    sizes = recorded.experience.group_sizes
    if key == "gconfig.n_samples":
        if sizes is not None and splits_groups(sizes, config.gconfig.n_samples):
            return None
        return "the recorded groups cannot be cut into groups of this size"
    return NEVER["task"] if reward_map(recorded.task, config.task) is None else None


@cache
def _under(key: str, prefixes: tuple[str, ...]) -> bool:
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)
