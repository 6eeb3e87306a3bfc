"""Settings that provably decide nothing, because of what other settings say.

Two configurations with the same canonical form train the same policy, bit for bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from grpo_core.config import LAMBDA_ARGUMENTS, NormConfig, TrialConfig

Condition = Callable[[TrialConfig], bool]

CLOSE_RATIO = 1e-4
"""The sampler's and the trainer's log-probs of the embedded policy differ by rounding, 1e-5 nats at
most; a clip range ten times as wide never touches the ratio of fresh data."""
EMBEDDED_POLICIES = frozenset({"tiny"})
"""Policies whose sampler and trainer are the same float32 model."""


@dataclass(frozen=True, slots=True)
class Inert:
    """Settings that decide nothing under a condition."""

    keys: tuple[str, ...]
    """Dotted keys."""
    condition: Condition
    """When."""
    proof: str
    """Why."""


def plain_value(config: BaseModel, dotted: str) -> object:
    """The value of a dotted key; None inside a section that is null."""
    value: Any = config
    for part in dotted.split("."):
        if value is None:
            return None
        value = getattr(value, part)
    return value


def with_value(section: BaseModel, dotted: str, value: object) -> Any:  # noqa: ANN401 - same model
    """The section with one dotted key replaced; as it is where the key's own section is null."""
    name, _, rest = dotted.partition(".")
    inside = getattr(section, name)
    if rest and inside is None:
        return section
    changed = with_value(inside, rest, value) if rest else value
    return section.model_copy(update={name: changed})


def canonical(config: TrialConfig, rules: tuple[Inert, ...]) -> TrialConfig:
    """The configuration with every inert setting at its default."""
    for rule in rules:
        if rule.condition(config):
            for key in rule.keys:
                default = _default(key)
                if plain_value(config, key) != default:
                    config = with_value(config, key, default)
    return config


def proofs(config: TrialConfig, rules: tuple[Inert, ...]) -> dict[str, str]:
    """Every inert setting of a configuration, with the proof."""
    return {
        key: rule.proof
        for rule in reversed(rules)
        if rule.condition(config)
        for key in rule.keys
        if plain_value(config, key.rpartition(".")[0] or key) is not None
    }


def one_fresh_update(config: TrialConfig) -> bool:
    """Every update is the first on its batch, sampled by the policy that it changes."""
    sampling = config.gconfig
    return (
        config.actor.ppo_n_minibatches == 1
        and config.rollout.max_head_offpolicyness == 0
        and config.policy in EMBEDDED_POLICIES
        and config.actor.temperature == sampling.temperature
        and sampling.min_new_tokens == 0
    )


@cache
def _default(key: str) -> object:
    section, _, name = key.rpartition(".")
    if section.endswith("_norm"):
        return getattr(_PLAIN_NORM, name)
    return plain_value(_PLAIN, key)


_PLAIN = TrialConfig()
_PLAIN_NORM = NormConfig()


def _norm_rules(name: str) -> tuple[Inert, ...]:
    key = f"actor.{name}"

    def when(test: Callable[[NormConfig], bool]) -> Condition:
        def condition(config: TrialConfig) -> bool:
            norm: NormConfig | None = getattr(config.actor, name)
            return norm is not None and test(norm)

        return condition

    return (
        Inert((f"{key}.group_size",), when(lambda _: True), "every batch brings its own groups"),
        Inert(
            (f"{key}.mean_leave1out",),
            when(lambda norm: norm.mean_level is None),
            f"{key}.mean_level=null: no mean is subtracted",
        ),
        Inert(
            (f"{key}.std_unbiased", f"{key}.eps"),
            when(lambda norm: norm.std_level is None),
            f"{key}.std_level=null: nothing is divided",
        ),
    )


def _loss(config: TrialConfig) -> str:
    if config.extensions.vespo is not None:
        return "vespo"
    if config.actor.use_sapo_loss:
        return "sapo"
    return "cispo" if config.actor.use_cispo_loss else "ppo"


def _weight_is_one(config: TrialConfig) -> bool:
    correction = config.extensions.sampler_correction
    if config.actor.use_decoupled_loss or correction is None:
        return False
    upper = 1.0 if correction.upper is None else correction.upper
    lower = 1.0 if correction.lower is None else correction.lower
    return lower <= 1.0 <= upper


def _spread_of_own_mean(config: TrialConfig) -> bool:
    norm = config.actor.reward_norm
    return norm is None or norm.std_level is None


def _unclipped(config: TrialConfig) -> bool:
    actor = config.actor
    higher = actor.eps_clip if actor.eps_clip_higher is None else actor.eps_clip_higher
    return one_fresh_update(config) and min(actor.eps_clip, higher) > CLOSE_RATIO


def _unused_lambda(kind: str) -> Condition:
    def condition(config: TrialConfig) -> bool:
        rule = config.actor.gae_lambda
        return isinstance(rule, float) or rule.rsplit(".", 1)[-1] != kind

    return condition


ALWAYS: tuple[Inert, ...] = (
    *_norm_rules("reward_norm"),
    *_norm_rules("adv_norm"),
    Inert(
        ("actor.kl_estimator",),
        lambda c: c.actor.kl_ctl == 0,
        "actor.kl_ctl=0: no KL is estimated",
    ),
    Inert(
        ("actor.overlong_tokens", "actor.overlong_penalty_factor"),
        lambda c: not c.actor.overlong_reward_penalty,
        "actor.overlong_reward_penalty=false: nothing is penalized",
    ),
    Inert(
        ("actor.max_new_tokens",),
        lambda c: (
            not c.actor.overlong_reward_penalty and c.extensions.loss_aggregation != "constant"
        ),
        "neither an overlong penalty nor loss_aggregation=constant counts from it",
    ),
    Inert(
        ("actor.sapo_tau_pos", "actor.sapo_tau_neg"),
        lambda c: _loss(c) != "sapo",
        "the loss is not SAPO",
    ),
    Inert(
        ("actor.eps_clip", "actor.eps_clip_higher"),
        lambda c: _loss(c) in {"sapo", "vespo"},
        "SAPO and VESPO clip nothing",
    ),
    Inert(
        ("actor.c_clip", "extensions.ratio_cap"),
        lambda c: _loss(c) != "ppo",
        "the loss is not PPO's",
    ),
    *(
        Inert(
            (f"actor.gae_lambda_kwargs.{argument}",),
            _unused_lambda(kind),
            f"actor.gae_lambda is not {kind}",
        )
        for kind, argument in LAMBDA_ARGUMENTS.items()
    ),
    Inert(
        ("extensions.kl_loss_estimator", "extensions.kl_loss_ratio_weighted"),
        lambda c: c.extensions.kl_loss_coef == 0,
        "extensions.kl_loss_coef=0: the loss has no KL term",
    ),
    Inert(
        ("actor.prox_logp_method",),
        lambda c: not c.actor.use_decoupled_loss,
        "actor.use_decoupled_loss=false: there is no proximal policy",
    ),
    Inert(
        ("actor.recompute_logprob",),
        lambda c: c.actor.use_decoupled_loss,
        "actor.use_decoupled_loss=true: the sampler's log-probs are kept either way",
    ),
    Inert(
        ("actor.m2_threshold",),
        lambda c: not c.actor.use_decoupled_loss and (c.actor.m2_threshold or 0.0) > 0,
        "actor.use_decoupled_loss=false: proximal and behaviour policy are the same, so every "
        "squared log-ratio is 0",
    ),
    Inert(
        ("actor.rejection_sampling.agg",),
        lambda c: (
            c.actor.rejection_sampling is not None and c.actor.rejection_sampling.level == "token"
        ),
        "actor.rejection_sampling.level=token: nothing is aggregated",
    ),
    Inert(
        ("extensions.sampler_correction",),
        _weight_is_one,
        "actor.use_decoupled_loss=false: the weight is exactly 1",
    ),
    Inert(
        ("extensions.value_loss",), lambda c: c.critic is None, "critic=null: no value is learned"
    ),
    Inert(
        ("extensions.reward_std_about",), _spread_of_own_mean, "reward_norm divides by no spread"
    ),
    Inert(
        ("actor.reward_bias", "actor.reward_clip"),
        lambda c: c.actor.reward_scaling == 0,
        "actor.reward_scaling=0: every reward is 0",
    ),
    Inert(
        ("ref",),
        lambda c: c.actor.kl_ctl == 0 and c.extensions.kl_loss_coef == 0 and not c.areal_compat,
        "no KL coefficient is above 0, so the reference is only looked at",
    ),
    Inert(
        ("dynamic_bs",),
        lambda c: c.extensions.dynamic_sampling is None,
        "extensions.dynamic_sampling=null: no group is refused",
    ),
)
"""Inert whatever the rollouts are."""

IN_TRAINING: tuple[Inert, ...] = (
    *ALWAYS,
    Inert(
        ("actor.eps_clip", "actor.eps_clip_higher"),
        _unclipped,
        "one update on fresh rollouts (actor.ppo_n_minibatches=1, "
        "rollout.max_head_offpolicyness=0): every ratio is 1 but for rounding, inside either range",
    ),
    Inert(
        ("actor.optimizer.beta1", "actor.optimizer.beta2", "actor.optimizer.eps"),
        lambda c: c.actor.optimizer.type == "sgd",
        "actor.optimizer.type=sgd has no moments",
    ),
    Inert(
        ("actor.optimizer.min_lr_ratio",),
        lambda c: (
            c.actor.optimizer.lr_scheduler_type == "constant"
            and c.actor.optimizer.min_lr_ratio + (1.0 - c.actor.optimizer.min_lr_ratio) == 1.0
        ),
        "actor.optimizer.lr_scheduler_type=constant: the learning rate does not fall",
    ),
)
"""Inert for our trainer, which samples its own rollouts."""
