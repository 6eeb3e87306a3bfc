"""Seeds in waves: which cells get further seeds, whatever order trials end in."""

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.plan import TrialSpec
from sweeps.record import SweepRecord, TrialEnd
from sweeps.replay.spared import Follower, spare
from sweeps.report.tables import comparison_rows, render_markdown
from sweeps.results import load_results
from sweeps.search.race import Cell, decide, is_certain
from sweeps.search.waves import WaveQueue
from tests.sweep_records import make_step
from tests.sweeps_made import begun, end_of, finish, planned

SPACE = (
    "base: {evaluation: {prompts: 256}}\n"
    "space: {x: {a: {}, b: {actor.kl_ctl: 0.5}, c: {actor.kl_ctl: 5.0}}}\nseeds: 3\n"
)
BROKEN = end_of(0.0, outcome="unhealthy", symptom="overshoot", onset=3)
DOUBTFUL = replace(BROKEN, diagnosis=replace(BROKEN.diagnosis, confidence=0.85))
LASTING = end_of(0.9, outcome="unhealthy", symptom="kl_pinned", stage="returns", onset=0)
RAISED = end_of(None, outcome="inconclusive", error="it raised")


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    return begun(tmp_path, SPACE)


def queue_of(record: SweepRecord, *, racing: bool = True) -> WaveQueue:
    return WaveQueue(record, spare(record), racing=racing)


def drain(queue: WaveQueue) -> list[str]:
    """Names of all trials that are handed out now."""
    names = []
    while (spec := queue.next()) is not None:
        names.append(spec.name)
    return names


def play(record: SweepRecord, queue: WaveQueue, ends: dict[str, TrialEnd]) -> None:
    """Trials end, by their names."""
    for name, end in ends.items():
        trial_id = next(spec.id for spec in record.header().trials if spec.name == name)
        record.finish(trial_id, end)
        queue.trial_ended(trial_id, end)


def dropped(record: SweepRecord) -> dict[str, str]:
    header = record.header()
    return {
        spec.name: header.dropped[spec.id] for spec in header.trials if spec.id in header.dropped
    }


def test_without_racing_every_trial_is_handed_out_at_once(record: SweepRecord) -> None:
    queue = queue_of(record, racing=False)
    assert drain(queue) == [f"{cell} · s{seed}" for seed in (1, 2, 3) for cell in "abc"]
    assert queue.exhausted


def test_a_wave_waits_for_the_one_before_it(record: SweepRecord) -> None:
    queue = queue_of(record)
    assert drain(queue) == ["a · s1", "b · s1", "c · s1"]
    assert not queue.exhausted
    # .3 is below what another may reach: .3 + 1.96 x .1 < 1 - 1.96 x .1.
    play(record, queue, {"a · s1": end_of(0.3), "b · s1": end_of(0.3)})
    assert drain(queue) == []
    play(record, queue, {"c · s1": end_of(0.3)})
    assert drain(queue) == ["a · s2", "b · s2", "c · s2"]


def test_a_free_core_takes_what_is_certain_of_the_next_wave(record: SweepRecord) -> None:
    queue = queue_of(record)
    drain(queue)
    play(record, queue, {"a · s1": end_of(0.97), "b · s1": BROKEN})
    assert drain(queue) == ["a · s2"]
    play(record, queue, {"c · s1": end_of(0.95)})
    assert drain(queue) == ["c · s2"]
    assert set(dropped(record)) == {"b · s2", "b · s3"}


def test_a_cell_that_is_certainly_broken_gets_no_more_seeds(record: SweepRecord) -> None:
    queue = queue_of(record)
    play(record, queue, {"a · s1": end_of(0.9), "b · s1": BROKEN, "c · s1": DOUBTFUL})
    why = "after seed 1: overshoot, confidence 0.90"
    assert dropped(record) == {"b · s2": why, "b · s3": why} | {
        f"c · s{seed}": "after seed 1: its final pass rate, 0.00 [0.00, 0.20], does not reach that "
        "of a, at least 0.70"
        for seed in (2, 3)
    }


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(replace(DOUBTFUL, final=0.8), id="not-sure"),
        pytest.param(LASTING, id="a-symptom-that-may-heal"),
        pytest.param(RAISED, id="it-raised"),
        pytest.param(end_of(0.55), id="within-the-spread-between-seeds"),
    ],
)
def test_whoever_may_still_win_or_tell_something_goes_on(
    record: SweepRecord, end: TrialEnd
) -> None:
    queue = queue_of(record)
    play(record, queue, {"a · s1": end_of(0.9), "b · s1": end_of(0.9), "c · s1": end})
    assert dropped(record) == {}
    assert "c · s2" in drain(queue)


def test_a_cell_that_cannot_win_is_dropped_by_the_spread_that_was_assumed(
    record: SweepRecord,
) -> None:
    queue = queue_of(record)
    # .97 - .196 = .774 against .57 + .196 = .766 and .58 + .196 = .776.
    play(record, queue, {"a · s1": end_of(0.97), "b · s1": end_of(0.57), "c · s1": end_of(0.58)})
    why = (
        "after seed 1: its final pass rate, 0.57 [0.37, 0.77], does not reach that of a, at least "
        "0.77"
    )
    assert dropped(record) == {"b · s2": why, "b · s3": why}


def test_a_sick_cell_never_drives_out_others(record: SweepRecord) -> None:
    queue = queue_of(record)
    play(record, queue, {"a · s1": LASTING, "b · s1": end_of(0.3), "c · s1": LASTING})
    assert dropped(record) == {}


def test_a_second_wave_decides_by_both_seeds(record: SweepRecord) -> None:
    queue = queue_of(record)
    play(record, queue, {f"{cell} · s1": end_of(0.9) for cell in "abc"})
    play(record, queue, {"a · s2": end_of(0.9), "b · s2": BROKEN, "c · s2": end_of(0.9)})
    assert dropped(record) == {"b · s3": "after seeds 1, 2: overshoot, confidence 0.90"}
    assert drain(queue) == ["a · s3", "c · s3"]
    assert queue.exhausted


def test_the_longest_trials_of_a_wave_come_first(tmp_path: Path) -> None:
    record = begun(
        tmp_path,
        "space: {x: {short: {}, long: {total_train_steps: 90}, middle: {total_train_steps: 50}}}\n"
        "seeds: 2\nbudget: {steps: 20}\n",
    )
    assert drain(queue_of(record)) == ["long · s1", "middle · s1", "short · s1"]


def test_results_say_what_was_dropped_and_never_recommend_it(record: SweepRecord) -> None:
    queue = queue_of(record)
    play(record, queue, {"a · s1": end_of(0.9), "b · s1": BROKEN, "c · s1": end_of(0.3)})
    play(record, queue, {"a · s2": end_of(0.8), "a · s3": end_of(0.8)})
    results = load_results(record)
    a, b, c = results.configurations
    assert (a.dropped, b.dropped) == (None, "after seed 1: overshoot, confidence 0.90")
    # Healthy on the one seed that it got, and out of the race all the same.
    assert (c.verdict.outcome, c.verdict.healthy, c.verdict.seeds) == ("healthy", 1, 1)
    assert results.recommended is a
    assert results.not_run == ()
    rows = {row[0]: row[1] for row in comparison_rows(results)}
    assert rows["a"] == "healthy 3 of 3"
    assert rows["b"] == "unhealthy 1 of 1, dropped"
    assert "- b: dropped after seed 1: overshoot, confidence 0.90" in render_markdown(results)
    shape = {c["config"]: c["dropped"] for c in results.to_json()["configurations"]}
    assert shape["a"] is None
    assert shape["b"] == b.dropped


def test_if_the_only_healthy_cells_were_dropped_none_is_recommended(record: SweepRecord) -> None:
    finish(record, {"c": [end_of(0.9)]})
    c2, c3 = (spec.id for spec in record.header().trials if spec.name in ("c · s2", "c · s3"))
    record.drop({c2: "after seed 1: x", c3: "after seed 1: x"})
    assert load_results(record).recommended is None


def test_what_is_dropped_counts_as_left_out_and_the_budget_stays(tmp_path: Path) -> None:
    record = begun(tmp_path, SPACE + "budget: {trials: 8}\n")
    queue = queue_of(record)
    play(record, queue, {"a · s1": end_of(0.9), "b · s1": BROKEN, "c · s1": BROKEN})
    # c · s3 was beyond the budget.
    assert set(dropped(record)) == {"b · s2", "b · s3", "c · s2"}
    assert [spec.name for spec in record.unfinished()] == ["a · s2", "a · s3"]
    record.drop({})
    assert [record.header().trials[-1].id] == list(record.header().not_run)


def test_without_racing_what_was_dropped_is_taken_up_again(record: SweepRecord) -> None:
    play(record, queue_of(record), {"a · s1": end_of(0.9), "b · s1": BROKEN, "c · s1": BROKEN})
    again = queue_of(record, racing=False)
    assert dropped(record) == {}
    assert {"b · s2", "c · s3"} < set(drain(again))


def test_a_trial_that_was_begun_goes_on(record: SweepRecord) -> None:
    b2 = next(spec for spec in record.header().trials if spec.name == "b · s2")
    record.append_steps(b2.id, [make_step(0)])
    queue = queue_of(record)
    drain(queue)
    play(record, queue, {"a · s1": end_of(0.9), "b · s1": BROKEN, "c · s1": BROKEN})
    assert set(dropped(record)) == {"b · s3", "c · s2", "c · s3"}
    assert drain(queue) == ["a · s2", "b · s2", "a · s3"]


def test_a_cell_that_is_left_alone_gets_the_rest_of_its_seeds_at_once(tmp_path: Path) -> None:
    alone = begun(tmp_path, "space: {actor.kl_ctl: [0.0]}\nseeds: 5\n")
    queue = queue_of(alone)
    assert [name[-2:] for name in drain(queue)] == ["s1"]
    first = alone.header().trials[0]
    play(alone, queue, {first.name: end_of(0.9)})
    assert [name[-2:] for name in drain(queue)] == ["s2", "s3", "s4", "s5"]
    # Killed and taken up again, it decides the same.
    assert [name[-2:] for name in drain(queue_of(alone))] == ["s2", "s3", "s4", "s5"]


TWINS = """\
base: {actor: {kl_ctl: 0.0, adv_norm: {mean_level: batch, std_level: batch}}}
space: {x: {plain: {}, twin: {actor.kl_estimator: k3}, dead: {actor.reward_scaling: 0.0}}}
seeds: 2
"""


def test_whoever_repeats_a_dropped_trial_is_dropped_with_it(tmp_path: Path) -> None:
    record = begun(tmp_path, TWINS)
    spared = spare(record)
    queue = WaveQueue(record, spared, racing=True)
    follower = Follower(record, spared, [], lambda: 0.0)
    follower.settle()
    assert drain(queue) == ["plain · s1"]
    play(record, queue, {"plain · s1": BROKEN})
    plain = record.header().trials[0]
    follower.trial_ended(plain.id, BROKEN)
    why = "after seed 1: overshoot, confidence 0.90"
    assert dropped(record) == {"plain · s2": why, "twin · s2": why}
    assert queue.exhausted
    assert record.unfinished() == []
    # What is proven costs nothing, so it has all of its seeds.
    verdicts = {c.name: c.verdict for c in load_results(record).configurations}
    assert (verdicts["dead"].seeds, verdicts["twin"].seeds) == (2, 1)


ENDS = st.sampled_from(
    [end_of(final) for final in (1.0, 0.97, 0.9, 0.8, 0.6, 0.5, 0.3, 0.0)]
    + [BROKEN, DOUBTFUL, LASTING, RAISED, replace(LASTING, final=0.2)]
)
TRIALS = planned(SPACE).trials


@dataclass(frozen=True)
class Course:
    """How a sweep is driven: which running trial ends next, and when the driver is killed."""

    order: random.Random
    slots: int
    killed_after: int

    def drive(self, record: SweepRecord, will_end: dict[str, TrialEnd]) -> set[str]:
        """The trials that were run."""
        queue, run, done = queue_of(record), set[str](), 0
        running: list[TrialSpec] = []
        while True:
            while len(running) < self.slots and (spec := queue.next()) is not None:
                running.append(spec)
                run.add(spec.id)
            if not running:
                assert queue.exhausted
                return run
            spec = running.pop(self.order.randrange(len(running)))
            record.finish(spec.id, will_end[spec.id])
            queue.trial_ended(spec.id, will_end[spec.id])
            done += 1
            if done == self.killed_after:
                queue, running = queue_of(SweepRecord(record.folder)), []


COURSES = st.builds(Course, st.randoms(use_true_random=False), st.integers(1, 4), st.integers(0, 9))


@settings(max_examples=60, deadline=None)
@given(ends=st.lists(ENDS, min_size=9, max_size=9), courses=st.tuples(COURSES, COURSES))
def test_decisions_depend_neither_on_the_order_of_ends_nor_on_kills(
    tmp_path_factory: pytest.TempPathFactory,
    ends: list[TrialEnd],
    courses: tuple[Course, Course],
) -> None:
    will_end = {spec.id: end for spec, end in zip(TRIALS, ends, strict=True)}
    seen = []
    for course in courses:
        record = begun(tmp_path_factory.mktemp("race"), SPACE)
        run = course.drive(record, will_end)
        gone = record.header().dropped
        assert record.unfinished() == []
        assert not run & gone.keys()
        assert run | gone.keys() == set(will_end)
        seen.append(gone)
    assert seen[0] == seen[1]


def cells() -> list[Cell]:
    names = dict.fromkeys(spec.config_hash for spec in TRIALS)
    trials = {name: tuple(s for s in TRIALS if s.config_hash == name) for name in names}
    return [Cell(specs[0].configuration, name, specs) for name, specs in trials.items()]


@settings(max_examples=200, deadline=None)
@given(ends=st.lists(ENDS, min_size=9, max_size=9), known=st.sets(st.integers(0, 8)),
       waves=st.integers(1, 2))  # fmt: skip
def test_what_is_called_certain_is_never_dropped(
    ends: list[TrialEnd], known: set[int], waves: int
) -> None:
    every = {spec.id: end for spec, end in zip(TRIALS, ends, strict=True)}
    some = {TRIALS[i].id: every[TRIALS[i].id] for i in known}
    decided = decide(cells(), every, waves)
    for cell in cells():
        if is_certain(cell, cells(), some, waves):
            assert cell.config_hash not in decided
