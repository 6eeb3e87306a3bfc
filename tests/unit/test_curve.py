import numpy as np
import pytest

from sweeps.curve import learning_curve
from sweeps.measure import CONVERGED
from sweeps.trace import Judge, Trace
from tests.traces import make_trace, rise, sampled

FLAT = [0.3] * 40


def test_start_and_end_come_from_the_judge_where_it_looked_at_both_ends() -> None:
    curve = learning_curve(make_trace(FLAT, judge=(0.25, 0.75)))
    assert (curve.start.mean, curve.end.mean) == (0.25, 0.75)
    assert (curve.first.mean, curve.late.mean) == pytest.approx((0.3, 0.3))
    assert curve.rose


def test_without_a_last_look_of_the_judge_training_is_compared_with_training() -> None:
    # At a sampling temperature of 2 the batches pass far less often than the judge's answers.
    trace = make_trace(np.linspace(0.05, 0.25, 20))
    judged = Trace(trace.steps, trace.series, judge=Judge(0.30, 256))
    curve = learning_curve(judged)
    assert curve.start.mean == pytest.approx(0.05 + 0.1 / 19)
    assert not curve.fell_below_start


def test_a_small_judge_proves_less_than_a_large_one() -> None:
    trace = make_trace(FLAT)
    small = Trace(trace.steps, trace.series, judge=Judge(0.30, 16, 0.45, 16))
    large = Trace(trace.steps, trace.series, judge=Judge(0.30, 1024, 0.45, 1024))
    assert not learning_curve(small).rose
    assert learning_curve(large).rose


def test_a_rise_below_a_tenth_is_not_called_one_however_certain() -> None:
    assert not learning_curve(make_trace(FLAT, judge=(0.30, 0.395))).rose
    exact = make_trace(FLAT)
    assert not learning_curve(
        Trace(exact.steps, exact.series, judge=Judge(0.3, 10**6, 0.395, 10**6))
    ).rose


def test_the_best_window_and_the_fall_from_it() -> None:
    passed = [0.3] * 16 + [0.9] * 8 + [0.3] * 16
    curve = learning_curve(make_trace(passed))
    assert curve.best.mean == pytest.approx(0.9)
    assert 16 <= curve.best_step < 24
    assert curve.fall == pytest.approx(0.6)
    assert not curve.fell_below_start


def test_a_dip_within_the_noise_is_no_fall() -> None:
    curve = learning_curve(make_trace(sampled([0.5] * 40)))
    assert curve.fall == 0.0


def test_the_last_time_below_a_level_counts_not_the_first() -> None:
    passed = [0.1] * 5 + [0.9] * 20 + [0.1] * 15
    curve = learning_curve(make_trace(passed))
    # The running mean over 5 crosses 0.5 where three of its five values are low: step 25 has the
    # window 23..27 with values .9 .9 .1 .1 .1, mean .42.
    assert curve.first_below(0.5) == 25
    assert curve.first_below(2.0) == 0
    assert curve.first_below(0.0) == 39


@pytest.mark.parametrize("speed", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_logistic_rise_is_seen_while_it_lasts(speed: float, seed: int) -> None:
    passed = sampled(rise(60, speed=speed), seed)
    curve = learning_curve(make_trace(passed[: round(25 / speed) if speed > 0.5 else 60]))
    assert curve.rising or curve.end.mean >= CONVERGED


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_steady_rise_is_rising(seed: int) -> None:
    # From .30 to .50 over 60 steps: a tenth of the noise of a batch per step.
    assert learning_curve(make_trace(sampled(np.linspace(0.3, 0.5, 60), seed))).rising


@pytest.mark.parametrize("steps", [4, 10, 20])
def test_a_rise_that_ended_long_ago_is_not_rising(steps: int) -> None:
    passed = [*np.linspace(0.3, 0.55, steps), *[0.55] * (60 - steps)]
    assert not learning_curve(make_trace(passed)).rising


def test_a_policy_that_held_the_ceiling_has_arrived_although_its_last_look_dips() -> None:
    passed = [0.3] * 10 + [0.9] * 30
    assert learning_curve(make_trace(passed, judge=(0.3, 0.71))).arrived
    assert not learning_curve(make_trace(passed, judge=(0.3, 0.69))).arrived
    assert not learning_curve(make_trace(passed, judge=(0.3, 0.69))).stuck


def test_a_rise_that_turned_into_a_fall_is_not_rising() -> None:
    up_and_down = np.concatenate([np.linspace(0.3, 0.9, 40), np.linspace(0.9, 0.6, 20)])
    curve = learning_curve(make_trace(up_and_down))
    assert not curve.rising
    assert curve.fall > 0


def test_flat_noise_is_hardly_ever_rising() -> None:
    rising = [learning_curve(make_trace(sampled([0.4] * 40, seed))).rising for seed in range(200)]
    # Two tests at 5 % each that mostly agree: at most a tenth, and 2 standard errors of 2 %.
    assert sum(rising) <= 0.14 * 200


@pytest.mark.parametrize(
    ("level", "stuck"), [(0.3, True), (0.69, True), (0.71, False), (0.9, False)]
)
def test_a_flat_curve_is_stuck_only_well_below_the_ceiling(level: float, *, stuck: bool) -> None:
    assert learning_curve(make_trace([level] * 40)).stuck is stuck


def test_a_run_of_one_step_has_a_curve_that_claims_nothing() -> None:
    curve = learning_curve(make_trace([0.3]))
    assert not curve.rose
    assert not curve.rising
    assert not curve.fell_below_start
    assert curve.fall == 0.0
