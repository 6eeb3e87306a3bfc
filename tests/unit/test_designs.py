"""Designs: which cells a sweep takes."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core.errors import ConfigError
from sweeps.documents import parse_mapping
from sweeps.plan import plan
from sweeps.space import Space, parse_space

KEYS = {
    "actor.kl_ctl": ["0.0", "0.01", "0.1", "1.0"],
    "actor.eps_clip": ["0.1", "0.2", "0.3"],
    "actor.ppo_n_minibatches": ["1", "2", "4"],
    "actor.reward_scaling": ["0.5", "1.0", "2.0"],
}
FOUR = "space:\n" + "".join(f"  {key}: [{', '.join(v)}]\n" for key, v in KEYS.items())


def read(text: str) -> Space:
    return parse_space(parse_mapping(text, "space.yaml"), source=Path("space.yaml"))


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(text)
    return [problem.removeprefix("space.yaml: ") for problem in raised.value.problems]


def points(space: Space) -> list[tuple[str, ...]]:
    return [tuple(level.name for level in cell.levels.values()) for cell in space.cells]


def pairs(rows: list[tuple[str, ...]]) -> set[object]:
    return {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}


GRID = points(read(FOUR))


def test_a_grid_is_every_combination_and_leaves_nothing_out() -> None:
    space = read(FOUR + "design: grid\n")
    assert len(space.cells) == 4 * 3 * 3 * 3
    assert (space.left_out, space.design.kind) == ("", "grid")


def test_one_factor_is_the_base_and_every_other_level_alone() -> None:
    # The tiny policy's profile has eps_clip 0.2 and 2 minibatches.
    base = "base: {actor: {kl_ctl: 0.01, reward_scaling: 1.0}}\n"
    space = read(base + FOUR + "design: one-factor\n")
    first, *others = points(space)
    assert first == ("0.01", "0.2", "2", "1")
    assert [sum(a != b for a, b in zip(first, row, strict=True)) for row in others] == [1] * 9
    assert len(set(others)) == 9
    assert space.left_out == "the base and each change alone; no two changes together"


def test_a_base_that_no_level_describes_gets_a_level_of_its_own() -> None:
    space = read(
        "base: {actor: {kl_ctl: 0.05, adv_norm: {}}}\n"
        "space: {actor.kl_ctl: [0.0, 1.0], actor.adv_norm: {off: null}, x: {base: {actor.eps_clip: "
        "0.5}}}\ndesign: one-factor\n"
    )
    assert points(space) == [
        ("0.05", "base", "(base)"),
        ("0", "base", "(base)"),
        ("1", "base", "(base)"),
        ("0.05", "off", "(base)"),
        ("0.05", "base", "base"),
    ]
    assert space.cells[0].config.actor.kl_ctl == 0.05
    assert space.cells[0].config.actor.eps_clip == 0.2
    assert next(trial.configuration for trial in plan(space).trials) == (
        "kl_ctl=0.05 adv_norm=base (base)"
    )


def test_one_factor_needs_a_base_that_can_run() -> None:
    (problem,) = problems_of(
        "base: {actor: {use_cispo_loss: true}}\nspace: {actor.eps_clip_higher: [4.0]}\n"
        "design: one-factor\n"
    )
    assert problem.startswith("design: one-factor starts from the base, which is wrong: actor.eps_")


def test_one_factor_leaves_out_what_is_excluded() -> None:
    text = "base: {actor: {kl_ctl: 0.01, reward_scaling: 1.0}}\n" + FOUR + "design: one-factor\n"
    space = read(text + "exclude: [{actor.kl_ctl: [0.1, 1.0], actor.eps_clip: 0.2}]\n")
    assert (len(space.cells), space.excluded) == (8, 2)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_pairwise_covers_every_pair_with_few_different_rows(seed: int) -> None:
    rows = points(read(FOUR + f"design: {{kind: pairwise, seed: {seed}}}\n"))
    assert pairs(rows) == pairs(GRID)
    assert len(set(rows)) == len(rows)
    assert rows == sorted(rows, key=GRID.index)
    # 4 x 3 = 12 is the least that the two largest axes need.
    assert 12 <= len(rows) <= 18


def test_pairwise_says_what_it_covers() -> None:
    space = read(FOUR + "design: pairwise\n")
    # 3 pairs of the axis of 4 with one of 3, and 3 pairs among those of 3.
    count = 3 * 4 * 3 + 3 * 3 * 3
    assert space.left_out == (
        f"{len(space.cells)} of 108 combinations, which hold {count} of {count} pairs of levels"
    )


ANY_EXCLUDE = st.lists(
    st.dictionaries(
        st.sampled_from(sorted(KEYS)), st.sampled_from([0, 1, 2]), min_size=1, max_size=3
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=20, deadline=None)
@given(patterns=ANY_EXCLUDE, seed=st.integers(0, 100))
def test_pairwise_covers_whatever_an_exclusion_leaves(
    patterns: list[dict[str, int]], seed: int
) -> None:
    exclude = [{key: float(KEYS[key][at]) for key, at in p.items()} for p in patterns]
    for pattern in exclude:
        if "actor.ppo_n_minibatches" in pattern:
            pattern["actor.ppo_n_minibatches"] = int(pattern["actor.ppo_n_minibatches"])
    text = FOUR + f"exclude: {exclude}\n".replace("'", "")
    try:
        wanted = points(read(text))
    except ConfigError:  # nothing is left
        return
    space = read(text + f"design: {{kind: pairwise, seed: {seed}}}\n")
    rows = points(space)
    assert set(rows) <= set(wanted)
    assert pairs(rows) == pairs(wanted)
    missing = len(pairs(GRID)) - len(pairs(wanted))
    said = f"; {missing} exist only in excluded combinations" if missing else "pairs of levels"
    assert space.left_out.endswith(said)


def test_pairwise_of_one_axis_is_all_of_its_levels() -> None:
    space = read("space: {actor.kl_ctl: [0.0, 0.1, 1.0]}\nexclude: [{actor.kl_ctl: 0.1}]\n"
                 "design: pairwise\n")  # fmt: skip
    assert points(space) == [("0",), ("1",)]
    assert (space.excluded, space.left_out) == (1, "")


@settings(max_examples=20, deadline=None)
@given(cells=st.integers(1, 108), seed=st.integers(0, 10_000))
def test_a_sample_has_the_wanted_number_of_different_cells(cells: int, seed: int) -> None:
    rows = points(read(FOUR + f"design: {{kind: random, cells: {cells}, seed: {seed}}}\n"))
    assert len(set(rows)) == len(rows) == cells
    assert set(rows) <= set(GRID)
    assert rows == sorted(rows, key=GRID.index)


def test_a_larger_sample_of_the_same_seed_contains_the_smaller() -> None:
    some, more = (
        set(points(read(FOUR + f"design: {{kind: random, cells: {cells}, seed: 5}}")))
        for cells in (10, 40)
    )
    assert some < more


def test_every_level_is_drawn_as_often_as_any() -> None:
    drawn = [
        row
        for seed in range(60)
        for row in points(read(FOUR + f"design: {{kind: random, cells: 12, seed: {seed}}}"))
    ]
    # 720 rows; each of the four levels of the first axis is expected 180 times, sd 11.
    counts = [sum(row[0] == level for row in drawn) for level in ("0", "0.01", "0.1", "1")]
    assert all(abs(count - 180) < 4 * 11 for count in counts)


@pytest.mark.parametrize("design", ["pairwise", "{kind: random, cells: 9, seed: 3}", "one-factor"])
def test_a_design_takes_the_same_cells_every_time(design: str) -> None:
    base = "base: {actor: {kl_ctl: 0.01, reward_scaling: 1.0}}\n"
    once, again = (plan(read(base + FOUR + f"design: {design}")) for _ in range(2))
    assert once.trials == again.trials
    assert once.content == again.content


@pytest.mark.parametrize("kind", ["pairwise", "random, cells: 9"])
def test_another_seed_takes_other_cells(kind: str) -> None:
    one, other = (points(read(FOUR + f"design: {{kind: {kind}, seed: {seed}}}")) for seed in (0, 1))
    assert one != other


def test_a_sample_respects_exclusions() -> None:
    text = FOUR + "exclude: [{actor.kl_ctl: [0.0, 0.01, 0.1]}]\n"
    rows = points(read(text + "design: {kind: random, cells: 27}"))
    assert {row[0] for row in rows} == {"1"}
    assert problems_of(text + "design: {kind: random, cells: 28}") == [
        "design.cells: got 28, wanted at most 27: all that are not excluded"
    ]


MANY = "space:\n" + "".join(
    f"  {key}: [{', '.join(str(0.1 + i / 100) for i in range(20))}]\n"
    for key in ("actor.kl_ctl", "actor.eps_clip", "actor.reward_scaling", "actor.reward_clip")
)


def test_a_space_too_large_for_a_grid_is_not_for_other_designs() -> None:
    (problem,) = problems_of(MANY)
    assert problem == (
        "space: 160000 combinations; wanted at most 20000; pairwise or random designs take fewer"
    )
    assert len(read(MANY + "design: {kind: random, cells: 30}").cells) == 30
    assert len(read(MANY + "design: pairwise").cells) < 1200


KINDS = "grid, one-factor, pairwise, random, tpe"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("pairwse", f"design: got 'pairwse', wanted one of {KINDS}; did you mean pairwise?"),
        ("{kind: randm}", f"design.kind: got 'randm', wanted one of {KINDS}; did you mean random?"),
        (
            "{cells: 3}",
            f'design: got {{"cells": 3}}, wanted one of {KINDS}, or a mapping with `kind`',
        ),
        ("random", "design.cells: missing; say how many, e.g. {kind: random, cells: 20}"),
        (
            "{kind: random, cells: 2, sed: 1}",
            "design.sed: no such key in a random design; did you mean seed?",
        ),
        ("{kind: tpe, cells: 0}", "design.cells: got 0, wanted a whole number >= 1"),
        ("{kind: tpe, cells: true}", "design.cells: got true, wanted a whole number >= 1"),
        ("{kind: pairwise, seed: -1}", "design.seed: got -1, wanted a whole number >= 0"),
        (
            "{kind: grid, xyzzy: 4}",
            "design.xyzzy: no such key in a grid design; wanted one of kind",
        ),
        ("{kind: tpe, cells: 109}", "design.cells: got 109, wanted at most 108: all there are"),
    ],
)
def test_what_is_wrong_with_a_design_is_said(written: str, problem: str) -> None:
    assert problems_of(FOUR + f"design: {written}\n") == [problem]


def test_all_problems_of_a_design_are_said_at_once() -> None:
    found = problems_of(FOUR + "design: {kind: random, cells: 0, sed: 1}\nseeds: 0\n")
    assert [problem.split(":")[0] for problem in found] == ["seeds", "design.sed", "design.cells"]


def test_a_wrong_design_does_not_hide_what_else_is_wrong() -> None:
    found = problems_of("space: {actor.kl_ctrl: [0.0]}\ndesign: gird\nseeds: 0\n")
    assert [problem.split(":")[0] for problem in found] == [
        "seeds",
        "design",
        "space.actor.kl_ctrl",
    ]


def test_a_search_plans_no_trial_and_belongs_to_its_content() -> None:
    text = FOUR + "seeds: 2\ndesign: {kind: tpe, cells: 30, seed: 4}\n"
    planned = plan(read(text))
    assert planned.trials == ()
    assert planned.counts == "30 configurations x 2 seeds = at most 60 trials"
    assert planned.space.left_out == (
        "30 of 108 combinations, chosen one by one from the results so far (TPE, seed 4)"
    )
    for other in ("seed: 4", "cells: 30", "seeds: 2", "0.01"):
        changed = text.replace(other, {"0.01": "0.02"}.get(other, other.split(":")[0] + ": 3"))
        assert plan(read(changed)).content != planned.content


def test_a_budget_of_trials_bounds_a_search() -> None:
    text = FOUR + "seeds: 2\nbudget: {trials: 9}\ndesign: {kind: tpe, cells: 30}\n"
    assert plan(read(text)).counts == "4 configurations x 2 seeds = at most 8 trials"
