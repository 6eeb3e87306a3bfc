from typing import Any

import pytest

from grpo_core.config import TrialConfig
from sweeps.causes import explain_stage, reward_range, scaled_range
from sweeps.stages import STAGE_SETTINGS

NORM = {"mean_level": "group", "std_level": "group"}


def config(actor: dict[str, Any] | None = None, **sections: object) -> TrialConfig:
    return TrialConfig.model_validate({"actor": {"kl_ctl": 0.0, **(actor or {})}, **sections})


@pytest.mark.parametrize(
    ("stage", "actor", "sections", "expected"),
    [
        pytest.param(
            "clipped",
            {"reward_clip": 0.5},
            {"task": {"reward_wrong": 5.0, "reward_right": 10.0}},
            "actor.reward_clip=0.5 maps every scaled reward of this task, which lie in [5, 10], "
            "to 0.5",
            id="clip-below-all-rewards",
        ),
        pytest.param(
            "clipped",
            {"reward_clip": 1.0, "reward_bias": -10.0},
            {},
            "actor.reward_clip=1 maps every scaled reward of this task, which lie in [-10, -9], "
            "to -1",
            id="clip-above-all-rewards",
        ),
        pytest.param(
            "clipped",
            {"reward_clip": 0.5},
            {},
            "actor.reward_clip=0.5 cuts scaled rewards (without penalty in [0, 1]) to [-0.5, 0.5]",
            id="clip-that-cuts",
        ),
        pytest.param(
            "scaled",
            {"reward_scaling": 0.0},
            {},
            "actor.reward_scaling=0 makes every reward of this task, which lie in [0, 1], 0",
            id="scaling-0",
        ),
        pytest.param(
            "normalized",
            {"reward_norm": NORM},
            {"gconfig": {"n_samples": 1}},
            "actor.reward_norm.mean_level=group over groups of one (gconfig.n_samples=1) subtracts "
            "every reward from itself",
            id="groups-of-one",
        ),
        pytest.param(
            "penalty",
            {
                "overlong_reward_penalty": True,
                "overlong_penalty_factor": 100.0,
                "overlong_tokens": 18,
                "max_new_tokens": 18,
            },
            {},
            "actor.overlong_penalty_factor=100 takes up to 100 for length, from token 0 on "
            "(actor.max_new_tokens=18, actor.overlong_tokens=18), while right and wrong differ by "
            "1",
            id="penalty",
        ),
        pytest.param(
            "returns",
            {"kl_ctl": 0.1, "reward_scaling": 1e-3},
            {},
            "actor.kl_ctl=0.1 per nat (k1) is paid on every token, while right and wrong differ by "
            "0.001 per answer after scaling",
            id="kl-over-small-rewards",
        ),
        pytest.param(
            "truncation",
            {"mask_no_eos_with_zero": True},
            {"task": {"reward_wrong": -1.0}},
            "actor.mask_no_eos_with_zero=true gives cut answers 0, which is better than a wrong "
            "answer's -1",
            id="mask-with-negative-rewards",
        ),
        pytest.param("advantage", {}, {}, None, id="no-adv-norm"),
        pytest.param("raw", {}, {}, None, id="raw-is-the-task's-own"),
    ],
)
def test_a_stage_is_explained_with_the_users_own_numbers(
    stage: str, actor: dict[str, Any], sections: dict[str, Any], expected: str | None
) -> None:
    assert explain_stage(stage, config(actor, **sections)) == expected


def test_a_negative_scaling_turns_the_range_round() -> None:
    turned = config({"reward_scaling": -2.0, "reward_bias": 1.0})
    assert reward_range(turned) == (0.0, 1.0)
    assert scaled_range(turned) == (-4.0, -2.0)


@pytest.mark.parametrize("stage", STAGE_SETTINGS)
def test_every_stage_can_be_asked(stage: str) -> None:
    assert explain_stage(stage, TrialConfig()) is None or explain_stage(stage, TrialConfig())


@pytest.mark.parametrize("stage", ["penalty", "scaled", "clipped", "truncation", "returns"])
def test_nothing_is_said_of_the_range_of_rewards_that_a_users_function_pays(stage: str) -> None:
    actor = {
        "kl_ctl": 1.0,
        "mask_no_eos_with_zero": True,
        "overlong_reward_penalty": True,
        "overlong_tokens": 4,
        "overlong_penalty_factor": 1.0,
    }
    task = {"name": "jsonl:x.jsonl", "reward_fn": "rewards:mine"}
    assert explain_stage(stage, config(actor)) is not None
    assert explain_stage(stage, config(actor, task=task)) is None
