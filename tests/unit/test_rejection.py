import math

import pytest
import torch
from torch import Tensor

from grpo_core.config import RejectionSamplingConfig, SamplerCorrectionConfig
from grpo_core.rejection import (
    Staleness,
    approximate_proximal,
    m2_mask,
    off_policy_rows,
    row_mean,
    sampler_weights,
    staleness_filter,
    token_metric,
)

# Ratios proximal / behaviour of one answer: 4, 1 and 1/2; the fourth position is not trained.
RATIOS = torch.tensor([[4.0, 1.0, 0.5, 100.0]])
MASK = torch.tensor([[True, True, True, False]])
GEOMETRIC_MEAN = 2 ** (1 / 3)


def filtered(settings: dict[str, object], *, areal_compat: bool = False) -> Staleness:
    return staleness_filter(
        RATIOS.log(),
        torch.zeros(1, 4),
        MASK,
        RejectionSamplingConfig.model_validate(settings),
        areal_compat=areal_compat,
    )


def row(*values: float) -> Tensor:
    return torch.tensor([values])


@pytest.mark.parametrize(
    ("settings", "weights", "fraction"),
    [
        pytest.param({"upper": 2.0}, (0, 1, 0.5, 0), 1 / 3, id="token-mask"),
        pytest.param({"upper": 2.0, "lower": 0.6}, (0, 1, 0, 0), 2 / 3, id="icepop-two-bounds"),
        pytest.param(
            {"upper": 2.0, "action": "clamp"}, (2, 1, 0.5, 0), 1 / 3, id="token-clamp-from-above"
        ),
        pytest.param(
            {"upper": 2.0, "lower": 0.8, "action": "clamp"}, (2, 1, 0.8, 0), 2 / 3, id="token-clamp"
        ),
        # d = log 4, 0, -log 2; only log 4 = 1.386 exceeds 1.
        pytest.param({"metric": "kl_k1", "upper": 1.0}, (0, 1, 0.5, 0), 1 / 3, id="k1"),
        # d^2 / 2 = 0.961, 0, 0.240
        pytest.param({"metric": "kl_k2", "upper": 0.5}, (0, 1, 0.5, 0), 1 / 3, id="k2"),
        # exp(-d) - 1 + d = 0.636, 0, 0.307
        pytest.param({"metric": "kl_k3", "upper": 0.3}, (0, 1, 0, 0), 2 / 3, id="k3"),
    ],
)
def test_token_filter_by_hand(
    settings: dict[str, object], weights: tuple[float, ...], fraction: float
) -> None:
    result = filtered(settings)
    torch.testing.assert_close(result.weight, row(*map(float, weights)))
    assert result.filtered_fraction.item() == pytest.approx(fraction)
    assert result.mask.tolist() == [[weight > 0 for weight in weights]]


@pytest.mark.parametrize(
    ("settings", "kept", "weight"),
    [
        # Geometric mean 2^(1/3) = 1.26, product 2, largest 4.
        pytest.param({"agg": "mean", "upper": 1.5}, True, GEOMETRIC_MEAN, id="mean-in"),
        pytest.param({"agg": "mean", "upper": 1.2}, False, 0.0, id="mean-out"),
        pytest.param({"agg": "sum", "upper": 1.5}, False, 0.0, id="product-out"),
        pytest.param({"agg": "max", "upper": 3.0}, False, 0.0, id="largest-out"),
        pytest.param({"agg": "mean", "upper": 1.2, "action": "clamp"}, True, 1.2, id="clamped"),
        pytest.param(
            {"agg": "max", "upper": 3.0, "action": "clamp"},
            True,
            GEOMETRIC_MEAN,
            id="flagged-by-max-but-weight-in-bounds",
        ),
    ],
)
def test_sequence_filter_by_hand(*, settings: dict[str, object], kept: bool, weight: float) -> None:
    result = filtered({"level": "sequence"} | settings)
    assert bool(result.mask[0, 0]) is kept
    torch.testing.assert_close(result.weight[0, :3], torch.full((3,), weight))
    changed = weight != GEOMETRIC_MEAN
    assert result.filtered_fraction.item() == float(changed)


def test_sequence_filter_with_a_divergence_keeps_token_weights() -> None:
    # Mean of k2: (0.961 + 0 + 0.240) / 3 = 0.4
    result = filtered({"level": "sequence", "metric": "kl_k2", "upper": 0.5})
    torch.testing.assert_close(result.weight, row(4.0, 1.0, 0.5, 0.0))
    assert not filtered({"level": "sequence", "metric": "kl_k2", "upper": 0.3}).mask.any()


def test_binary_kl_by_hand() -> None:
    # Behaviour 1/2, proximal 1/4: 1/2 log 2 + 1/2 log(2/3) = 0.1438.
    metric = token_metric(
        row(math.log(0.25)), row(math.log(0.5)), torch.tensor([[True]]), "binary_kl"
    )
    torch.testing.assert_close(metric, row(0.5 * math.log(2) + 0.5 * math.log(2 / 3)))


def test_binary_kl_stays_finite_at_certainty() -> None:
    metric = token_metric(row(0.0), row(math.log(0.5)), torch.tensor([[True]]), "binary_kl")
    assert metric.isfinite().all()


@pytest.mark.parametrize("areal_compat", [False, True])
def test_an_impossible_token_is_out_of_bounds_except_in_areal(*, areal_compat: bool) -> None:
    result = staleness_filter(
        row(-torch.inf, 0.0),
        row(-1.0, 0.0),
        torch.tensor([[True, True]]),
        RejectionSamplingConfig(upper=5.0, lower=0.5),
        areal_compat=areal_compat,
    )
    assert result.mask.tolist() == [[areal_compat, True]]
    assert result.weight.tolist() == [[float(areal_compat), 1.0]]


# Squares 4, 1, 0.25, 0.01: means of the smallest 1, 2, 3, 4 are 0.01, 0.13, 0.42, 1.315.
@pytest.mark.parametrize(
    ("threshold", "kept"),
    [
        pytest.param(2.0, [True, True, True, True], id="all"),
        pytest.param(1.0, [False, True, True, True], id="three"),
        pytest.param(0.2, [False, False, True, True], id="two"),
        pytest.param(0.001, [False, False, False, True], id="one-always-stays"),
    ],
)
def test_m2_drops_the_largest_until_the_mean_is_small(threshold: float, kept: list[bool]) -> None:
    behaviour = row(2.0, -1.0, 0.5, -0.1, 9.0)
    mask = torch.tensor([[True, True, True, True, False]])
    result = m2_mask(behaviour, torch.zeros(1, 5), mask, threshold)
    assert result.tolist() == [[*kept, False]]


def test_m2_of_nothing_is_nothing() -> None:
    nothing = torch.zeros(1, 2, dtype=torch.bool)
    assert not m2_mask(torch.ones(1, 2), torch.zeros(1, 2), nothing, 0.1).any()


def test_proximal_policy_lies_one_version_before_the_current() -> None:
    # Current 4: version 2 is 1 of 2 steps on, version 3 none, version 4 and prompts none.
    behaviour, current = row(-1.0, -1.0, -1.0, -1.0), row(-3.0, -3.0, -3.0, -3.0)
    versions = torch.tensor([[2, 3, 4, -1]])
    loglinear = approximate_proximal(behaviour, current, versions, 4)
    torch.testing.assert_close(loglinear, row(-2.0, -1.0, -1.0, -1.0))
    linear = approximate_proximal(behaviour, current, versions, 4, method="linear")
    mixed = math.log(0.5 * math.exp(-1) + 0.5 * math.exp(-3))
    torch.testing.assert_close(linear, row(mixed, -1.0, -1.0, -1.0))
    rollout = approximate_proximal(behaviour, current, versions, 4, method="rollout")
    torch.testing.assert_close(rollout, behaviour)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({"level": "token", "action": "mask"}, (0, 1, 0.5, 1), id="token-mask"),
        pytest.param({"level": "token", "action": "truncate"}, (3, 1, 0.5, 1), id="token-truncate"),
        # The product is 2.
        pytest.param({"level": "sequence", "action": "mask"}, (2, 2, 2, 2), id="sequence-kept"),
        pytest.param(
            {"level": "sequence", "action": "mask", "upper": 1.5}, (0, 0, 0, 0), id="sequence-out"
        ),
        pytest.param(
            {"level": "sequence", "action": "truncate", "upper": None, "lower": 2.5},
            (2.5, 2.5, 2.5, 2.5),
            id="sequence-lower",
        ),
    ],
)
def test_sampler_weights_by_hand(settings: dict[str, object], expected: tuple[float, ...]) -> None:
    weights = sampler_weights(
        RATIOS.log(), torch.zeros(1, 4), MASK, SamplerCorrectionConfig.model_validate(settings)
    )
    torch.testing.assert_close(weights, row(*map(float, expected)))


def test_only_bad_and_unlikely_answers_are_dropped() -> None:
    # Mean gaps behaviour - current: 1, 1, 0.1.
    behaviour = torch.tensor([[-1.0, -1.0], [-1.0, -1.0], [-1.0, -1.0]])
    current = torch.tensor([[-2.0, -2.0], [-2.0, -2.0], [-1.1, -1.1]])
    advantages = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [-1.0, -1.0]])
    mask = torch.ones(3, 2, dtype=torch.bool)
    kept = off_policy_rows(current, behaviour, advantages, mask, threshold=0.5)
    assert kept.squeeze(1).tolist() == [True, False, True]


def test_the_mean_of_an_empty_row_is_zero() -> None:
    mask = torch.tensor([[True, True, False], [False, False, False]])
    means = row_mean(torch.tensor([[1.0, 2.0, torch.nan]] * 2), mask)
    torch.testing.assert_close(means, torch.tensor([[1.5], [0.0]]))
