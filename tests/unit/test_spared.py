from pathlib import Path

import pytest

from sweeps.record import SweepRecord, TrialEnd
from sweeps.replay.spared import Follower, count_spared, ground_trials, spare
from tests.sweep_records import make_step
from tests.sweeps_made import begun, end_of, finish, planned

SPACE = """\
base: {actor: {kl_ctl: 0.0, adv_norm: {mean_level: batch, std_level: batch}}}
space:
  x:
    plain: {}
    dead: {actor.reward_scaling: 0.0}
    twin: {actor.kl_estimator: k3}
    other: {actor.eps_clip: 0.3}
seeds: 2
"""
NOW = 1_700_000_500.0
NOTHING = "actor.kl_estimator (k1 or k3) decides nothing: actor.kl_ctl=0: no KL is estimated"


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    return begun(tmp_path, SPACE)


def ids(record: SweepRecord) -> dict[str, str]:
    """Name of a trial -> its id."""
    return {spec.name: spec.id for spec in record.header().trials}


def names(record: SweepRecord, trials: object) -> set[str]:
    assert isinstance(trials, dict | set)
    return {name for name, trial_id in ids(record).items() if trial_id in trials}


class Sitting:
    """A driver that has taken up a sweep; remembers what its listeners are told."""

    def __init__(self, record: SweepRecord) -> None:
        self.told: list[str] = []
        names = {spec.id: spec.name for spec in record.header().trials}
        self.spared = spare(record)
        self.follower = Follower(
            record,
            self.spared,
            [lambda trial_id, _end: self.told.append(names[trial_id])],
            lambda: NOW,
        )
        self._record = record

    def end(self, name: str, end: TrialEnd) -> None:
        """A trial that ran has ended."""
        trial_id = ids(self._record)[name]
        self._record.finish(trial_id, end)
        self.follower.trial_ended(trial_id, end)


def end_named(record: SweepRecord, name: str) -> TrialEnd | None:
    return record.end(ids(record)[name])


def test_dead_and_repeating_trials_are_found_with_the_twin_of_their_seed() -> None:
    trials = {spec.name: spec for spec in planned(SPACE).trials}
    grounds = ground_trials(list(trials.values()))
    assert set(grounds) == {
        trials[name].id for name in ("dead · s1", "twin · s1", "dead · s2", "twin · s2")
    }
    twin = grounds[trials["twin · s2"].id].to_json()
    assert twin == {"of": trials["plain · s2"].config_hash, "proof": NOTHING}
    assert count_spared(grounds) == (
        "; not trained: 2 provably dead and 2 provably equal to another (--no-implied trains them)"
    )


def test_a_plan_without_anything_to_spare_says_nothing() -> None:
    assert count_spared(ground_trials(planned("space: {actor.kl_ctl: [0.0, 0.1]}").trials)) == ""


def test_a_dead_trial_ends_before_anything_runs_and_measures_nothing(record: SweepRecord) -> None:
    sitting = Sitting(record)
    sitting.follower.settle()
    assert sitting.told == ["dead · s1", "dead · s2"]
    end = end_named(record, "dead · s1")
    assert end is not None
    proof = "actor.reward_scaling=0: every reward becomes 0, and nothing else enters the loss"
    assert (end.status, end.implied, end.proof, end.of) == ("implied", True, proof, None)
    assert (end.initial, end.final, end.kl_reference, end.error) == (None, None, None, None)
    assert (end.seconds, end.started) == (0.0, NOW)
    verdict = end.diagnosis
    assert (verdict.outcome, verdict.symptom, verdict.stage) == (
        "unhealthy",
        "zero_signal",
        "scaled",
    )
    assert (verdict.onset, verdict.confidence, verdict.message) == (0, 1.0, proof)


def test_a_repeating_trial_gets_the_verdict_of_its_seed_once_that_has_ended(
    record: SweepRecord,
) -> None:
    sitting = Sitting(record)
    sitting.follower.settle()
    sick = end_of(0.2, outcome="unhealthy", symptom="kl_pinned", stage="returns", onset=3)
    sitting.end("plain · s2", sick)
    assert end_named(record, "twin · s1") is None
    end = end_named(record, "twin · s2")
    assert end is not None
    assert (end.status, end.proof, end.final, end.initial) == ("implied", NOTHING, None, None)
    assert end.of == next(s.config_hash for s in record.header().trials if s.name == "plain · s1")
    assert (end.diagnosis.symptom, end.diagnosis.stage, end.diagnosis.onset) == (
        "kl_pinned",
        "returns",
        3,
    )
    assert end.diagnosis.message == f"implied: equal to plain, because {NOTHING}"
    sitting.end("plain · s1", end_of(0.9))
    healthy = end_named(record, "twin · s1")
    assert healthy is not None
    assert (healthy.diagnosis.outcome, healthy.diagnosis.state) == ("healthy", "converged")
    assert sitting.told == ["dead · s1", "dead · s2", "twin · s2", "twin · s1"]


def test_nothing_follows_from_a_trial_that_failed_nor_from_another(record: SweepRecord) -> None:
    sitting = Sitting(record)
    sitting.end("plain · s1", end_of(None, outcome="inconclusive", error="it raised"))
    sitting.end("other · s1", end_of(0.9))
    sitting.follower.settle()
    assert end_named(record, "twin · s1") is None
    assert names(record, {spec.id for spec in record.unfinished()}) == {
        "plain · s2",
        "twin · s1",
        "twin · s2",
        "other · s2",
    }


def test_what_a_killed_driver_had_not_recorded_is_recorded_by_the_next(record: SweepRecord) -> None:
    # Killed between the end of plain · s1 and what follows from it.
    finish(record, {"plain": [end_of(0.9), None], "dead": [None, None]})
    sitting = Sitting(SweepRecord(record.folder))
    sitting.follower.settle()
    assert sitting.told == ["dead · s1", "dead · s2", "twin · s1"]


def test_what_is_recorded_stays_and_is_told_once(record: SweepRecord) -> None:
    Sitting(record).follower.settle()
    path = record.folder / "trials" / f"{ids(record)['dead · s1']}.json"
    before = path.stat().st_mtime_ns
    again = Sitting(record)
    assert names(record, again.spared) == {"twin · s1", "twin · s2"}
    again.follower.settle()
    again.end("plain · s1", end_of(0.9))
    again.end("plain · s1", end_of(0.9))
    assert again.told == ["twin · s1"]
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("trace", ["steps", "checkpoint"])
def test_a_trial_that_was_begun_goes_on(record: SweepRecord, trace: str) -> None:
    for name in ("dead · s1", "twin · s1"):
        if trace == "steps":
            record.append_steps(ids(record)[name], [make_step(0)])
        else:
            record.checkpoint(ids(record)[name]).mkdir(parents=True)
    assert names(record, spare(record)) == {"dead · s2", "twin · s2"}


def test_trials_beyond_the_budget_stay_not_run(tmp_path: Path) -> None:
    record = begun(tmp_path, SPACE + "budget: {trials: 5}\n")
    sitting = Sitting(record)
    sitting.follower.settle()
    assert names(record, sitting.spared) == {"dead · s1", "twin · s1"}
    assert end_named(record, "dead · s2") is None


@pytest.mark.parametrize(
    ("change", "symptom", "stage"),
    [
        ("actor.reward_scaling: 0.0", "zero_signal", "scaled"),
        ("actor.reward_clip: 0.0", "zero_signal", "clipped"),
        ("{actor.reward_bias: 1.0, actor.reward_clip: 0.5}", "zero_signal", "clipped"),
        (
            "{gconfig.n_samples: 1, actor.reward_norm: {mean_level: group, std_level: group}}",
            "zero_signal",
            "normalized",
        ),
        ("{gconfig.n_samples: 1, actor.adv_norm: {mean_level: group}}", "zero_signal", "advantage"),
        ("{task.reward_wrong: 1.0}", "reward_constant", "raw"),
        ("{task.reward_wrong: 1.0, actor.reward_scaling: 0.0}", "reward_constant", "raw"),
    ],
)
def test_the_proof_knows_where_the_signal_ends(
    tmp_path: Path, change: str, symptom: str, stage: str
) -> None:
    change = change if change.startswith("{") else f"{{{change}}}"
    record = begun(tmp_path, SPACE.replace("{actor.reward_scaling: 0.0}", change))
    Sitting(record).follower.settle()
    end = end_named(record, "dead · s1")
    assert end is not None
    assert (end.diagnosis.symptom, end.diagnosis.stage) == (symptom, stage)
