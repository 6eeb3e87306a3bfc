from pathlib import Path
from typing import Any

import pytest

from grpo_core.errors import ConfigError
from sweeps.documents import parse_mapping
from sweeps.space import Space, load_space, parse_space
from sweeps.space.axes import level_name

AREAL = """\
# A production run, with the keys of AReaL's GSM8K example.
experiment_name: gsm8k-grpo
trial_name: trial0
seed: 1
total_train_epochs: 10
cluster: {n_nodes: 1, fileroot: /tmp/areal, name_resolve: {type: nfs}}
allocation_mode: sglang:d4p1t1+d4p1t1
tokenizer_path: ${actor.path}
async_training: true
rollout:
  experiment_name: ${experiment_name}
  max_concurrent_rollouts: 256
  max_head_offpolicyness: 2
gconfig:
  n_samples: 4
  max_new_tokens: 1024
  temperature: 1.0
  stop_token_ids: []
actor:
  experiment_name: ${experiment_name}
  path: Qwen/Qwen2.5-1.5B-Instruct
  dtype: bfloat16
  mb_spec: {max_tokens_per_mb: 10240}
  temperature: ${gconfig.temperature}
  max_new_tokens: ${gconfig.max_new_tokens}
  group_size: ${gconfig.n_samples}
  optimizer: {type: adam, lr: 1.70e-5, weight_decay: 0.017, offload: false}
  eps_clip: 0.4
  kl_ctl: 0.0
  reward_scaling: 10.0
  reward_bias: -0.5
  ppo_n_minibatches: 1
  recompute_logprob: true
  use_decoupled_loss: true
  reward_norm: {mean_level: group, std_level: group, group_size: "${gconfig.n_samples}"}
  adv_norm: {mean_level: batch, std_level: batch}
  scheduling_spec: [{task_type: worker, gpu: 1}]
ref: {experiment_name: "${experiment_name}", path: "${actor.path}", mb_spec: {}}
sglang: {model_path: "${actor.path}", random_seed: "${seed}"}
train_dataset: {batch_size: 256, shuffle: true, path: openai/gsm8k}
valid_dataset: {batch_size: 256}
saver: {freq_epochs: 1}
stats_logger: {wandb: {mode: disabled}}
"""


def read(text: str, *overrides: str, folder: Path = Path()) -> Space:
    document = parse_mapping(text, "kl.yaml")
    return parse_space(document, source=folder / "kl.yaml", overrides=overrides)


def problems_of(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, *overrides)
    return [problem.removeprefix("kl.yaml: ") for problem in caught.value.problems]


def values(space: Space, section: str, field: str) -> list[Any]:
    return [getattr(getattr(cell.config, section), field) for cell in space.cells]


# --- what a space says ---------------------------------------------------------------------------


def test_an_axis_over_one_key_gives_a_cell_per_value_in_order() -> None:
    space = read("space: {actor.kl_ctl: [0.0, 0.1, 1.0]}")
    assert values(space, "actor", "kl_ctl") == [0.0, 0.1, 1.0]
    assert [cell.levels["actor.kl_ctl"].name for cell in space.cells] == ["0", "0.1", "1"]


def test_two_axes_give_every_combination_the_last_one_fastest() -> None:
    space = read("space: {actor.kl_ctl: [0.0, 1.0], actor.eps_clip: [0.1, 0.2]}")
    pairs = list(
        zip(values(space, "actor", "kl_ctl"), values(space, "actor", "eps_clip"), strict=True)
    )
    assert pairs == [(0.0, 0.1), (0.0, 0.2), (1.0, 0.1), (1.0, 0.2)]


def test_a_linked_axis_moves_several_settings_together() -> None:
    space = read(
        "space:\n"
        "  algorithm:\n"
        "    plain: {}\n"
        "    grpo: {actor.reward_norm: {mean_level: group, std_level: group}, actor.kl_ctl: 0.5}\n"
        "    drgrpo: {actor: {reward_norm: {mean_level: group, std_level: null}}}\n"
    )
    plain, grpo, drgrpo = (cell.config.actor for cell in space.cells)
    assert plain.reward_norm is None
    assert grpo.reward_norm is not None
    assert (grpo.reward_norm.std_level, grpo.kl_ctl) == ("group", 0.5)
    assert drgrpo.reward_norm is not None
    assert (drgrpo.reward_norm.mean_level, drgrpo.reward_norm.std_level) == ("group", None)


def test_an_axis_over_one_key_may_name_its_values() -> None:
    space = read("space: {actor.adv_norm: {off: null, batch: {mean_level: batch}}}")
    assert [cell.levels["actor.adv_norm"].name for cell in space.cells] == ["off", "batch"]
    assert space.cells[0].config.actor.adv_norm is None


def test_exclude_takes_away_what_matches_every_part_of_a_pattern() -> None:
    space = read(
        "space: {actor.kl_ctl: [0.0, 1.0], actor.eps_clip: [0.1, 0.2, 0.3]}\n"
        "exclude: [{actor.kl_ctl: 0, actor.eps_clip: [0.1, 0.3]}]\n"
    )
    assert space.excluded == 2
    kept = list(
        zip(values(space, "actor", "kl_ctl"), values(space, "actor", "eps_clip"), strict=True)
    )
    assert kept == [(0.0, 0.2), (1.0, 0.1), (1.0, 0.2), (1.0, 0.3)]


def test_combinations_that_give_the_same_configuration_run_once() -> None:
    # The base has no reward norm and kl_ctl 0.1 already: `again` changes nothing.
    space = read("base: {actor: {kl_ctl: 0.5}}\nspace: {x: {base: {}, again: {actor.kl_ctl: 0.5}}}")
    assert len(space.cells) == 1
    assert space.duplicates == 1
    assert space.cells[0].levels["x"].name == "base"


def test_an_absent_bound_is_not_the_same_as_an_infinite_one() -> None:
    space = read(
        "base: {actor: {use_decoupled_loss: true}}\n"
        "space: {actor.rejection_sampling: {one: {metric: kl_k1}, "
        "two: {metric: kl_k1, lower: -.inf}}}"
    )
    assert len(space.cells) == 2


def test_an_interpolation_follows_the_axis_that_it_points_to() -> None:
    space = read(
        "base: {actor: {reward_norm: {mean_level: group, group_size: '${gconfig.n_samples}'}}}\n"
        "space: {gconfig.n_samples: [2, 8]}\n"
    )
    norms = [cell.config.actor.reward_norm for cell in space.cells]
    assert [norm.group_size for norm in norms if norm is not None] == [2, 8]


def test_a_level_may_itself_be_an_interpolation() -> None:
    space = read(
        "space: {gconfig.temperature: [0.5, 2.0]}\n"
        "set: {actor.temperature: '${gconfig.temperature}'}"
    )
    assert values(space, "actor", "temperature") == [0.5, 2.0]


def test_later_layers_win_profile_base_own_keys_set_and_command_line() -> None:
    space = read(
        "task: sort\nbase: {actor: {kl_ctl: 1.0, eps_clip: 0.3}, task: {name: think}}\n"
        "set: {actor.kl_ctl: 2.0, actor.c_clip: 5.0}\nspace: {gconfig.n_samples: [4]}\n"
        "budget: {steps: 30}\n",
        "actor.c_clip=7.0",
        "total_train_steps=12",
    )
    config = space.cells[0].config
    assert config.task.name == "sort"
    assert (config.actor.kl_ctl, config.actor.eps_clip, config.actor.c_clip) == (2.0, 0.3, 7.0)
    assert config.total_train_steps == 12
    assert config.actor.optimizer.lr == 5e-4  # the profile's, which nothing replaced


def test_the_budget_sets_the_steps_of_every_cell() -> None:
    space = read("space: {actor.kl_ctl: [0.0]}\nbudget: {steps: 7}")
    assert space.cells[0].config.total_train_steps == 7


def test_an_axis_over_a_section_replaces_what_set_says_inside_it() -> None:
    space = read(
        "base: {actor: {reward_norm: {mean_level: group, std_level: group}}}\n"
        "set: {actor.reward_norm.std_level: null}\n"
        "space: {actor.reward_norm: [null, {mean_level: batch, std_level: batch}]}\n"
    )
    off, batch = (cell.config.actor.reward_norm for cell in space.cells)
    assert off is None
    assert batch is not None
    assert (batch.mean_level, batch.std_level) == ("batch", "batch")


def test_a_list_may_stand_where_a_setting_takes_several_numbers() -> None:
    space = read("space: {extensions.reward_weights: [null, [1.0, 0.5]]}")
    assert values(space, "extensions", "reward_weights") == [None, (1.0, 0.5)]


def test_seeds_are_counted_from_one_or_taken_as_listed() -> None:
    assert read("space: {actor.kl_ctl: [0.0]}\nseeds: 3").seeds == (1, 2, 3)
    assert read("space: {actor.kl_ctl: [0.0]}\nseeds: [7, 0]").seeds == (7, 0)
    assert read("space: {actor.kl_ctl: [0.0]}").seeds == (1, 2)


@pytest.mark.parametrize(
    ("line", "implied"), [("", True), ("implied: true\n", True), ("implied: false\n", False)]
)
def test_a_file_may_ask_for_trained_evidence(line: str, *, implied: bool) -> None:
    space = read(f"space: {{actor.kl_ctl: [0.0]}}\n{line}")
    assert space.implied is implied


def test_the_name_defaults_to_the_files() -> None:
    assert read("space: {actor.kl_ctl: [0.0]}").name == "kl"
    assert read("name: other\nspace: {actor.kl_ctl: [0.0]}").name == "other"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "none"),
        (True, "true"),
        (0.0, "0"),
        (1.0, "1"),
        (1, "1"),
        (0.1, "0.1"),
        (1e-7, "1e-07"),
        (1e6, "1000000.0"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        ("group", "group"),
        ({"mean_level": None, "eps": 1.0}, "mean_level=none,eps=1"),
        ({}, "{}"),
        ([1.0, 0.5], "1,0.5"),
    ],
)
def test_a_level_is_called_by_its_value(value: object, name: str) -> None:
    assert level_name(value) == name


# --- an AReaL file as base -----------------------------------------------------------------------


@pytest.fixture
def production(tmp_path: Path) -> Path:
    (tmp_path / "areal.yaml").write_text(AREAL)
    return tmp_path


def test_an_areal_file_can_be_the_base_as_it_is(production: Path) -> None:
    text = AREAL.replace("  group_size: ${gconfig.n_samples}\n", "")
    (production / "areal.yaml").write_text(text)
    space = read("base: areal.yaml\nspace: {actor.kl_ctl: [0.0, 0.1]}", folder=production)
    config = space.cells[1].config
    assert config.actor.kl_ctl == 0.1
    assert config.actor.reward_scaling == 10.0
    assert config.actor.reward_norm is not None
    assert config.actor.reward_norm.group_size == 4
    assert config.actor.temperature == 1.0
    assert config.rollout.max_head_offpolicyness == 2
    assert config.gconfig.n_samples == 4
    assert config.ref is not None


def test_settings_of_scale_come_from_the_profile_and_are_listed(production: Path) -> None:
    text = AREAL.replace("  group_size: ${gconfig.n_samples}\n", "")
    (production / "areal.yaml").write_text(text)
    space = read("base: areal.yaml\nspace: {actor.kl_ctl: [0.0]}", folder=production)
    config = space.cells[0].config
    assert (config.gconfig.max_new_tokens, config.train_dataset.batch_size) == (18, 12)
    assert config.actor.optimizer.lr == 5e-4
    (scale, carried) = space.notices
    assert scale.startswith(
        "set to the diagnostic model's scale: train_dataset.batch_size 256 -> 12"
    )
    assert "actor.optimizer.lr 1.7e-05 -> 0.0005" in scale
    assert "gconfig.max_new_tokens 1024 -> 18" in scale
    assert carried.startswith("carried through, no effect in a diagnostic run: ")
    assert "actor.path 'Qwen/Qwen2.5-1.5B-Instruct' -> " in scale
    assert "actor.dtype 'bfloat16' -> float32" in scale
    assert {"cluster.n_nodes", "ref.path", "actor.optimizer.offload"} <= set(
        carried.partition(": ")[2].split(", ")
    )


def test_a_renamed_key_of_an_old_areal_file_is_named(production: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read("base: areal.yaml\nspace: {actor.kl_ctl: [0.0]}", folder=production)
    assert caught.value.problems == (
        (
            f"{production / 'kl.yaml'}: base file {production / 'areal.yaml'}: actor.group_size: "
            "not a key (any more); use gconfig.n_samples"
        ),
    )


def test_scale_that_the_space_sets_itself_stays(production: Path) -> None:
    text = AREAL.replace("  group_size: ${gconfig.n_samples}\n", "")
    (production / "areal.yaml").write_text(text)
    text = "base: areal.yaml\nset: {actor.optimizer.lr: 0.01}\nspace: {gconfig.max_new_tokens: [8]}"
    config = read(text, folder=production).cells[0].config
    assert (config.actor.optimizer.lr, config.gconfig.max_new_tokens) == (0.01, 8)


def test_a_carried_value_that_nobody_can_resolve_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "areal.yaml").write_text(
        "actor: {path: '${nowhere}', temperature: '${gconfig.temperature}'}\n"
        "sglang: {x: '${'}\ngconfig: {temperature: 0.7}\n"
    )
    space = read("base: areal.yaml\nspace: {actor.kl_ctl: [0.0]}", folder=tmp_path)
    assert space.cells[0].config.actor.temperature == 0.7


def test_a_base_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"base: .*none\.yaml: cannot be read: No such file"):
        read("base: none.yaml\nspace: {actor.kl_ctl: [0.0]}", folder=tmp_path)


def test_the_file_of_an_unreadable_space_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_space(tmp_path / "none.yaml")


# --- bad input -----------------------------------------------------------------------------------

AXIS = "space: {actor.kl_ctl: [0.0]}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            AXIS + "sed: 3",
            "sed: no such key in a search space; did you mean seeds?",
            id="misspelt-key-of-the-file",
        ),
        pytest.param(
            AXIS + "xyzzy: 3",
            "xyzzy: no such key in a search space; wanted one of name, question, policy, task, "
            "base, set, space, exclude, design, seeds, budget, budget.steps, budget.trials, "
            "budget.hours, stop, implied, racing",
            id="key-like-nothing",
        ),
        pytest.param(
            AXIS + "budget: {step: 4}",
            "budget.step: no such key in a search space; did you mean budget.steps?",
            id="misspelt-key-of-the-budget",
        ),
        pytest.param(
            "space: {actor.kl_ctrl: [0.0]}",
            "space.actor.kl_ctrl: no such key; did you mean actor.kl_ctl?",
            id="misspelt-axis",
        ),
        pytest.param(
            "space: {x: {one: {actor.kl_ctrl: 0.0}}}",
            "space.x.one.actor.kl_ctrl: no such key; did you mean actor.kl_ctl?",
            id="misspelt-key-in-a-level",
        ),
        pytest.param(
            AXIS + "base: {actor: {kl_ctrl: 0.0}}",
            "base: actor.kl_ctrl: no such key; did you mean actor.kl_ctl?",
            id="misspelt-key-in-the-base",
        ),
        pytest.param(
            AXIS + "set: {actor.kl_ctrl: 0.0}",
            "set: actor.kl_ctrl: no such key; did you mean actor.kl_ctl?",
            id="misspelt-key-in-set",
        ),
        pytest.param(
            AXIS + "base: {actor: {adv_norm: {std_lvl: batch}}}",
            "actor.adv_norm.std_lvl: no such key; did you mean actor.adv_norm.std_level?",
            id="misspelt-key-in-a-whole-section",
        ),
        pytest.param(
            AXIS + "task: {name: think, verifyer: weak}",
            "task: task.verifyer: no such key; did you mean task.verifier?",
            id="misspelt-key-of-the-task",
        ),
        pytest.param(
            "space: {actor.kl_ctl: [a lot]}",
            "actor.kl_ctl: got 'a lot', wanted a number >= 0",
            id="wrong-type",
        ),
        pytest.param(
            "space: {actor.kl_ctl: ['0.1']}",
            "actor.kl_ctl: got '0.1', wanted a number >= 0",
            id="text-that-looks-like-a-number",
        ),
        pytest.param(
            "space: {gconfig.n_samples: [4.5]}",
            "gconfig.n_samples: got 4.5, wanted a whole number >= 1",
            id="fraction-where-a-count-is-wanted",
        ),
        pytest.param(
            "space: {gconfig.n_samples: [true]}",
            "gconfig.n_samples: got true, wanted a whole number >= 1",
            id="truth-where-a-count-is-wanted",
        ),
        pytest.param(
            "space: {actor.eps_clip: [.inf]}",
            "actor.eps_clip: got Infinity, wanted a number >= 0",
            id="infinity-where-a-finite-number-is-wanted",
        ),
        pytest.param(
            "space: {actor.kl_ctl: [-1.0]}",
            "actor.kl_ctl: got -1.0, wanted a number >= 0",
            id="out-of-range",
        ),
        pytest.param(
            "space: {actor.importance_sampling_level: [tokens]}",
            "actor.importance_sampling_level: got 'tokens', wanted one of token, sequence",
            id="not-one-of-the-choices",
        ),
        pytest.param(
            "space: {actor.gae_lambda: [2.0]}",
            "actor.gae_lambda: got 2.0, wanted a number >= 0 <= 1 or one of "
            "areal.trainer.ppo.lambda_fn.constant_gae_lambda, "
            "areal.trainer.ppo.lambda_fn.vapo_length_adaptive_gae, "
            "areal.trainer.ppo.lambda_fn.relative_position_gae_lambda",
            id="one-problem-for-a-setting-of-two-kinds",
        ),
        pytest.param(
            "space: {actor.adv_norm: [batch]}",
            "actor.adv_norm: got 'batch', wanted a section or null",
            id="value-where-a-section-is-wanted",
        ),
        pytest.param(
            "space: {actor.kl_ctl: ['${actor.kl}']}",
            "actor.kl_ctl: '${actor.kl}' cannot be resolved: Interpolation key "
            "'actor.kl' not found",
            id="interpolation-of-nothing",
        ),
        pytest.param(
            AXIS + "base: {actor: {eps_clip: '${actor.c_clip}', c_clip: '${actor.eps_clip}'}}",
            "actor.eps_clip: '${actor.c_clip}' cannot be resolved: Recursive "
            "interpolation detected",
            id="interpolation-in-a-circle",
        ),
        pytest.param(
            AXIS + "base: {actor: {eps_clip: '${'}}",
            "actor.eps_clip: '${' cannot be resolved: no viable alternative at input '${'",
            id="interpolation-that-is-none",
        ),
        pytest.param(
            AXIS + "base: {actor: {adv_norm: {eps: '${nope}'}}}",
            """actor.adv_norm: {"eps": "${nope}"} cannot be resolved: Interpolation key """
            "'nope' not found",
            id="interpolation-inside-a-section",
        ),
        pytest.param("space: {}", "space: got no axis, wanted at least one", id="no-axis"),
        pytest.param("name: x", "space: missing; it is required", id="no-space"),
        pytest.param("space: [a]", 'space: got ["a"], wanted a mapping', id="space-as-a-list"),
        pytest.param(
            "space: {actor.kl_ctl: []}",
            "space.actor.kl_ctl: got no level, wanted at least one",
            id="empty-axis",
        ),
        pytest.param(
            "space: {x: {}}", "space.x: got no level, wanted at least one", id="empty-linked-axis"
        ),
        pytest.param(
            "space: {actor.kl_ctl: 0.1}",
            "space.actor.kl_ctl: got 0.1, wanted a list of values or named levels",
            id="axis-that-is-one-value",
        ),
        pytest.param(
            "space: {actor.kl_ctl: [0.1, 1.0e-1]}",
            "space.actor.kl_ctl: level 0.1 is given more than once",
            id="duplicate-level",
        ),
        pytest.param(
            "space: {gconfig.n_samples: [4, '4']}",
            "space.gconfig.n_samples: level 4 is given more than once",
            id="levels-of-one-name",
        ),
        pytest.param(
            "space: {seed: [1, 2]}",
            "space.seed: cannot be an axis; set it with the file's own key `seeds`",
            id="seed-as-an-axis",
        ),
        pytest.param(
            "space: {actor: {kl_ctl: [0.0, 0.1]}}",
            "space.actor: is a group of settings; write the full name of one, e.g. actor.optimizer",
            id="nested-axis",
        ),
        pytest.param(
            "space: {actor.attn_impl: [a, b]}",
            "space.actor.attn_impl: has no effect in a diagnostic run, so there is nothing to "
            "sweep",
            id="axis-without-effect",
        ),
        pytest.param(
            "space: {kl_ctl: {low: 0.1}}",
            "space.kl_ctl.low: got 0.1, wanted a mapping of dotted keys to values; or did you mean "
            "the key actor.kl_ctl?",
            id="linked-axis-that-is-none",
        ),
        pytest.param(
            "space: {actor.kl_ctl: [0.0, 1.0], x: {a: {actor.kl_ctl: 2.0}, b: {}}}",
            "space: the axes actor.kl_ctl and x both set actor.kl_ctl; one of them would be lost",
            id="two-axes-over-one-key",
        ),
        pytest.param(
            "space: {actor.adv_norm: [null], actor.adv_norm.std_level: [group]}",
            "space: the axes actor.adv_norm and actor.adv_norm.std_level both set "
            "actor.adv_norm.std_level; one of them would be lost",
            id="two-axes-over-a-section-and-its-part",
        ),
        pytest.param(
            AXIS + "seeds: 0",
            "seeds: got 0, wanted 1 to 1000 (or a list of seeds)",
            id="zero-seeds",
        ),
        pytest.param(
            AXIS + "seeds: -1",
            "seeds: got -1, wanted 1 to 1000 (or a list of seeds)",
            id="negative-seeds",
        ),
        pytest.param(
            AXIS + "seeds: 1000000000",
            "seeds: got 1000000000, wanted 1 to 1000 (or a list of seeds)",
            id="a-billion-seeds",
        ),
        pytest.param(
            AXIS + "seeds: []", "seeds: got an empty list, wanted at least one seed", id="no-seed"
        ),
        pytest.param(
            AXIS + "seeds: [1, 1]", "seeds: got [1, 1], wanted every seed once", id="seed-twice"
        ),
        pytest.param(
            AXIS + "seeds: many",
            "seeds: got 'many', wanted a number of seeds, or a list of whole numbers >= 0",
            id="seeds-in-words",
        ),
        pytest.param(
            AXIS + "seeds:",
            "seeds: got null, wanted a number of seeds, or a list of whole numbers >= 0",
            id="seeds-left-empty",
        ),
        pytest.param(
            AXIS + "base: {seed: 3}",
            "base: seed: every trial has its own; list them under `seeds`",
            id="seed-in-the-base",
        ),
        pytest.param(
            AXIS + "exclude: [{actor.kl_ctl: 0.0}]",
            "exclude: removes all 1 combinations, nothing is left to run",
            id="exclude-that-removes-everything",
        ),
        pytest.param(
            AXIS + "exclude: [{}]",
            "exclude[0]: got an empty mapping, which would exclude everything",
            id="empty-exclude",
        ),
        pytest.param(
            AXIS + "exclude: [{kl_ctl: 0.0}]",
            "exclude[0].kl_ctl: no such axis; wanted one of actor.kl_ctl",
            id="exclude-of-no-axis",
        ),
        pytest.param(
            AXIS + "exclude: [{actor.kl_ctl: 5.0}]",
            "exclude[0].actor.kl_ctl: got 5.0, wanted one of its levels 0",
            id="exclude-of-no-level",
        ),
        pytest.param(
            "space: {clip: {on: {actor.eps_clip: 0.2}, off: {actor.eps_clip: 9.0}}}\n"
            "exclude: [{clip: off}]",
            "exclude[0].clip: got false, wanted one of its levels off, on; write names such as "
            "'on' "
            "and 'off' in quotes",
            id="exclude-of-a-level-called-off",
        ),
        pytest.param(
            AXIS + "exclude: [5]",
            "exclude[0]: got 5, wanted a valid dictionary",
            id="exclude-of-a-number",
        ),
        pytest.param(
            AXIS + "task: nothink",
            "task.name: got 'nothink', wanted one of think, sort, reasoning_gym:DATASET, "
            "jsonl:FILE",
            id="unknown-task",
        ),
        pytest.param(
            AXIS + "policy: huge",
            "policy: got 'huge', wanted one of tiny, hf, hf:MODEL",
            id="unknown-policy",
        ),
        pytest.param(
            AXIS + "policy: 5", "policy: got 5, wanted text or null", id="policy-as-a-number"
        ),
        pytest.param(
            AXIS + "base: {policy: [x]}",
            'policy: got ["x"], wanted one of tiny, hf, hf:MODEL',
            id="policy-as-a-list",
        ),
        pytest.param(
            AXIS + "design: gird",
            "design: got 'gird', wanted one of grid, one-factor, pairwise, random, tpe; did you "
            "mean grid?",
            id="unknown-design",
        ),
        pytest.param(
            AXIS + "budget: {steps: 0}",
            "budget.steps: got 0, wanted a whole number >= 1 or null",
            id="budget-of-no-step",
        ),
        pytest.param(
            AXIS + "budget: {trials: 0}",
            "budget.trials: got 0, wanted a whole number >= 1 or null",
            id="budget-of-no-trial",
        ),
        pytest.param(
            AXIS + "implied: never",
            "implied: got 'never', wanted true or false",
            id="implied-that-is-no-answer",
        ),
        pytest.param(
            AXIS + "budget: {hours: 0}",
            "budget.hours: got 0, wanted a number > 0 or null",
            id="budget-of-no-time",
        ),
        pytest.param(
            AXIS + "name: two words",
            "name: got 'two words', wanted letters, digits, `_`, `.` or `-`, beginning with a "
            "letter "
            "or digit, at most 100",
            id="name-that-is-no-folder",
        ),
        pytest.param(
            AXIS + "name: ../up",
            "name: got '../up', wanted letters, digits, `_`, `.` or `-`, beginning with a letter "
            "or "
            "digit, at most 100",
            id="name-that-leaves-the-folder",
        ),
        pytest.param(
            "space: {gconfig.max_new_tokens: [64]}",
            "gconfig.max_new_tokens: got 64, wanted at most 32 for policy tiny",
            id="longer-than-the-policy-can-answer",
        ),
        pytest.param(
            "space: {actor.kl_ctl: [" + ", ".join(f"{i}.0" for i in range(200)) + "], "
            "actor.eps_clip: [" + ", ".join(f"{i}.0" for i in range(200)) + "]}",
            "space: 40000 combinations; wanted at most 20000; pairwise or random designs take "
            "fewer",
            id="a-grid-without-end",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(text: str, problem: str) -> None:
    assert problem in problems_of(text)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("actor.kl_ctl", "--set actor.kl_ctl: wanted key=value"),
        ("=3", "--set =3: wanted key=value"),
        ("actor.kl_ctrl=3", "--set: actor.kl_ctrl: no such key; did you mean actor.kl_ctl?"),
        (
            "actor.kl_ctl=[",
            (
                "--set actor.kl_ctl: line 1, column 9: while parsing a flow node, expected the "
                "node content, but found '<stream end>'"
            ),
        ),
        ("actor.kl_ctl=1\nother: 2", "--set actor.kl_ctl=1\nother: 2: wanted one value"),
        ("seed=3", "--set: seed: every trial has its own; list them under `seeds`"),
        ("budget.steps=3", "--set: budget.steps: not a key (any more); use total_train_steps"),
        ("actor.eps_clip=-1", "actor.eps_clip: got -1, wanted a number >= 0"),
        ("actor.eps_clip=", "actor.eps_clip: got null, wanted a number >= 0"),
    ],
)
def test_a_bad_override_is_refused_as_such(override: str, problem: str) -> None:
    assert problem in problems_of(AXIS, override)


def test_an_override_may_be_a_whole_section() -> None:
    space = read(AXIS, "actor.adv_norm={mean_level: group, std_level: null}", "gconfig.n_samples=4")
    config = space.cells[0].config
    assert config.actor.adv_norm is not None
    assert config.actor.adv_norm.mean_level == "group"
    assert config.gconfig.n_samples == 4


def test_every_problem_is_listed_at_once() -> None:
    problems = problems_of(
        "nam: x\n"
        "base: {actor: {kl_ctrl: 1.0, eps_clip: -1.0}}\n"
        "space: {actor.c_clip: [], gconfig.n_samples: [0, 4]}\n"
        "seeds: 0\nbudget: {hours: -1}\nexclude: [{nowhere: 1}]\n",
        "actor.reward_clip",
    )
    assert problems == [
        "budget.hours: got -1, wanted a number > 0 or null",
        "nam: no such key in a search space; did you mean name?",
        "seeds: got 0, wanted 1 to 1000 (or a list of seeds)",
        "--set actor.reward_clip: wanted key=value",
        "space.actor.c_clip: got no level, wanted at least one",
        "base: actor.kl_ctrl: no such key; did you mean actor.kl_ctl?",
        "exclude[0].nowhere: no such axis; wanted one of actor.c_clip, gconfig.n_samples",
        "actor.eps_clip: got -1.0, wanted a number >= 0",
        "gconfig.n_samples: got 0, wanted a whole number >= 1",
    ]


def test_an_unknown_task_is_named_beside_other_problems() -> None:
    problems = problems_of("task: thnk\nspace: {actor.kl_ctrl: [1.0]}")
    assert any("task.name: got 'thnk', wanted one of think, sort" in line for line in problems)
    assert any("did you mean actor.kl_ctl?" in line for line in problems)


def test_a_problem_of_some_cells_says_which() -> None:
    assert problems_of("space: {actor.kl_ctl: [0.0, -1.0], actor.eps_clip: [0.1, 0.2]}") == [
        (
            "actor.kl_ctl: got -1.0, wanted a number >= 0 (in 2 of 4 cells, first: "
            "actor.kl_ctl=-1 actor.eps_clip=0.1)"
        )
    ]


def test_what_settings_do_together_is_checked_per_cell() -> None:
    problems = problems_of("space: {actor.use_cispo_loss: [false, true]}")
    assert len(problems) == 1
    assert problems[0].startswith("actor.eps_clip_higher=null with actor.use_cispo_loss=true")
    assert problems[0].endswith("(in 1 of 2 cells, first: actor.use_cispo_loss=true)")


def test_a_broken_axis_does_not_bring_problems_that_it_would_have_solved() -> None:
    # The axis would give CISPO its bound; without it the rule would speak.
    problems = problems_of(
        "base: {actor: {use_cispo_loss: true}}\nspace: {actor.eps_clip_higher: []}"
    )
    assert problems == ["space.actor.eps_clip_higher: got no level, wanted at least one"]


def test_an_excluded_combination_needs_no_valid_configuration() -> None:
    space = read(
        "space: {actor.use_cispo_loss: [false, true], actor.eps_clip_higher: [null, 4.0]}\n"
        "exclude: [{actor.use_cispo_loss: true, actor.eps_clip_higher: none}]\n"
    )
    assert len(space.cells) == 3


def test_a_base_that_only_its_cells_make_valid_is_allowed() -> None:
    space = read("base: {actor: {use_cispo_loss: true}}\nspace: {actor.eps_clip_higher: [4.0]}")
    assert space.base is None
    assert len(space.cells) == 1


def test_yaml_reads_off_as_a_truth_value_and_stop_means_the_word() -> None:
    text = "space: {actor.kl_ctl: [0.0]}\nstop: "
    assert [read(text + word).stop for word in ("off", '"off"', "safe")] == ["off", "off", "safe"]
    assert problems_of(text + "never") == ["stop: got 'never', wanted one of off, safe, aggressive"]
