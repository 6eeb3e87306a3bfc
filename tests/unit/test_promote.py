from pathlib import Path

import pytest
from omegaconf import OmegaConf

from grpo_core.errors import ConfigError
from sweeps.plan import TrialSpec
from sweeps.promote import (
    Promotion,
    choose,
    command_line,
    promote,
    provenance_of,
    write_promotion,
)
from sweeps.record import SweepRecord
from sweeps.results import Results, load_results
from tests.sweeps_made import begun, end_of, finish

FILE = """\
# Our production run. Do not touch the cluster section!
experiment_name: gsm8k-grpo   # shown in the tracker
cluster:
  n_nodes: 1
  name_resolve: {type: nfs, nfs_record_root: "/tmp/areal"}
gconfig:
  n_samples: 4
  temperature: 1.0
actor:
  path: 'Qwen/Qwen2.5-1.5B'  # quotes stay
  optimizer:
    lr: 1.70e-5
  kl_ctl: 0.1      # was 0.05 last week
  eps_clip: 0.4
  reward_norm:
    mean_level: group
    std_level: group   # the suspect
    group_size: ${gconfig.n_samples}
  adv_norm: null
  scheduling_spec:
    - task_type: worker
      gpu: 1
# the end
"""


def results_of(folder: Path, space: str) -> Results:
    """A sweep over one linked axis in which every configuration is healthy on its only seed."""
    record = begun(folder / "storage", space + "\nseeds: 1\n")
    return load_results(finish(record, {s.configuration: [end_of(0.9)] for s in _trials(record)}))


def _trials(record: SweepRecord) -> tuple[TrialSpec, ...]:
    return record.header().trials


def promoted(folder: Path, space: str, file: str = FILE, config: str | None = None) -> Promotion:
    results = results_of(folder, space)
    base = folder / "areal.yaml"
    base.write_text(file)
    return promote(results, choose(results, config), base, {})


def body(promotion: Promotion) -> list[str]:
    """The file's lines without the header."""
    lines = promotion.text.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith("# Our")) :]


def test_only_the_changed_lines_change(tmp_path: Path) -> None:
    promotion = promoted(tmp_path, "space: {actor.kl_ctl: [0.0]}")
    before = FILE.splitlines()
    after = body(promotion)
    assert len(after) == len(before)
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        ("  kl_ctl: 0.1      # was 0.05 last week", "  kl_ctl: 0.0      # was 0.05 last week")
    ]


def test_a_setting_that_is_as_it_should_be_is_left_alone(tmp_path: Path) -> None:
    promotion = promoted(tmp_path, "space: {actor.kl_ctl: [0.1], actor.eps_clip: [0.4]}")
    assert promotion.changes == ()
    assert body(promotion) == FILE.splitlines()


def test_a_section_is_changed_setting_by_setting(tmp_path: Path) -> None:
    space = "space: {actor.reward_norm: [{mean_level: group, std_level: null, eps: 0.001}]}"
    promotion = promoted(tmp_path, space)
    assert [(c.key, c.value) for c in promotion.changes] == [
        ("actor.reward_norm.std_level", None),
        ("actor.reward_norm.eps", 0.001),
    ]
    assert "    std_level: null    # the suspect" in body(promotion)
    loaded = OmegaConf.create(promotion.text)
    assert loaded.actor.reward_norm == {
        "mean_level": "group",
        "std_level": None,
        "group_size": 4,
        "eps": 0.001,
    }


def test_a_new_norm_over_groups_gets_its_group_size(tmp_path: Path) -> None:
    promotion = promoted(
        tmp_path, "space: {actor.adv_norm: [{mean_level: group, std_level: null}]}"
    )
    (change,) = promotion.changes
    assert change.value == {
        "mean_level": "group",
        "std_level": None,
        "group_size": "${gconfig.n_samples}",
    }
    assert promotion.overrides == (
        "actor.adv_norm={mean_level:group,std_level:null,group_size:${gconfig.n_samples}}",
    )
    assert OmegaConf.create(promotion.text).actor.adv_norm.group_size == 4


def test_a_group_size_of_one_is_put_right_when_the_norm_becomes_one_over_groups(
    tmp_path: Path,
) -> None:
    file = FILE.replace("mean_level: group", "mean_level: batch")
    file = file.replace("std_level: group ", "std_level: batch ")
    file = file.replace("group_size: ${gconfig.n_samples}", "group_size: 1")
    promotion = promoted(tmp_path, "space: {actor.reward_norm.std_level: [group]}", file)
    assert [(c.key, c.value) for c in promotion.changes] == [
        ("actor.reward_norm.std_level", "group"),
        ("actor.reward_norm.group_size", "${gconfig.n_samples}"),
    ]


def test_a_setting_in_a_section_that_is_off_sets_the_section(tmp_path: Path) -> None:
    promotion = promoted(tmp_path, "space: {actor.adv_norm.std_level: [null]}")
    (change,) = promotion.changes
    # The norm that was run: AReaL's mean over the batch, and no spread.
    assert (change.key, change.value) == (
        "actor.adv_norm",
        {"mean_level": "batch", "std_level": None},
    )
    assert promotion.overrides == ("actor.adv_norm={mean_level:batch,std_level:null}",)


def test_a_section_that_is_off_in_the_winner_is_switched_off(tmp_path: Path) -> None:
    space = (
        "space: {x: {off: {actor.reward_norm: null}, "
        "group: {actor.reward_norm: {std_level: group}, actor.reward_norm.mean_level: group}}}"
    )
    promotion = promoted(tmp_path, space, config="off")
    assert [(c.key, c.value) for c in promotion.changes] == [("actor.reward_norm", None)]
    assert OmegaConf.create(promotion.text).actor.reward_norm is None


def test_a_key_that_the_file_lacks_is_added_and_marked_for_hydra(tmp_path: Path) -> None:
    promotion = promoted(
        tmp_path, "space: {actor.c_clip: [3.0], rollout.max_head_offpolicyness: [2]}"
    )
    assert promotion.overrides == ("+actor.c_clip=3.0", "+rollout.max_head_offpolicyness=2")
    loaded = OmegaConf.create(promotion.text)
    assert (loaded.actor.c_clip, loaded.rollout.max_head_offpolicyness) == (3.0, 2)


def test_a_key_that_the_file_lacks_and_that_is_areals_default_is_not_added(tmp_path: Path) -> None:
    assert promoted(tmp_path, "space: {actor.discount: [1.0]}").changes == ()


def test_overrides_survive_a_shell(tmp_path: Path) -> None:
    promotion = promoted(
        tmp_path, "space: {actor.adv_norm: [{mean_level: group, std_level: null}]}"
    )
    assert command_line(promotion) == (
        "'actor.adv_norm={mean_level:group,std_level:null,group_size:${gconfig.n_samples}}'"
    )


def test_settings_of_scale_and_our_own_are_said_and_not_written(tmp_path: Path) -> None:
    space = (
        "space: {x: {w: {actor.optimizer.lr: 0.01, extensions.kl_loss_coef: 0.5, "
        "task.reward_wrong: -1.0, actor.eps_clip: 0.3}}}"
    )
    promotion = promoted(tmp_path, space)
    assert [change.key for change in promotion.changes] == ["actor.eps_clip"]
    assert promotion.notices[:3] == (
        "actor.optimizer.lr=0.01: belongs to the diagnostic model's scale, not written",
        "extensions.kl_loss_coef=0.5: AReaL has no such setting, not written",
        "task.reward_wrong=-1.0: AReaL has no such setting, not written",
    )
    assert "1.70e-5" in promotion.text


LINKED_SAMPLES = "space: {x: {w: {}, one: {gconfig.n_samples: 1}}}"


def test_the_diagnostic_group_size_is_not_forced_on_production(tmp_path: Path) -> None:
    # `w` wins without touching n_samples; its 8 answers are the profile's.
    promotion = promoted(tmp_path, LINKED_SAMPLES, config="w")
    assert promotion.changes == ()
    assert promotion.notices[0] == (
        "gconfig.n_samples=8: belongs to the diagnostic model's scale, not written"
    )


def test_a_group_size_that_was_in_question_is_written(tmp_path: Path) -> None:
    promotion = promoted(tmp_path, "space: {gconfig.n_samples: [8]}")
    assert promotion.overrides == ("gconfig.n_samples=8",)


def test_settings_that_were_not_swept_and_differ_are_said(tmp_path: Path) -> None:
    promotion = promoted(
        tmp_path,
        "base: {actor: {kl_ctl: 0.0, adv_norm: {mean_level: batch}}}\n"
        "space: {actor.eps_clip: [0.3]}",
    )
    (notice,) = promotion.notices
    assert notice.startswith("the file keeps its own values of settings that were not swept: ")
    assert "actor.kl_ctl 0.1 (sweep: 0.0)" in notice
    assert "actor.adv_norm.mean_level" in notice
    assert "actor.temperature" not in notice
    assert "eps_clip" not in notice


def test_an_alias_is_not_changed_with_its_anchor(tmp_path: Path) -> None:
    file = (
        "# Our file\nactor:\n  reward_norm: &norm {mean_level: batch, std_level: batch}\n"
        "  adv_norm: *norm\n"
    )
    promotion = promoted(tmp_path, "space: {actor.adv_norm.std_level: [null]}", file)
    loaded = OmegaConf.create(promotion.text)
    assert loaded.actor.reward_norm == {"mean_level": "batch", "std_level": "batch"}
    assert loaded.actor.adv_norm == {"mean_level": "batch", "std_level": None}


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("actor: 5\n", "actor: got 5, wanted a section, to set actor.kl_ctl in it"),
        ("- a\n", "wanted a mapping of keys to values, got a list"),
        ("a: !tag x\n", "the tag !tag is refused"),
    ],
)
def test_a_file_that_cannot_take_the_change_is_refused(
    tmp_path: Path, file: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=f"areal.yaml: .*{said}"):
        promoted(tmp_path, "space: {actor.kl_ctl: [0.0]}", file)


def test_the_header_says_where_the_file_comes_from(tmp_path: Path) -> None:
    record = begun(
        tmp_path, "space: {actor.kl_ctl: [0.0]}\nseeds: 2\nquestion: |\n  Why?\n  Really\n"
    )
    finish(record, {"kl_ctl=0": [end_of(0.9), end_of(0.9)]})
    results = load_results(record)
    choice = choose(results, None)
    base = tmp_path / "areal.yaml"
    base.write_text(FILE)
    header = record.header()
    text = promote(results, choice, base, provenance_of(header, choice)).text
    assert text.splitlines()[:8] == [
        "# Promoted by grpo-sweeps from sweep: kl",
        "# question: Why? Really",
        f"# configuration: kl_ctl=0 (hash {choice.config_hash})",
        "# verdict: healthy, 2 of 2 seeds healthy",
        "# seeds: 1, 2",
        f"# grpo-sweeps: version {header.version}, sweep content {header.content}",
        "# actor.kl_ctl: 0.1 -> 0.0",
        "# Our production run. Do not touch the cluster section!",
    ]


def test_a_configuration_is_chosen_by_name_or_hash_or_recommendation(tmp_path: Path) -> None:
    results = results_of(tmp_path, "space: {actor.kl_ctl: [0.0, 0.5]}")
    second = results.configurations[1]
    assert choose(results, "kl_ctl=0.5") is second
    assert choose(results, second.config_hash) is second
    assert choose(results, None) is results.recommended
    with pytest.raises(ConfigError, match=r"--config: got 'x', wanted one of .*\(kl_ctl=0\.5\)"):
        choose(results, "x")


def test_nothing_is_promoted_where_nothing_is_recommended(tmp_path: Path) -> None:
    results = load_results(begun(tmp_path, "space: {actor.kl_ctl: [0.0]}"))
    with pytest.raises(
        ConfigError, match="nothing to promote: no configuration is healthy on every"
    ):
        choose(results, None)


def test_an_existing_file_is_overwritten_only_when_asked(tmp_path: Path) -> None:
    promotion = promoted(tmp_path, "space: {actor.kl_ctl: [0.0]}")
    out = tmp_path / "new" / "out.yaml"
    write_promotion(promotion, out, overwrite=False)
    assert out.read_text() == promotion.text
    with pytest.raises(ConfigError, match=r"--out: .*out\.yaml exists; --force overwrites it"):
        write_promotion(promotion, out, overwrite=False)
    write_promotion(promotion, out, overwrite=True)
    assert [path.name for path in out.parent.iterdir()] == ["out.yaml"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    promotion = promoted(tmp_path, "space: {actor.kl_ctl: [0.0]}")
    with pytest.raises(ConfigError, match=r"--out: .*out\.yaml: cannot be written: "):
        write_promotion(promotion, tmp_path / "areal.yaml" / "out.yaml", overwrite=False)
