import numpy as np
import pytest

from grpo_core.metrics import STAGES
from sweeps.trace import Judge, Series, stage_signal, trace_of
from tests.sweep_records import make_step
from tests.traces import make_trace


def test_a_trace_holds_every_number_at_the_steps_where_it_was_measured() -> None:
    trace = trace_of([make_step(step, reward=0.1 * step) for step in range(12)])
    assert trace.steps.tolist() == list(range(12))
    assert trace["pass_rate"].values[3] == pytest.approx(0.3)
    # make_step looks with the judge on every tenth step.
    assert trace["eval_pass_rate"].steps.tolist() == [0, 10]
    assert trace["advantage.silent"].values.tolist() == [0.1] * 12
    assert len(trace) == 12


def test_a_signal_that_was_never_measured_is_missing_not_zero() -> None:
    trace = trace_of([make_step(1), make_step(2)])
    assert "eval_pass_rate" not in trace
    assert trace.missing(["eval_pass_rate", "pass_rate", "nonsense"]) == (
        "eval_pass_rate",
        "nonsense",
    )


def test_the_first_broken_tensor_is_kept_with_its_step() -> None:
    steps = [make_step(0), make_step(1, nonfinite="loss"), make_step(2, nonfinite="logprobs")]
    assert trace_of(steps).nonfinite == (1, "loss")
    assert trace_of(steps[:1]).nonfinite is None


def test_nan_stays_in_a_series_as_evidence() -> None:
    trace = trace_of([make_step(0, loss=float("nan"))])
    assert np.isnan(trace["loss"].values).all()


def test_no_steps_make_an_empty_trace() -> None:
    trace = trace_of([], Judge(0.3, 256))
    assert len(trace) == 0
    assert trace.series == {}


def test_every_stage_has_its_four_signals() -> None:
    trace = trace_of([make_step(0)])
    parts = ("gain", "fidelity", "silent", "extreme")
    assert trace.missing([stage_signal(s, p) for s in STAGES for p in parts]) == ()


@pytest.mark.parametrize(
    ("share", "first", "last"),
    [
        pytest.param(0.25, [0, 1, 2], [7, 8, 9], id="a-quarter-of-ten-is-three"),
        pytest.param(0.5, [0, 1, 2, 3, 4], [5, 6, 7, 8, 9], id="halves"),
        pytest.param(0.01, [0], [9], id="one-at-least"),
        pytest.param(1.0, list(range(10)), list(range(10)), id="all"),
    ],
)
def test_the_ends_of_a_series(share: float, first: list[int], last: list[int]) -> None:
    series = Series(np.arange(10, dtype=np.int64), np.arange(10.0))
    assert series.first(share).steps.tolist() == first
    assert series.last(share).steps.tolist() == last


def test_signals_that_were_measured_at_different_steps_are_compared_where_they_meet() -> None:
    trace = make_trace([0.1, 0.2, 0.3, 0.4])
    trace.series["kl_reference"] = Series(np.array([1, 3, 9]), np.array([10.0, 30.0, 90.0]))
    steps, (passed, kl) = trace.together("pass_rate", "kl_reference")
    assert steps.tolist() == [1, 3]
    assert passed.tolist() == [0.2, 0.4]
    assert kl.tolist() == [10.0, 30.0]
