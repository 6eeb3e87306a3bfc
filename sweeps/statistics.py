"""Statistics that hold for short, autocorrelated curves and for few seeds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its uncertainty."""

    mean: float
    """The point estimate."""
    error: float
    """Its standard error."""
    freedom: float
    """Degrees of freedom of the standard error."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with a confidence interval."""

    mean: float
    """The point estimate."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The spread of single values around their trend."""

    spread: float
    """Standard deviation."""
    freedom: float
    """Degrees of freedom behind it."""


NO_NOISE = Noise(0.0, 1.0)
"""Nothing is known of the spread beyond the values themselves."""


def window_mean(values: Numbers, noise: Noise = NO_NOISE) -> Estimate:
    """Mean of an autocorrelated window; its error from the AR(1) effective sample size.

    n_eff = n (1 - rho) / (1 + rho), rho the lag-1 autocorrelation, cut to [0, 0.9]: Bayley and
    Hammersley 1946. Negative autocorrelation is not allowed to sharpen the estimate, and a few
    values that happen to agree are not taken for exact: their spread is `noise` at least.
    """
    count = len(values)
    if count < 2:
        return Estimate(float(values.mean()), float("inf"), 1.0)
    effective = max(count / variance_inflation(values - values.mean()), 1.0)
    spread = max(float(values.std(ddof=1)), noise.spread)
    freedom = max(effective - 1, noise.freedom)
    return Estimate(float(values.mean()), spread / float(np.sqrt(effective)), freedom)


def variance_inflation(deviations: Numbers) -> float:
    """(1 + rho) / (1 - rho): autocorrelated values that tell as much as one independent one."""
    power = float(deviations @ deviations)
    rho = 0.0 if power == 0 else float(deviations[:-1] @ deviations[1:]) / power
    rho = min(max(rho, 0.0), 0.9)
    return (1 + rho) / (1 - rho)


def point_noise(values: Numbers) -> Noise:
    """Spread of one value around its trend: root of half the mean squared first difference.

    Von Neumann et al. 1941; a trend that is slow against the noise does not enter. Overlapping
    differences carry two thirds of their number in degrees of freedom.
    """
    if len(values) < 3:
        return NO_NOISE
    spread = float(np.sqrt(np.mean(np.diff(values) ** 2) / 2))
    return Noise(spread, max(2 * (len(values) - 1) / 3, 1.0))


def pass_rate_estimate(rate: float, count: int) -> Estimate:
    """A share of `count` independent prompts with its binomial error."""
    return Estimate(rate, float(np.sqrt(_binomial(rate, count))), float(count - 1))


def slope_of(values: Numbers, noise: Noise = NO_NOISE) -> Estimate:
    """Change per value; least squares, AR(1) errors.

    Error of the slope: s / sqrt(sum (t - mean t)^2), s^2 the residual variance with n - 2 degrees
    of freedom, inflated by (1 + rho) / (1 - rho) of the residuals; s is at least `noise`.
    """
    count = len(values)
    if count < 4:
        return Estimate(0.0, float("inf"), 1.0)
    times = np.arange(count) - (count - 1) / 2
    power = float(times @ times)
    slope = float(times @ values) / power
    residuals = values - values.mean() - slope * times
    inflation = variance_inflation(residuals)
    spread = max(float(np.sqrt(residuals @ residuals / (count - 2))), noise.spread)
    error = spread * float(np.sqrt(inflation / power))
    return Estimate(slope, error, max(count / inflation - 2, 1.0))


def difference(later: Estimate, earlier: Estimate) -> Estimate:
    """`later` minus `earlier`, with Welch's degrees of freedom."""
    error = float(np.hypot(later.error, earlier.error))
    if error == 0 or not np.isfinite(error):
        return Estimate(later.mean - earlier.mean, error, 1.0)
    freedom = error**4 / (later.error**4 / later.freedom + earlier.error**4 / earlier.freedom)
    return Estimate(later.mean - earlier.mean, error, freedom)


def upper_bound(estimate: Estimate, level: float) -> float:
    """What the quantity exceeds with probability 1 - `level` at most (one-sided)."""
    return estimate.mean + float(stats.t.ppf(level, estimate.freedom)) * estimate.error


def difference_is_significant(
    later: Estimate, earlier: Estimate, *, least: float, level: float = 0.01
) -> bool:
    """`later` exceeds `earlier` by more than `least`, beyond chance (one-sided Welch test)."""
    gap = difference(later, earlier)
    if not gap.mean > least or not np.isfinite(gap.error):
        return False
    return gap.error == 0 or bool(stats.t.sf(gap.mean / gap.error, gap.freedom) < level)


def smooth(values: Numbers, width: int) -> Numbers:
    """Centred running mean over `width` points, shorter at the ends."""
    width = max(1, min(width, len(values)))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    half = width // 2
    starts = np.clip(np.arange(len(values)) - half, 0, None)
    stops = np.clip(np.arange(len(values)) + width - half, None, len(values))
    return np.asarray((sums[stops] - sums[starts]) / (stops - starts), dtype=np.float64)


def sustained_from(holds: NDArray[np.bool_], least: int) -> int | None:
    """First index of the run of true values that lasts to the end, if it has `least` or more."""
    failing = np.flatnonzero(~holds)
    start = 0 if len(failing) == 0 else int(failing[-1]) + 1
    return start if len(holds) - start >= least else None


def seed_intervals(
    groups: list[list[float]], *, trials_per_value: int | None, level: float = 0.95
) -> list[Interval]:
    """Confidence intervals of the means of several groups of seeds, with pooled variance.

    Few seeds per configuration give useless intervals one by one; the spread between seeds is
    therefore pooled over all groups (classical one-way layout). The variance of one value is never
    taken below the binomial one, p (1 - p) / `trials_per_value`, of the evaluation itself. Ends are
    kept within [0, 1].
    """
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(float(np.var(group)) * len(group) for group in groups)
    pooled = squares / freedom if freedom else 0.0
    intervals = []
    for group in groups:
        mean = float(np.mean(group))
        binomial = 0.0 if trials_per_value is None else _binomial(mean, trials_per_value)
        error = np.sqrt(max(pooled, binomial) / len(group))
        reach = float(stats.t.ppf(0.5 + level / 2, freedom)) if freedom else 1.96
        low, high = max(0.0, mean - reach * error), min(1.0, mean + reach * error)
        intervals.append(Interval(mean, float(low), float(high)))
    return intervals


def _binomial(rate: float, trials: int) -> float:
    """Variance of a pass rate, with one pass and one failure added so that 0 and 1 keep some."""
    smoothed = (rate * trials + 1) / (trials + 2)
    return smoothed * (1 - smoothed) / trials


def kendall_trend(values: Numbers) -> float:
    """One-sided p-value of a rising trend, made careful for autocorrelation by thinning.

    Mann-Kendall test on every k-th block mean, with at most 10 blocks.
    """
    blocks = np.array([block.mean() for block in np.array_split(values, min(10, len(values)))])
    if len(blocks) < 4 or np.all(blocks == blocks[0]):
        return 1.0
    result = stats.kendalltau(np.arange(len(blocks)), blocks, alternative="greater")
    return float(result.pvalue)
