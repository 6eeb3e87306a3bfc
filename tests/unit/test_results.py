import json
from pathlib import Path

import pytest

from sweeps.record import SweepRecord
from sweeps.results import Results, load_results
from tests.sweeps_made import begun, end_of, finish, implied_end

SPACE = "space: {x: {a: {}, b: {actor.kl_ctl: 0.5}, c: {actor.kl_ctl: 5.0}}}\nseeds: 2\n"
SICK = end_of(0.3, outcome="unhealthy", symptom="kl_pinned", stage="returns", onset=4)


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    return begun(tmp_path, SPACE)


def recommended(results: Results) -> str | None:
    return None if results.recommended is None else results.recommended.name


def test_a_sweep_that_has_just_begun_has_results(record: SweepRecord) -> None:
    results = load_results(record)
    assert [c.verdict.outcome for c in results.configurations] == ["inconclusive"] * 3
    assert [c.final for c in results.configurations] == [None] * 3
    assert (recommended(results), results.reason) == (
        None,
        "no configuration is healthy on every seed",
    )
    assert len(results.not_run) == 6


def test_the_highest_lower_end_among_the_healthy_is_recommended(record: SweepRecord) -> None:
    finish(
        record,
        {
            "a": [end_of(0.90), end_of(0.92)],
            "b": [end_of(0.97), end_of(0.96)],
            "c": [SICK, SICK],
        },
    )
    results = load_results(record)
    assert recommended(results) == "b"
    # Squares .0002 and .00005 over 2 degrees of freedom: variance .000125 pooled. For b the
    # binomial variance counts, of (.965 * 256 + 1) / 258 = .9614: .0001450. t(.975, 2) = 4.3027.
    final = results.configurations[1].final
    assert final is not None
    assert final.low == pytest.approx(0.965 - 4.3027 * (0.0001450 / 2) ** 0.5, abs=1e-4)
    assert "b: healthy on 2 of 2 seeds, final pass rate 0.96 [0.93, 1.00]" in results.reason


def test_a_lead_beyond_the_noise_names_the_runner_up(record: SweepRecord) -> None:
    finish(record, {"a": [end_of(0.70), end_of(0.71)], "b": [end_of(0.98), end_of(0.98)]})
    results = load_results(record)
    assert results.reason.startswith("b: healthy on 2 of 2 seeds")
    assert "; the runner-up, a, has 0.7" in results.reason
    assert "tie" not in results.reason


def test_a_lead_within_the_noise_is_called_a_tie(record: SweepRecord) -> None:
    finish(record, {"a": [end_of(0.95), end_of(0.97)], "b": [end_of(0.95), end_of(0.96)]})
    results = load_results(record)
    assert "the lead is within the noise between seeds: a tie with " in results.reason


def test_equal_configurations_fall_to_the_one_that_paid_less_kl(record: SweepRecord) -> None:
    finish(
        record,
        {"a": [end_of(0.9, kl=0.6), end_of(0.9, kl=0.6)], "b": [end_of(0.9, kl=0.12)] * 2},
    )
    results = load_results(record)
    assert recommended(results) == "b"
    # .12 / (.9 - .3) and .6 / (.9 - .3).
    assert results.reason.endswith("KL paid per pass gained: 0.20 nats/token (runner-up 1.00)")


def test_kl_that_was_never_measured_is_not_shown_as_infinite(record: SweepRecord) -> None:
    finish(record, {"a": [end_of(0.9, kl=None)] * 2, "b": [end_of(0.9, kl=None)] * 2})
    assert "inf" not in load_results(record).reason


def test_a_single_healthy_configuration_says_that_no_other_is(record: SweepRecord) -> None:
    finish(record, {"a": [end_of(0.9), end_of(0.9)], "b": [SICK, SICK]})
    reason = load_results(record).reason
    assert reason.endswith("; no other configuration is healthy on every seed")


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(None, id="a-seed-that-still-runs"),
        pytest.param(SICK, id="a-sick-seed"),
        pytest.param(end_of(0.9, outcome="inconclusive"), id="a-seed-nobody-can-tell"),
        pytest.param(
            end_of(None, outcome="inconclusive", error="the reward raised"), id="a-failed-seed"
        ),
    ],
)
def test_nothing_is_recommended_that_is_not_healthy_on_every_seed(
    record: SweepRecord, second: None
) -> None:
    finish(record, {"a": [end_of(0.99), second], "b": [end_of(0.8), end_of(0.8)]})
    assert recommended(load_results(record)) == "b"


def test_intervals_share_their_variance_only_among_equal_outcomes(record: SweepRecord) -> None:
    # The sick seeds differ by .4; that must not blow up the intervals of the healthy ones.
    sick = [end_of(final, outcome="unhealthy", symptom="overshoot") for final in (0.1, 0.5)]
    finish(record, {"a": [end_of(0.95), end_of(0.96)], "c": list(sick)})
    a, _, c = load_results(record).configurations
    assert a.final is not None
    assert c.final is not None
    assert a.final.low > 0.8
    assert (c.final.low, c.final.high) == (0.0, 1.0)


def test_failed_trials_are_listed_and_have_no_final(record: SweepRecord) -> None:
    failed = end_of(None, outcome="inconclusive", error="the reward raised")
    finish(record, {"a": [failed, end_of(0.9)]})
    results = load_results(record)
    assert [trial.end.error for trial in results.failed] == ["the reward raised"]
    assert results.configurations[0].final is not None
    assert results.configurations[0].final.mean == 0.9


def hash_of(record: SweepRecord, name: str) -> str:
    return next(s.config_hash for s in record.header().trials if s.configuration == name)


def test_what_was_not_run_has_a_verdict_and_no_pass_rate(record: SweepRecord) -> None:
    finish(record, {"a": [SICK, SICK], "c": [implied_end(), implied_end()]})
    results = load_results(record)
    a, _, c = results.configurations
    assert (c.verdict.outcome, c.verdict.symptom, c.verdict.seeds) == (
        "unhealthy",
        "zero_signal",
        2,
    )
    assert c.final is None
    assert a.implied is None
    assert c.implied is not None
    assert (c.implied.trials, c.implied.of, c.implied.name) == (2, None, None)
    assert c.implied.proof == "reward_scaling=0"
    # Both sick seeds of a end at .3: without c the binomial error of .3 over 256 prompts counts,
    # (.3 * 256 + 1) / 258 = .3016: variance .000823, t(.975, 1) = 12.706.
    assert a.final is not None
    assert a.final.high == pytest.approx(0.3 + 12.706 * (0.000823 / 2) ** 0.5, abs=1e-3)


def test_a_configuration_that_repeats_another_is_never_recommended_for_it(
    record: SweepRecord,
) -> None:
    twin = implied_end(of=hash_of(record, "b"), outcome="healthy")
    finish(record, {"a": [twin, twin], "b": [end_of(0.9), end_of(0.9)]})
    results = load_results(record)
    assert recommended(results) == "b"
    assert "a tie" not in results.reason
    implied = results.configurations[0].implied
    assert implied is not None
    assert (implied.name, implied.of) == ("b", hash_of(record, "b"))


def test_nor_if_one_of_its_seeds_ran(record: SweepRecord) -> None:
    twin = implied_end(of=hash_of(record, "b"), outcome="healthy")
    finish(record, {"a": [end_of(0.99), twin], "b": [end_of(0.98), end_of(0.98)]})
    results = load_results(record)
    assert recommended(results) == "b"
    a = results.configurations[0]
    assert a.implied is not None
    assert (a.implied.trials, a.verdict.healthy) == (1, 2)
    assert a.final is not None
    assert a.final.mean == 0.99


def test_json_tells_what_was_not_run(record: SweepRecord) -> None:
    finish(record, {"a": [end_of(0.9), None], "c": [implied_end(), None]})
    ran, _, not_run = json.loads(json.dumps(load_results(record).to_json()))["configurations"]
    assert ran["implied"] is None
    assert ran["trials"][0]["status"] == "finished"
    assert not_run["implied"] == {
        "trials": 1,
        "proof": "reward_scaling=0",
        "of": None,
        "name": None,
    }
    assert (not_run["trials"][0]["status"], not_run["trials"][0]["final"]) == ("implied", None)
    assert not_run["final"] is None


def test_the_documented_shape_of_the_json(record: SweepRecord) -> None:
    finish(record, {"a": [end_of(0.9), end_of(0.9)], "c": [SICK, None]})
    results = load_results(record)
    shape = json.loads(json.dumps(results.to_json(), allow_nan=False))
    assert {"sweep", "configurations", "recommended", "not_run"} <= set(shape)
    assert shape["sweep"] == "kl"
    assert shape["recommended"] == shape["configurations"][0]["hash"]
    sick = shape["configurations"][2]
    assert {"config", "hash", "verdict", "final", "trials"} <= set(sick)
    assert {
        key: sick["verdict"][key] for key in ("outcome", "healthy", "seeds", "symptom", "stage")
    } == {
        "outcome": "unhealthy",
        "healthy": 0,
        "seeds": 1,
        "symptom": "kl_pinned",
        "stage": "returns",
    }
    assert set(sick["final"]) == {"mean", "low", "high"}
    (trial,) = sick["trials"]
    assert {"id", "seed", "outcome", "state", "symptom", "stage", "onset", "final"} <= set(trial)
    assert (trial["onset"], trial["seed"], trial["final"]) == (4, 1, 0.3)
    ids = [spec.id for spec in record.header().trials]
    # In running order: seed 1 of a, b, c, then seed 2; a and c's first seed have ended.
    assert shape["not_run"] == [ids[1], ids[4], ids[5]]
    assert shape["configurations"][1]["final"] is None
