"""TRL's and verl's settings in AReaL's terms, row by row."""

from typing import Any

import pytest

from sweeps.keys import KEYS
from sweeps.lint.dialects.base import Source, Translation
from sweeps.lint.dialects.trl import TRL_FIELDS, TRL_OTHER, read_trl
from sweeps.lint.dialects.verl import VERL_FIELDS, read_verl
from sweeps.lint.rules import LINT_RULES
from sweeps.lint.subject import Subject

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def trl(fields: dict[str, Any]) -> Subject:
    return read_trl(Source(fields, {}))


def verl(fields: dict[str, Any]) -> Subject:
    return read_verl(Source(fields, {}))


@pytest.mark.parametrize(
    ("fields", "key", "expected"),
    [
        pytest.param({}, "extensions.kl_loss_coef", 0.0, id="beta-default"),
        pytest.param({"beta": 0.04}, "extensions.kl_loss_coef", 0.04, id="beta-is-in-the-loss"),
        pytest.param({"beta": 0.04}, "actor.kl_ctl", 0.0, id="beta-is-not-kl_ctl"),
        pytest.param({"epsilon": 0.1}, "actor.eps_clip", 0.1, id="epsilon"),
        pytest.param({"epsilon_high": 0.28}, "actor.eps_clip_higher", 0.28, id="epsilon_high"),
        pytest.param(
            {"loss_type": "cispo", "epsilon_high": 5.0},
            "actor.eps_clip_higher",
            4.0,
            id="cispo-caps-at-epsilon_high-itself",
        ),
        pytest.param({"loss_type": "cispo"}, "actor.eps_clip_higher", -0.8, id="cispo-trap"),
        pytest.param({"loss_type": "cispo"}, "actor.eps_clip", 1.0, id="cispo-has-no-lower-bound"),
        pytest.param({"loss_type": "sapo"}, "actor.use_sapo_loss", True, id="sapo"),
        pytest.param({}, "extensions.loss_aggregation", "token-mean", id="dapo-is-the-default"),
        pytest.param(
            {"loss_type": "grpo"}, "extensions.loss_aggregation", "sequence-mean", id="grpo"
        ),
        pytest.param(
            {"loss_type": "dr_grpo"}, "extensions.loss_aggregation", "constant", id="dr_grpo"
        ),
        pytest.param({}, "actor.reward_norm.std_level", "group", id="scale-default"),
        pytest.param({"scale_rewards": True}, "actor.reward_norm.std_level", "group", id="true"),
        pytest.param(
            {"scale_rewards": "batch"}, "actor.reward_norm.std_level", "batch", id="batch"
        ),
        pytest.param({"scale_rewards": False}, "actor.reward_norm.std_level", None, id="false"),
        pytest.param({"scale_rewards": "none"}, "actor.reward_norm.mean_level", "group", id="none"),
        pytest.param({}, "actor.reward_norm.eps", 1e-4, id="eps"),
        pytest.param({}, "actor.adv_norm", None, id="no-second-normalization"),
        pytest.param({}, "actor.ppo_n_minibatches", 1, id="one-update-by-default"),
        pytest.param({"num_iterations": 4}, "actor.ppo_n_minibatches", 4, id="iterations"),
        # 8 micro-steps per generation, an optimizer step every 2, twice over: 8 / 2 * 2
        pytest.param(
            {"steps_per_generation": 8, "gradient_accumulation_steps": 2, "num_iterations": 2},
            "actor.ppo_n_minibatches",
            8,
            id="updates-per-batch",
        ),
        pytest.param({}, "gconfig.n_samples", 8, id="num_generations-default"),
        pytest.param({"num_generations": 4}, "gconfig.n_samples", 4, id="num_generations"),
        pytest.param({}, "gconfig.max_new_tokens", 512, id="length-default"),
        pytest.param({}, "actor.optimizer.lr", 1e-6, id="lr-default"),
        pytest.param({"temperature": 0.7}, "actor.temperature", 0.7, id="one-temperature"),
        pytest.param({"delta": 4.0}, "extensions.ratio_cap", 4.0, id="delta"),
        pytest.param(
            {"mask_truncated_completions": True}, "extensions.truncated_answers", "mask", id="mask"
        ),
        pytest.param({}, "extensions.sampler_correction", None, id="no-vllm-no-correction"),
        pytest.param(
            {"use_vllm": True}, "extensions.sampler_correction.level", "sequence", id="vllm"
        ),
        pytest.param(
            {"use_vllm": True, "vllm_importance_sampling_mode": "token_truncate"},
            "extensions.sampler_correction.action",
            "truncate",
            id="vllm-token_truncate",
        ),
        pytest.param({"optim": "sgd"}, "actor.optimizer.type", "sgd", id="sgd"),
        pytest.param(
            {"warmup_ratio": 0.1}, "actor.optimizer.warmup_steps_proportion", 0.1, id="warmup"
        ),
        # 20 of 100 steps
        pytest.param(
            {"warmup_steps": 20, "max_steps": 100},
            "actor.optimizer.warmup_steps_proportion",
            0.2,
            id="warmup-steps",
        ),
    ],
)
def test_trl_in_areals_terms(fields: dict[str, Any], key: str, expected: object) -> None:
    assert trl(fields).value(key) == expected


@pytest.mark.parametrize(
    ("fields", "key", "expected"),
    [
        pytest.param({}, "critic.eps_clip", 0.5, id="gae-is-the-default"),
        pytest.param(
            {"algorithm.adv_estimator": "grpo"}, "actor.reward_norm.std_level", "group", id="grpo"
        ),
        pytest.param(
            {"algorithm.adv_estimator": "grpo", "algorithm.norm_adv_by_std_in_grpo": False},
            "actor.reward_norm.std_level",
            None,
            id="dr-grpo",
        ),
        pytest.param({"algorithm.adv_estimator": "grpo"}, "critic", None, id="grpo-has-no-critic"),
        pytest.param(
            {"algorithm.adv_estimator": "rloo"}, "actor.reward_norm.mean_leave1out", True, id="rloo"
        ),
        # 1024 / 256 * 1
        pytest.param({}, "actor.ppo_n_minibatches", 4, id="updates-default"),
        # 512 / 128 * 2
        pytest.param(
            {
                "data.train_batch_size": 512,
                f"{ACTOR}.ppo_mini_batch_size": 128,
                f"{ACTOR}.ppo_epochs": 2,
            },
            "actor.ppo_n_minibatches",
            8,
            id="updates",
        ),
        pytest.param(
            {f"{ACTOR}.clip_ratio": 0.3}, "actor.eps_clip", 0.2, id="clip_ratio-is-not-read"
        ),
        pytest.param({f"{ACTOR}.clip_ratio_low": 0.3}, "actor.eps_clip", 0.3, id="clip_ratio_low"),
        pytest.param(
            {f"{ACTOR}.clip_ratio_high": 0.28}, "actor.eps_clip_higher", 0.28, id="clip_ratio_high"
        ),
        pytest.param({}, "actor.c_clip", 3.0, id="dual-clip-default"),
        pytest.param({}, "actor.kl_ctl", 0.0, id="kl-reward-off"),
        pytest.param(
            {"algorithm.use_kl_in_reward": True}, "actor.kl_ctl", 0.001, id="kl-reward-on"
        ),
        pytest.param(
            {f"{ACTOR}.kl_loss_coef": 0.01}, "extensions.kl_loss_coef", 0.0, id="kl-loss-off"
        ),
        pytest.param(
            {f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_coef": 0.01},
            "extensions.kl_loss_coef",
            0.01,
            id="kl-loss-on",
        ),
        pytest.param(
            {f"{ACTOR}.use_kl_loss": True}, "extensions.kl_loss_estimator", "k3", id="low_var_kl"
        ),
        pytest.param(
            {f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean"},
            "extensions.loss_aggregation",
            "sequence-mean",
            id="aggregation",
        ),
        pytest.param(
            {f"{ACTOR}.policy_loss.loss_mode": "gspo"},
            "actor.importance_sampling_level",
            "sequence",
            id="gspo",
        ),
        pytest.param({f"{ROLLOUT}.n": 5}, "gconfig.n_samples", 5, id="n"),
        pytest.param({f"{ROLLOUT}.do_sample": False}, "gconfig.greedy", True, id="greedy"),
        pytest.param(
            {"data.max_response_length": 2048}, "gconfig.max_new_tokens", 2048, id="length"
        ),
        pytest.param({f"{ACTOR}.optim.lr": 5e-6}, "actor.optimizer.lr", 5e-6, id="lr"),
        pytest.param(
            {
                "reward_model.overlong_buffer.enable": True,
                "reward_model.overlong_buffer.len": 128,
                "reward_model.overlong_buffer.penalty_factor": 1.0,
            },
            "actor.overlong_tokens",
            128,
            id="overlong",
        ),
        pytest.param(
            {"algorithm.filter_groups.enable": True},
            "extensions.dynamic_sampling.contrast",
            True,
            id="filter-groups",
        ),
    ],
)
def test_verl_in_areals_terms(fields: dict[str, Any], key: str, expected: object) -> None:
    assert verl(fields).value(key) == expected


@pytest.mark.parametrize("table", [TRL_FIELDS, VERL_FIELDS], ids=["trl", "verl"])
def test_a_table_translates_its_own_defaults_into_keys_that_exist(
    table: tuple[Translation, ...],
) -> None:
    for row in table:
        assert len(row.names) == len(row.defaults)
        assert {key for key in row.convert(*row.defaults) if key not in KEYS} == set()
        assert set(row.labels.values()) <= set(row.names)
        assert set(row.labels) <= KEYS.keys()


def test_a_trl_field_is_either_translated_or_known_to_be_without_meaning_here() -> None:
    translated = {name for row in TRL_FIELDS for name in row.names}
    assert translated & TRL_OTHER == set()


def test_a_value_is_shown_as_the_file_writes_it() -> None:
    subject = verl({f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_type": "kl"})
    shown = subject.show("extensions.kl_loss_estimator")
    assert shown == f"{ACTOR}.kl_loss_type=kl (for AReaL extensions.kl_loss_estimator=k1)"


def test_a_default_is_shown_as_the_trainers() -> None:
    assert trl({}).show("gconfig.n_samples") == "num_generations=8 (TRL's default)"


@pytest.mark.parametrize(
    ("subject", "key"),
    [
        pytest.param(trl({"loss_type": "brand_new"}), "loss_type", id="trl-loss"),
        pytest.param(
            verl({"algorithm.adv_estimator": "brand_new"}), "algorithm.adv_estimator", id="verl"
        ),
    ],
)
def test_a_choice_without_a_counterpart_is_listed_and_nothing_is_concluded(
    subject: Subject, key: str
) -> None:
    assert subject.unmapped == (key,)
    assert subject.invalid == ()
    decided = {
        "loss_type": "extensions.loss_aggregation",
        "algorithm.adv_estimator": "actor.reward_norm.mean_level",
    }
    assert not subject.knows(decided[key])


def test_a_value_of_the_wrong_kind_is_a_finding_of_its_own() -> None:
    [hit] = LINT_RULES["invalid-value"].check(trl({"num_iterations": "often"}))
    assert hit.message == "num_iterations: got 'often', wanted a whole number >= 1"
