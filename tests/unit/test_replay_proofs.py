"""What is proven of a configuration holds on batches that try to break it."""

from typing import Any

import pytest
import torch

from grpo_core.config import TaskConfig, TrialConfig
from grpo_core.pipeline import Experience
from grpo_core.replay import Recorded, Replayer
from sweeps.dotted import nest
from sweeps.replay.dead import prove_dead
from sweeps.replay.implied import Implied, imply
from sweeps.replay.inert import ALWAYS, IN_TRAINING, canonical, proofs

GROUP_NORM = {"mean_level": "group", "std_level": "group"}
RULE = "areal.trainer.ppo.lambda_fn."


def config(changes: dict[str, Any]) -> TrialConfig:
    """A configuration with dotted keys."""
    plain = {"gconfig.n_samples": 4, "actor.kl_ctl": 0.0, "actor.optimizer.weight_decay": 0.0}
    return TrialConfig.model_validate(nest(plain | changes))


def recorded(seed: int, task: TaskConfig) -> Recorded:
    """Two groups of four answers of one to five tokens, stale by up to half a nat."""
    noise = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 6, (8,), generator=noise)
    columns = torch.arange(8)[None, :]
    mask = (columns >= 1) & (columns < 1 + lengths[:, None])
    behaviour = torch.where(mask, -1.0 - torch.rand(8, 8, generator=noise), 0.0)
    merit = torch.randint(0, 2, (8,), generator=noise).float()
    span = task.reward_right - task.reward_wrong
    experience = Experience(
        rewards=task.reward_wrong + merit * span,
        loss_mask=mask,
        lengths=lengths + 2,
        truncated=torch.rand(8, generator=noise) < 0.3,
        behaviour_logprobs=behaviour,
        group_sizes=torch.tensor([4, 4]),
        reference_logprobs=torch.where(mask, behaviour - 0.3, 0.0),
        proximal_logprobs=torch.where(
            mask, behaviour + 0.5 * torch.rand(8, 8, generator=noise), 0.0
        ),
        versions=torch.where(mask, 0, -1),
        current_version=1,
    )
    return Recorded(experience, task=task)


DEAD = [
    pytest.param({"actor.reward_scaling": 0.0}, "reward_scaling=0", id="scaling"),
    pytest.param({"actor.reward_clip": 0.0}, "reward_clip=0", id="clip-0"),
    pytest.param(
        {"gconfig.n_samples": 1, "actor.reward_norm": GROUP_NORM}, "its own mean is 0", id="alone"
    ),
    pytest.param(
        {
            "gconfig.n_samples": 1,
            "actor.reward_norm": {"mean_level": "group", "std_level": "batch"},
            "areal_compat": True,
        },
        "its own mean is 0",
        id="alone-areal",
    ),
    pytest.param(
        {"gconfig.n_samples": 1, "actor.adv_norm": GROUP_NORM},
        "all tokens of an answer",
        id="alone-advantages",
    ),
    pytest.param(
        {"task.reward_wrong": 5.0, "task.reward_right": 10.0, "actor.reward_clip": 5.0}
        | {"actor.reward_norm": {"mean_level": "batch", "std_level": None}},
        "lies in [5, 10] and becomes 5",
        id="clip-below-rewards",
    ),
    pytest.param(
        {"actor.reward_bias": -2.0, "actor.reward_scaling": 3.0, "actor.reward_clip": 0.7}
        | {"actor.reward_norm": {"mean_level": "group", "mean_leave1out": True, "std_level": None}},
        "becomes -0.7",
        id="clip-above-rewards-leave-one-out",
    ),
    pytest.param(
        {"task.reward_wrong": 1.0, "actor.adv_norm": {}}, "lies in [1, 1]", id="one-reward"
    ),
    pytest.param(
        {"actor.reward_bias": 9.0, "actor.reward_clip": 2.0, "actor.reward_norm": GROUP_NORM}
        | {"actor.overlong_reward_penalty": True, "actor.overlong_tokens": 4}
        | {"actor.overlong_penalty_factor": 5.0, "actor.max_new_tokens": 5},
        "becomes 2",
        id="penalty-above-the-clip",
    ),
]
ALIVE = [
    pytest.param({}, id="nothing-wrong"),
    pytest.param({"actor.reward_scaling": 0.0, "actor.kl_ctl": 0.1}, id="kl-in-the-reward"),
    pytest.param(
        {"actor.reward_scaling": 0.0, "extensions.kl_loss_coef": 0.1}, id="kl-in-the-loss"
    ),
    pytest.param({"task.reward_wrong": 1.0}, id="one-reward-without-a-mean"),
    pytest.param({"gconfig.n_samples": 1, "actor.adv_norm": {}}, id="alone-but-batch-mean"),
    pytest.param(
        {"gconfig.n_samples": 1, "actor.adv_norm": GROUP_NORM, "actor.discount": 0.5},
        id="alone-but-discounted",
    ),
    pytest.param(
        {"actor.reward_clip": 5.0, "task.reward_wrong": 4.9, "task.reward_right": 10.0}
        | {"actor.reward_norm": GROUP_NORM},
        id="clip-a-little-above",
    ),
    pytest.param(
        {"task.reward_wrong": 1.0, "actor.adv_norm": {}, "actor.mask_no_eos_with_zero": True},
        id="truncated-answers-differ",
    ),
    pytest.param(
        {"actor.reward_bias": 9.0, "actor.reward_clip": 2.0, "actor.reward_norm": GROUP_NORM}
        | {"actor.overlong_reward_penalty": True, "actor.overlong_tokens": 4}
        | {"actor.overlong_penalty_factor": 8.5, "actor.max_new_tokens": 5},
        id="penalty-reaches-below-the-clip",
    ),
]


@pytest.mark.parametrize(("changes", "words"), DEAD)
def test_proven_dead_cells_have_no_weight_on_any_batch(changes: dict[str, Any], words: str) -> None:
    settings = config(changes)
    proof = prove_dead(settings)
    assert proof is not None
    assert words in proof.text
    for seed in range(5):
        result = Replayer(recorded(seed, settings.task)).evaluate(settings)
        assert not result.weights.any()


@pytest.mark.parametrize("changes", ALIVE)
def test_what_may_live_is_not_proven_dead(changes: dict[str, Any]) -> None:
    settings = config(changes)
    assert prove_dead(settings) is None
    results = [Replayer(recorded(seed, settings.task)).evaluate(settings) for seed in range(5)]
    assert any(result.weights.any() for result in results)


def test_without_eps_zero_over_zero_is_no_proof() -> None:
    norm = GROUP_NORM | {"eps": 0.0}
    assert prove_dead(config({"actor.reward_scaling": 0.0, "actor.reward_norm": norm})) is None


def test_weight_decay_is_said() -> None:
    proof = prove_dead(config({"actor.reward_scaling": 0.0, "actor.optimizer.weight_decay": 0.1}))
    assert proof is not None
    assert proof.text.endswith("only weight decay moves the policy")


NORM = {"mean_level": "group", "std_level": None}
INERT: list[tuple[dict[str, Any], str, Any]] = [
    ({"actor.reward_norm": GROUP_NORM}, "actor.reward_norm.group_size", 3),
    ({"actor.adv_norm": GROUP_NORM}, "actor.adv_norm.group_size", 3),
    ({"actor.reward_norm": NORM}, "actor.reward_norm.eps", 0.5),
    ({"actor.reward_norm": NORM}, "actor.reward_norm.std_unbiased", False),
    ({"actor.adv_norm": NORM}, "actor.adv_norm.eps", 0.5),
    ({"actor.adv_norm": NORM}, "actor.adv_norm.std_unbiased", False),
    (
        {"actor.reward_norm": {"mean_level": None, "std_level": "batch"}},
        "actor.reward_norm.mean_leave1out",
        True,
    ),
    (
        {"actor.adv_norm": {"mean_level": None, "std_level": "batch"}},
        "actor.adv_norm.mean_leave1out",
        True,
    ),
    ({}, "actor.kl_estimator", "k3"),
    ({}, "actor.overlong_tokens", 2),
    ({}, "actor.overlong_penalty_factor", 9.0),
    ({}, "actor.max_new_tokens", 3),
    ({}, "actor.sapo_tau_pos", 3.0),
    ({}, "actor.sapo_tau_neg", 3.0),
    ({"actor.use_sapo_loss": True}, "actor.eps_clip", 0.01),
    ({"actor.use_sapo_loss": True}, "actor.eps_clip_higher", 0.01),
    ({"actor.use_sapo_loss": True}, "actor.c_clip", 1.01),
    ({"extensions.vespo": {}}, "extensions.ratio_cap", 1.01),
    ({}, "actor.gae_lambda_kwargs.value", 0.1),
    ({}, "actor.gae_lambda_kwargs.alpha", 0.1),
    (
        {
            "actor.gae_lambda": RULE + "vapo_length_adaptive_gae",
            "actor.gae_lambda_kwargs": {"alpha": 0.5},
        },
        "actor.gae_lambda_kwargs.q",
        0.1,
    ),
    ({}, "extensions.kl_loss_estimator", "k1"),
    ({}, "extensions.kl_loss_ratio_weighted", True),
    ({}, "actor.prox_logp_method", "loglinear"),
    ({"actor.use_decoupled_loss": True}, "actor.recompute_logprob", True),
    ({}, "actor.m2_threshold", 0.001),
    (
        {"actor.use_decoupled_loss": True, "actor.rejection_sampling": {"upper": 1.3}},
        "actor.rejection_sampling.agg",
        "max",
    ),
    ({}, "extensions.sampler_correction", {"upper": 1.1, "action": "truncate"}),
    ({}, "extensions.value_loss", "huber"),
    ({"actor.reward_norm": NORM}, "extensions.reward_std_about", "own-mean"),
    ({"actor.reward_scaling": 0.0, "actor.kl_ctl": 0.1}, "actor.reward_bias", 7.0),
    ({"actor.reward_scaling": 0.0, "actor.kl_ctl": 0.1}, "actor.reward_clip", 7.0),
    ({}, "ref", None),
    ({}, "dynamic_bs", True),
]


@pytest.mark.parametrize(
    ("changes", "key", "value"), [pytest.param(*row, id=f"{row[1]}={row[2]}") for row in INERT]
)
def test_inert_settings_change_no_bit(changes: dict[str, Any], key: str, value: object) -> None:
    one, other = config(changes), config(changes | {key: value})
    assert one != other
    assert canonical(one, ALWAYS) == canonical(other, ALWAYS)
    assert key in proofs(one, ALWAYS) or key in proofs(other, ALWAYS)
    for seed in range(3):
        replayer = Replayer(recorded(seed, one.task))
        assert torch.equal(replayer.evaluate(one).weights, replayer.evaluate(other).weights)


def test_every_rule_about_the_batch_is_tried() -> None:
    tried = {key for _, key, _ in INERT}
    assert {key for rule in ALWAYS for key in rule.keys} == tried


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        pytest.param({"actor.kl_ctl": 0.1}, "actor.kl_estimator", "k3", id="estimator"),
        pytest.param({}, "actor.eps_clip", 0.3, id="clip-with-several-updates"),
        pytest.param(
            {"actor.ppo_n_minibatches": 1, "actor.temperature": 0.5},
            "actor.eps_clip",
            0.3,
            id="clip-at-another-temperature",
        ),
        pytest.param(
            {"actor.ppo_n_minibatches": 1, "rollout.max_head_offpolicyness": 1},
            "actor.eps_clip",
            0.3,
            id="clip-on-stale-rollouts",
        ),
        pytest.param({}, "actor.optimizer.beta1", 0.5, id="adam"),
        pytest.param({}, "actor.optimizer.lr", 0.5, id="learning-rate"),
        pytest.param({}, "evaluation.every", 5, id="evaluation"),
    ],
)
def test_what_decides_something_is_kept(changes: dict[str, Any], key: str, value: object) -> None:
    one, other = config(changes), config(changes | {key: value})
    assert canonical(one, IN_TRAINING) != canonical(other, IN_TRAINING)


def test_a_plan_is_told_what_follows_without_trials() -> None:
    norm = {"actor.reward_norm": GROUP_NORM}
    cells = [
        config(norm),
        config(norm | {"actor.kl_estimator": "k2"}),
        config(norm | {"actor.reward_scaling": 0.0}),
        config(norm | {"actor.reward_scaling": 0.0, "actor.kl_estimator": "k2"}),
        config(norm | {"actor.optimizer.lr": 0.1}),
        config(norm | {"actor.ppo_n_minibatches": 1}),
        config(norm | {"actor.ppo_n_minibatches": 1, "actor.eps_clip": 0.3, "seed": 7}),
    ]
    found = imply(cells, recorded(0, TaskConfig()))
    assert [(item.cell, item.kind, item.of) for item in found] == [
        (1, "duplicate", 0),
        (2, "dead", None),
        (3, "dead", None),
        (6, "duplicate", 5),
    ]
    assert found[0].proof == (
        "actor.kl_estimator (k1 or k2) decides nothing: actor.kl_ctl=0: no KL is estimated"
    )
    assert found[1].on_batch == "every loss weight of the recorded batch is exactly 0"
    assert "actor.eps_clip (0.2 or 0.3) decides nothing: one update on fresh" in found[3].proof


def test_proofs_need_no_batch() -> None:
    found = imply([config({"actor.reward_scaling": 0.0})])
    assert [type(item) for item in found] == [Implied]
    assert found[0].on_batch.startswith("not checked")
