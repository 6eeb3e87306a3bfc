"""What the linter claims, run: the flagged configuration and the one put right, in our trainer.

One seed of 25 or 40 steps a run, two to four CPU-seconds each; equal configurations run once.
Thresholds leave room: where seeds disagree, the test looks at what causes the failure (ratios, KL,
length) rather than at the pass rate alone. The policy starts at a pass rate of about 0.3.
"""

import functools
import json
import math
from dataclasses import dataclass
from typing import Any

import pytest

from grpo_core.config import TrialConfig
from grpo_core.metrics import StepMetrics
from grpo_core.profiles import PROFILES
from grpo_core.trainer import Trainer
from sweeps.lint import LINT_RULES
from sweeps.lint.settings import build_settings
from sweeps.lint.subject import Rewards, Subject

pytestmark = pytest.mark.slow

Flat = dict[str, Any]

BASE: Flat = {
    **PROFILES["tiny"].defaults,
    "seed": 1,
    "evaluation.every": 0,
    "actor.kl_ctl": 0.0,
    "actor.adv_norm.mean_level": "batch",
}
GROUPS: Flat = {"actor.adv_norm": None, "actor.reward_norm.mean_level": "group"}
SHORT: Flat = {"gconfig.max_new_tokens": 8, "actor.max_new_tokens": 8}
STALE: Flat = {"rollout.max_head_offpolicyness": 8}
DECOUPLED: Flat = {**STALE, "actor.use_decoupled_loss": True}
SGD: Flat = {
    **GROUPS,
    "actor.reward_norm.std_level": None,
    "actor.optimizer.type": "sgd",
    "actor.optimizer.lr": 0.1,
}
NO_CLIP = 1e9
QUICK: Flat = {"total_train_steps": 25}
"""Enough for what learns at once or not at all."""
DEAD_FROM_THE_START: Flat = {"total_train_steps": 8}


def lay(changes: Flat) -> Flat:
    flat = dict(BASE)
    for key, value in changes.items():
        if value is None:
            flat = {k: v for k, v in flat.items() if k != key and not k.startswith(f"{key}.")}
        flat[key] = value
    return flat


def config_of(changes: Flat) -> TrialConfig:
    settings = build_settings(lay(changes))
    assert settings.invalid == ()
    return settings.config


def flagged(rule: str, changes: Flat) -> bool:
    config = config_of(changes)
    task = config.task
    subject = Subject(
        config,
        "space",
        written=frozenset(lay(changes)),
        rewards=Rewards(
            tuple(sorted({task.reward_wrong, task.reward_right})), graded=task.verifier == "graded"
        ),
    )
    return any(True for _ in LINT_RULES[rule].check(subject))


@dataclass(frozen=True)
class Run:
    """One finished run."""

    steps: tuple[StepMetrics, ...]

    @property
    def passed(self) -> float:
        """Strict check on held-out prompts after the last step."""
        found = self.steps[-1].eval_pass_rate
        assert found is not None
        return found

    @property
    def truncated(self) -> float:
        found = self.steps[-1].eval_truncated
        assert found is not None
        return found

    @property
    def kl(self) -> float:
        found = self.steps[-1].kl_reference
        assert found is not None
        return found

    @property
    def ratio_max(self) -> float:
        return max(step.ratio_max for step in self.steps)

    @property
    def moved(self) -> float:
        """Largest change of the weights in a step."""
        return max(step.update_norm for step in self.steps)


@functools.cache
def _run(content: str) -> Run:
    trainer = Trainer(TrialConfig.model_validate_json(content))
    steps = []
    while not trainer.finished:
        steps.append(trainer.step())
    return Run(tuple(steps))


def run(changes: Flat) -> Run:
    return _run(json.dumps(config_of(changes).model_dump(), sort_keys=True))


DEAD = [
    pytest.param(
        "group-of-one",
        {**GROUPS, "gconfig.n_samples": 1, "train_dataset.batch_size": 96},
        GROUPS,
        id="group-of-one",
    ),
    pytest.param("scaling-zero", {"actor.reward_scaling": 0.0}, {}, id="scaling-zero"),
    pytest.param(
        "clip-flattens-rewards",
        {"task.reward_wrong": 5.0, "task.reward_right": 10.0, "actor.reward_clip": 1.0},
        {"task.reward_wrong": 5.0, "task.reward_right": 10.0},
        id="clip-below-the-rewards",
    ),
]


@pytest.mark.parametrize(("rule", "bad", "fix"), DEAD)
def test_a_fatal_setting_leaves_the_weights_where_they_are(rule: str, bad: Flat, fix: Flat) -> None:
    assert flagged(rule, bad)
    assert not flagged(rule, fix)
    # Weight decay is 0 in the profile: without a gradient nothing moves at all.
    dead = run({**DEAD_FROM_THE_START, **bad})
    assert dead.moved == 0
    assert all(step.grad_norm == 0 for step in dead.steps)
    assert run({**QUICK, **fix}).passed > 0.8


FAILS = [
    pytest.param("kl-pins-policy", {"actor.kl_ctl": 10.0}, {"actor.kl_ctl": 0.1}, id="kl-10-of-k1"),
    pytest.param(
        "kl-pins-policy",
        {"actor.kl_ctl": 0.1, "actor.reward_scaling": 1e-3},
        {"actor.kl_ctl": 0.1},
        id="kl-over-a-small-scale",
    ),
    pytest.param("lr-collapses-tiny", {"actor.optimizer.lr": 1e-2}, {}, id="learning-rate"),
    pytest.param("scaling-negative", {"actor.reward_scaling": -1.0}, {}, id="negative-scaling"),
    pytest.param(
        "temperature-mismatch",
        {"gconfig.temperature": 1.5},
        {"gconfig.temperature": 1.5, "actor.temperature": 1.5},
        id="temperature-mismatch",
    ),
    pytest.param(
        "overlong-drowns-task",
        {
            "actor.overlong_reward_penalty": True,
            "actor.overlong_tokens": 18,
            "actor.overlong_penalty_factor": 100.0,
        },
        {
            "actor.overlong_reward_penalty": True,
            "actor.overlong_tokens": 4,
            "actor.overlong_penalty_factor": 1.0,
        },
        id="overlong-penalty-of-100",
    ),
]


@pytest.mark.parametrize(("rule", "bad", "fix"), FAILS)
def test_a_harmful_setting_keeps_the_task_from_being_learned(
    rule: str, bad: Flat, fix: Flat
) -> None:
    assert flagged(rule, bad)
    assert not flagged(rule, fix)
    assert run({**QUICK, **bad}).passed < 0.45
    assert run({**QUICK, **fix}).passed > 0.8


WORSE = [
    pytest.param("sgd-small-signal", {**SGD, "actor.reward_scaling": 1e-3}, SGD, id="sgd"),
    pytest.param(
        "clip-cuts-graded-rewards",
        {"task.verifier": "graded", "task.reward_right": 10.0, "actor.reward_clip": 0.5},
        {"task.verifier": "graded", "task.reward_right": 10.0},
        id="graded-rewards-cut",
    ),
    pytest.param("reward-discounted-away", {"actor.gae_lambda": 0.5}, {}, id="lambda"),
    pytest.param(
        "mask-pays-for-truncation",
        {**SHORT, "task.reward_wrong": -1.0, "actor.mask_no_eos_with_zero": True},
        {**SHORT, "actor.mask_no_eos_with_zero": True},
        id="mask-with-negative-rewards",
    ),
    pytest.param(
        "stale-without-clip", {**STALE, "actor.eps_clip": NO_CLIP}, STALE, id="stale-unclipped"
    ),
    pytest.param(
        "decoupled-uncorrected",
        DECOUPLED,
        {**DECOUPLED, "actor.rejection_sampling.upper": 5.0},
        id="decoupled-uncorrected",
    ),
    pytest.param(
        "kl-without-reference",
        {"actor.kl_ctl": 0.1, "ref": None, "areal_compat": True},
        {"actor.kl_ctl": 0.1},
        id="kl-without-reference",
    ),
]


@pytest.mark.parametrize(("rule", "bad", "fix"), WORSE)
def test_a_harmful_setting_costs_a_fifth_of_the_pass_rate(rule: str, bad: Flat, fix: Flat) -> None:
    assert flagged(rule, bad)
    assert not flagged(rule, fix)
    assert run(bad).passed < run(fix).passed - 0.2


def test_truncated_answers_are_paid_where_wrong_ones_are_punished() -> None:
    punished = {**SHORT, "task.reward_wrong": -1.0, "actor.mask_no_eos_with_zero": True}
    healthy = {**SHORT, "actor.mask_no_eos_with_zero": True}
    late = len(run(punished).steps) // 2
    assert run(punished).steps[late].truncated > 0.8
    assert run(healthy).steps[late].truncated < 0.2


def test_a_penalty_with_the_wrong_sign_pins_answers_at_the_limit() -> None:
    penalty = {"actor.overlong_reward_penalty": True, "actor.overlong_tokens": 4}
    bad = {**penalty, "actor.overlong_penalty_factor": -1.0}
    fix = {**penalty, "actor.overlong_penalty_factor": 1.0}
    assert flagged("overlong-sign", bad)
    assert not flagged("overlong-sign", fix)
    assert run({**QUICK, **bad}).truncated > 0.9
    assert run({**QUICK, **fix}).truncated < 0.1


def test_log_probs_at_another_temperature_differ_before_the_first_update() -> None:
    bad, fix = {"gconfig.temperature": 1.5}, {"gconfig.temperature": 1.5, "actor.temperature": 1.5}
    assert run({**QUICK, **bad}).steps[0].logprob_gap > 0.1
    assert run({**QUICK, **fix}).steps[0].logprob_gap < 1e-4


def test_stale_samples_without_a_clip_carry_the_policy_far_away() -> None:
    assert run({**STALE, "actor.eps_clip": NO_CLIP}).ratio_max > 100
    assert run({**STALE, "actor.eps_clip": NO_CLIP}).kl > 5 * run(STALE).kl


def test_k1_in_the_loss_holds_nothing_where_k3_does() -> None:
    bad = {"extensions.kl_loss_coef": 1.0, "extensions.kl_loss_estimator": "k1"}
    fix = {"extensions.kl_loss_coef": 1.0, "extensions.kl_loss_estimator": "k3"}
    assert flagged("k1-in-loss", bad)
    assert not flagged("k1-in-loss", fix)
    assert run({**QUICK, **bad}).kl > 3 * run({**QUICK, **fix}).kl


def test_without_a_reference_kl_pays_for_unlikely_tokens() -> None:
    without = {"actor.kl_ctl": 0.1, "ref": None, "areal_compat": True}
    assert run(without).truncated > 0.5
    assert run({"actor.kl_ctl": 0.1}).truncated < 0.2


REFUTED = [
    pytest.param("small-reward-scale", {"actor.reward_scaling": 1e-3}, id="small-scale"),
    pytest.param("biased-std", {**GROUPS, "actor.reward_norm.std_unbiased": False}, id="biased"),
    pytest.param(
        "sequence-level-without-std",
        {
            **GROUPS,
            "actor.reward_norm.std_level": None,
            "actor.importance_sampling_level": "sequence",
            "actor.ppo_n_minibatches": 8,
        },
        id="sequence-level-without-std",
    ),
    pytest.param(
        "high-temperature", {"gconfig.temperature": 1.5, "actor.temperature": 1.5}, id="hot"
    ),
    pytest.param(
        "kl-estimator-in-reward", {"actor.kl_ctl": 10.0, "actor.kl_estimator": "k3"}, id="k3"
    ),
]


@pytest.mark.parametrize(("rule", "changes"), REFUTED)
def test_what_is_blamed_learns_all_the_same(rule: str, changes: Flat) -> None:
    assert flagged(rule, changes)
    assert LINT_RULES[rule].severity == "worth-knowing"
    assert run({**QUICK, **changes}).passed > 0.8


FEW: Flat = {"total_train_steps": 4, "evaluation.prompts": 8, "evaluation.interim_prompts": 8}
ONE_UPDATE: Flat = {**FEW, "actor.ppo_n_minibatches": 1}
INERT = [
    pytest.param("clip-inert", ONE_UPDATE, {"actor.eps_clip": 0.01}, id="clip-range"),
    pytest.param("ratio-setting-inert", ONE_UPDATE, {"actor.c_clip": 3.0}, id="c_clip"),
    pytest.param(
        "ratio-setting-inert", ONE_UPDATE, {"actor.eps_clip_higher": 0.28}, id="clip-higher"
    ),
    pytest.param(
        "ratio-setting-inert",
        {**ONE_UPDATE, "actor.adv_norm": None, "actor.reward_norm.mean_level": "group"},
        {"actor.importance_sampling_level": "sequence"},
        id="sequence-level",
    ),
    pytest.param(
        "bias-without-effect",
        {**FEW, **GROUPS},
        {"actor.reward_bias": 2.0},
        id="reward-bias",
    ),
    pytest.param(
        "leave-one-out-cancels",
        {**FEW, **GROUPS},
        {"actor.reward_norm.mean_leave1out": True},
        id="leave-one-out-with-std",
    ),
    pytest.param("inert-setting", FEW, {"actor.sapo_tau_pos": 3.0}, id="gates-without-sapo"),
]


@pytest.mark.parametrize(("rule", "base", "setting"), INERT)
def test_a_setting_without_effect_changes_nothing(rule: str, base: Flat, setting: Flat) -> None:
    assert flagged(rule, {**base, **setting})
    with_it, without = run({**base, **setting}).steps, run(base).steps
    for one, other in zip(with_it, without, strict=True):
        assert one.pass_rate == other.pass_rate
        assert math.isclose(one.grad_norm, other.grad_norm, rel_tol=1e-3)
        assert math.isclose(one.update_norm, other.update_norm, rel_tol=1e-3)


def test_a_negative_m2_threshold_trains_on_one_token_and_loses_the_task() -> None:
    decoupled = {"actor.use_decoupled_loss": True, "rollout.max_head_offpolicyness": 2}
    bad = {**decoupled, "actor.m2_threshold": -1.0, "areal_compat": True}
    assert flagged("m2-threshold-negative", bad)
    assert run(bad).passed < 0.45
