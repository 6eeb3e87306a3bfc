import numpy as np
import pytest

from sweeps.alarm import CHECK_EVERY, CRITICAL, LASTING, Alarm, Mode
from sweeps.detectors import DETECTORS
from sweeps.trace import Trace
from tests.traces import from_stage, make_trace, rise, sampled

FLAT = sampled([0.3] * 60)
FALLEN = np.concatenate([np.linspace(0.3, 0.5, 10), [0.2, 0.1], np.zeros(48)])


def stopped_at(trace: Trace, mode: Mode = "safe") -> int | None:
    alarm = Alarm(mode)
    for count in range(CHECK_EVERY, len(trace) + 1, CHECK_EVERY):
        if alarm.check(trace.until(count - 1)) is not None:
            return count
    return None


def test_a_dead_signal_stops_a_run_at_the_second_look() -> None:
    trace = make_trace(FLAT, from_stage("clipped", "silent", 1.0))
    assert stopped_at(trace) == 2 * CHECK_EVERY


def test_one_look_is_not_enough_and_looking_twice_at_the_same_steps_is_one_look() -> None:
    trace, alarm = make_trace(FLAT, from_stage("clipped", "silent", 1.0)), Alarm()
    assert alarm.check(trace.until(9)) is None
    assert alarm.check(trace.until(9)) is None
    assert alarm.check(trace.until(14)) is not None


def test_another_symptom_begins_anew() -> None:
    alarm = Alarm()
    silent = make_trace(FLAT, from_stage("clipped", "silent", 1.0))
    dead = make_trace(FLAT, grad_norm=0.0)
    assert alarm.check(silent.until(9)) is None
    assert alarm.check(dead.until(14)) is None
    assert alarm.check(dead.until(19)) is not None


def test_a_healthy_look_in_between_begins_anew() -> None:
    alarm = Alarm()
    silent = make_trace(FLAT, from_stage("clipped", "silent", 1.0))
    healthy = make_trace(sampled(rise(60)))
    assert alarm.check(silent.until(9)) is None
    assert alarm.check(healthy.until(40)) is None
    assert alarm.check(silent.until(44)) is None


def test_a_symptom_that_may_heal_stops_a_run_only_where_that_is_wanted() -> None:
    pinned = make_trace(FLAT, kl_share=0.95, kl_reference=0.015)
    assert stopped_at(pinned, "safe") is None
    assert stopped_at(pinned, "aggressive") is not None


@pytest.mark.parametrize("mode", ["safe", "aggressive"])
@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_run_is_never_stopped(seed: int, mode: Mode) -> None:
    rng = np.random.default_rng(seed)
    rates = rise(60, start=rng.uniform(0.05, 0.4), speed=rng.uniform(0.4, 1.5))
    assert stopped_at(make_trace(sampled(rates, seed)), mode) is None


def test_every_symptom_that_stops_a_run_is_one() -> None:
    assert not CRITICAL & LASTING
    assert {detector.symptom for detector in DETECTORS} >= CRITICAL | LASTING


def test_a_dip_does_not_stop_a_run_and_a_deep_fall_does() -> None:
    dip = np.concatenate([rise(20), np.full(40, 0.7)])
    deep = np.concatenate([rise(20), np.full(40, 0.2)])
    assert stopped_at(make_trace(sampled(dip)), "safe") is None
    assert stopped_at(make_trace(sampled(deep)), "safe") is not None
