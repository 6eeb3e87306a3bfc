import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from grpo_core.config import ActorConfig, ExtensionsConfig
from grpo_core.errors import ConfigError
from grpo_core.pipeline import Experience, PipelineResult, run_pipeline

GROUP_NORM = {"mean_level": "group", "std_level": None}


def experience(**changes: object) -> Experience:
    """Two answers of two tokens behind a prompt of one; position 2 predicts nothing."""
    fields: dict[str, Any] = {
        "rewards": torch.tensor([1.0, 0.0]),
        "loss_mask": torch.tensor([[True, True, False]] * 2),
        "lengths": torch.tensor([3, 3]),
        "truncated": torch.tensor([False, False]),
        "behaviour_logprobs": torch.full((2, 3), -1.0),
        "group_sizes": torch.tensor([2]),
    }
    fields.update(changes)
    return Experience(**fields)


def run(
    rollout: Experience,
    actor: dict[str, object] | None = None,
    extensions: dict[str, object] | None = None,
    *,
    areal_compat: bool = False,
) -> PipelineResult:
    settings = {"kl_ctl": 0.0} | ({} if actor is None else actor)
    return run_pipeline(
        rollout,
        ActorConfig.model_validate(settings),
        extensions=ExtensionsConfig.model_validate({} if extensions is None else extensions),
        areal_compat=areal_compat,
    )


def close(ours: Tensor, expected: object) -> None:
    torch.testing.assert_close(ours, torch.tensor(expected))


def test_every_stage_by_hand() -> None:
    # Reward 1, two tokens of a limit of 3 with a tail of 2: excess 1 of 2, penalty 1/2.
    # (1/2 - 1/4) * 8 = 2 and (-1/2 - 1/4) * 8 = -6; clip at 4; mean -1; advantage +-3.
    result = run(
        experience(),
        {
            "overlong_reward_penalty": True,
            "overlong_tokens": 2,
            "overlong_penalty_factor": 1.0,
            "max_new_tokens": 3,
            "reward_bias": -0.25,
            "reward_scaling": 8.0,
            "reward_clip": 4.0,
            "reward_norm": GROUP_NORM,
        },
    )
    close(result.rewards, [1.0, 0.0])
    close(result.penalized, [0.5, -0.5])
    close(result.scaled, [2.0, -6.0])
    close(result.clipped, [2.0, -4.0])
    close(result.normalized, [3.0, -3.0])
    close(result.outcome, [3.0, -3.0])
    close(result.total_rewards, [[0.0, 3.0, 0.0], [0.0, -3.0, 0.0]])
    close(result.raw_advantages, [[3.0, 3.0, 0.0], [-3.0, -3.0, 0.0]])
    close(result.advantages, [[3.0, 3.0, 0.0], [-3.0, -3.0, 0.0]])
    close(result.returns, [[3.0, 3.0, 0.0], [-3.0, -3.0, 0.0]])


def test_kl_is_a_reward_of_every_later_token() -> None:
    # k1 = -1 - (-3) = 2 per token, times 0.1, from the token on.
    result = run(experience(reference_logprobs=torch.full((2, 3), -3.0)), {"kl_ctl": 0.1})
    close(result.kl_rewards, [[-0.2, -0.2, 0.0]] * 2)
    close(result.advantages, [[0.6, 0.8, 0.0], [-0.4, -0.2, 0.0]])


def test_advantages_are_whitened_over_trained_tokens() -> None:
    result = run(experience(), {"adv_norm": {"std_unbiased": False, "eps": 0.0}})
    close(result.raw_advantages, [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    close(result.advantages, [[1.0, 1.0, 0.0], [-1.0, -1.0, 0.0]])


def test_truncated_answers_lose_their_reward_and_leave_the_statistics() -> None:
    # Rewards 1, 0 and 5 (cut): without the third the mean is 1/2.
    rollout = experience(
        rewards=torch.tensor([1.0, 0.0, 5.0]),
        loss_mask=torch.tensor([[True, True, False]] * 3),
        lengths=torch.tensor([3, 2, 3]),
        truncated=torch.tensor([False, False, True]),
        behaviour_logprobs=torch.full((3, 3), -1.0),
        group_sizes=torch.tensor([3]),
    )
    settings = {"reward_norm": GROUP_NORM, "mask_no_eos_with_zero": True}
    result = run(rollout, settings)
    close(result.outcome, [0.5, -0.5, 0.0])
    assert result.in_statistics.tolist() == [True, True, False]
    # AReaL: everyone counts (mean 2), and what fills the width of 3 is called truncated.
    areal = run(rollout, settings, areal_compat=True)
    close(areal.normalized, [-1.0, -2.0, 3.0])
    close(areal.outcome, [0.0, -2.0, 0.0])


@pytest.mark.parametrize(
    ("answers", "normalized", "trained"),
    [
        pytest.param("keep", [-1.0, 1.0], [True, True], id="keep"),
        pytest.param("mask", [-1.0, 1.0], [True, False], id="mask-keeps-the-baseline"),
        pytest.param("drop", [0.0, 0.0], [True, False], id="drop-leaves-the-baseline"),
    ],
)
def test_truncated_answers_may_be_kept_masked_or_dropped(
    answers: str, normalized: list[float], trained: list[bool]
) -> None:
    rollout = experience(rewards=torch.tensor([0.0, 2.0]), truncated=torch.tensor([False, True]))
    result = run(rollout, {"reward_norm": GROUP_NORM}, {"truncated_answers": answers})
    close(result.normalized, normalized)
    assert result.counted_mask.any(1).tolist() == trained


def test_rows_without_a_trained_token_do_not_move_their_group() -> None:
    rollout = experience(
        rewards=torch.tensor([1.0, 19.0]),
        loss_mask=torch.tensor([[True, True, False], [False, False, False]]),
    )
    close(run(rollout, {"reward_norm": GROUP_NORM}).normalized, [0.0, 0.0])
    areal = run(rollout, {"reward_norm": GROUP_NORM}, areal_compat=True)
    close(areal.normalized, [-9.0, 9.0])


def test_the_reward_of_an_answer_that_ends_untrained_is_not_lost() -> None:
    rollout = experience(loss_mask=torch.tensor([[True, False, False]] * 2))
    close(run(rollout).advantages[:, 0], [1.0, 0.0])
    close(run(rollout, areal_compat=True).advantages[:, 0], [0.0, 0.0])


def test_a_missing_reference_is_an_error_except_in_areal() -> None:
    with pytest.raises(ConfigError, match=r"kl_ctl=0.1 needs log-probs of a reference policy"):
        run(experience(), {"kl_ctl": 0.1})
    # k1 against log-prob 0 is the log-prob -1: a bonus of 0.1 per token.
    areal = run(experience(), {"kl_ctl": 0.1}, areal_compat=True)
    close(areal.kl_rewards, [[0.1, 0.1, 0.0]] * 2)


def test_all_missing_inputs_are_named_at_once() -> None:
    settings = {"kl_ctl": 0.1, "use_decoupled_loss": True, "gae_timestep_unit": "turn"}
    with pytest.raises(ConfigError) as error:
        run(experience(), settings)
    assert len(error.value.problems) == 3


def test_decoupling_keeps_both_policies_apart() -> None:
    rollout = experience(proximal_logprobs=torch.full((2, 3), -2.0))
    apart = run(rollout, {"use_decoupled_loss": True})
    close(apart.old_logprobs, [[-1.0, -1.0, 0.0]] * 2)
    close(apart.proximal_logprobs, [[-2.0] * 3] * 2)  # type: ignore[arg-type]
    replaced = run(rollout, {"recompute_logprob": True})
    close(replaced.old_logprobs, [[-2.0, -2.0, 0.0]] * 2)
    assert replaced.proximal_logprobs is replaced.old_logprobs
    plain = run(rollout)
    close(plain.old_logprobs, [[-1.0, -1.0, 0.0]] * 2)


def test_m2_shrinks_the_mask_but_not_what_is_counted() -> None:
    rollout = experience(proximal_logprobs=torch.tensor([[-1.0, -3.0, 0.0], [-1.0, -1.0, 0.0]]))
    result = run(rollout, {"use_decoupled_loss": True, "m2_threshold": 0.5})
    assert result.loss_mask.tolist() == [[True, False, False], [True, True, False]]
    assert result.counted_mask.sum().item() == 4


def test_a_critic_turns_returns_into_advantages() -> None:
    # lambda 0: A = r + V_next - V. Row 0: 1/2 - 1/4, then 1 - 1/2; row 1 is cut: its last
    # token is followed by value 2.
    rollout = experience(
        values=torch.tensor([[0.25, 0.5, 9.0], [0.25, 0.5, 2.0]]),
        truncated=torch.tensor([False, True]),
    )
    result = run(rollout, {"gae_lambda": 0.0})
    close(result.advantages, [[0.25, 0.5, 0.0], [0.25, 1.5, 0.0]])
    close(result.returns, [[0.5, 1.0, 0.0], [0.5, 2.0, 0.0]])


def test_turns_take_the_outcome_and_leave_kl_to_tokens() -> None:
    rollout = experience(
        reference_logprobs=torch.tensor([[-3.0, -2.0, 0.0]] * 2),
        turn_ids=torch.tensor([[0, 1, -1]] * 2),
    )
    result = run(rollout, {"kl_ctl": 0.1, "gae_timestep_unit": "turn", "discount": 0.5})
    close(result.advantages, [[0.5 - 0.2, 1 - 0.1, 0.0], [-0.2, -0.1, 0.0]])


def test_a_lambda_rule_uses_each_answers_length() -> None:
    # alpha 1: 1 - 1/2 for two tokens, 0 for one. A_0 = lambda * A_1.
    rollout = experience(
        rewards=torch.tensor([1.0, 1.0]),
        loss_mask=torch.tensor([[True, True, False], [True, False, False]]),
    )
    result = run(
        rollout,
        {
            "gae_lambda": "areal.trainer.ppo.lambda_fn.vapo_length_adaptive_gae",
            "gae_lambda_kwargs": {"alpha": 1.0},
        },
    )
    close(result.gae_lambda, [0.5, 0.0])
    close(result.advantages, [[0.5, 1.0, 0.0], [1.0, 0.0, 0.0]])


def test_several_rewards_are_weighted() -> None:
    rollout = experience(reward_components=torch.tensor([[1.0, 2.0], [torch.nan, torch.nan]]))
    result = run(rollout, {"reward_norm": GROUP_NORM}, {"reward_weights": [1.0, 0.5]})
    torch.testing.assert_close(result.rewards, torch.tensor([2.0, torch.nan]), equal_nan=True)
    close(result.normalized, [0.0, 0.0])
    assert run(rollout).rewards[0].item() == 3.0


def test_several_rewards_may_be_normalized_before_they_are_added() -> None:
    rollout = experience(reward_components=torch.tensor([[1.0, 0.0], [0.0, 100.0]]))
    result = run(rollout, {}, {"multi_objective_aggregation": "normalize_then_sum"})
    close(result.rewards, [0.0, 0.0])


def test_reward_weights_must_match_the_components() -> None:
    rollout = experience(reward_components=torch.ones(2, 2))
    with pytest.raises(ConfigError, match="must have 2 entries, one per reward component, got 3"):
        run(rollout, {}, {"reward_weights": [1.0, 1.0, 1.0]})


def test_versions_are_aligned_except_in_areal() -> None:
    rollout = experience(versions=torch.tensor([[1, 2, 3]] * 2))
    assert run(rollout).loss_inputs().versions[0].tolist() == [1, 2, 3]  # type: ignore[index]
    areal = run(rollout, areal_compat=True)
    assert areal.loss_inputs().versions[0].tolist() == [3, 1, 2]  # type: ignore[index]


def test_rows_take_every_tensor_along() -> None:
    index = torch.tensor([1])
    rollout = experience()
    assert rollout.rows(index).group_sizes is None
    result = run(rollout).rows(index)
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        if isinstance(value, Tensor):
            assert len(value) == 1, field.name
    assert len(result.loss_inputs().rows(torch.tensor([0, 0])).advantages) == 2
