import subprocess
import sys
from typing import Any

import pytest

from grpo_core.config import TrialConfig
from grpo_core.rules import CONFIG_RULES, areal_accepts, check_rules

RATIO = {"metric": "ratio", "upper": 2.0}
DECOUPLED = {"use_decoupled_loss": True}

# id of the rule -> a trial that breaks it, and where its message starts.
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "group-size": (
        {"actor": {"adv_norm": {"mean_level": "group", "group_size": 0}}},
        "actor.adv_norm.group_size=0",
    ),
    "sapo-decoupled": (
        {"actor": {"use_sapo_loss": True} | DECOUPLED},
        "actor.use_sapo_loss=true with actor.use_decoupled_loss=true",
    ),
    "sapo-temperatures": (
        {"actor": {"use_sapo_loss": True, "sapo_tau_neg": 0.0}},
        "actor.sapo_tau_neg=0.0",
    ),
    "cispo-bound": ({"actor": {"use_cispo_loss": True}}, "actor.eps_clip_higher=null"),
    "cispo-level": (
        {
            "actor": {
                "use_cispo_loss": True,
                "eps_clip_higher": 4.0,
                "importance_sampling_level": "sequence",
            }
        },
        "actor.importance_sampling_level=sequence",
    ),
    "one-loss": (
        {"actor": {"use_cispo_loss": True, "use_sapo_loss": True, "eps_clip_higher": 4.0}},
        "actor.use_sapo_loss=true with actor.use_cispo_loss=true",
    ),
    "filter-bounds": (
        {"actor": DECOUPLED | {"rejection_sampling": RATIO | {"lower": 3.0}}},
        "actor.rejection_sampling.lower=3.0",
    ),
    "filter-ratio": (
        {"actor": DECOUPLED | {"rejection_sampling": {"upper": 1.0}}},
        "actor.rejection_sampling.upper=1.0",
    ),
    "filter-divergence": (
        {"actor": DECOUPLED | {"rejection_sampling": {"metric": "kl_k3", "upper": 0.0}}},
        "actor.rejection_sampling.upper=0.0",
    ),
    "filter-clamp": (
        {"actor": DECOUPLED | {"rejection_sampling": {"metric": "kl_k1", "action": "clamp"}}},
        "actor.rejection_sampling.action=clamp",
    ),
    "filter-binary-kl": (
        {
            "areal_compat": True,
            "actor": DECOUPLED | {"rejection_sampling": {"metric": "binary_kl"}},
        },
        "actor.rejection_sampling.metric=binary_kl",
    ),
    "filter-without-decoupling": (
        {"actor": {"rejection_sampling": RATIO}},
        "actor.rejection_sampling is set",
    ),
    "overlong-lengths": (
        {"actor": {"overlong_reward_penalty": True, "overlong_penalty_factor": 1.0}},
        "actor.overlong_tokens=null",
    ),
    "dual-clip": ({"actor": {"c_clip": 1.0}}, "actor.c_clip=1.0"),
    "m2-threshold": ({"actor": {"m2_threshold": -0.1}}, "actor.m2_threshold=-0.1"),
    "turns": ({"actor": {"gae_timestep_unit": "turn"}}, "actor.gae_timestep_unit=turn"),
    "lambda-argument": (
        {"actor": {"gae_lambda": "areal.trainer.ppo.lambda_fn.vapo_length_adaptive_gae"}},
        "actor.gae_lambda_kwargs.alpha=null",
    ),
    "reference": ({"ref": None}, "actor.kl_ctl=0.1 with ref=null"),
    "reference-in-loss": (
        {"ref": None, "actor": {"kl_ctl": 0.0}, "extensions": {"kl_loss_coef": 0.1}},
        "extensions.kl_loss_coef=0.1",
    ),
    "greedy-group": ({"gconfig": {"greedy": True, "n_samples": 4}}, "gconfig.greedy=true"),
    "token-limits": (
        {"gconfig": {"min_new_tokens": 9, "max_new_tokens": 8}},
        "gconfig.min_new_tokens=9",
    ),
    "dynamic-sampling-bounds": (
        {"extensions": {"dynamic_sampling": {"above": 1.0}}},
        "extensions.dynamic_sampling.above=1.0",
    ),
}


@pytest.mark.parametrize("rule", [rule.id for rule in CONFIG_RULES])
def test_every_rule_names_key_value_reason_and_remedy(rule: str) -> None:
    settings, start = BROKEN[rule]
    (message,) = check_rules(TrialConfig.model_validate(settings))
    assert message.startswith(start)
    assert message.endswith(f"[{rule}]")
    assert ": " in message


def test_rule_names_are_unique() -> None:
    names = [rule.id for rule in CONFIG_RULES]
    assert len(set(names)) == len(names)


def test_the_defaults_break_no_rule() -> None:
    assert check_rules(TrialConfig()) == []


def test_all_violations_are_reported_at_once() -> None:
    config = TrialConfig.model_validate({"ref": None, "actor": {"c_clip": 0.5}})
    assert len(check_rules(config)) == 2


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({"overlong_tokens": 0, "overlong_penalty_factor": 1.0}, "actor.overlong_tokens=0"),
        ({"overlong_tokens": 4}, "actor.overlong_penalty_factor=null"),
    ],
)
def test_overlong_penalty_needs_length_and_height(settings: dict[str, Any], start: str) -> None:
    actor = {"overlong_reward_penalty": True} | settings
    (message,) = check_rules(TrialConfig.model_validate({"actor": actor}))
    assert message.startswith(start)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"actor": {"reward_scaling": 0.0}}, id="no-reward"),
        pytest.param({"actor": {"reward_clip": 0.0}}, id="everything-clipped"),
        pytest.param({"actor": {"eps_clip": 0.0}}, id="no-clip-range"),
        pytest.param(
            {"actor": {"reward_norm": {"mean_level": "group", "std_level": "group"}}},
            id="groups-of-one",
        ),
        pytest.param({"actor": {"temperature": 0.5}}, id="wrong-temperature"),
        pytest.param(
            {"actor": DECOUPLED | {"rejection_sampling": {"metric": "kl_k1", "upper": -0.1}}},
            id="k1-may-be-negative",
        ),
        pytest.param(
            {"actor": DECOUPLED | {"rejection_sampling": {"metric": "binary_kl", "upper": 2.0}}},
            id="kpop",
        ),
    ],
)
def test_settings_that_merely_train_badly_pass(settings: dict[str, Any]) -> None:
    assert check_rules(TrialConfig.model_validate(settings)) == []


def test_areal_compat_takes_what_areal_takes() -> None:
    silent = {"areal_compat": True, "ref": None, "actor": {"m2_threshold": -0.1}}
    assert check_rules(TrialConfig.model_validate(silent)) == []
    fails_later = {"areal_compat": True, "actor": {"c_clip": 0.9}}
    assert len(check_rules(TrialConfig.model_validate(fails_later))) == 1


@pytest.mark.parametrize(
    ("settings", "accepted"),
    [
        pytest.param({"eps_clip": -0.2}, True, id="unchecked-number"),
        pytest.param({"importance_sampling_level": "group"}, True, id="unchecked-name"),
        pytest.param({"c_clip": 0.9}, True, id="fails-in-the-loss"),
        pytest.param({"gae_timestep_unit": "sequence"}, False, id="checked-name"),
        pytest.param({"kl_estimator": "k4", "use_cispo_loss": True}, False, id="both"),
    ],
)
def test_areal_validation_of_the_actor(*, settings: dict[str, Any], accepted: bool) -> None:
    assert areal_accepts("actor", settings) is accepted


def test_rules_load_no_torch() -> None:
    code = "import sys, grpo_core.rules, grpo_core.differences; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603
