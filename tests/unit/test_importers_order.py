"""Numbers and steps as logs have them."""

import math

import numpy as np
import pytest

from sweeps.importers.groups import groups_in, signals_of_groups
from sweeps.importers.order import gaps, latest, order
from sweeps.importers.values import flatten, parse, single


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(3, 3.0, id="int"),
        pytest.param(True, 1.0, id="bool"),
        pytest.param("0.5", 0.5, id="text"),
        pytest.param(" 1e-6 ", 1e-6, id="text-with-exponent"),
        pytest.param("tensor(0.25)", 0.25, id="tensor"),
        pytest.param("tensor(0.25, device='cuda:0', grad_fn=<X>)", 0.25, id="tensor-on-a-gpu"),
        pytest.param("tensor([0.5, 1.5], dtype=torch.bfloat16)", [0.5, 1.5], id="vector"),
        pytest.param("np.float64(-0.125)", -0.125, id="numpy-scalar"),
        pytest.param("[0.5]", 0.5, id="printed-list"),
        pytest.param([0.5], 0.5, id="list-of-one"),
        pytest.param([0.5, [1.0, "2"]], [0.5, 1.0, 2.0], id="nested-list"),
        pytest.param([], None, id="empty-list"),
        pytest.param("", None, id="blank"),
        pytest.param(None, None, id="null"),
        pytest.param("None", None, id="printed-none"),
        pytest.param("-Infinity", -math.inf, id="infinity"),
    ],
)
def test_numbers_are_read_in_any_spelling(value: object, expected: object) -> None:
    assert parse(value) == expected


@pytest.mark.parametrize("value", ["nan", "NaN", float("nan"), "tensor(nan)", ["nan"]])
def test_nan_stays_nan(value: object) -> None:
    parsed = parse(value)
    assert isinstance(parsed, float)
    assert math.isnan(parsed)


@pytest.mark.parametrize("value", ["high", {"a": 1}, ["x"], "0.5 nats", "tensor(x)"])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="wanted a number, got"):
        parse(value)


def test_of_several_numbers_the_extreme_or_the_mean_counts() -> None:
    assert single([1.0, 2.0, 6.0], "loss") == 3.0
    assert single([1.0, 2.0, 6.0], "advantage_max") == 6.0
    assert single([1.0, 2.0, 6.0], "critic/score_min") == 1.0
    assert math.isnan(single([1.0, math.inf], "loss"))


def test_nested_mappings_get_slashes() -> None:
    assert dict(flatten({"a": {"b": {"c": 1}}, "d": 2})) == {"a/b/c": 1, "d": 2}


def resolved(steps: list[int]) -> tuple[list[int], tuple[int, ...], int]:
    """The steps that count, the resumes, and the rows out of place."""
    found = order(np.array(steps, dtype=np.int64))
    return (
        [step for step, kept in zip(steps, found.keep, strict=True) if kept],
        (found.resumed),
        found.out_of_place,
    )


@pytest.mark.parametrize(
    ("steps", "kept", "resumed", "out_of_place"),
    [
        pytest.param([1, 2, 3], [1, 2, 3], (), 0, id="in-order"),
        pytest.param([7], [7], (), 0, id="one"),
        pytest.param([1, 1, 2, 2], [1, 1, 2, 2], (), 0, id="two-lines-a-step"),
        pytest.param([1, 2, 3, 4, 5, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], (3,), 0, id="a-resume"),
        pytest.param(
            [*range(30), *range(10, 13)], [*range(13)], (10,), 0, id="a-resume-still-behind"
        ),
        pytest.param(
            [*range(30), *range(20, 40), *range(30, 45)], [*range(45)], (20, 30), 0, id="twice"
        ),
        pytest.param([1, 2, 3, 1, 2, 3], [1, 2, 3], (1,), 0, id="begun-again"),
        pytest.param([5, 6, 7, 8, 1, 2, 3, 4], [5, 6, 7, 8, 1, 2, 3, 4], (), 1, id="parts-swapped"),
        pytest.param(
            [*range(10), 4, *range(10, 40)], [*range(10), 4, *range(10, 40)], (), 1, id="late"
        ),
        pytest.param([4, 2, 9, 1, 7, 3], [4, 2, 9, 1, 7, 3], (), 3, id="shuffled"),
    ],
)
def test_a_counter_that_falls_back(
    steps: list[int], kept: list[int], resumed: tuple[int, ...], out_of_place: int
) -> None:
    assert resolved(steps) == (kept, resumed, out_of_place)


def test_of_equal_steps_the_last_counts() -> None:
    rows, repeated = latest(np.array([3, 1, 3, 2, 1], dtype=np.int64))
    assert rows.tolist() == [4, 3, 2]
    assert repeated == 2


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([1, 2, 3, 4], (0, 1), id="whole"),
        pytest.param([1, 2, 5, 6, 7], (2, 1), id="two-missing"),
        pytest.param([10, 20, 30, 60, 70], (2, 10), id="every-tenth"),
        pytest.param([1, 2], (0, 1), id="too-few"),
    ],
)
def test_missing_steps_are_counted_in_the_stride_of_the_log(
    steps: list[int], expected: tuple[int, int]
) -> None:
    assert gaps(np.array(steps, dtype=np.int64)) == expected


def test_groups_tell_silence_and_spread() -> None:
    signals = signals_of_groups([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [0.5, 0.5]])
    assert signals["raw.silent"] == 0.75
    assert signals["raw.gain"] == pytest.approx(math.sqrt(0.5) / 4)
    assert signals["reward_mean"] == 0.5
    assert signals["reward_min"] == 0.0
    assert signals["reward_max"] == 1.0
    assert signals["reward_std"] == pytest.approx(math.sqrt(6 * 0.25 / 7))


def test_groups_of_one_have_no_silence_to_tell() -> None:
    assert "raw.silent" not in signals_of_groups([[1.0], [0.0]])


@pytest.mark.parametrize(
    ("value", "size", "expected"),
    [
        pytest.param([[0, 1], [1, 1]], None, [[0.0, 1.0], [1.0, 1.0]], id="nested"),
        pytest.param([0, 1, 1, 1], 2, [[0.0, 1.0], [1.0, 1.0]], id="flat-with-its-size"),
        pytest.param([0, 1], None, [[0.0], [1.0]], id="flat-of-unknown-size"),
        pytest.param([0, 1, 1], 2, [[0.0], [1.0], [1.0]], id="a-size-that-does-not-fit"),
    ],
)
def test_lists_of_rewards_fall_into_groups(
    value: object, size: int | None, expected: list[list[float]]
) -> None:
    assert groups_in(value, size) == expected
