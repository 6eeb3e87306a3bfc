"""Cells chosen by TPE: what it is told, what it asks, and that a kill changes nothing."""

import itertools
import random
from pathlib import Path

import pytest

from sweeps.plan import TrialSpec
from sweeps.record import SweepRecord, TrialEnd
from sweeps.search.tpe import Asked, TpeQueue, propose, worth
from sweeps.space import Axis, Level, Space
from sweeps.storage import open_sweep
from tests.sweeps_made import end_of, planned

SPACE = """\
base: {actor: {kl_ctl: 0.0, adv_norm: {mean_level: batch, std_level: batch}}}
space:
  actor.eps_clip: [0.1, 0.2, 0.3, 0.4]
  scale:
    dead: {actor.reward_scaling: 0.0}
    one: {actor.reward_scaling: 1.0}
    two: {actor.reward_scaling: 2.0}
exclude: [{actor.eps_clip: 0.4, scale: two}]
seeds: 2
design: {kind: tpe, cells: 6, seed: 3}
"""
BROKEN = end_of(0.1, outcome="unhealthy", symptom="overshoot", onset=3)
SICK = end_of(0.3, outcome="unhealthy", symptom="kl_pinned", stage="returns", onset=0)
RAISED = end_of(None, outcome="inconclusive", error="it raised")

AXES = [Axis(name, tuple(Level(level, {}) for level in "abcd")) for name in ("x", "y", "z")]
CANDIDATES = list(itertools.product("abcd", repeat=3))


def score(point: tuple[str, ...]) -> float:
    """The best is b in x and d in y; z does not matter."""
    return 0.5 * (point[0] == "b") + 0.5 * (point[1] == "d")


def search(seed: int, cells: int) -> list[tuple[str, ...]]:
    asked: list[Asked] = []
    for _ in range(cells):
        point = propose(AXES, asked, CANDIDATES, cells=cells, seed=seed)
        asked.append(Asked(point, ended=True, value=score(point)))
    return [one.point for one in asked]


def test_a_search_asks_every_cell_once_and_the_same_every_time() -> None:
    asked = search(seed=0, cells=16)
    assert len(set(asked)) == 16
    assert search(seed=0, cells=16) == asked
    assert search(seed=1, cells=16) != asked


def test_what_was_asked_last_is_better_than_chance() -> None:
    last = [score(point) for seed in range(6) for point in search(seed, cells=24)[12:]]
    # By chance .25; 72 values with a standard deviation of .31 make an error of .04.
    assert sum(last) / len(last) > 0.25 + 2 * 0.04


def test_every_candidate_comes_up_and_then_none() -> None:
    few = CANDIDATES[:5]
    asked: list[Asked] = []
    for _ in few:
        point = propose(AXES, asked, few, cells=5, seed=0)
        asked.append(Asked(point, ended=True, value=score(point)))
    assert {one.point for one in asked} == set(few)
    with pytest.raises(ValueError, match="all 5 candidates were asked"):
        propose(AXES, asked, few, cells=5, seed=0)


@pytest.mark.parametrize(
    ("ends", "value"),
    [
        pytest.param([end_of(0.9), end_of(0.7)], 0.7, id="the-worst-seed-counts"),
        pytest.param([end_of(0.9), SICK], 0.3 - 1, id="one-sick-seed"),
        pytest.param([BROKEN], 0.1 - 1, id="dropped-after-its-first-seed"),
        pytest.param([end_of(None, outcome="unhealthy", symptom="nonfinite")], -1.0, id="diverged"),
        pytest.param([end_of(0.8, outcome="inconclusive")], 0.8 - 1, id="nobody-can-tell"),
        pytest.param([end_of(0.9), RAISED], None, id="it-raised"),
        pytest.param([], None, id="nothing-ran"),
    ],
)
def test_what_a_cell_is_worth(ends: list[TrialEnd], value: float | None) -> None:
    assert worth(ends) == (None if value is None else pytest.approx(value))


class Driver:
    """Runs a search on a record, with ends that follow from a trial's levels."""

    def __init__(self, folder: Path, *, racing: bool = True, implied: bool = True) -> None:
        self.planned = planned(SPACE, "search")
        self.record = open_sweep(self.planned, folder, None, resume=False)
        self.racing, self.implied = racing, implied
        self.run: list[str] = []
        self.told: list[str] = []
        self.queue = self.taken_up()

    @property
    def space(self) -> Space:
        return self.planned.space

    def taken_up(self) -> TpeQueue:
        return TpeQueue(
            SweepRecord(self.record.folder),
            self.space,
            slots=lambda: 1,
            racing=self.racing,
            implied=self.implied,
            told=[lambda trial_id, _end: self.told.append(trial_id)],
        )

    def drive(self, killed_after: int = -1) -> None:
        while (spec := self.queue.next()) is not None:
            self.run.append(spec.name)
            self.record.finish(spec.id, end_for(spec))
            self.queue.trial_ended(spec.id, end_for(spec))
            if len(self.run) == killed_after:
                self.queue = self.taken_up()
        assert self.queue.exhausted


def end_for(spec: TrialSpec) -> TrialEnd:
    clip = spec.config["actor"]["eps_clip"]
    if clip == 0.3:
        return BROKEN
    return end_of(0.5 + clip + 0.01 * spec.seed)


def test_at_one_slot_a_killed_search_asks_what_it_would_have_asked(tmp_path: Path) -> None:
    undisturbed = Driver(tmp_path / "undisturbed")
    undisturbed.drive()
    for killed_after in (1, 3, 5):
        killed = Driver(tmp_path / f"killed-{killed_after}")
        killed.drive(killed_after)
        assert killed.run == undisturbed.run
        assert killed.record.header().trials == undisturbed.record.header().trials
        assert killed.record.header().dropped == undisturbed.record.header().dropped


def test_the_record_holds_every_cell_with_all_seeds_in_the_order_of_asking(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    assert driver.record.header().trials == ()
    driver.drive()
    header = driver.record.header()
    cells = list(dict.fromkeys(spec.configuration for spec in header.trials))
    assert len(cells) == 6
    assert [spec.name for spec in header.trials] == [
        f"{name} · s{seed}" for name in cells for seed in (1, 2)
    ]
    assert header.content == driver.planned.content
    assert "eps_clip=0.4 two" not in cells
    assert driver.record.unfinished() == []


def test_a_cell_gets_its_seeds_one_after_the_other_and_none_when_it_is_broken(
    tmp_path: Path,
) -> None:
    driver = Driver(tmp_path)
    driver.drive()
    dropped = driver.record.header().dropped
    by_id = {spec.id: spec for spec in driver.record.header().trials}
    broken = {s.name for s in by_id.values() if s.levels["actor.eps_clip"] == "0.3"}
    assert broken
    assert {by_id[i].name for i in dropped} == {
        name for name in broken if name.endswith("s2") and "dead" not in name
    }
    assert set(dropped.values()) == {"after seed 1: overshoot, confidence 0.90"}
    trained = Driver(tmp_path / "all", racing=False)
    trained.drive()
    assert trained.record.header().dropped == {}


def test_a_cell_that_is_provably_dead_is_recorded_and_not_trained(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.drive()
    dead = [spec for spec in driver.record.header().trials if spec.levels["scale"] == "dead"]
    assert dead
    assert [spec.id for spec in dead] == driver.told
    assert not {spec.name for spec in dead} & set(driver.run)
    ends = [driver.record.end(spec.id) for spec in dead]
    assert {end.status for end in ends if end is not None} == {"implied"}
    trained = Driver(tmp_path / "all", implied=False)
    trained.drive()
    assert trained.told == []


def test_no_more_is_asked_than_there_are_slots(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.queue = TpeQueue(driver.record, driver.space, slots=lambda: 2, racing=True, implied=True)
    first, second = driver.queue.next(), driver.queue.next()
    assert first is not None
    assert second is not None
    assert first.config_hash != second.config_hash
    assert driver.queue.next() is None
    assert not driver.queue.exhausted
    driver.record.finish(first.id, end_of(0.9))
    driver.queue.trial_ended(first.id, end_of(0.9))
    third = driver.queue.next()
    assert third is not None
    assert (third.config_hash, third.seed) == (first.config_hash, 2)


def test_what_still_runs_is_known_to_the_study() -> None:
    # A cell that runs is not asked again, and is no result.
    asked = [Asked(point, ended=True, value=score(point)) for point in CANDIDATES[:-2]]
    running = Asked(CANDIDATES[-1], ended=False, value=None)
    left = propose(AXES, [*asked, running], CANDIDATES, cells=64, seed=0)
    assert left == CANDIDATES[-2]


def test_a_search_of_random_ends_can_be_finished(tmp_path: Path) -> None:
    rng = random.Random(0)  # noqa: S311
    driver = Driver(tmp_path, racing=True)
    while (spec := driver.queue.next()) is not None:
        end = rng.choice([BROKEN, SICK, RAISED, end_of(0.9), end_of(None, outcome="unhealthy",
                          symptom="nonfinite")])  # fmt: skip
        driver.record.finish(spec.id, end)
        driver.queue.trial_ended(spec.id, end)
    assert driver.queue.exhausted
    assert driver.record.unfinished() == []
