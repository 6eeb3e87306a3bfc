import math

import pytest
import torch

from grpo_core.signal import kl_share, measure_stages, row_means, token_fidelity

GROUPS = torch.tensor([2, 3])
PASSED = torch.tensor([True, False, True, False, False])


def test_the_raw_reward_is_all_task_and_has_its_own_gain() -> None:
    # std of (1, 0) is sqrt(1/2), of (1, 0, 0) is sqrt(1/3)
    signal = measure_stages({"raw": PASSED.float()}, PASSED, GROUPS)["raw"]
    assert signal.gain == pytest.approx((math.sqrt(1 / 2) + math.sqrt(1 / 3)) / 2)
    assert signal.fidelity == pytest.approx(1.0)
    assert (signal.silent, signal.extreme) == (0.0, 1.0)


def test_a_clip_below_all_rewards_leaves_every_group_silent() -> None:
    rewards = torch.tensor([10.0, 5.0, 10.0, 5.0, 5.0])
    signal = measure_stages({"clipped": rewards.clamp(-1, 1)}, PASSED, GROUPS)["clipped"]
    assert (signal.gain, signal.fidelity, signal.silent) == (0.0, 0.0, 1.0)


def test_rounding_residue_counts_as_silence() -> None:
    values = torch.tensor([100.0, 100.00001, 3.0, 3.0, 3.00001])
    assert measure_stages({"x": values}, PASSED, GROUPS)["x"].silent == 1.0


def test_a_reward_against_the_task_has_negative_fidelity() -> None:
    assert measure_stages({"x": -PASSED.float()}, PASSED, GROUPS)["x"].fidelity == pytest.approx(-1)


def test_half_of_the_variance_from_elsewhere_halves_the_fidelity() -> None:
    # One group of four; x = ok + other with ok and other orthogonal and of equal variance.
    passed = torch.tensor([True, True, False, False])
    values = torch.tensor([2.0, 1.0, 1.0, 0.0])
    fidelity = measure_stages({"x": values}, passed, torch.tensor([4]))["x"].fidelity
    assert fidelity == pytest.approx(0.5)


def test_without_contrast_in_the_check_fidelity_is_unknown_not_zero() -> None:
    nobody = torch.zeros(5, dtype=torch.bool)
    assert measure_stages({"x": torch.arange(5.0)}, nobody, GROUPS)["x"].fidelity is None


def test_groups_of_one_are_compared_over_the_batch() -> None:
    singles = torch.ones(5, dtype=torch.long)
    signal = measure_stages({"x": PASSED.float()}, PASSED, singles)["x"]
    assert signal.silent == 0.0
    assert signal.fidelity == pytest.approx(1.0)


def test_token_fidelity_sees_a_missing_baseline_between_groups() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    passed = torch.tensor([True, False])
    advantages = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    assert token_fidelity(advantages, mask, passed) == pytest.approx(1.0)
    assert token_fidelity(torch.ones(2, 3), mask, passed) == 0.0


def test_masked_positions_do_not_count() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    values = torch.tensor([[1.0, 3.0, 99.0], [5.0, 99.0, 99.0]])
    assert row_means(values, mask).tolist() == [2.0, 5.0]


def test_kl_share_is_the_part_of_the_variance() -> None:
    mask = torch.ones(1, 4, dtype=torch.bool)
    kl = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    rest = torch.tensor([[2.0, 2.0, -2.0, -2.0]])
    assert kl_share(kl, kl + rest, mask) == pytest.approx(1 / 5)
    assert kl_share(torch.zeros(1, 4), rest, mask) == 0.0
