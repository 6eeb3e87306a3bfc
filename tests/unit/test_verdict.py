from typing import Literal

import numpy as np
import pytest

from sweeps.findings import Diagnosis
from sweeps.trace import Trace
from sweeps.verdict import LEAST_STEPS, conclude, diagnose, inconclusive
from tests.traces import cut, from_stage, make_trace, rise, sampled

COLLAPSED = np.concatenate([np.linspace(0.3, 0.5, 10), [0.2, 0.1], np.zeros(28)])


# --- one run -------------------------------------------------------------------------------------


def test_a_run_that_arrives_and_stays_has_converged() -> None:
    diagnosis = diagnose(make_trace(sampled(rise(40)), judge=(0.3, 0.94)))
    assert (diagnosis.outcome, diagnosis.state) == ("healthy", "converged")
    assert diagnosis.message == (
        "the pass rate began at 0.30, reached 0.94 (threshold 0.8) and holds it"
    )
    assert diagnosis.symptom is None
    assert diagnosis.confidence == 0.95


def test_a_small_dip_of_the_last_look_is_said_and_costs_no_verdict() -> None:
    diagnosis = diagnose(make_trace([0.3] * 10 + [0.9] * 30, judge=(0.3, 0.75)))
    assert (diagnosis.outcome, diagnosis.state) == ("healthy", "converged")
    assert diagnosis.message == (
        "the pass rate began at 0.30, held 0.90 over the last quarter (threshold 0.8), 0.75 at the "
        "last look"
    )


def test_a_deep_dip_of_the_last_look_is_neither_healthy_nor_sick() -> None:
    diagnosis = diagnose(make_trace([0.3] * 10 + [0.9] * 30, judge=(0.3, 0.55)))
    assert diagnosis.outcome == "inconclusive"
    assert "the last look at the policy gives 0.55, its last quarter of training 0.90" in (
        diagnosis.message
    )


def test_a_run_whose_groups_all_pass_is_saturated_not_silent() -> None:
    silent = from_stage("raw", "silent", 0.97)
    diagnosis = diagnose(make_trace([0.98] * 30, silent, judge=(0.9, 0.98)))
    assert (diagnosis.outcome, diagnosis.state) == ("healthy", "saturated")


def test_a_run_that_still_rises_is_improving() -> None:
    diagnosis = diagnose(make_trace(sampled(np.linspace(0.3, 0.7, 40)), judge=(0.3, 0.7)))
    assert (diagnosis.outcome, diagnosis.state) == ("healthy", "improving")
    assert diagnosis.message == "the pass rate began at 0.30, is at 0.70 and still rising"


def test_noise_that_could_hide_anything_is_inconclusive() -> None:
    diagnosis = diagnose(make_trace(sampled([0.3] * 20)))
    assert diagnosis.outcome == "inconclusive"
    assert diagnosis.confidence == 0.0
    assert "hides whether it is still rising: run longer, or more seeds" in diagnosis.message


def test_a_short_run_is_inconclusive_however_good_it_looks() -> None:
    short = diagnose(make_trace([0.95] * (LEAST_STEPS - 1)))
    assert short.outcome == "inconclusive"
    assert short.message == "cannot tell: only 9 steps; wanted 10 or more"
    assert diagnose(make_trace([0.95] * LEAST_STEPS)).outcome == "healthy"


def test_a_dead_signal_is_certain_even_in_a_short_run() -> None:
    trace = make_trace([0.3] * 5, from_stage("clipped", "silent", 1.0))
    assert diagnose(trace).symptom == "zero_signal"


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_hardly_any_step_breaks_nothing(count: int) -> None:
    assert diagnose(cut(make_trace([0.3] * 5), count)).outcome == "inconclusive"


def test_no_step_and_no_pass_rate_are_told_apart() -> None:
    empty = Trace(np.array([], dtype=np.int64), {})
    assert diagnose(empty).message == "cannot tell: no step was recorded"
    blind = diagnose(make_trace([0.3] * 20, missing=["pass_rate", "reward_mean"]))
    assert blind.message == "cannot tell: no pass rate and no reward"
    assert blind.missing == ("pass_rate", "reward_mean")


def test_a_pass_rate_that_is_no_number_is_inconclusive_not_healthy() -> None:
    diagnosis = diagnose(make_trace([0.3] * 20 + [np.nan] * 20, reward_mean=0.3))
    assert diagnosis.outcome == "inconclusive"
    assert diagnosis.message == "cannot tell: the pass rate is not finite from step 20 on"


def test_signals_that_were_missing_are_named_and_cost_confidence() -> None:
    whole = diagnose(make_trace(sampled(rise(40))))
    less = diagnose(make_trace(sampled(rise(40)), missing=["kl_share", "entropy"]))
    assert less.outcome == "healthy"
    assert set(less.missing) == {"kl_share", "entropy"}
    assert less.confidence == pytest.approx(whole.confidence - 0.2)


def test_the_cause_comes_before_what_it_leads_to() -> None:
    # The policy overshoots; then every reward is 0, and all groups are silent.
    silent = [0.1] * 12 + [1.0] * 28
    trace = make_trace(
        COLLAPSED,
        kl_reference=np.linspace(0.0, 8.0, 40),
        reward_distinct=[2.0] * 12 + [1.0] * 28,
        raw__silent=silent,
        advantage__silent=silent,
    )
    diagnosis = diagnose(trace)
    assert diagnosis.symptom == "overshoot"
    assert {"reward_constant", "zero_signal", "reward_collapse"} <= set(diagnosis.secondary)


def test_a_signal_that_was_dead_from_the_beginning_is_the_cause() -> None:
    # Without any signal a policy under weight decay may still drift away and collapse.
    trace = make_trace(
        COLLAPSED, from_stage("scaled", "silent", 1.0), kl_reference=np.linspace(0.0, 8.0, 40)
    )
    diagnosis = diagnose(trace)
    assert (diagnosis.symptom, diagnosis.stage) == ("zero_signal", "scaled")
    assert "overshoot" in diagnosis.secondary


def test_a_stage_proves_more_than_an_earlier_onset() -> None:
    trace = make_trace(
        COLLAPSED,
        from_stage("penalty", "fidelity", 0.0),
        entropy=np.concatenate([np.full(4, 0.7), np.full(36, 0.01)]),
    )
    diagnosis = diagnose(trace)
    assert (diagnosis.symptom, diagnosis.stage) == ("reward_hacking", "penalty")
    assert "entropy_collapse" in diagnosis.secondary


def test_an_outcome_is_primary_only_for_want_of_a_cause() -> None:
    assert diagnose(make_trace(COLLAPSED)).symptom == "reward_collapse"
    assert diagnose(make_trace([0.3] * 40, from_stage("raw", "silent", 1.0))).symptom == (
        "zero_signal"
    )


def test_a_policy_pinned_by_kl_is_not_called_a_hacker_when_it_drops_a_little() -> None:
    trace = make_trace(
        sampled([0.3] * 40),
        from_stage("returns", "fidelity", 0.1),
        judge=(0.32, 0.20),
        kl_share=0.97,
        kl_reference=0.012,
    )
    diagnosis = diagnose(trace)
    assert diagnosis.symptom == "kl_pinned"
    assert "reward_hacking" in diagnosis.secondary


# --- a configuration over its seeds --------------------------------------------------------------


def healthy() -> Diagnosis:
    return Diagnosis("healthy", "", 0.9, state="converged")


def sick(symptom: str, onset: int | None = 3, stage: str | None = None) -> Diagnosis:
    return Diagnosis("unhealthy", "", 0.9, symptom=symptom, onset=onset, stage=stage)


@pytest.mark.parametrize(
    ("diagnoses", "outcome", "count"),
    [
        pytest.param([healthy(), healthy()], "healthy", 2, id="all-healthy"),
        pytest.param([sick("a"), sick("b")], "unhealthy", 0, id="all-sick"),
        pytest.param([healthy(), sick("a"), healthy()], "edge", 2, id="seeds-disagree"),
        pytest.param([healthy(), inconclusive("")], "inconclusive", 1, id="one-nobody-can-tell"),
        pytest.param([sick("a"), inconclusive("")], "inconclusive", 0, id="sick-or-nobody-knows"),
        pytest.param(
            [healthy(), sick("a"), inconclusive("")], "edge", 1, id="a-disagreement-stays"
        ),
        pytest.param([], "inconclusive", 0, id="no-seed-yet"),
    ],
)
def test_seeds_together_make_a_verdict(
    diagnoses: list[Diagnosis],
    outcome: Literal["healthy", "unhealthy", "edge", "inconclusive"],
    count: int,
) -> None:
    verdict = conclude(diagnoses)
    assert (verdict.outcome, verdict.healthy, verdict.seeds) == (outcome, count, len(diagnoses))


def test_the_commonest_symptom_speaks_with_its_own_stage_and_median_onset() -> None:
    verdict = conclude(
        [
            sick("zero_signal", 4, "clipped"),
            sick("overshoot", 1, None),
            sick("zero_signal", 10, "clipped"),
            sick("zero_signal", 6, "scaled"),
        ]
    )
    assert (verdict.symptom, verdict.stage, verdict.onset) == ("zero_signal", "clipped", 6)


def test_of_two_onsets_the_earlier_one_is_reported() -> None:
    assert conclude([sick("a", 9), sick("a", 4)]).onset == 4


def test_an_onset_at_step_0_is_not_lost() -> None:
    assert conclude([sick("a", 0), sick("a", 0)]).onset == 0


def test_healthy_seeds_have_no_symptom() -> None:
    verdict = conclude([healthy()])
    assert (verdict.symptom, verdict.stage, verdict.onset) == (None, None, None)
