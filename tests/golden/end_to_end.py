"""Section B: one batch from rewards to the gradient."""

from collections.abc import Mapping

import torch
from torch import Tensor

from grpo_core.config import ActorConfig
from grpo_core.losses import policy_loss
from grpo_core.pipeline import Experience, PipelineResult, run_pipeline
from tests.golden.adapters import loss_outputs, token_counts
from tests.golden.packing import inside
from tests.golden.store import Case


def end_to_end(case: Case) -> Mapping[str, Tensor]:
    actor = ActorConfig.model_validate(case.config["actor"])
    lengths = case.inputs["attention_mask"].sum(1)
    result = run_pipeline(_experience(case, lengths), actor, areal_compat=True)
    logprobs = case.inputs["new_logprobs"].clone().requires_grad_()
    loss = policy_loss(logprobs, result.loss_inputs(), actor, areal_compat=True)
    (gradient,) = torch.autograd.grad(loss.loss, logprobs)
    per_position = {f"tok_{name}": tensor for name, tensor in loss_outputs(loss).items()}
    per_position |= {"grad_logprobs": gradient, "mask_entering_loss": loss.entering_mask}
    extra = {}
    if case.config.get("packed", False):
        on = inside(lengths, logprobs.shape[1])
        per_position = {name: tensor[on] for name, tensor in per_position.items()}
        extra["cu_seqlens"] = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    if loss.staleness is not None:
        extra["filtered_fraction"] = loss.staleness.filtered_fraction
    counts = token_counts(per_position["mask_entering_loss"])
    return _stages(result) | per_position | counts | extra | {"loss": loss.loss.detach()}


def _experience(case: Case, lengths: Tensor) -> Experience:
    """Shift what is token-aligned; AReaL reads versions unshifted, which the pipeline imitates."""
    inputs = case.inputs
    turns = inputs.get("turn_ids")
    versions = inputs.get("versions")
    return Experience(
        rewards=inputs["rewards"],
        loss_mask=inputs["loss_mask"].roll(-1, dims=1).bool(),
        lengths=lengths,
        truncated=~inputs["ends_with_eos"],
        behaviour_logprobs=inputs["logprobs"].roll(-1, dims=1),
        group_sizes=inputs.get("group_sizes"),
        reference_logprobs=inputs.get("ref_logp"),
        proximal_logprobs=inputs.get("prox_logp"),
        values=inputs.get("values"),
        versions=None if versions is None else versions.roll(-1, dims=1),
        turn_ids=None if turns is None else _shifted_turns(turns),
        current_version=case.config.get("current_version"),
    )


def _shifted_turns(turn_ids: Tensor) -> Tensor:
    shifted = turn_ids.roll(-1, dims=1)
    shifted[:, -1] = -1
    return shifted


def _stages(result: PipelineResult) -> dict[str, Tensor]:
    stages = {
        "shaped_rewards": result.clipped,
        "normalized_rewards": result.normalized,
        "kl_rewards": result.kl_rewards,
        "tot_rewards": result.total_rewards,
        "raw_advantages": result.raw_advantages,
        "advantages": result.advantages,
        "returns": result.returns,
        "loss_mask_out": result.counted_mask,
        "old_logp": result.old_logprobs,
        "rewards_after": result.penalized,
    }
    if result.proximal_logprobs is not None:
        stages["prox_logp_out"] = result.proximal_logprobs
    return stages
