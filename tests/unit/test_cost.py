"""What a sweep would cost."""

import pytest

from sweeps.search.cost import Cost, estimate, seconds_of, size_of, wall_of
from tests.sweeps_made import planned
from tests.trials import registered_for_tests, small_config

SPACE = """\
base: {train_dataset: {batch_size: 4}, gconfig: {n_samples: 2, max_new_tokens: 8}}
space: {x: {small: {}, large: {train_dataset.batch_size: 12}, long: {total_train_steps: 90}}}
seeds: 1
budget: {steps: 30}
"""
SMALL, LARGE, LONG = planned(SPACE).trials


def test_a_trial_costs_by_its_steps_and_by_what_it_samples() -> None:
    assert [size_of(spec) for spec in (SMALL, LARGE, LONG)] == [64, 192, 64]
    # The large one was measured at .5 s a step; a third of that for the others.
    assert seconds_of([SMALL, LARGE, LONG], LARGE, 0.5) == pytest.approx([5.0, 15.0, 15.0])


@pytest.mark.parametrize(
    ("seconds", "slots", "wall"),
    [
        pytest.param([5.0, 15.0, 15.0], 1, 35.0, id="one-after-the-other"),
        pytest.param([5.0, 15.0, 15.0], 2, 20.0, id="the-longest-first"),
        pytest.param([1.0, 1.0, 8.0], 2, 8.0, id="never-less-than-the-longest"),
        pytest.param([1.0], 4, 1.0, id="more-slots-than-trials"),
    ],
)
def test_the_wall_clock_follows_from_the_slots(
    seconds: list[float], slots: int, wall: float
) -> None:
    assert wall_of(seconds, slots) == pytest.approx(wall)


def test_an_estimate_says_what_it_rests_on() -> None:
    cost = Cost("x=large", "cpu", 0.1234, 26, 0.5, 2, 930.0)
    assert cost.words == (
        "0.123 s a step (x=large): at most about 16 min with 2 trials at once, 0.50 CPU-hours; "
        "early stops and racing save some"
    )


def test_the_largest_trial_is_measured_for_real() -> None:
    with registered_for_tests():
        config = small_config(steps=6).model_dump(mode="json")
        trials = [
            type(SMALL)(**{**SMALL.to_json(), "configuration": name, "config": config | change})
            for name, change in (("a", {}), ("b", {"total_train_steps": 12}))
        ]
        cost = estimate(trials, steps=1)
    assert (cost.configuration, cost.trials) == ("b", 2)
    assert 0 < cost.seconds_per_step < 20
    assert cost.hours == pytest.approx(18 * cost.seconds_per_step / 3600)
    assert cost.wall_seconds >= 20 + 12 * cost.seconds_per_step
