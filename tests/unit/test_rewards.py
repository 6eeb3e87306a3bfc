import pytest
import torch

from grpo_core.config import DynamicSamplingConfig
from grpo_core.rewards import (
    accept_groups,
    clip_rewards,
    combine_components,
    kl_rewards,
    normalize_components,
    outcome_positions,
    overlong_penalty,
    padded_width_truncation,
    place_outcome,
    scale_rewards,
)


# Limit 10, tail 4: the line starts at 6; 8 tokens are half way, 12 tokens are 2 beyond the end.
@pytest.mark.parametrize(
    ("length", "areal_compat", "expected"),
    [
        pytest.param(6, False, 1.0, id="at-the-start"),
        pytest.param(8, False, 0.0, id="half-way"),
        pytest.param(10, False, -1.0, id="at-the-limit"),
        pytest.param(12, False, -1.0, id="beyond-the-limit"),
        pytest.param(12, True, -2.0, id="areal-goes-on"),
    ],
)
def test_overlong_penalty_by_hand(*, length: int, areal_compat: bool, expected: float) -> None:
    penalized = overlong_penalty(
        torch.tensor([1.0]),
        torch.tensor([length]),
        overlong_tokens=4,
        factor=2.0,
        max_new_tokens=10,
        areal_compat=areal_compat,
    )
    torch.testing.assert_close(penalized, torch.tensor([expected]))


def test_an_empty_tail_is_refused() -> None:
    with pytest.raises(ValueError, match="overlong_tokens must be at least 1, got 0"):
        overlong_penalty(
            torch.tensor([1.0]),
            torch.tensor([3]),
            overlong_tokens=0,
            factor=1.0,
            max_new_tokens=10,
        )


def test_bias_comes_before_scaling_and_clip_after() -> None:
    scaled = scale_rewards(torch.tensor([0.0, 1.0]), bias=-0.5, scaling=10.0)
    torch.testing.assert_close(scaled, torch.tensor([-5.0, 5.0]))
    torch.testing.assert_close(clip_rewards(scaled, 3.0), torch.tensor([-3.0, 3.0]))


def test_padded_width_flags_the_longest_row() -> None:
    assert padded_width_truncation(torch.tensor([4, 3]), 4).tolist() == [True, False]


def test_outcome_goes_to_the_last_trained_position() -> None:
    # Row 0 ends with its answer; row 1 ends with two untrained tokens; row 2 trains on nothing.
    mask = torch.tensor([[False, True, True, False], [True, False, False, False], [False] * 4])
    lengths = torch.tensor([4, 4, 1])
    assert outcome_positions(lengths, mask).tolist() == [2, 0, 0]
    assert outcome_positions(lengths, mask, areal_compat=True).tolist() == [2, 2, 0]


def test_place_outcome_leaves_the_rest_zero() -> None:
    table = place_outcome(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]), 3)
    torch.testing.assert_close(table, torch.tensor([[0.0, 2.0, 0.0], [-1.0, 0.0, 0.0]]))


def test_kl_reward_is_minus_the_weighted_estimate_inside_the_mask() -> None:
    rewards = kl_rewards(
        torch.tensor([[-1.0, -1.0]]),
        torch.tensor([[-3.0, -3.0]]),
        torch.tensor([[True, False]]),
        kl_ctl=0.1,
        estimator="k1",
    )
    torch.testing.assert_close(rewards, torch.tensor([[-0.2, 0.0]]))


def test_components_that_were_not_scored_are_skipped() -> None:
    components = torch.tensor([[1.0, 2.0], [torch.nan, 2.0], [torch.nan, torch.nan]])
    combined = combine_components(components, torch.tensor([1.0, 0.5]))
    torch.testing.assert_close(combined, torch.tensor([2.0, 1.0, torch.nan]), equal_nan=True)


def test_components_are_normalized_one_by_one() -> None:
    # Both columns differ by one spread of sqrt(2) / 2 or 10 times that: the same after scaling.
    components = torch.tensor([[1.0, 0.0], [0.0, 10.0], [torch.nan, 5.0]])
    normalized = normalize_components(components, eps=0.0, group_sizes=torch.tensor([2, 1]))
    half = 0.5**0.5
    expected = torch.tensor([[half, -half], [-half, half], [torch.nan, 0.0]])
    torch.testing.assert_close(normalized, expected, equal_nan=True)


# Groups: all right, mixed, all wrong, empty.
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param({}, [False, True, False, False], id="dapo"),
        pytest.param(
            {"above": None, "below": None, "at_most": 0.95},
            [False, True, True, False],
            id="keeps-all-wrong",
        ),
        pytest.param(
            {"above": None, "below": None, "contrast": True},
            [False, True, False, False],
            id="contrast",
        ),
        pytest.param({"above": 0.5, "below": None}, [True, False, False, False], id="above-half"),
    ],
)
def test_dynamic_sampling_by_hand(rule: dict[str, float], expected: list[bool]) -> None:
    accepted = accept_groups(
        torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
        torch.tensor([2, 2, 2, 0]),
        DynamicSamplingConfig.model_validate(rule),
    )
    assert accepted.tolist() == expected
