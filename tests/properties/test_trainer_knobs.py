"""Two points of every setting that acts outside the pipeline and the loss: the run must differ.

A flag that is accepted and not passed on is the commonest defect in this field. Settings of `actor`
and `extensions` that act inside pipeline and loss are covered by test_knobs.py.
"""

from typing import Any

import pytest
import torch

from grpo_core.config import TrialConfig
from grpo_core.policy import TinyPolicy
from grpo_core.policy.tiny import EOS, CharacterTokenizer, TinyDecoder
from grpo_core.trainer import Trainer

BASE: dict[str, Any] = {
    "total_train_steps": 2,
    "train_dataset.batch_size": 3,
    "gconfig.n_samples": 4,
    "gconfig.max_new_tokens": 8,
    "evaluation.prompts": 8,
    "evaluation.interim_prompts": 8,
    "evaluation.every": 1,
    "task.verifier": "graded",
    "actor.kl_ctl": 0.0,
    "actor.ppo_n_minibatches": 2,
    "actor.optimizer.lr": 1e-2,
    "actor.optimizer.gradient_clipping": 0.1,
}
DECAY = {
    "actor.optimizer.lr_scheduler_type": "linear",
    "actor.optimizer.warmup_steps_proportion": 0.0,
    "total_train_steps": 5,
}
CRITIC: dict[str, Any] = {
    "critic.ppo_n_minibatches": 1,
    "critic.optimizer.lr": 1e-2,
    "task.reward_wrong": -1.0,
}

KNOBS: list[tuple[str, Any, Any, dict[str, Any]]] = [
    ("seed", 1, 2, {}),
    ("total_train_steps", 2, 30, {"actor.optimizer.warmup_steps_proportion": 0.5}),
    ("task.name", "think", "sort", {}),
    ("task.reward_right", 1.0, 2.0, {}),
    ("task.reward_wrong", 0.0, -1.0, {}),
    ("task.verifier", "graded", "weak", {}),
    ("train_dataset.batch_size", 3, 4, {}),
    ("gconfig.n_samples", 4, 5, {}),
    ("gconfig.max_new_tokens", 8, 7, {}),
    ("gconfig.min_new_tokens", 0, 4, {}),
    ("gconfig.greedy", False, True, {"gconfig.n_samples": 1}),
    ("gconfig.temperature", 1.0, 1.3, {}),
    ("gconfig.top_p", 1.0, 0.5, {}),
    ("gconfig.top_k", 100, 3, {}),
    ("rollout.max_head_offpolicyness", 0, 1, {}),
    ("actor.temperature", 1.0, 1.3, {}),
    ("actor.ppo_n_minibatches", 2, 3, {}),
    ("actor.optimizer.type", "adam", "sgd", {}),
    ("actor.optimizer.lr", 1e-2, 2e-2, {}),
    ("actor.optimizer.weight_decay", 0.0, 0.5, {}),
    ("actor.optimizer.beta1", 0.9, 0.5, {}),
    ("actor.optimizer.beta2", 0.999, 0.9, {}),
    ("actor.optimizer.eps", 1e-8, 1e-3, {}),
    ("actor.optimizer.gradient_clipping", 0.1, 0.0, {"actor.optimizer.type": "sgd"}),
    ("actor.optimizer.lr_scheduler_type", "linear", "cosine", DECAY),
    ("actor.optimizer.min_lr_ratio", 0.0, 0.5, DECAY),
    ("actor.optimizer.warmup_steps_proportion", 0.0, 1.0, {}),
    (
        "extensions.dynamic_sampling.contrast",
        False,
        True,
        {"extensions.dynamic_sampling.above": None, "extensions.dynamic_sampling.below": None},
    ),
    (
        "dynamic_bs",
        False,
        True,
        {
            "extensions.dynamic_sampling.contrast": True,
            "extensions.dynamic_sampling.above": None,
            "extensions.dynamic_sampling.below": None,
        },
    ),
    ("critic.ppo_n_minibatches", 1, 2, CRITIC),
    ("critic.eps_clip", 0.5, 0.001, CRITIC | {"critic.ppo_n_minibatches": 3}),
    ("critic.optimizer.lr", 1e-2, 2e-2, CRITIC),
    (
        "extensions.value_loss",
        "mse",
        "huber",
        CRITIC | {"task.reward_wrong": -50.0, "actor.reward_clip": 50.0},
    ),
    ("evaluation.prompts", 8, 64, {"actor.optimizer.lr": 1e-4}),
    ("evaluation.every", 1, 2, {}),
    ("evaluation.interim_prompts", 8, 64, {}),
]


def nest(flat: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for dotted, value in flat.items():
        *sections, last = dotted.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return nested


def run(settings: dict[str, Any]) -> list[dict[str, Any]]:
    decoder = TinyDecoder()
    decoder.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        decoder.head.bias[EOS] += 3.0
        for token in CharacterTokenizer().encode("##abcd"):
            decoder.head.bias[token] += 2.0
    config = TrialConfig.model_validate(nest(BASE | settings))
    trainer = Trainer(config, policy=TinyPolicy(decoder))
    return [trainer.step().to_json() for _ in range(2)]


@pytest.mark.parametrize(("key", "one", "other", "beside"), KNOBS, ids=[knob[0] for knob in KNOBS])
def test_a_setting_changes_the_run(
    key: str, one: object, other: object, beside: dict[str, Any]
) -> None:
    assert run(beside | {key: one}) != run(beside | {key: other})
