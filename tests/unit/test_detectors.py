from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from grpo_core.metrics import STAGES
from sweeps.curve import learning_curve
from sweeps.detectors import (
    DETECTORS,
    MECHANISM_SYMPTOMS,
    OUTCOME_SYMPTOMS,
    PROVEN_SYMPTOMS,
    SIGNAL_SYMPTOMS,
    TELEMETRY_SYMPTOMS,
    Detector,
)
from sweeps.stages import STAGE_SETTINGS
from sweeps.trace import Series, Trace
from sweeps.verdict import diagnose
from tests.traces import (
    Signal,
    cut,
    from_stage,
    make_log,
    make_trace,
    rise,
    sampled,
    symptoms_of,
)

FLAT = sampled([0.3] * 40)
COLLAPSED = np.concatenate([np.linspace(0.3, 0.5, 10), [0.2, 0.1], np.zeros(28)])
"""Rises to .5, then falls to nothing within two steps."""


# --- each symptom, and what looks like it --------------------------------------------------------


def test_one_reward_for_everything_is_a_constant_reward() -> None:
    finding = symptoms_of(make_trace([0.0] * 20, reward_distinct=1.0, reward_mean=0.0))[
        "reward_constant"
    ]
    assert (finding.onset, finding.stage, finding.confidence) == (0, "raw", 1.0)
    assert finding.message.startswith(
        "every answer to every prompt got the same raw reward (0) in the last 20 steps, from step 0"
    )


def test_a_constant_reward_starts_where_it_last_varied() -> None:
    distinct = [2.0] * 8 + [1.0] * 12
    assert (
        symptoms_of(make_trace([0.1] * 20, reward_distinct=distinct))["reward_constant"].onset == 8
    )


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(make_trace([0.97] * 20, reward_distinct=1.0), id="everything-passes"),
        pytest.param(make_trace([0.0] * 20), id="rewards-differ"),
        pytest.param(make_trace([0.0] * 9, reward_distinct=1.0), id="a-hard-task-that-just-began"),
        pytest.param(make_trace([0.1] * 20, reward_distinct=[1.0] * 19 + [2.0]), id="it-took-off"),
    ],
)
def test_what_only_looks_like_a_constant_reward(trace: Trace) -> None:
    assert "reward_constant" not in symptoms_of(trace)


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_signal_that_a_setting_flattens_is_lost_at_its_stage(stage: str) -> None:
    trace = make_trace([0.3] * 20, from_stage(stage, "silent", 1.0))
    finding = symptoms_of(trace)["zero_signal"]
    before = STAGES[STAGES.index(stage) - 1]
    assert (finding.stage, finding.onset) == (stage, 0)
    assert STAGE_SETTINGS[stage] in finding.message
    assert f"jump from 10% behind '{before}' to 100%" in finding.message
    assert finding.evidence["silent"] == 1.0


def test_four_steps_prove_a_flattened_signal_and_three_do_not() -> None:
    silent = from_stage("clipped", "silent", 1.0)
    assert "zero_signal" in symptoms_of(make_trace([0.3] * 4, silent))
    assert "zero_signal" not in symptoms_of(make_trace([0.3] * 3, silent))


def test_a_task_without_contrast_needs_more_evidence_than_a_setting() -> None:
    silent = from_stage("raw", "silent", 1.0)
    assert "zero_signal" not in symptoms_of(make_trace([0.01] * 9, silent))
    finding = symptoms_of(make_trace([0.01] * 10, silent))["zero_signal"]
    assert finding.stage == "raw"
    assert "100% of the groups have no contrast in their raw rewards" in finding.message


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(make_trace([0.95] * 20, from_stage("raw", "silent", 1.0)), id="all-solved"),
        pytest.param(
            make_trace(rise(20, end=0.86), from_stage("raw", "silent", 0.96)),
            id="arrived-and-every-prompt-is-decided",
        ),
        pytest.param(
            make_trace([0.3] * 20, from_stage("raw", "silent", 0.94)), id="a-few-groups-differ"
        ),
        pytest.param(
            make_trace([0.3] * 20, advantage__silent=[1.0] * 19 + [0.0]), id="it-came-back"
        ),
    ],
)
def test_what_only_looks_like_a_lost_signal(trace: Trace) -> None:
    assert "zero_signal" not in symptoms_of(trace)


def test_a_lost_signal_is_one_even_where_the_policy_began_above_the_ceiling() -> None:
    trace = make_trace([0.85] * 20, from_stage("scaled", "silent", 1.0))
    assert symptoms_of(trace)["zero_signal"].stage == "scaled"


@pytest.mark.parametrize(
    ("signal", "part"), [("grad_norm", "gradient"), ("update_norm", "weight change")]
)
def test_an_update_of_exactly_nothing_is_dead(signal: str, part: str) -> None:
    values = [1.0] * 5 + [0.0] * 15
    finding = symptoms_of(make_trace([0.3] * 20, {signal: values}))["dead_update"]
    assert finding.onset == 5
    assert finding.message == (
        f"the {part} is exactly 0 from step 5 on although groups differ (learning rate 0.001): the "
        "update does not reach the weights"
    )


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(make_trace([0.3] * 20, grad_norm=1e-12), id="tiny-is-not-nothing"),
        pytest.param(
            make_trace([0.3] * 20, from_stage("raw", "silent", 1.0), grad_norm=0.0),
            id="no-contrast-to-begin-with",
        ),
        pytest.param(
            make_trace([0.3] * 20, update_norm=[0.0] + [0.1] * 19), id="first-step-of-a-warm-up"
        ),
        pytest.param(make_trace([0.3] * 20, grad_norm=[0.0] * 19 + [1.0]), id="it-moved-at-last"),
    ],
)
def test_what_only_looks_like_a_dead_update(trace: Trace) -> None:
    assert "dead_update" not in symptoms_of(trace)


@pytest.mark.parametrize("signal", ["loss", "grad_norm"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_broken_number_is_found_with_its_first_step(signal: str, value: float) -> None:
    values = [1.0] * 7 + [value] * 3
    finding = symptoms_of(make_trace([0.3] * 10, {signal: values}))["nonfinite"]
    assert finding.onset == 7
    assert finding.message.startswith(f"{signal} became NaN or inf at step 7")


def test_the_tensor_that_broke_first_is_named() -> None:
    trace = make_trace([0.3] * 10, loss=[1.0] * 9 + [np.nan])
    named = Trace(trace.steps, trace.series, nonfinite=(9, "logprobs"))
    assert symptoms_of(named)["nonfinite"].message.startswith("logprobs became NaN")


SWAMPED = from_stage("penalty", "fidelity", 0.04)


def test_a_policy_paid_for_something_else_is_hacking_when_the_task_suffers() -> None:
    finding = symptoms_of(make_trace(COLLAPSED, SWAMPED))["reward_hacking"]
    assert finding.stage == "penalty"
    assert "drops from 1.00 to 0.04" in finding.message
    assert 8 <= finding.onset <= 12


def test_a_verifier_that_pays_for_tricks_is_found_at_the_raw_stage() -> None:
    raw = np.concatenate([np.ones(20), np.full(20, 0.3)])
    bent = {f"{stage}__fidelity": raw for stage in STAGES}
    passed = np.concatenate([rise(20), np.linspace(0.9, 0.2, 20)])
    found = symptoms_of(make_trace(passed, bent, reward_mean=rise(40)))
    assert found["reward_hacking"].stage == "raw"
    assert "noise_dominated" not in found


def test_a_verifier_that_pays_by_chance_is_noise_whatever_the_policy_drifts_to() -> None:
    for passed in (FLAT, COLLAPSED):
        trace = make_trace(passed, from_stage("raw", "fidelity", 0.02), reward_mean=0.5)
        found = symptoms_of(trace)
        assert found["noise_dominated"].stage == "raw"
        assert "reward_hacking" not in found
        assert diagnose(trace).symptom == "noise_dominated"


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(make_trace(sampled(rise(40)), SWAMPED), id="swamped-but-it-learns"),
        pytest.param(make_trace(COLLAPSED), id="a-fall-with-a-clean-signal"),
        pytest.param(make_trace(FLAT, SWAMPED), id="swamped-but-nothing-fell"),
    ],
)
def test_what_only_looks_like_hacking(trace: Trace) -> None:
    assert "reward_hacking" not in symptoms_of(trace)


PINNED: dict[str, Signal] = {"kl_share": 0.95, "kl_reference": 0.015}


def test_a_policy_that_the_penalty_holds_is_pinned() -> None:
    finding = symptoms_of(make_trace(FLAT, PINNED))["kl_pinned"]
    assert (finding.stage, finding.onset) == ("returns", 0)
    assert "makes up 95% of the returns' variance (threshold 25%)" in finding.message
    assert "actor.kl_ctl is too large" in finding.message


def test_a_policy_pinned_after_a_first_rise_is_pinned_too() -> None:
    passed = sampled(np.concatenate([np.linspace(0.3, 0.46, 8), np.full(52, 0.46)]))
    kl = np.concatenate([np.linspace(0, 0.02, 8), np.full(52, 0.02)])
    assert "kl_pinned" in symptoms_of(make_trace(passed, kl_share=0.5, kl_reference=kl))


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(
            make_trace(sampled(rise(40)), kl_share=0.95), id="k3-holds-the-variance-and-learns"
        ),
        pytest.param(make_trace(FLAT, kl_share=0.1, kl_reference=0.015), id="a-small-share"),
        pytest.param(make_trace(FLAT, kl_share=0.95, kl_reference=0.5), id="far-away-is-not-held"),
        pytest.param(
            make_trace(FLAT, kl_share=0.95, kl_reference=0.03 * (np.arange(40) / 40) ** 2),
            id="a-slow-start-that-moves-faster-and-faster",
        ),
        pytest.param(
            make_trace(FLAT[:15], kl_share=0.95, kl_reference=0.015), id="fifteen-steps-are-too-few"
        ),
    ],
)
def test_what_only_looks_pinned(trace: Trace) -> None:
    assert "kl_pinned" not in symptoms_of(trace)


STALE: dict[str, Signal] = {
    "effective_samples": 0.3,
    "log_ratio_abs": 0.8,
    "staleness": 8.0,
    "kl_reference": 2.0,
}


def test_worthless_importance_weights_with_a_fall_are_an_instability() -> None:
    finding = symptoms_of(make_trace(COLLAPSED, STALE))["ratio_instability"]
    assert "leave only 30% effective samples" in finding.message
    assert finding.evidence["log_ratio_abs"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(make_trace(sampled(rise(40)), STALE), id="stale-but-it-learns"),
        pytest.param(make_trace(COLLAPSED, staleness=8.0), id="stale-but-the-weights-are-sound"),
        pytest.param(make_trace(FLAT, STALE), id="nothing-fell"),
    ],
)
def test_what_only_looks_like_an_instability(trace: Trace) -> None:
    assert "ratio_instability" not in symptoms_of(trace)


FAST: dict[str, Signal] = {"kl_reference": np.linspace(0.0, 8.0, 40), "ratio_max": 300.0}


def test_a_fall_at_high_speed_is_an_overshoot() -> None:
    finding = symptoms_of(make_trace(COLLAPSED, FAST))["overshoot"]
    # At the fall, around step 10, KL is 8 * 10 / 39 = 2.05: 0.19 per step of an entropy of 0.7.
    assert 8 <= finding.onset <= 12
    assert finding.evidence["speed"] == pytest.approx(8 / 39 / 0.7, rel=0.15)
    assert "largest importance ratio 300" in finding.message
    assert "actor.optimizer.lr" in finding.message


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(make_trace(sampled(rise(40)), FAST), id="fast-but-it-learns"),
        pytest.param(make_trace(COLLAPSED), id="a-fall-at-walking-pace"),
        pytest.param(make_trace(COLLAPSED, SWAMPED, FAST), id="paid-for-something-else"),
        pytest.param(make_trace(COLLAPSED, FAST, staleness=4.0), id="the-samplers-lag"),
        pytest.param(
            make_trace(np.concatenate([rise(30), np.linspace(0.95, 0.1, 10)]), FAST),
            id="a-collapse-after-success",
        ),
        pytest.param(make_trace(FLAT, FAST), id="nothing-fell"),
    ],
)
def test_what_only_looks_like_an_overshoot(trace: Trace) -> None:
    assert "overshoot" not in symptoms_of(trace)


def test_far_from_the_reference_with_a_fall_is_a_runaway() -> None:
    kl = np.linspace(0.0, 1.4, 40)
    passed = np.concatenate([rise(20, end=0.7), np.linspace(0.7, 0.2, 20)])
    finding = symptoms_of(make_trace(passed, kl_reference=kl))["kl_runaway"]
    # 1.4 i / 39 >= mean entropy of the first tenth, .7 - 1.5 * .6 / 39 = .677: from i = 19 on.
    assert finding.onset == 19
    assert "while the pass rate fell from 0.7" in finding.message


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(make_trace(sampled(rise(40)), kl_reference=3.0), id="far-and-it-learns"),
        pytest.param(make_trace(COLLAPSED, kl_reference=0.1), id="a-fall-close-by"),
        pytest.param(make_trace(FLAT, kl_reference=3.0), id="far-and-nothing-fell"),
    ],
)
def test_what_only_looks_like_a_runaway(trace: Trace) -> None:
    assert "kl_runaway" not in symptoms_of(trace)


def test_rising_entropy_without_progress_is_an_explosion() -> None:
    entropy = np.linspace(0.7, 2.0, 40)
    finding = symptoms_of(make_trace(FLAT, entropy=entropy))["entropy_explosion"]
    # The first tenth has the mean .7 + 1.5 * 1.3 / 39 = .75. Its 1.5-fold, 1.125, is below 15 % of
    # the way to uniform, .75 + .15 * (3.3 - .75) = 1.1325; .7 + i / 30 reaches that at i = 13.
    assert finding.evidence["threshold"] == pytest.approx(1.1325)
    assert finding.onset == 13


def test_entropy_near_zero_without_progress_is_a_collapse() -> None:
    entropy = np.concatenate([np.full(10, 0.6), np.full(30, 0.05)])
    finding = symptoms_of(make_trace(FLAT, entropy=entropy))["entropy_collapse"]
    assert finding.onset == 10
    assert "from 0.6 to 0.05 nats/token (8%" in finding.message


@pytest.mark.parametrize(
    ("symptom", "trace"),
    [
        pytest.param(
            "entropy_collapse",
            make_trace(sampled(rise(40)), entropy=np.linspace(0.7, 0.02, 40)),
            id="a-converged-policy-has-little-entropy",
        ),
        pytest.param(
            "entropy_collapse", make_trace(FLAT, entropy=0.01), id="greedy-from-the-beginning"
        ),
        pytest.param("entropy_collapse", make_trace(FLAT, entropy=0.0), id="no-entropy-at-all"),
        pytest.param(
            "entropy_explosion",
            make_trace(sampled(rise(40)), entropy=np.linspace(0.3, 0.9, 40)),
            id="exploring-while-it-learns",
        ),
        pytest.param(
            "entropy_explosion",
            make_trace(FLAT, entropy=np.linspace(0.7, 0.9, 40)),
            id="a-little-more-entropy",
        ),
    ],
)
def test_what_only_looks_like_an_entropy_problem(symptom: str, trace: Trace) -> None:
    assert symptom not in symptoms_of(trace)


STARVED: dict[str, Signal] = {"kl_reference": 4e-6, "entropy": 0.7}


def test_a_policy_that_would_not_move_in_ten_times_the_steps_is_starved() -> None:
    finding = symptoms_of(make_trace(FLAT, STARVED))["starved_update"]
    assert finding.onset == 0
    assert "KL to the reference is 4e-06 nats/token after 40 steps" in finding.message
    assert "10 times as many would not bring it to 0.5%" in finding.message


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(
            # 10 times the steps: 100 times the KL, 0.02, which is more than 0.005 * 0.7.
            make_trace(FLAT, kl_reference=2e-4, entropy=0.7),
            id="slow-but-on-its-way",
        ),
        pytest.param(
            make_trace(FLAT[:20], STARVED, learning_rate=np.linspace(0, 1e-3, 20)),
            id="the-learning-rate-still-warms-up",
        ),
        pytest.param(make_trace(FLAT, STARVED, kl_share=0.9), id="the-penalty-holds-it"),
        pytest.param(make_trace(sampled(rise(40)), STARVED), id="it-learns-anyway"),
        pytest.param(make_trace(FLAT, STARVED, grad_norm=0.0), id="dead-not-starved"),
    ],
)
def test_what_only_looks_starved(trace: Trace) -> None:
    assert "starved_update" not in symptoms_of(trace)


def test_a_fall_for_good_is_a_collapse() -> None:
    passed = np.concatenate([rise(30), np.linspace(0.95, 0.2, 10), np.full(20, 0.2)])
    finding = symptoms_of(make_trace(sampled(passed)))["reward_collapse"]
    assert 28 <= finding.onset <= 36
    assert "in the last quarter, beyond chance" in finding.message


def test_a_judge_that_sees_a_fall_is_believed_without_one_in_training() -> None:
    finding = symptoms_of(make_trace(FLAT, judge=(0.5, 0.3)))["reward_collapse"]
    assert finding.message == (
        "the pass rate ended at 0.30, below its start of 0.50, beyond chance"
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_dip_that_recovers_is_no_collapse(seed: int) -> None:
    passed = rise(40)
    passed[25:28] -= 0.4
    assert "reward_collapse" not in symptoms_of(make_trace(sampled(passed, seed)))


def test_a_curve_that_stands_still_below_the_ceiling_is_a_plateau() -> None:
    passed = np.concatenate([np.linspace(0.3, 0.6, 20), np.full(180, 0.6)])
    finding = symptoms_of(make_trace(sampled(passed, 1), judge=(0.3, 0.6)))["reward_plateau"]
    assert finding.message.startswith("the pass rate stopped rising: 0.30 before, 0.60 after 200 s")
    assert "200 more steps would bring 0.0" in finding.message
    assert 10 <= finding.onset <= 24


def test_a_plateau_at_the_start_is_proved_by_the_judge() -> None:
    # Two looks of 256 prompts at .30: error sqrt(2) * .0286 = .0405, t(.95, 510) = 1.648.
    finding = symptoms_of(make_trace(FLAT, judge=(0.3, 0.3)))["reward_plateau"]
    assert finding.message.startswith("the pass rate never left its start: 0.30 before, 0.30 after")
    assert finding.message.endswith("it rose by 0.07 at most (95 %, threshold 0.10)")


def test_a_judge_that_saw_some_rise_proves_no_plateau() -> None:
    assert "reward_plateau" not in symptoms_of(make_trace(FLAT, judge=(0.3, 0.36)))


def test_a_flat_beginning_under_a_learning_rate_that_still_warms_up_is_no_plateau() -> None:
    warming = np.linspace(0.0, 1e-3, 30)
    assert "reward_plateau" in symptoms_of(make_trace([0.3] * 30))
    assert "reward_plateau" not in symptoms_of(make_trace([0.3] * 30, learning_rate=warming))


def test_standing_still_exactly_leaves_no_noise_that_could_hide_a_rise() -> None:
    finding = symptoms_of(make_trace([0.0] * 24))["reward_plateau"]
    assert finding.message == (
        "the pass rate never left its start: 0.00 before, 0.00 after 24 steps, flat from step 0; "
        "50 more steps would bring 0.00 at most (99 %, threshold 0.10)"
    )


@pytest.mark.parametrize(
    "passed",
    [
        pytest.param([0.3] * 23, id="23-steps-are-too-few"),
        pytest.param([0.85] * 40, id="at-the-ceiling"),
        pytest.param(list(np.linspace(0.3, 0.35, 40)), id="a-slow-exact-rise"),
        pytest.param(list(sampled([0.3] * 30)), id="noise-that-could-hide-a-rise"),
    ],
)
def test_what_only_looks_like_a_plateau(passed: list[float]) -> None:
    assert "reward_plateau" not in symptoms_of(make_trace(passed))


# --- a healthy run never alarms ------------------------------------------------------------------

SLOW: dict[str, Signal] = {
    "kl_reference": 0.03 * (np.arange(60) / 60) ** 2,
    "entropy": np.linspace(0.7, 0.5, 60),
    "learning_rate": np.minimum(np.arange(60) / 15, 1.0) * 1e-5,
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("rates", "bent"),
    [
        pytest.param(rise(40), {}, id="fast"),
        pytest.param(rise(60, speed=0.4), {}, id="late"),
        pytest.param(rise(40, start=0.02), {}, id="from-nearly-nothing"),
        pytest.param(np.linspace(0.3, 0.9, 60), {}, id="steady"),
        pytest.param(np.linspace(0.3, 0.55, 60), SLOW, id="slow"),
        pytest.param(np.linspace(0.3, 0.55, 60), SLOW | {"kl_share": 0.9}, id="slow-under-k3"),
        pytest.param(rise(40), {"kl_share": 0.95} | SWAMPED, id="swamped-and-learning"),
        pytest.param([0.96] * 40, {}, id="good-from-the-beginning"),
    ],
)
def test_no_beginning_of_a_healthy_run_alarms(
    rates: list[float], bent: dict[str, Signal], seed: int
) -> None:
    trace = make_trace(sampled(rates, seed), bent)
    alarms = {
        count: diagnosis.symptom
        for count in range(1, len(rates) + 1)
        if (diagnosis := diagnose(cut(trace, count))).outcome == "unhealthy"
    }
    assert alarms == {}


@pytest.mark.parametrize("seed", range(60))
def test_a_rising_curve_is_never_a_plateau(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, gain, steps = rng.uniform(0.05, 0.5), rng.uniform(0.2, 0.4), int(rng.integers(16, 120))
    trace = make_trace(sampled(np.linspace(start, start + gain, steps), seed))
    assert "reward_plateau" not in symptoms_of(trace)


# --- every detector ------------------------------------------------------------------------------

STILL = np.clip(sampled([0.3] * 120), 0, 1)
"""Another trainer's reward that stands still."""
FALLEN = sampled(np.concatenate([np.linspace(0.2, 0.6, 60), np.linspace(0.6, 0.1, 30), [0.1] * 30]))
LEARNED = sampled(rise(120, 0.2, 0.85))
GROWN = np.concatenate([np.ones(60), np.linspace(1, 10, 60)])
"""Ten times its first half at the end."""

SICK: dict[str, Callable[[], Trace]] = {
    "reward_constant": lambda: make_trace([0.0] * 40, reward_distinct=1.0),
    "zero_signal": lambda: make_trace(FLAT, from_stage("clipped", "silent", 1.0)),
    "dead_update": lambda: make_trace(FLAT, grad_norm=0.0),
    "nonfinite": lambda: make_trace(FLAT, loss=[1.0] * 30 + [np.nan] * 10),
    "advantage_blowup": lambda: make_trace(FLAT, normalized__extreme=[2.4] * 20 + [1e5] * 20),
    "baseline_corruption": lambda: make_trace(FLAT, group_mean_max=0.4),
    "misplaced_reward": lambda: make_trace(FLAT, token_fidelity=0.1),
    "kl_pinned": lambda: make_trace(FLAT, PINNED),
    "reward_hacking": lambda: make_trace(COLLAPSED, SWAMPED),
    "ratio_instability": lambda: make_trace(COLLAPSED, STALE),
    "rollout_desync": lambda: make_trace(FLAT, logprob_gap=np.linspace(0.0, 0.3, 40)),
    "overshoot": lambda: make_trace(COLLAPSED, FAST),
    "kl_runaway": lambda: make_trace(COLLAPSED, kl_reference=1.0, staleness=8.0),
    "length_collapse": lambda: make_trace(COLLAPSED, length_mean=np.linspace(8, 1, 40)),
    "length_explosion": lambda: make_trace(FLAT, truncated=np.linspace(0.02, 0.6, 40)),
    "entropy_explosion": lambda: make_trace(FLAT, entropy=np.linspace(0.7, 2.0, 40)),
    "entropy_collapse": lambda: make_trace(FLAT, entropy=[0.6] * 10 + [0.05] * 30),
    "starved_update": lambda: make_trace(FLAT, STARVED),
    "noise_dominated": lambda: make_trace(FLAT, from_stage("raw", "fidelity", 0.1)),
    "loss_scale": lambda: make_log(STILL, grad_norm=[0.1] * 60 + [0.6] * 60),
    "generalisation_gap": lambda: make_log(LEARNED, eval_pass_rate=sampled([0.2] * 120)),
    "reward_collapse": lambda: make_trace(COLLAPSED),
    "reward_plateau": lambda: make_trace([0.3] * 40),
}
LOGGED: dict[str, Callable[[], Trace]] = {
    "reward_constant": lambda: make_log([0.0] * 120, reward_std=0.0),
    "zero_signal": lambda: make_log(STILL / 40, missing=["raw.silent"]),
    "dead_update": lambda: make_log(STILL, grad_norm=0.0),
    "nonfinite": lambda: make_log(STILL, grad_norm=[1.0] * 90 + [np.nan] * 30),
    "advantage_blowup": lambda: make_log(STILL, advantage_max=[2.4] * 60 + [1e4] * 60),
    "baseline_corruption": lambda: make_log(STILL, advantage_mean=-0.7),
    "misplaced_reward": lambda: make_log(
        STILL, truncated=0.97, settings={"gconfig.max_new_tokens": 2000}
    ),
    "reward_hacking": lambda: make_log(LEARNED, eval_pass_rate=FALLEN),
    "ratio_instability": lambda: make_log(FALLEN, logprob_gap=0.02 * GROWN),
    "rollout_desync": lambda: make_log(STILL, logprob_gap=np.linspace(0.01, 0.2, 120)),
    "overshoot": lambda: make_log(FALLEN, grad_norm=GROWN**2),
    "kl_runaway": lambda: make_log(STILL, kl_reference=0.02 * GROWN),
    "length_collapse": lambda: make_log(FALLEN, length_mean=np.linspace(300, 20, 120)),
    "length_explosion": lambda: make_log(STILL, length_mean=np.linspace(300, 900, 120)),
    "entropy_explosion": lambda: make_log(FALLEN, entropy=np.linspace(0.5, 2.0, 120)),
    "entropy_collapse": lambda: make_log(STILL, entropy=[0.5] * 20 + [0.02] * 100),
    "starved_update": lambda: make_log(STILL, kl_reference=1e-6, entropy=0.5),
    "noise_dominated": lambda: make_log(0.5 + 0.3 * np.resize([1, -1, -1, 1], 120)),
    "loss_scale": SICK["loss_scale"],
    "generalisation_gap": SICK["generalisation_gap"],
    "reward_collapse": lambda: make_log(FALLEN),
    "reward_plateau": lambda: make_log(0.3 + 0.002 * np.resize([1, -1, -1, 1], 120)),
}
"""The same symptoms as another trainer's log shows them."""
by_detector = pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: d.symptom)


def seen(detector: Detector, trace: Trace) -> bool:
    return detector(trace, learning_curve(trace)) is not None


def test_every_detector_has_one_symptom_and_a_case_here() -> None:
    assert [detector.symptom for detector in DETECTORS] == list(SICK)
    classes = [
        *SIGNAL_SYMPTOMS,
        *PROVEN_SYMPTOMS,
        *MECHANISM_SYMPTOMS,
        *TELEMETRY_SYMPTOMS,
        *OUTCOME_SYMPTOMS,
    ]
    assert len(set(classes)) == len(classes)
    assert set(classes) <= set(SICK)
    assert set(SICK) - set(LOGGED) == {"kl_pinned"}  # no other trainer logs KL's share


@pytest.mark.parametrize("cases", [SICK, LOGGED], ids=["trial", "log"])
@by_detector
def test_a_detector_sees_its_case_with_numbers_and_a_step_of_the_run(
    detector: Detector, cases: dict[str, Callable[[], Trace]]
) -> None:
    if detector.symptom not in cases:
        pytest.skip("no other trainer logs what it needs")
    trace = cases[detector.symptom]()
    finding = detector(trace, learning_curve(trace))
    assert finding is not None
    assert finding.symptom == detector.symptom
    assert finding.onset in trace.steps
    assert 0.5 <= finding.confidence <= 1.0
    assert any(character.isdigit() for character in finding.message)
    assert all(np.isfinite(value) for value in finding.evidence.values())
    assert finding.stage is None or finding.stage in STAGE_SETTINGS


@pytest.mark.parametrize("cases", [SICK, LOGGED], ids=["trial", "log"])
@by_detector
def test_the_verdict_on_its_case_is_its_symptom(
    detector: Detector, cases: dict[str, Callable[[], Trace]]
) -> None:
    if detector.symptom in cases and detector.symptom != "loss_scale":
        diagnosis = diagnose(cases[detector.symptom]())
        assert diagnosis.outcome == "unhealthy"
        assert diagnosis.symptom == detector.symptom


@by_detector
def test_a_missing_signal_is_reported_and_breaks_nothing(detector: Detector) -> None:
    wanted = {*detector.needs}.union(*detector.or_else) - {"reward_mean", "component.*"}
    if not wanted:
        pytest.skip("it needs the reward alone")
    whole = SICK[detector.symptom]()
    less = {key: one for key, one in whole.series.items() if key not in wanted}
    diagnosis = diagnose(replace(whole, series=less, nonfinite=None))
    if not any("reward_mean" in names and len(names) == 1 for names in detector.or_else):
        assert set(detector.needs) - {"reward_mean"} <= set(diagnosis.missing)
        assert diagnosis.symptom != detector.symptom


@by_detector
def test_a_detector_survives_constant_and_broken_numbers(detector: Detector) -> None:
    for value in (0.0, 0.5, 1.0, np.nan, np.inf):
        names = {*detector.needs}.union(*detector.or_else)
        bent: dict[str, Any] = {name.replace(".", "__"): value for name in names}
        for passed in (FLAT, [0.0] * 40, [1.0] * 40, COLLAPSED):
            seen(detector, make_trace(passed, bent))
            diagnose(make_log(passed, **bent))


@by_detector
def test_a_detector_needs_the_steps_that_it_asks_for(detector: Detector) -> None:
    short = cut(SICK[detector.symptom](), detector.least_steps - 1)
    if len(short):
        assert diagnose(short).symptom != detector.symptom


@by_detector
def test_a_longer_time_axis_changes_no_verdict(detector: Detector) -> None:
    trace = SICK[detector.symptom]()
    series = {name: Series(one.steps * 2, one.values) for name, one in trace.series.items()}
    stretched = replace(trace, steps=trace.steps * 2, series=series)
    before, after = diagnose(trace), diagnose(stretched)
    assert (after.symptom, after.stage) == (before.symptom, before.stage)
    assert before.onset is not None
    assert after.onset == 2 * before.onset


@by_detector
def test_a_signal_that_is_measured_now_and_then_is_enough(detector: Detector) -> None:
    trace = SICK[detector.symptom]()
    for name in set(detector.needs) - {"reward_mean"}:
        one = trace.series[name]
        trace.series[name] = Series(one.steps[::2], one.values[::2])
    assert seen(detector, trace)


# --- what a log shows beside its reward ----------------------------------------------------------


def test_far_more_silent_groups_than_chance_gives_are_copies() -> None:
    silent = np.concatenate([np.full(40, 0.1), np.linspace(0.1, 0.9, 40), np.full(40, 0.9)])
    noise = np.random.default_rng(1).normal(0, 0.01, 120)
    found = symptoms_of(make_log(STILL + 0.2, raw__silent=np.clip(silent + noise, 0, 1)))
    assert "answers of a group are copies" in found["zero_signal"].message
    full = np.clip(sampled(rise(120, 0.3, 0.97)), 0, 1)
    assert "zero_signal" not in symptoms_of(make_log(full, raw__silent=silent))


def test_advantages_that_vanish_leave_nothing_to_compare() -> None:
    gone = np.concatenate([np.full(40, 0.9), np.linspace(0.9, 0.01, 40), np.full(40, 0.01)])
    found = symptoms_of(make_log(STILL, missing=["raw.silent"], advantage_std=gone))
    assert found["zero_signal"].evidence["advantage_std"] == pytest.approx(0.01)


def test_a_critic_whose_loss_diverges_is_a_wrong_baseline() -> None:
    found = symptoms_of(make_log(STILL, value_loss=0.1 * GROWN))
    assert "the value function's loss grew" in found["baseline_corruption"].message
    assert "baseline_corruption" not in symptoms_of(make_log(STILL, value_loss=0.1))


def test_the_component_that_stands_for_the_task_is_what_counts() -> None:
    easy = np.minimum(0.4 + np.arange(120) / 60, 1.0) - 0.01 * np.resize([0, 1, 1, 0], 120)
    trace = make_log(
        0.02 + 0.1 * easy, component__correctness=0.02 + STILL / 100, component__format=easy
    )
    diagnosis = diagnose(trace)
    assert diagnosis.symptom == "reward_hacking"
    assert "'format' takes" in diagnosis.message
    both = make_log(LEARNED + easy, component__correctness=LEARNED, component__format=easy)
    assert diagnose(both).outcome == "healthy"
    assert "correctness reward began at" in diagnose(both).message


def test_many_cut_answers_count_even_while_the_reward_rises() -> None:
    rising = sampled(np.linspace(0.2, 0.6, 120))
    cut_off = np.clip(np.linspace(0.0, 0.5, 120), 0.01, 1)
    assert diagnose(make_log(rising, truncated=cut_off)).symptom == "length_explosion"
    assert diagnose(make_log(rising, truncated=cut_off / 10)).outcome == "healthy"


def test_a_clipped_half_of_the_batch_counts_only_where_it_has_grown() -> None:
    rising = sampled(np.linspace(0.2, 0.6, 120))
    noise = np.random.default_rng(1).normal(0, 0.01, 120)
    grown = np.linspace(0.1, 0.6, 120) + noise
    assert diagnose(make_log(rising, clip_fraction=grown)).symptom == "ratio_instability"
    # A sequence-level ratio clips 40 % from the first step and learns.
    assert diagnose(make_log(rising, clip_fraction=0.42 + noise)).outcome == "healthy"


def test_a_long_flat_stretch_well_below_the_ceiling_is_a_plateau_however_it_began() -> None:
    early = sampled(np.concatenate([np.linspace(0.2, 0.55, 30), np.full(170, 0.55)]))
    late = sampled(np.concatenate([np.linspace(0.1, 0.65, 140), np.full(60, 0.65)]))
    assert diagnose(make_log(early)).symptom == "reward_plateau"
    assert diagnose(make_log(late)).outcome != "unhealthy"


def test_kl_that_grows_at_one_speed_is_no_runaway() -> None:
    steady = np.linspace(0.0, 0.36, 120)
    assert "kl_runaway" not in symptoms_of(make_log(STILL, kl_reference=steady))
    assert "kl_runaway" in symptoms_of(make_log(STILL, kl_reference=steady**2))


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_log_never_alarms_at_any_beginning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(80, 300))
    rates = rise(count, rng.uniform(0.05, 0.4), rng.uniform(0.75, 0.95), rng.uniform(0.3, 1.5))
    trace = make_log(sampled(rates, seed))
    alarms = {
        step: diagnosis.symptom
        for step in range(5, count, 7)
        if (diagnosis := diagnose(trace.until(step))).outcome == "unhealthy"
    }
    assert alarms == {}


def test_length_without_a_gain_since_it_began_to_grow_is_paid_for_itself() -> None:
    early = sampled(np.concatenate([np.linspace(0.2, 0.5, 60), np.linspace(0.5, 0.56, 60)]))
    grown = np.concatenate([np.full(60, 300.0), np.linspace(300, 1000, 60)])
    assert diagnose(make_log(early, length_mean=grown)).symptom == "length_explosion"
    # Reasoning that grows with its reward is healthy.
    with_it = sampled(np.linspace(0.2, 0.75, 120))
    assert diagnose(make_log(with_it, length_mean=np.linspace(300, 1500, 120))).outcome == "healthy"


def test_a_late_takeover_by_a_component_is_seen_behind_an_early_success() -> None:
    task = sampled(np.concatenate([np.linspace(0.15, 0.4, 50), np.full(70, 0.4)]))
    easy = np.concatenate([np.full(60, 0.1), np.linspace(0.1, 1.0, 60)])
    trace = make_log(task + easy, component__accuracy=task, component__format=easy)
    assert diagnose(trace).symptom == "reward_hacking"


def test_kl_that_buys_nothing_any_more_is_a_runaway_even_while_the_reward_creeps_up() -> None:
    creeping = sampled(np.concatenate([np.linspace(0.2, 0.55, 60), np.linspace(0.55, 0.66, 60)]))
    wild = 0.02 * np.exp(np.maximum(np.linspace(-60, 60, 120), 0) / 15)
    assert diagnose(make_log(creeping, kl_reference=wild)).symptom == "kl_runaway"
    saturated = sampled(np.concatenate([np.linspace(0.3, 0.95, 60), np.full(60, 0.95)]))
    steady = make_log(saturated, kl_reference=np.linspace(0.0, 0.36, 120))
    assert diagnose(steady).outcome == "healthy"
