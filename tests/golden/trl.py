"""Section C: TRL's GRPO family, as settings of ours."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from grpo_core.config import (
    ActorConfig,
    ExtensionsConfig,
    Level,
    NormConfig,
    SamplerCorrectionConfig,
    VespoConfig,
)
from grpo_core.losses import Aggregation, loss_denominator, policy_loss
from grpo_core.pipeline import Experience, PipelineResult, run_pipeline
from grpo_core.rewards import combine_components
from tests.golden.adapters import UnsupportedCaseError
from tests.golden.packing import inside
from tests.golden.store import Case

TRL_EPS = 1e-4
RESIDUE = 2e-3
"""Largest rounding residue that TRL leaves in a constant group's advantages."""
NO_LIMIT = 1e30
"""TRL does not clip rewards."""

AGGREGATIONS: dict[str, Aggregation] = {
    "grpo": "sequence-mean",
    "sapo": "sequence-mean",
    "luspo": "sequence-sum",
    "dr_grpo": "constant",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "cispo": "token-mean",
    "vespo": "token-mean",
}
OVER_GENERATION_BATCH = frozenset({"dapo", "cispo", "vespo"})
"""Loss types that TRL divides by the token count of the whole generation batch."""
STD_LEVELS: dict[str, Level | None] = {"group": "group", "batch": "batch", "none": None}


def trl_grpo(case: Case) -> Mapping[str, Tensor]:
    actor, extensions = trl_settings(case.config)
    result = run_pipeline(_experience(case), actor, extensions=extensions)
    # A constant group's advantages are rounding residue in TRL: compare the loss on equal terms.
    theirs = case.outputs["advantages"]
    constant = constant_rows(case) & ((theirs - result.normalized).abs() <= RESIDUE)
    given = torch.where(constant, theirs, result.normalized)
    inputs = _with_residue(result, constant, given).loss_inputs()
    logprobs = case.inputs["logps"].clone().requires_grad_()
    accumulated = loss_denominator(inputs.counted_mask, actor, extensions) * _accumulation(case)
    loss = policy_loss(logprobs, inputs, actor, extensions=extensions, denominator=accumulated)
    (gradient,) = torch.autograd.grad(loss.loss, logprobs)
    outputs = {
        "advantages": given,
        "completion_mask": _completion_mask(case, result),
        "num_items_in_batch": inputs.counted_mask.sum(),
        "loss": loss.loss.detach(),
        "grad_logps": gradient,
    }
    if loss.sampler_weight is not None:
        by_sequence = case.config["vllm_importance_sampling_mode"].startswith("sequence")
        weight = loss.sampler_weight
        outputs["sampler_correction"] = weight[:, :1] if by_sequence else weight
    return outputs


def trl_settings(config: Mapping[str, Any]) -> tuple[ActorConfig, ExtensionsConfig]:
    """Say TRL's options in our settings."""
    loss_type = config["loss_type"]
    if loss_type not in AGGREGATIONS:
        raise UnsupportedCaseError(f"loss_type {loss_type}")
    std_level = STD_LEVELS[config["scale_rewards"]]
    by_component = config["multi_objective_aggregation"] == "normalize_then_sum"
    epsilon_high = config["epsilon"] if config["epsilon_high"] is None else config["epsilon_high"]
    corrected = config["vllm_importance_sampling_correction"]
    bounds = {"eps_clip": config["epsilon"], "eps_clip_higher": epsilon_high}
    if loss_type == "cispo":
        bounds = {"eps_clip": 1.0, "eps_clip_higher": epsilon_high - 1}
    actor = ActorConfig(
        **bounds,
        kl_ctl=0.0,
        reward_clip=NO_LIMIT,
        reward_norm=NormConfig(
            mean_level="batch" if by_component else "group",
            std_level="batch" if by_component else std_level,
            eps=TRL_EPS,
            group_size=config["num_generations"],
        ),
        use_decoupled_loss=True,
        use_sapo_loss=loss_type == "sapo",
        use_cispo_loss=loss_type == "cispo",
        sapo_tau_pos=config["sapo_temperature_pos"],
        sapo_tau_neg=config["sapo_temperature_neg"],
        importance_sampling_level=config["importance_sampling_level"],
        max_new_tokens=config["max_completion_length"],
    )
    extensions = ExtensionsConfig(
        loss_aggregation=AGGREGATIONS[loss_type],
        kl_loss_coef=config["beta"],
        kl_loss_ratio_weighted=config["use_bias_correction_kl"],
        ratio_cap=config["delta"],
        vespo=_vespo(config) if loss_type == "vespo" else None,
        reward_std_about="own-mean",
        reward_weights=config["reward_weights"],
        multi_objective_aggregation=config["multi_objective_aggregation"],
        truncated_answers="mask" if config["mask_truncated_completions"] else "keep",
        sampler_correction=_sampler_correction(config) if corrected else None,
        off_policy_mask_threshold=config["off_policy_mask_threshold"],
    )
    return actor, extensions


def constant_rows(case: Case) -> Tensor:
    """Rows whose group has equal rewards, so that TRL's advantage is rounding residue."""
    components = case.inputs["rewards_per_func"]
    weights = case.config["reward_weights"] or [1.0] * components.shape[1]
    rewards = combine_components(components, components.new_tensor(weights))
    size = case.config["num_generations"]
    groups = rewards.reshape(-1, size)
    return (groups == groups[:, :1]).all(1).repeat_interleave(size)


def _vespo(config: Mapping[str, Any]) -> VespoConfig:
    return VespoConfig(
        k_pos=config["vespo_k_pos"],
        lambda_pos=config["vespo_lambda_pos"],
        k_neg=config["vespo_k_neg"],
        lambda_neg=config["vespo_lambda_neg"],
    )


def _sampler_correction(config: Mapping[str, Any]) -> SamplerCorrectionConfig:
    level, action = config["vllm_importance_sampling_mode"].split("_")
    return SamplerCorrectionConfig(
        level=level,
        action=action,
        upper=config["vllm_importance_sampling_clip_max"],
        lower=config["vllm_importance_sampling_clip_min"],
    )


def _accumulation(case: Case) -> float:
    """What TRL divides by besides its denominator, for one of several accumulated parts."""
    accumulated = case.config["gradient_accumulation_steps"]
    if case.config["loss_type"] in OVER_GENERATION_BATCH:
        return float(accumulated / case.config["steps_per_generation"])
    return float(accumulated)


def _experience(case: Case) -> Experience:
    """Position t already belongs to the prediction of completion token t."""
    inputs = case.inputs
    components = inputs["rewards_per_func"]
    width = inputs["logps"].shape[1]
    mask = inside(inputs["completion_lengths"], width)
    if "tool_mask" in inputs:
        mask = mask & inputs["tool_mask"].bool()
    old = inputs.get("old_logps", inputs["logps"])
    return Experience(
        rewards=components[:, 0],
        reward_components=components,
        loss_mask=mask,
        lengths=inputs["completion_lengths"] + 1,
        truncated=~inputs["ends_with_eos"],
        behaviour_logprobs=inputs.get("sampling_logps", old),
        proximal_logprobs=old,
        reference_logprobs=inputs.get("ref_logps"),
    )


def _with_residue(result: PipelineResult, rows: Tensor, advantages: Tensor) -> PipelineResult:
    """Put given advantages into some rows."""
    replaced = result.counted_mask & rows.unsqueeze(1)
    tokens = torch.where(replaced, advantages.unsqueeze(1), result.advantages)
    return replace(result, advantages=tokens)


def _completion_mask(case: Case, result: PipelineResult) -> Tensor:
    mask = inside(case.inputs["completion_lengths"], result.counted_mask.shape[1])
    if case.config["mask_truncated_completions"]:
        mask = mask & case.inputs["ends_with_eos"].unsqueeze(1)
    return mask
