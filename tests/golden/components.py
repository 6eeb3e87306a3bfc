"""Section A: single building blocks."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from grpo_core.advantages import (
    Steps,
    bootstrap_values,
    gae_tokens,
    gae_turns,
    lambda_per_row,
    turn_counts,
)
from grpo_core.config import (
    ActorConfig,
    DynamicSamplingConfig,
    LambdaArguments,
    NormConfig,
    RejectionSamplingConfig,
)
from grpo_core.kl import KL_CLAMP, kl_estimate
from grpo_core.losses import LossInputs, policy_loss, value_loss
from grpo_core.normalization import normalize, whiten
from grpo_core.rejection import approximate_proximal, m2_mask, staleness_filter
from grpo_core.rewards import accept_groups, clip_rewards, overlong_penalty, scale_rewards
from grpo_core.rules import areal_accepts
from tests.golden.adapters import Adapter, UnsupportedCaseError, loss_outputs, token_counts
from tests.golden.packing import pack, unpack
from tests.golden.store import Case

SURROGATES: dict[str, dict[str, Any]] = {
    "ppo": {},
    "sapo": {"use_sapo_loss": True},
    "cispo": {"use_cispo_loss": True},
}
LOSS_SETTINGS = (
    "eps_clip",
    "eps_clip_higher",
    "c_clip",
    "importance_sampling_level",
    "sapo_tau_pos",
    "sapo_tau_neg",
)
DYNAMIC_RULES = {
    "open_unit_interval": DynamicSamplingConfig(),
    "mean_at_most_0.95": DynamicSamplingConfig(above=None, below=None, at_most=0.95),
}


def normalization(case: Case) -> Mapping[str, Tensor]:
    mask = case.inputs.get("mask")
    normalized = normalize(
        case.inputs["x"],
        NormConfig.model_validate(case.config["norm"]),
        mask=None if mask is None else mask.bool(),
        group_sizes=case.inputs.get("group_sizes"),
        areal_compat=True,
    )
    return {"normalized": normalized}


def masked_normalization(case: Case) -> Mapping[str, Tensor]:
    dims = case.config["dim"]
    whitened = whiten(
        case.inputs["x"],
        case.inputs.get("mask"),
        dims=(0, 1) if dims is None else tuple(dims),
        unbiased=case.config["unbiased"],
        eps=case.config["eps"],
        high_precision=case.config["high_precision"],
    )
    return {"normalized": whitened}


def kl_estimator(case: Case) -> Mapping[str, Tensor]:
    kl = kl_estimate(
        case.inputs["logp"],
        case.inputs["logp_base"],
        case.config["kl_estimator"],
        clamp=KL_CLAMP if case.config["clamp"] else None,
    )
    return {"kl": kl}


def penalty(case: Case) -> Mapping[str, Tensor]:
    penalized = overlong_penalty(
        case.inputs["rewards"],
        case.inputs["loss_mask"].sum(1),
        overlong_tokens=case.config["overlong_tokens"],
        factor=case.config["overlong_penalty_factor"],
        max_new_tokens=case.config["max_new_tokens"],
        areal_compat=True,
    )
    return {"rewards_out": penalized}


def reward_shaping(case: Case) -> Mapping[str, Tensor]:
    actor = ActorConfig.model_validate(case.config["actor"])
    scaled = scale_rewards(
        case.inputs["rewards"], bias=actor.reward_bias, scaling=actor.reward_scaling
    )
    return {"shaped_rewards": clip_rewards(scaled, actor.reward_clip)}


def gae(case: Case) -> Mapping[str, Tensor]:
    inputs, mask = case.inputs, case.inputs["mask"].bool()
    full = torch.full((len(mask),), mask.shape[1])
    bootstrap = bootstrap_values(inputs["values"], full, inputs["no_eos"], areal_compat=True)
    steps = Steps(inputs["rewards"], mask, inputs["values"], bootstrap)
    discount = case.config["discount"]
    decay = inputs.get("lambda_per_sequence", case.config["gae_lambda"])
    if case.kind == "gae_turn":
        result = gae_turns(steps, inputs["turn_ids"], discount=discount, gae_lambda=decay)
    else:
        result = gae_tokens(steps, discount=discount, gae_lambda=decay)
    return {"advantages": result.advantages, "returns": result.returns}


def gae_lambda(case: Case) -> Mapping[str, Tensor]:
    mask = case.inputs["mask"].bool()
    tokens = mask.sum(1)
    turns = torch.zeros_like(tokens)
    if "turn_ids" in case.inputs:
        turns = turn_counts(mask, case.inputs["turn_ids"])
    lengths = turns if case.config["gae_timestep_unit"] == "turn" else tokens
    arguments = LambdaArguments.model_validate(case.config.get("gae_lambda_kwargs", {}))
    return {
        "lambda_per_sequence": lambda_per_row(case.config["gae_lambda"], arguments, lengths),
        "timestep_lengths": lengths,
        "token_lengths": tokens,
        "turn_counts": turns,
    }


def loss(case: Case) -> Mapping[str, Tensor]:
    settings = {name: case.config[name] for name in LOSS_SETTINGS if name in case.config}
    filtered = case.config.get("rejection_sampling")
    settings |= SURROGATES[case.config["surrogate"]] | {"use_decoupled_loss": True}
    if filtered is not None:
        settings["rejection_sampling"] = _filter_settings(filtered)
    actor = ActorConfig.model_validate(settings)
    boundaries = case.inputs.get("cu_seqlens")
    inputs = _padded(case)
    mask = inputs["mask"].bool()
    logprobs = inputs["logprobs"].clone().requires_grad_()
    proximal = inputs.get("prox_logp", inputs["old_logp"])
    result = policy_loss(
        logprobs,
        LossInputs(inputs["advantages"], mask, mask, inputs["old_logp"], proximal),
        actor,
        areal_compat=True,
    )
    (gradient,) = torch.autograd.grad(result.loss, logprobs)
    per_position = loss_outputs(result) | {"grad_logprobs": gradient}
    outputs = {"loss": result.loss.detach()} | token_counts(case.inputs["mask"].bool())
    if result.staleness is not None:
        outputs["filtered_fraction"] = result.staleness.filtered_fraction
    return outputs | _as_given(per_position, boundaries)


def staleness(case: Case) -> Mapping[str, Tensor]:
    inputs = _padded(case)
    result = staleness_filter(
        inputs["prox_logp"],
        inputs["old_logp"],
        inputs["mask"].bool(),
        _filter_settings(case.config["rejection_sampling"]),
        areal_compat=True,
    )
    per_position = {"mask_out": result.mask, "behave_weight": result.weight}
    fraction = {"filtered_fraction": result.filtered_fraction}
    return fraction | _as_given(per_position, case.inputs.get("cu_seqlens"))


def m2(case: Case) -> Mapping[str, Tensor]:
    inputs = case.inputs
    mask = inputs["mask"].bool()
    rows = (inputs["old_logp"], inputs["prox_logp"], mask)
    padded = [x.reshape(1, -1) if x.ndim == 1 else x for x in rows]
    kept = m2_mask(padded[0], padded[1], padded[2], case.config["m2_threshold"])
    return {"mask_out": kept.reshape(mask.shape)}


def proximal_approximations(case: Case) -> Mapping[str, Tensor]:
    inputs = case.inputs
    arguments = (inputs["old_logp"], inputs["logprobs"], inputs["versions"])
    version = case.config["current_version"]
    return {
        "prox_loglinear": approximate_proximal(*arguments, version, method="loglinear"),
        "prox_linear": approximate_proximal(*arguments, version, method="linear"),
        "prox_rollout": approximate_proximal(*arguments, version, method="rollout"),
    }


def critic_loss(case: Case) -> Mapping[str, Tensor]:
    inputs = case.inputs
    values = inputs["value"].clone().requires_grad_()
    result = value_loss(
        values,
        inputs["old_value"],
        inputs["target_value"],
        inputs["mask"].bool(),
        eps_clip=case.config["eps_clip"],
        kind=case.config["loss_fn_type"],
    )
    (gradient,) = torch.autograd.grad(result.loss, values)
    return {
        "loss": result.loss.detach(),
        "grad_value": gradient,
        "clip_mask": result.clip_mask,
        "token_loss": result.token_loss,
    }


def dynamic_filter(case: Case) -> Mapping[str, Tensor]:
    rule = case.config["rule"]
    if rule not in DYNAMIC_RULES:
        raise UnsupportedCaseError(f"dynamic_filter rule {rule}")
    accepted = accept_groups(
        case.inputs["rewards"], case.inputs["group_sizes"], DYNAMIC_RULES[rule]
    )
    return {"accept": accepted}


def config_validation(case: Case) -> Mapping[str, Tensor]:
    accepted = areal_accepts(case.config["target"], case.config["config"])
    return {"accepted": torch.tensor(accepted)}


def _padded(case: Case) -> dict[str, Tensor]:
    boundaries = case.inputs.get("cu_seqlens")
    if boundaries is None:
        return dict(case.inputs)
    return {
        name: unpack(tensor, boundaries)
        for name, tensor in case.inputs.items()
        if name != "cu_seqlens"
    }


def _as_given(per_position: Mapping[str, Tensor], boundaries: Tensor | None) -> dict[str, Tensor]:
    if boundaries is None:
        return dict(per_position)
    return {name: pack(tensor, boundaries) for name, tensor in per_position.items()}


def _filter_settings(settings: Mapping[str, Any]) -> RejectionSamplingConfig:
    plain = dict(settings)
    forced = plain.pop("metric_forced_past_validation", None)
    return RejectionSamplingConfig.model_validate(
        plain if forced is None else plain | {"metric": forced}
    )


COMPONENTS: dict[str, Adapter] = {
    "normalization": normalization,
    "masked_normalization": masked_normalization,
    "kl_estimator": kl_estimator,
    "overlong_penalty": penalty,
    "reward_shaping": reward_shaping,
    "gae_token": gae,
    "gae_turn": gae,
    "gae_lambda": gae_lambda,
    "policy_loss": loss,
    "staleness_filter": staleness,
    "m2_mask": m2,
    "prox_approximation": proximal_approximations,
    "value_loss": critic_loss,
    "dynamic_filter": dynamic_filter,
    "config_validation": config_validation,
}
