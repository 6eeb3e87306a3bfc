import math

import pytest
import torch
from torch import Tensor

from grpo_core.config import NormConfig
from grpo_core.normalization import assign_groups, normalize, whiten


def norm(mean: str | None, std: str | None, **settings: object) -> NormConfig:
    return NormConfig.model_validate({"mean_level": mean, "std_level": std, "eps": 0.0} | settings)


def sizes(*rows: int) -> Tensor:
    return torch.tensor(rows)


# Rewards 1, 0, 0, 1 in one group: mean 1/2, squared deviations 1/4 each.
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(norm("group", "group"), 0.5 / math.sqrt(1 / 3), id="grpo-unbiased"),
        pytest.param(norm("group", "group", std_unbiased=False), 1.0, id="grpo-biased"),
        pytest.param(norm("group", None), 0.5, id="dr-grpo"),
        pytest.param(norm("group", None, mean_leave1out=True), 2 / 3, id="rloo"),
        pytest.param(norm("group", "group", std_unbiased=False, eps=0.5), 0.5, id="eps"),
    ],
)
def test_a_group_of_four_by_hand(settings: NormConfig, expected: float) -> None:
    normalized = normalize(torch.tensor([1.0, 0.0, 0.0, 1.0]), settings, group_sizes=sizes(4))
    torch.testing.assert_close(normalized, expected * torch.tensor([1.0, -1.0, -1.0, 1.0]))


def test_spread_is_taken_around_the_mean_that_was_subtracted() -> None:
    # Groups (1, 0) and (3, 3): deviations 1/2, -1/2, 0, 0; spread sqrt(1/2 / 3) = 0.40825.
    rewards = torch.tensor([1.0, 0.0, 3.0, 3.0])
    normalized = normalize(rewards, norm("group", "batch"), group_sizes=sizes(2, 2))
    torch.testing.assert_close(normalized, torch.tensor([1.224745, -1.224745, 0.0, 0.0]))


def test_spread_around_its_own_mean_sees_the_raw_rewards() -> None:
    # Batch mean 7/4: squares 9/16 + 49/16 + 25/16 + 25/16 = 27/4, / 3 = 9/4, spread 3/2.
    rewards = torch.tensor([1.0, 0.0, 3.0, 3.0])
    normalized = normalize(
        rewards, norm("group", "batch"), group_sizes=sizes(2, 2), std_about="own-mean"
    )
    torch.testing.assert_close(normalized, torch.tensor([1 / 3, -1 / 3, 0.0, 0.0]))


def test_without_a_mean_the_spread_is_the_root_mean_square() -> None:
    # sqrt((9 + 16) / 2) = 3.5355
    normalized = normalize(torch.tensor([3.0, 4.0]), norm(None, "batch", std_unbiased=False))
    torch.testing.assert_close(normalized, torch.tensor([0.848528, 1.131371]))


@pytest.mark.parametrize(
    ("areal_compat", "expected"),
    [
        pytest.param(False, [[1.0, 1.0, 1.0], [-1.0, 0.0, 0.0]], id="leaves-out-the-answer"),
        pytest.param(True, [[1 / 3] * 3, [-1.0, 0.0, 0.0]], id="areal-leaves-out-a-token"),
    ],
)
def test_leave_one_out_over_tokens(*, areal_compat: bool, expected: list[list[float]]) -> None:
    # Three tokens of 1 against one token of 0. Without its answer a token of 1 sees mean 0; without
    # itself it sees (1 + 1 + 0) / 3.
    values = torch.tensor([[1.0, 1.0, 1.0], [0.0, 9.0, 9.0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    normalized = normalize(
        values,
        norm("group", None, mean_leave1out=True),
        mask=mask,
        group_sizes=sizes(2),
        areal_compat=areal_compat,
    )
    torch.testing.assert_close(normalized, torch.tensor(expected))


@pytest.mark.parametrize(
    ("areal_compat", "last"),
    [
        pytest.param(False, 0.0, id="own-group"),
        pytest.param(True, 500_000.0, id="areal-x-over-eps"),
    ],
)
def test_rows_beyond_the_last_whole_block(*, areal_compat: bool, last: float) -> None:
    normalized = normalize(
        torch.tensor([1.0, 0.0, 5.0]),
        norm("group", "group", group_size=2, eps=1e-5),
        areal_compat=areal_compat,
    )
    torch.testing.assert_close(normalized[2], torch.tensor(last))


@pytest.mark.parametrize(
    ("areal_compat", "expected"),
    [pytest.param(False, 1 / math.sqrt(2), id="tokens"), pytest.param(True, 1.0, id="areal-one")],
)
def test_spread_of_a_group_of_one_answer(*, areal_compat: bool, expected: float) -> None:
    # Tokens 1 and 3: mean 2, unbiased spread sqrt(2).
    normalized = normalize(
        torch.tensor([[1.0, 3.0]]),
        norm("group", "group"),
        group_sizes=sizes(1),
        areal_compat=areal_compat,
    )
    torch.testing.assert_close(normalized, torch.tensor([[-expected, expected]]))


@pytest.mark.parametrize(
    ("level", "areal_compat", "expected"),
    [
        pytest.param("batch", False, 0.0, id="batch"),
        pytest.param("group", False, 0.0, id="group"),
        pytest.param("batch", True, 5.0, id="areal-batch-keeps-it"),
        pytest.param("group", True, 0.0, id="areal-group"),
    ],
)
def test_a_lone_element_is_its_own_baseline(
    *, level: str, areal_compat: bool, expected: float
) -> None:
    normalized = normalize(
        torch.tensor([5.0]), norm(level, None, mean_leave1out=True), areal_compat=areal_compat
    )
    torch.testing.assert_close(normalized, torch.tensor([expected]))


def test_inactive_rows_neither_count_nor_survive() -> None:
    rewards = torch.tensor([1.0, 3.0, torch.nan])
    mask = torch.tensor([True, True, False])
    normalized = normalize(rewards, norm("group", None), mask=mask, group_sizes=sizes(3))
    torch.testing.assert_close(normalized, torch.tensor([-1.0, 1.0, 0.0]))


@pytest.mark.parametrize(
    ("areal_compat", "expected"),
    [pytest.param(False, 0.0, id="zero"), pytest.param(True, 7.0, id="areal-unchanged")],
)
def test_nothing_active(*, areal_compat: bool, expected: float) -> None:
    normalized = normalize(
        torch.tensor([[7.0]]),
        norm("batch", "batch"),
        mask=torch.tensor([[False]]),
        areal_compat=areal_compat,
    )
    torch.testing.assert_close(normalized, torch.tensor([[expected]]))


def test_group_means_keep_their_precision() -> None:
    # 16777217 is not a float32: the mean of 16777216 and 16777218 would round to 16777216.
    rewards = torch.tensor([16777216.0, 16777218.0])
    normalized = normalize(rewards, norm("group", None), group_sizes=sizes(2))
    torch.testing.assert_close(normalized, torch.tensor([-1.0, 1.0]))
    rounded = normalize(rewards, norm("group", None), group_sizes=sizes(2), areal_compat=True)
    torch.testing.assert_close(rounded, torch.tensor([0.0, 2.0]))


def test_group_sizes_must_add_up() -> None:
    with pytest.raises(ValueError, match=r"add up to 3 rows, got \[2, 2\]"):
        assign_groups(3, 1, sizes(2, 2))


def test_group_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        assign_groups(3, 0)


def test_whitening_counts_masked_entries_as_zero() -> None:
    # Active 1 and 3: mean 2, E[x^2] = 5, spread 1; the masked entry becomes (0 - 2) / 1.
    whitened = whiten(
        torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[1.0, 1.0, 0.0]]), dims=(1,), eps=0.0
    )
    torch.testing.assert_close(whitened, torch.tensor([[-1.0, 1.0, -2.0]]))


def test_unbiased_whitening_multiplies_the_variance() -> None:
    # Variance 1 * 2 / 1 = 2.
    whitened = whiten(torch.tensor([[1.0, 3.0]]), unbiased=True, eps=0.0, high_precision=False)
    torch.testing.assert_close(whitened, torch.tensor([[-1.0, 1.0]]) / math.sqrt(2))
