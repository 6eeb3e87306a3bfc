from typing import get_args

import pytest
import torch
from torch import Tensor

from grpo_core.advantages import (
    Steps,
    bootstrap_values,
    gae_tokens,
    gae_turns,
    lambda_per_row,
    turn_counts,
)
from grpo_core.config import LAMBDA_ARGUMENTS, LambdaArguments, LambdaRule
from grpo_core.errors import ConfigError

PREFIX = "areal.trainer.ppo.lambda_fn."


def mask(*flags: int) -> Tensor:
    return torch.tensor([flags]).bool()


def test_gae_by_hand() -> None:
    # Rewards 0, 1; values 1/2, 1/4; discount 1/2, lambda 1/2.
    # Last: 1 - 1/4 = 3/4. First: 0 + 1/2 * 1/4 - 1/2 + 1/4 * 3/4 = -3/16.
    steps = Steps(torch.tensor([[0.0, 1.0]]), mask(1, 1), torch.tensor([[0.5, 0.25]]))
    result = gae_tokens(steps, discount=0.5, gae_lambda=0.5)
    torch.testing.assert_close(result.advantages, torch.tensor([[-3 / 16, 3 / 4]]))
    torch.testing.assert_close(result.returns, torch.tensor([[5 / 16, 1.0]]))


def test_lambda_may_differ_per_row() -> None:
    # Without values A_0 = lambda * A_1.
    steps = Steps(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), mask(1, 1).expand(2, 2))
    result = gae_tokens(steps, discount=1.0, gae_lambda=torch.tensor([0.0, 0.5]))
    torch.testing.assert_close(result.advantages, torch.tensor([[0.0, 1.0], [0.5, 1.0]]))


def test_masked_positions_are_skipped() -> None:
    # The middle position neither pays its 100 nor costs a discount, and carries what follows.
    steps = Steps(torch.tensor([[0.0, 100.0, 1.0]]), mask(1, 0, 1))
    result = gae_tokens(steps, discount=0.5, gae_lambda=1.0)
    torch.testing.assert_close(result.advantages, torch.tensor([[0.5, 1.0, 1.0]]))


def test_without_values_and_decay_every_position_gets_the_rest() -> None:
    steps = Steps(torch.tensor([[-0.1, 7.0, -0.2, 1.0]]), mask(1, 0, 1, 1))
    result = gae_tokens(steps, discount=1.0, gae_lambda=1.0)
    torch.testing.assert_close(result.advantages, torch.tensor([[0.7, 0.8, 0.8, 1.0]]))


def test_a_bootstrap_value_counts_as_the_next_value() -> None:
    # 0 + 1/2 * 4 - 1 = 1
    steps = Steps(torch.tensor([[0.0]]), mask(1), torch.tensor([[1.0]]), torch.tensor([4.0]))
    result = gae_tokens(steps, discount=0.5, gae_lambda=1.0)
    torch.testing.assert_close(result.advantages, torch.tensor([[1.0]]))


def test_turns_are_the_time_steps() -> None:
    # Turn 0: rewards 1 + 1, value 3; turn 1: reward 4, value 5. discount 1/2, lambda 1.
    # Turn 1: 4 - 5 = -1. Turn 0: 2 + 1/2 * 5 - 3 + 1/2 * -1 = 1.
    steps = Steps(
        torch.tensor([[9.0, 1.0, 1.0, 9.0, 4.0]]),
        mask(0, 1, 1, 0, 1),
        torch.tensor([[8.0, 3.0, 8.0, 8.0, 5.0]]),
    )
    turns = torch.tensor([[-1, 0, 0, -1, 1]])
    result = gae_turns(steps, turns, discount=0.5, gae_lambda=1.0)
    torch.testing.assert_close(result.advantages, torch.tensor([[0.0, 1.0, 1.0, 0.0, -1.0]]))
    torch.testing.assert_close(result.returns, torch.tensor([[8.0, 4.0, 4.0, 8.0, 4.0]]))


def test_turns_without_a_trained_position_do_not_count() -> None:
    turns = torch.tensor([[0, 1, 1, 2], [-1, -1, -1, -1]])
    assert turn_counts(torch.tensor([[1, 0, 0, 1], [1, 1, 1, 1]]).bool(), turns).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("rule", "arguments", "expected"),
    [
        pytest.param("constant_gae_lambda", {"value": 0.9}, [0.9, 0.9, 0.9], id="constant"),
        # alpha 1/2: 1 - 2 = -1 becomes 0 at L = 1; 1 - 1/(5/2) = 3/5 at L = 5.
        pytest.param("vapo_length_adaptive_gae", {"alpha": 0.5}, [0.0, 0.0, 0.6], id="vapo"),
        # q 1/16: 1 at L = 1, (1/16)^(1/4) = 1/2 at L = 5.
        pytest.param("relative_position_gae_lambda", {"q": 0.0625}, [0.0, 1.0, 0.5], id="relative"),
    ],
)
def test_lambda_of_lengths_0_1_and_5(
    rule: str, arguments: dict[str, float], expected: list[float]
) -> None:
    lambdas = lambda_per_row(
        PREFIX + rule,  # type: ignore[arg-type]
        LambdaArguments.model_validate(arguments),
        torch.tensor([0, 1, 5]),
    )
    torch.testing.assert_close(lambdas, torch.tensor(expected))


@pytest.mark.parametrize("rule", get_args(LambdaRule))
def test_every_lambda_rule_names_its_missing_argument(rule: LambdaRule) -> None:
    name = LAMBDA_ARGUMENTS[rule.removeprefix(PREFIX)]
    with pytest.raises(ConfigError, match=f"gae_lambda_kwargs.{name} must be set"):
        lambda_per_row(rule, LambdaArguments(), torch.tensor([1]))


def test_only_truncated_rows_bootstrap_from_their_own_end() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    lengths, truncated = torch.tensor([2, 2, 3]), torch.tensor([True, False, True])
    assert bootstrap_values(values, lengths, truncated).tolist() == [2.0, 0.0, 9.0]
    areal = bootstrap_values(values, lengths, truncated, areal_compat=True)
    assert areal.tolist() == [3.0, 0.0, 9.0]
