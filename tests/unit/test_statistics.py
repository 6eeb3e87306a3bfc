import math

import numpy as np
import pytest

from sweeps.statistics import (
    Estimate,
    Noise,
    difference,
    difference_is_significant,
    kendall_trend,
    pass_rate_estimate,
    point_noise,
    seed_intervals,
    slope_of,
    smooth,
    sustained_from,
    upper_bound,
    variance_inflation,
    window_mean,
)


def array(*values: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array(values, dtype=np.float64)


def test_an_autocorrelated_window_counts_for_fewer_values() -> None:
    # Deviations -.3 -.1 .1 .3: power .2, lag-1 sum .05, rho 1/4, so (1 + rho) / (1 - rho) = 5/3 and
    # n_eff = 2.4; variance .2 / 3 gives an error of sqrt(.2 / 3 / 2.4) = 1/6.
    mean = window_mean(array(0.2, 0.4, 0.6, 0.8))
    assert mean.mean == pytest.approx(0.5)
    assert mean.error == pytest.approx(1 / 6)
    assert mean.freedom == pytest.approx(1.4)


def test_alternating_values_do_not_sharpen_a_mean() -> None:
    # rho is negative and counts as 0: sqrt(1/3) / sqrt(4).
    assert window_mean(array(0, 1, 0, 1)).error == pytest.approx(math.sqrt(1 / 3) / 2)


def test_one_value_has_no_known_error() -> None:
    assert window_mean(array(0.5)) == Estimate(0.5, math.inf, 1.0)


def test_values_that_happen_to_agree_are_not_exact_where_the_noise_is_known() -> None:
    assert window_mean(array(0.5, 0.5)).error == 0.0
    known = window_mean(array(0.5, 0.5), Noise(0.1, 8.0))
    assert known.error == pytest.approx(0.1 / math.sqrt(2))
    assert known.freedom == 8.0


def test_strong_autocorrelation_is_cut_at_nine_tenths() -> None:
    line = np.arange(1000.0)
    assert variance_inflation(line - line.mean()) == pytest.approx(19.0)
    assert variance_inflation(array(0, 0, 0)) == 1.0


def test_noise_comes_from_first_differences() -> None:
    # Differences +1, -1: half their mean square is 1/2; 2 differences carry 4/3 degrees of freedom.
    noise = point_noise(array(0, 1, 0))
    assert (noise.spread, noise.freedom) == pytest.approx((math.sqrt(0.5), 4 / 3))
    assert point_noise(array(0.1, 0.2)).spread == 0.0


def test_a_pass_rate_has_its_binomial_error() -> None:
    # (49 + 1) / (98 + 2) = 1/2.
    estimate = pass_rate_estimate(0.5, 98)
    assert (estimate.mean, estimate.freedom) == (0.5, 97.0)
    assert estimate.error == pytest.approx(math.sqrt(0.25 / 98))
    assert pass_rate_estimate(0.0, 98).error == pytest.approx(math.sqrt(0.01 * 0.99 / 98))


@pytest.mark.parametrize(
    ("gap", "least", "expected"),
    [
        pytest.param(0.2, 0.1, True, id="four-standard-errors"),
        pytest.param(0.2, 0.25, False, id="smaller-than-asked-for"),
        pytest.param(0.11, 0.1, False, id="two-standard-errors-are-not-enough-at-1-percent"),
        pytest.param(-0.2, 0.0, False, id="in-the-wrong-direction"),
        pytest.param(math.nan, 0.0, False, id="not-a-number"),
    ],
)
def test_a_difference_needs_size_and_certainty(gap: float, least: float, *, expected: bool) -> None:
    # Errors .03 and .04 make .05; Welch: .05^4 / ((.03^4 + .04^4) / 10) = 18.5 degrees of freedom.
    later, earlier = Estimate(0.4 + gap, 0.03, 10.0), Estimate(0.4, 0.04, 10.0)
    assert difference_is_significant(later, earlier, least=least) is expected


def test_an_unknown_error_makes_no_difference_certain_and_a_zero_one_does() -> None:
    exact, unknown = Estimate(0.9, 0.0, 5.0), Estimate(0.1, math.inf, 1.0)
    assert not difference_is_significant(exact, unknown, least=0.1)
    assert difference_is_significant(exact, Estimate(0.1, 0.0, 5.0), least=0.1)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        pytest.param(1, (0, 3, 6, 9), id="width-1-is-the-identity"),
        pytest.param(3, (1.5, 3, 6, 7.5), id="shorter-at-the-ends"),
        pytest.param(4, (1.5, 3, 4.5, 6), id="even-width-looks-back-further"),
        pytest.param(99, (1.5, 3, 4.5, 6), id="no-wider-than-the-series"),
    ],
)
def test_a_running_mean_by_hand(width: int, expected: tuple[float, ...]) -> None:
    assert smooth(array(0, 3, 6, 9), width) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("holds", "least", "expected"),
    [
        pytest.param([0, 1, 0, 1, 1, 1], 3, 3, id="the-last-stretch"),
        pytest.param([0, 1, 0, 1, 1, 1], 4, None, id="too-short"),
        pytest.param([1, 1, 1], 3, 0, id="always"),
        pytest.param([1, 1, 0], 1, None, id="not-to-the-end"),
        pytest.param([], 1, None, id="nothing"),
    ],
)
def test_what_is_sustained_lasts_to_the_end(holds: list[int], least: int, expected: int) -> None:
    assert sustained_from(np.array(holds, dtype=np.bool_), least) == expected


def test_seeds_share_their_variance_over_configurations() -> None:
    # Squares .02 + .02 over 2 degrees of freedom: variance .02, error sqrt(.02 / 2) = .1;
    # t(.975, 2) = 4.302653. The ends stay within [0, 1].
    high, low = seed_intervals([[0.5, 0.7], [0.1, 0.3]], trials_per_value=None)
    assert (high.mean, high.low, high.high) == pytest.approx((0.6, 0.6 - 0.4302653, 1.0))
    assert (low.mean, low.low, low.high) == pytest.approx((0.2, 0.0, 0.2 + 0.4302653))


def test_seeds_that_agree_keep_the_binomial_error_of_their_evaluation() -> None:
    # 100 prompts at 1/2: variance .25 / 100, over two seeds .00125; t(.975, 1) = 12.7062.
    (interval,) = seed_intervals([[0.5, 0.5]], trials_per_value=100)
    reach = 12.7062 * math.sqrt(0.00125)
    assert (interval.low, interval.high) == pytest.approx((0.5 - reach, 0.5 + reach), abs=1e-4)


def test_single_seeds_have_only_the_binomial_error() -> None:
    (interval,) = seed_intervals([[0.5]], trials_per_value=100)
    assert (interval.low, interval.high) == pytest.approx((0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05))


def test_a_perfect_score_keeps_an_interval() -> None:
    (interval,) = seed_intervals([[1.0]], trials_per_value=98)
    assert interval.low == pytest.approx(1 - 1.96 * math.sqrt(0.01 * 0.99 / 98))
    assert interval.high == 1.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([1, 2, 3, 4, 5], 1 / math.factorial(5), id="one-order-of-120"),
        pytest.param(list(range(40)), 1 / math.factorial(10), id="ten-blocks-at-most"),
        pytest.param([5, 4, 3, 2, 1], 1.0, id="falling"),
        pytest.param([2, 2, 2, 2, 2], 1.0, id="constant"),
        pytest.param([1, 2, 3], 1.0, id="too-few"),
    ],
)
def test_the_chance_of_a_rising_order(values: list[float], expected: float) -> None:
    assert kendall_trend(np.array(values, dtype=np.float64)) == pytest.approx(expected)


def test_a_slope_has_the_error_of_its_residuals() -> None:
    # Slope (0 * -1.5 + 2 * -.5 + 1 * .5 + 3 * 1.5) / 5 = .8; residuals -.3 .9 -.9 .3 with squares
    # 1.8 over 2 degrees of freedom: error sqrt(.9 / 5) per step.
    change = slope_of(array(0, 2, 1, 3))
    assert change.mean == pytest.approx(0.8)
    assert change.error == pytest.approx(math.sqrt(0.9 / 5))
    assert change.freedom == 2.0


def test_a_line_has_an_exact_slope_unless_its_noise_is_known() -> None:
    exact = slope_of(array(0, 1, 2, 3))
    assert (exact.mean, exact.error) == pytest.approx((1.0, 0.0))
    # The times have the power 1.5^2 + .5^2 + .5^2 + 1.5^2 = 5.
    known = slope_of(array(0, 1, 2, 3), Noise(0.1, 4.0))
    assert known.error == pytest.approx(0.1 / math.sqrt(5))


def test_three_values_have_no_known_slope() -> None:
    assert slope_of(array(0, 1, 2)).error == math.inf


def test_the_error_of_a_difference_by_hand() -> None:
    # .03 and .04 make .05; .05^4 / ((.03^4 + .04^4) / 10) = 6.25e-6 / 3.37e-7.
    gap = difference(Estimate(0.6, 0.03, 10.0), Estimate(0.4, 0.04, 10.0))
    assert (gap.mean, gap.error) == pytest.approx((0.2, 0.05))
    assert gap.freedom == pytest.approx(6.25 / 0.337)


def test_an_upper_bound_is_one_sided() -> None:
    # t(.95, 10) = 1.812461.
    assert upper_bound(Estimate(0.5, 0.1, 10.0), 0.95) == pytest.approx(0.5 + 0.1812461)
