import pytest

from sweeps.carried import CARRIED_KEYS, CARRIED_SECTIONS
from sweeps.dotted import contains, flatten, lay_over, lookup, nest
from sweeps.keys import KEYS, RENAMED, is_carried, nearest_key, unknown_key


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("actor.kl_ctl", "a number >= 0"),
        ("actor.eps_clip_higher", "a number >= -1 or null"),
        ("actor.adv_norm", "a section or null"),
        ("actor.adv_norm.mean_level", "one of batch, group or null"),
        ("gconfig.n_samples", "a whole number >= 1"),
        ("gconfig.top_p", "a number > 0 <= 1"),
        ("actor.mask_no_eos_with_zero", "true or false"),
        ("task.name", "text"),
        ("extensions.reward_weights", "a list or null"),
    ],
)
def test_a_key_says_what_it_takes_in_words(key: str, kind: str) -> None:
    assert KEYS[key].kind == kind


def test_every_key_is_documented() -> None:
    assert [key for key, known in KEYS.items() if not known.doc] == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        pytest.param("actor.kl_ctrl", "actor.kl_ctl", id="one-letter-more"),
        pytest.param("actor.adv_nrom", "actor.adv_norm", id="two-letters-swapped"),
        pytest.param("kl_ctl", "actor.kl_ctl", id="section-left-out"),
        pytest.param("std_level", "actor.reward_norm.std_level", id="deep-section-left-out"),
        pytest.param("actor.n_samples", "gconfig.n_samples", id="wrong-section"),
        pytest.param("actor.optimizr.lr", "actor.optimizer.lr", id="section-misspelt"),
        pytest.param("actor.optimizer.learning_speed", None, id="only-the-section-is-alike"),
    ],
)
def test_a_misspelt_key_gets_the_nearest_name(written: str, meant: str | None) -> None:
    assert nearest_key(written) == meant


def test_a_renamed_key_gets_todays_name() -> None:
    assert unknown_key("actor.group_adv_norm") == (
        "actor.group_adv_norm: not a key (any more); use actor.adv_norm"
    )


def test_a_key_like_nothing_points_to_the_list() -> None:
    assert unknown_key("zzz") == "zzz: no such key; `sweeps explain` lists all keys"


def test_every_renamed_key_leads_to_a_key_and_is_none_itself() -> None:
    assert {new for new in RENAMED.values() if new not in KEYS} == set()
    assert {old for old in RENAMED if old in KEYS or is_carried(old)} == set()


def test_no_carried_key_is_one_of_ours() -> None:
    carried = [f"{section}.{key}" for section, keys in CARRIED_KEYS.items() for key in keys]
    assert set(KEYS) & {*carried, *CARRIED_SECTIONS} == set()


@pytest.mark.parametrize(
    ("key", "carried"),
    [
        ("cluster.fileroot", True),
        ("sglang.mem_fraction_static", True),
        ("actor.attn_impl", True),
        ("actor.fsdp.wrap_policy.x", True),
        ("ref.experiment_name", True),
        ("actor.optimizer.offload", True),
        ("actor.kl_ctl", False),
        ("actor.kl_ctrl", False),
        ("ref", False),
        ("pathology", False),
    ],
)
def test_keys_of_a_production_run_are_carried_through(key: str, *, carried: bool) -> None:
    assert is_carried(key) is carried


def test_flattening_joins_sections_and_dotted_keys() -> None:
    nested = {"actor": {"kl_ctl": 0.0, "optimizer": {"lr": 1.0}}, "gconfig.n_samples": 4}
    assert flatten(nested) == {
        "actor.kl_ctl": 0.0,
        "actor.optimizer.lr": 1.0,
        "gconfig.n_samples": 4,
    }


def test_flattening_keeps_a_section_that_can_be_off_in_one_piece() -> None:
    norm = {"mean_level": "group", "std_level": None}
    assert flatten({"actor": {"adv_norm": norm}}) == {"actor.adv_norm": norm}


def test_flattening_puts_carried_keys_beside_their_section() -> None:
    nested = {"ref": {"path": "x"}, "critic": {"eps_clip": 0.5, "optimizer": {"offload": True}}}
    assert flatten(nested) == {
        "ref": {},
        "ref.path": "x",
        "critic": {"eps_clip": 0.5, "optimizer": {}},
        "critic.optimizer.offload": True,
    }


def test_a_whole_section_laid_over_replaces_everything_below_it() -> None:
    flat = {"actor.adv_norm": {"mean_level": "batch"}, "actor.adv_norm.std_level": "group"}
    assert lay_over(flat, {"actor.adv_norm": None}) == {"actor.adv_norm": None}


def test_a_setting_laid_over_a_section_changes_only_itself() -> None:
    flat = lay_over({"actor.adv_norm": {"mean_level": "batch"}}, {"actor.adv_norm.std_level": None})
    assert nest(flat) == {"actor": {"adv_norm": {"mean_level": "batch", "std_level": None}}}


def test_a_name_that_only_begins_alike_is_not_below() -> None:
    flat = lay_over({"actor.eps_clip_higher": 0.3}, {"actor.eps_clip": 0.2})
    assert flat == {"actor.eps_clip_higher": 0.3, "actor.eps_clip": 0.2}


def test_nesting_copies_so_that_cells_never_share_a_section() -> None:
    norm = {"mean_level": "batch"}
    nested = nest({"actor.adv_norm": norm, "actor.adv_norm.std_level": "group"})
    assert nested["actor"]["adv_norm"] == {"mean_level": "batch", "std_level": "group"}
    assert norm == {"mean_level": "batch"}


def test_looking_up_tells_absent_from_null_only_through_contains() -> None:
    config = {"actor": {"adv_norm": None}}
    assert lookup(config, "actor.adv_norm.mean_level") is None
    assert contains(config, "actor.adv_norm")
    assert not contains(config, "actor.adv_norm.mean_level")
    assert not contains(config, "critic")
