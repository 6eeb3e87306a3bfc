import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.documents import parse_mapping
from sweeps.plan import Plan, TrialSpec, digest, plan
from sweeps.space import parse_space

TWO_AXES = "space: {actor.kl_ctl: [0.0, 0.1], gconfig.n_samples: [4, 8]}\nseeds: 2\n"


def planned(text: str) -> Plan:
    return plan(parse_space(parse_mapping(text, "kl.yaml"), source=Path("kl.yaml")))


def test_every_configuration_runs_with_every_seed_first_seeds_first() -> None:
    trials = planned(TWO_AXES).trials
    assert [trial.seed for trial in trials] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert [trial.configuration for trial in trials[:4]] == [
        "kl_ctl=0 n_samples=4",
        "kl_ctl=0 n_samples=8",
        "kl_ctl=0.1 n_samples=4",
        "kl_ctl=0.1 n_samples=8",
    ]
    assert trials[4].name == "kl_ctl=0 n_samples=4 · s2"
    assert [trial.config["seed"] for trial in trials] == [trial.seed for trial in trials]


def test_ids_belong_to_content_and_hashes_to_the_configuration() -> None:
    trials = planned(TWO_AXES).trials
    assert len({trial.id for trial in trials}) == 8
    assert len({trial.config_hash for trial in trials}) == 4
    assert {(len(trial.id), len(trial.config_hash)) for trial in trials} == {(12, 12)}
    assert trials[0].config_hash == trials[4].config_hash
    assert trials[0].id != trials[4].id


def test_the_order_of_keys_and_the_way_of_writing_change_no_id() -> None:
    other = planned(
        "seeds: [1, 2]\nquestion: other words\nspace: {gconfig.n_samples: [4, 8], "
        "actor.kl_ctl: [0, 1.0e-1]}\nname: elsewhere\n"
    )
    assert {t.id for t in other.trials} == {t.id for t in planned(TWO_AXES).trials}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("space: {actor.kl_ctl: [0.2]}", id="value"),
        pytest.param("space: {actor.kl_ctl: [0.1]}\nseeds: [9]", id="seed"),
        pytest.param("space: {actor.kl_ctl: [0.1]}\nset: {actor.eps_clip: 0.21}", id="base"),
        pytest.param("space: {actor.kl_ctl: [0.1]}\nbudget: {steps: 41}", id="steps"),
        pytest.param("space: {actor.kl_ctl: [0.1]}\nbase: {evaluation: {every: 9}}", id="judge"),
    ],
)
def test_any_difference_in_content_changes_the_ids(text: str) -> None:
    same = planned("space: {actor.kl_ctl: [0.1]}\nseeds: [1]").trials[0].id
    assert same not in {trial.id for trial in planned(text).trials}


def test_a_digest_forgets_the_order_of_keys_at_every_level() -> None:
    rng = np.random.default_rng(3)

    def shuffled(value: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, dict):
            keys = list(value)
            rng.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return value

    config = planned(TWO_AXES).trials[0].config
    assert {digest(shuffled(config), 16) for _ in range(20)} == {digest(config, 16)}


def test_ids_are_the_same_in_every_process() -> None:
    code = (
        "from pathlib import Path\nfrom sweeps.documents import parse_mapping\n"
        "from sweeps.plan import plan\nfrom sweeps.space import parse_space\n"
        f"space = parse_space(parse_mapping({TWO_AXES!r}, 'kl.yaml'), source=Path('kl.yaml'))\n"
        "planned = plan(space)\nprint(planned.content, *[t.id for t in planned.trials])\n"
    )
    printed = {
        subprocess.run(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    }
    here = planned(TWO_AXES)
    assert printed == {" ".join([here.content, *(t.id for t in here.trials)]) + "\n"}


def test_a_plan_survives_being_written_and_read() -> None:
    text = "space: {x: {a: {extensions.reward_weights: [1.0, 0.5]}, b: {actor.adv_norm: null}}}"
    for trial in planned(text).trials:
        assert TrialSpec.from_json(json.loads(json.dumps(trial.to_json()))) == trial


def test_swept_settings_of_a_linked_axis_are_given_for_every_level() -> None:
    trials = planned(
        "space: {x: {base: {}, clip: {actor.eps_clip: 0.5}, norm: {actor.adv_norm: {}}}}\nseeds: 1"
    ).trials
    assert [trial.swept["actor.eps_clip"] for trial in trials] == [0.2, 0.5, 0.2]
    assert trials[0].swept["actor.adv_norm"] is None
    assert trials[2].swept["actor.adv_norm"]["mean_level"] == "batch"
    assert [trial.configuration for trial in trials] == ["base", "clip", "norm"]


def test_axes_are_called_by_their_shortest_clear_name() -> None:
    names = planned(
        "base: {critic: {}}\nspace: {actor.eps_clip: [0.2], critic.eps_clip: [0.5], "
        "actor.kl_ctl: [0.0], actor.adv_norm.std_level: [batch]}\nseeds: 1"
    )
    assert names.trials[0].configuration == (
        "actor.eps_clip=0.2 critic.eps_clip=0.5 kl_ctl=0 adv_norm.std_level=batch"
    )


def test_trials_beyond_the_budget_are_planned_but_not_run() -> None:
    limited = planned(TWO_AXES + "budget: {trials: 3, steps: 10}")
    assert limited.not_run == tuple(trial.id for trial in limited.trials[3:])
    assert limited.counts == (
        "4 configurations x 2 seeds = 8 trials, 30 steps (5 trials beyond budget.trials)"
    )


def test_the_budget_belongs_to_the_content_and_the_question_does_not() -> None:
    same = planned(TWO_AXES).content
    assert planned(TWO_AXES + "question: why?\n").content == same
    assert planned(TWO_AXES + "budget: {hours: 1}\n").content != same


def test_what_is_left_out_is_counted_in_words() -> None:
    text = (
        "space: {x: {a: {actor.kl_ctl: 1.0}, b: {actor.kl_ctl: 1}}, gconfig.n_samples: [2, 4]}\n"
        "exclude: [{x: a, gconfig.n_samples: 2}]\nbudget: {steps: 10}\nseeds: 1"
    )
    assert planned(text).counts == (
        "2 configurations x 1 seeds = 2 trials, 20 steps (1 combinations excluded, 1 combinations "
        "equal to another)"
    )


def test_planning_loads_nothing_heavy() -> None:
    code = (
        "import sys, sweeps.cli, sweeps.explain\n"
        "heavy = {'torch', 'ray', 'mlflow', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own interpreter
