"""Every setting of the maths reaches the gradient, or says here why it does not.

For each setting two values, all else equal: the gradients of the policy loss must differ. A setting
that is accepted and not passed on is the commonest defect in this field.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, get_args

import pytest
import torch
from pydantic import BaseModel
from torch import Tensor

from grpo_core.config import ActorConfig, CriticConfig, ExtensionsConfig
from grpo_core.losses import value_loss
from grpo_core.pipeline import Experience, run_pipeline
from tests.properties.scenario import (
    Scenario,
    actor_of,
    extensions_of,
    make,
    train,
    with_values,
)

NOTHING: Mapping[str, Any] = MappingProxyType({})
DECOUPLED = {"actor.use_decoupled_loss": True}
FILTER = DECOUPLED | {"actor.rejection_sampling.upper": 1.3}
GROUP = {"actor.reward_norm.mean_level": "group", "actor.reward_norm.std_level": "group"}
ADVANTAGES = {"actor.adv_norm.mean_level": "batch"}
OVERLONG = {
    "actor.overlong_reward_penalty": True,
    "actor.overlong_tokens": 3,
    "actor.overlong_penalty_factor": 1.0,
    "actor.max_new_tokens": 6,
}
RULE = "areal.trainer.ppo.lambda_fn."
SAMPLER = DECOUPLED | {"extensions.sampler_correction.level": "token"}


@dataclass(frozen=True, slots=True)
class Knob:
    """Two values of a setting, and what else has to be set for it to matter."""

    key: str
    values: tuple[Any, Any]
    given: Mapping[str, Any] = field(default_factory=dict)
    critic: bool = False
    without_groups: bool = False
    components: bool = False


KNOBS = (
    Knob("actor.eps_clip", (0.2, 0.02)),
    Knob("actor.eps_clip_higher", (None, 0.02)),
    Knob("actor.c_clip", (None, 1.05), {"actor.reward_bias": -0.5}),
    Knob("actor.m2_threshold", (None, 0.01), DECOUPLED),
    Knob("actor.reward_scaling", (1.0, 2.0)),
    Knob("actor.reward_bias", (0.0, 1.0)),
    Knob("actor.reward_clip", (20.0, 0.1)),
    Knob("actor.overlong_reward_penalty", (False, True), OVERLONG),
    Knob("actor.overlong_tokens", (3, 2), OVERLONG),
    Knob("actor.overlong_penalty_factor", (1.0, 2.0), OVERLONG),
    Knob("actor.max_new_tokens", (6, 5), OVERLONG),
    Knob("actor.mask_no_eos_with_zero", (False, True)),
    Knob("actor.discount", (1.0, 0.9)),
    Knob("actor.gae_lambda", (1.0, 0.9)),
    Knob("actor.gae_lambda", (1.0, f"{RULE}vapo_length_adaptive_gae"), {
        "actor.gae_lambda_kwargs.alpha": 1.0
    }),
    Knob("actor.gae_lambda_kwargs.value", (0.5, 0.9), {
        "actor.gae_lambda": f"{RULE}constant_gae_lambda"
    }),
    Knob("actor.gae_lambda_kwargs.alpha", (0.5, 1.0), {
        "actor.gae_lambda": f"{RULE}vapo_length_adaptive_gae"
    }),
    Knob("actor.gae_lambda_kwargs.q", (0.1, 0.5), {
        "actor.gae_lambda": f"{RULE}relative_position_gae_lambda"
    }),
    Knob("actor.gae_timestep_unit", ("token", "turn"), {"actor.discount": 0.9}),
    Knob("actor.kl_ctl", (0.0, 0.1)),
    Knob("actor.kl_estimator", ("k1", "k2"), {"actor.kl_ctl": 0.1}),
    Knob("actor.kl_estimator", ("k2", "k3"), {"actor.kl_ctl": 0.1}),
    Knob("actor.importance_sampling_level", ("token", "sequence")),
    Knob("actor.use_sapo_loss", (False, True)),
    Knob("actor.sapo_tau_pos", (1.0, 2.0), {"actor.use_sapo_loss": True}),
    Knob("actor.sapo_tau_neg", (1.0, 2.0), {
        "actor.use_sapo_loss": True, "actor.reward_bias": -0.5
    }),
    Knob("actor.use_cispo_loss", (False, True), {"actor.eps_clip_higher": 0.2}),
    Knob("actor.recompute_logprob", (False, True)),
    Knob("actor.use_decoupled_loss", (False, True)),
    Knob("actor.prox_logp_method", ("recompute", "loglinear"), DECOUPLED),
    Knob("actor.prox_logp_method", ("loglinear", "reuse_train_logp"), DECOUPLED),
    *(
        Knob(f"actor.reward_norm.{name}", values, GROUP | more, without_groups=alone)
        for name, values, more, alone in (
            ("mean_level", ("group", "batch"), {}, False),
            ("mean_level", ("group", None), {}, False),
            # With the spread of the same group it cancels: deviations and spread grow alike.
            ("mean_leave1out", (False, True), {"actor.reward_norm.std_level": None}, False),
            ("std_level", ("group", "batch"), {}, False),
            ("std_level", ("group", None), {}, False),
            ("std_unbiased", (False, True), {}, False),
            ("eps", (1e-5, 0.1), {}, False),
            ("group_size", (4, 3), {}, True),
        )
    ),
    *(
        Knob(f"actor.adv_norm.{name}", values, ADVANTAGES | more, without_groups=alone)
        for name, values, more, alone in (
            ("mean_level", ("batch", "group"), {}, False),
            ("mean_level", ("batch", None), {}, False),
            ("mean_leave1out", (False, True), {}, False),
            ("std_level", ("batch", "group"), {}, False),
            ("std_level", ("batch", None), {}, False),
            ("std_unbiased", (False, True), {}, False),
            ("eps", (1e-5, 0.1), {}, False),
            ("group_size", (4, 3), {"actor.adv_norm.mean_level": "group"}, True),
        )
    ),
    Knob("actor.rejection_sampling.level", ("token", "sequence"), FILTER),
    Knob("actor.rejection_sampling.action", ("mask", "clamp"), FILTER),
    Knob("actor.rejection_sampling.metric", ("ratio", "kl_k1"), FILTER),
    Knob("actor.rejection_sampling.metric", ("kl_k1", "kl_k2"), FILTER | {
        "actor.rejection_sampling.upper": 0.02
    }),
    Knob("actor.rejection_sampling.metric", ("kl_k1", "kl_k3"), FILTER | {
        "actor.rejection_sampling.upper": 0.02
    }),
    Knob("actor.rejection_sampling.metric", ("kl_k1", "binary_kl"), FILTER | {
        "actor.rejection_sampling.upper": 0.02
    }),
    Knob("actor.rejection_sampling.agg", ("mean", "sum"), FILTER | {
        "actor.rejection_sampling.level": "sequence"
    }),
    Knob("actor.rejection_sampling.agg", ("mean", "max"), FILTER | {
        "actor.rejection_sampling.level": "sequence"
    }),
    Knob("actor.rejection_sampling.upper", (1.3, 1.1), FILTER),
    Knob("actor.rejection_sampling.lower", (None, 0.9), FILTER),
    Knob("extensions.loss_aggregation", ("token-mean", "sequence-mean")),
    Knob("extensions.loss_aggregation", ("sequence-mean", "sequence-sum")),
    Knob("extensions.loss_aggregation", ("sequence-sum", "constant")),
    Knob("actor.max_new_tokens", (6, 12), {"extensions.loss_aggregation": "constant"}),
    Knob("extensions.kl_loss_coef", (0.0, 0.1)),
    Knob("extensions.kl_loss_estimator", ("k3", "k2"), {"extensions.kl_loss_coef": 0.1}),
    Knob("extensions.kl_loss_estimator", ("k3", "k1"), {"extensions.kl_loss_coef": 0.1}),
    Knob("extensions.kl_loss_ratio_weighted", (False, True), {"extensions.kl_loss_coef": 0.1}),
    Knob("extensions.ratio_cap", (None, 1.05), {"actor.reward_bias": -0.5}),
    Knob("extensions.vespo", (None, {})),
    Knob("extensions.vespo.k_pos", (2.0, 1.0)),
    Knob("extensions.vespo.lambda_pos", (3.0, 1.0)),
    Knob("extensions.vespo.k_neg", (3.0, 1.0), {"actor.reward_bias": -0.5}),
    Knob("extensions.vespo.lambda_neg", (2.0, 1.0), {"actor.reward_bias": -0.5}),
    Knob("extensions.reward_std_about", ("subtracted-mean", "own-mean"), GROUP | {
        "actor.reward_norm.std_level": "batch"
    }),
    Knob("extensions.reward_weights", (None, (1.0, 0.5)), components=True),
    Knob(
        "extensions.multi_objective_aggregation",
        ("sum_then_normalize", "normalize_then_sum"),
        components=True,
    ),
    Knob("extensions.truncated_answers", ("keep", "mask"), GROUP),
    Knob("extensions.truncated_answers", ("mask", "drop"), GROUP),
    Knob("extensions.sampler_correction", (None, {}), DECOUPLED),
    Knob("extensions.sampler_correction.level", ("token", "sequence"), SAMPLER),
    Knob("extensions.sampler_correction.action", ("mask", "truncate"), SAMPLER | {
        "extensions.sampler_correction.upper": 1.2
    }),
    Knob("extensions.sampler_correction.upper", (3.0, 1.1), SAMPLER),
    Knob("extensions.sampler_correction.lower", (None, 0.9), SAMPLER),
    Knob("extensions.off_policy_mask_threshold", (None, 0.0), {"actor.reward_bias": -0.5}),
    Knob("actor.discount", (1.0, 0.9), critic=True),
    Knob("actor.gae_lambda", (1.0, 0.5), critic=True),
)  # fmt: skip

ELSEWHERE = {
    "actor.temperature": "log-probs are computed with it, by the policy",
    "actor.ppo_n_minibatches": "splits the rows; a minibatch's gradient is what is tested here",
    "actor.optimizer": "acts on the gradient",
    "actor.reward_norm": "a section: see its settings",
    "actor.adv_norm": "a section: see its settings",
    "actor.rejection_sampling": "a section: see its settings",
    "actor.gae_lambda_kwargs": "a section: see its settings",
    "actor.path": "a real model: test_hf",
    "actor.dtype": "a real model's arithmetic: test_hf",
    "actor.use_lora": "a real model's trained weights: test_hf",
    "actor.lora_rank": "a real model's trained weights: test_hf",
    "actor.lora_alpha": "a real model's trained weights: test_hf",
    "actor.target_modules": "a real model's trained weights: test_hf",
    "actor.gradient_checkpointing": "a real model's memory: test_hf",
    "extensions.dynamic_sampling": "drops whole groups before the pipeline: test_rewards",
    "extensions.value_loss": "the critic's loss: test_value_loss_settings_reach_its_gradient",
}
"""Settings that do not act on this gradient, and where they act."""


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: f"{knob.key}-{knob.values[1]}")
def test_changing_the_setting_changes_the_gradient(knob: Knob) -> None:
    first, second = (_gradient(knob, value) for value in knob.values)
    assert first.isfinite().all()
    assert second.isfinite().all()
    assert not torch.allclose(first, second, rtol=1e-4, atol=1e-7)


def test_the_metrics_method_trains_like_recompute() -> None:
    # prox_logp_method=metrics only adds measurements of the approximations.
    knob = Knob("actor.prox_logp_method", ("recompute", "metrics"), DECOUPLED)
    first, second = (_gradient(knob, value) for value in knob.values)
    torch.testing.assert_close(first, second)


def test_every_setting_is_either_tested_or_explained() -> None:
    tested = {knob.key for knob in KNOBS}
    known = {
        key
        for prefix, model in (("actor", ActorConfig), ("extensions", ExtensionsConfig))
        for key in _keys(prefix, model)
    }
    explained = {key for key in known if any(_under(key, section) for section in ELSEWHERE)}
    assert known - explained - tested == set()
    assert tested - known == set()
    assert set(ELSEWHERE) - known == set()


def _under(key: str, section: str) -> bool:
    whole = {"actor.optimizer", "extensions.dynamic_sampling"}
    return key == section or (section in whole and key.startswith(f"{section}."))


@pytest.mark.parametrize(
    ("name", "values"),
    [("eps_clip", (0.5, 0.05)), ("value_loss", ("mse", "huber"))],
)
def test_value_loss_settings_reach_its_gradient(name: str, values: tuple[Any, Any]) -> None:
    scenario = with_values(make(1))
    result = run_pipeline(scenario.experience, actor_of({"kl_ctl": 0.0}))
    old = result.values
    assert old is not None
    gradients = []
    for value in values:
        current = (old + 30 * scenario.current.sin()).requires_grad_()
        loss = value_loss(
            current,
            old,
            result.returns,
            result.loss_mask,
            eps_clip=value if name == "eps_clip" else CriticConfig().eps_clip,
            kind=value if name == "value_loss" else "mse",
        )
        gradients.append(torch.autograd.grad(loss.loss, current)[0])
    assert not torch.allclose(gradients[0], gradients[1], rtol=1e-4, atol=1e-7)


def _gradient(knob: Knob, value: object) -> Tensor:
    """Gradient with one setting at one value; the first scenario seed is as good as any."""
    scenario = make(1)
    if knob.critic:
        scenario = with_values(scenario)
    if knob.without_groups:
        scenario = replace(scenario, experience=replace(scenario.experience, group_sizes=None))
    if knob.components:
        scenario = replace(scenario, experience=_with_components(scenario.experience))
    settings: dict[str, Any] = {"actor": {"kl_ctl": 0.0}, "extensions": {}}
    for key, given in {**knob.given, knob.key: value}.items():
        _set(settings, key, given)
    return train(scenario, settings["actor"], settings["extensions"])[2]


def _with_components(rollout: Experience) -> Experience:
    components = torch.stack([rollout.rewards, 3 * rollout.rewards.cos()], dim=1)
    return replace(rollout, reward_components=components)


def _set(settings: dict[str, Any], key: str, value: object) -> None:
    *parents, name = key.split(".")
    for parent in parents:
        settings = settings.setdefault(parent, {})
    settings[name] = value


def _keys(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    for name, info in model.model_fields.items():
        key = f"{prefix}.{name}"
        yield key
        for section in (info.annotation, *get_args(info.annotation)):
            if isinstance(section, type) and issubclass(section, BaseModel):
                yield from _keys(key, section)


def test_settings_used_here_are_valid() -> None:
    assert actor_of(NOTHING) == ActorConfig()
    assert extensions_of(NOTHING) == ExtensionsConfig()
    assert isinstance(make(1), Scenario)
