"""Rollouts, rows of different lengths, whose every input is awake."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from grpo_core.config import ActorConfig, ExtensionsConfig
from grpo_core.losses import PolicyLoss, policy_loss
from grpo_core.pipeline import Experience, PipelineResult, run_pipeline

GROUPS, GROUP_SIZE, PROMPT, RESPONSE = 3, 4, 2, 6
WIDTH = PROMPT + RESPONSE

LOSS_SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ppo": ({}, {}),
    "dual-clip": ({"c_clip": 1.5}, {}),
    "gspo": ({"importance_sampling_level": "sequence"}, {}),
    "sapo": ({"use_sapo_loss": True}, {}),
    "cispo": ({"use_cispo_loss": True, "eps_clip_higher": 0.3}, {}),
    "icepop": (
        {"use_decoupled_loss": True, "rejection_sampling": {"upper": 1.3, "lower": 0.7}},
        {},
    ),
    "sequence-filter": (
        {"use_decoupled_loss": True, "rejection_sampling": {"level": "sequence", "upper": 1.1}},
        {},
    ),
    "m2po": ({"use_decoupled_loss": True, "m2_threshold": 0.02}, {}),
    "vespo": ({}, {"vespo": {}}),
    "trl-grpo": (
        {"use_decoupled_loss": True},
        {
            "loss_aggregation": "sequence-mean",
            "kl_loss_coef": 0.1,
            "kl_loss_ratio_weighted": True,
            "ratio_cap": 1.4,
            "sampler_correction": {"level": "token", "action": "truncate", "upper": 1.2},
            "off_policy_mask_threshold": 0.05,
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A rollout and the policy it is trained on."""

    experience: Experience
    current: Tensor


def make(seed: int, dtype: torch.dtype = torch.float32) -> Scenario:
    """Draw a scenario; log-prob gaps are about 0.2 nats."""
    rng = torch.Generator().manual_seed(seed)
    rows = GROUPS * GROUP_SIZE

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)

    answers = torch.randint(2, RESPONSE + 1, (rows,), generator=rng)
    columns = torch.arange(WIDTH)
    mask = (columns >= PROMPT - 1) & (columns < PROMPT - 1 + answers.unsqueeze(1))
    behaviour = -normal(rows, WIDTH).abs() - 0.5
    versions = torch.randint(0, 4, (rows, WIDTH), generator=rng)
    turns = ((columns - PROMPT + 1).clamp(min=-1) // 3).expand(rows, WIDTH)
    rewards = torch.rand(rows, generator=rng, dtype=torch.float64).to(dtype)
    experience = Experience(
        rewards=rewards,
        loss_mask=mask,
        lengths=answers + PROMPT,
        truncated=answers == RESPONSE,
        behaviour_logprobs=behaviour,
        group_sizes=torch.full((GROUPS,), GROUP_SIZE),
        reference_logprobs=behaviour + 0.3 * normal(rows, WIDTH),
        proximal_logprobs=behaviour + 0.2 * normal(rows, WIDTH),
        values=None,
        versions=versions,
        turn_ids=turns,
        current_version=4,
    )
    return Scenario(experience, behaviour + 0.3 * normal(rows, WIDTH))


def with_values(scenario: Scenario) -> Scenario:
    """Add a critic's values."""
    rng = torch.Generator().manual_seed(0)
    shape = scenario.current.shape
    values = torch.randn(*shape, generator=rng, dtype=torch.float64).to(scenario.current.dtype)
    return Scenario(replace(scenario.experience, values=values), scenario.current)


def actor_of(settings: Mapping[str, Any]) -> ActorConfig:
    return ActorConfig.model_validate(settings)


def extensions_of(settings: Mapping[str, Any]) -> ExtensionsConfig:
    return ExtensionsConfig.model_validate(settings)


def train(
    scenario: Scenario, actor: Mapping[str, Any], extensions: Mapping[str, Any]
) -> tuple[PipelineResult, PolicyLoss, Tensor]:
    """Pipeline, loss and its gradient, as the trainer computes them."""
    settings, beyond = actor_of(actor), extensions_of(extensions)
    result = run_pipeline(scenario.experience, settings, extensions=beyond)
    current = scenario.current.clone().requires_grad_()
    loss = policy_loss(current, result.loss_inputs(), settings, extensions=beyond)
    (gradient,) = torch.autograd.grad(loss.loss, current)
    return result, loss, gradient
