import re

import pytest

from grpo_core.differences import DIFFERENCES, Difference
from grpo_core.errors import ConfigError
from grpo_core.metrics import STAGES
from sweeps.explain import explain, list_keys
from sweeps.keys import KEYS
from sweeps.stages import STAGE_SETTINGS


def test_a_setting_is_explained_with_kind_default_and_stage() -> None:
    lines = explain("actor.kl_ctl").splitlines()
    assert lines[0].startswith("actor.kl_ctl: Weight of the per-token KL penalty")
    assert "takes     a number >= 0" in lines
    assert "default   0.1 (AReaL's)" in lines
    assert "verdicts  a signal lost at stage 'returns' points here" in lines


def test_a_setting_that_areal_does_not_have_says_so() -> None:
    assert "default   strict (ours; AReaL has no such key)" in explain("task.verifier")


def test_a_setting_of_scale_says_what_the_policy_starts_from() -> None:
    text = explain("actor.optimizer.lr")
    assert (
        "scale     policy tiny starts from 0.0005, also in place of a production file's value"
        in text
    )
    assert "scale     policy tiny starts from 8\n" in explain("gconfig.n_samples") + "\n"


def test_a_section_lists_its_settings() -> None:
    text = explain("actor.adv_norm")
    assert "takes     a section or null" in text
    assert re.search(r"actor\.adv_norm\.std_level  \(default batch\)  Whose spread divides", text)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda d: d.key)
def test_every_difference_from_areal_is_told_with_its_setting(difference: Difference) -> None:
    text = explain(difference.key)
    assert f"Differs from AReaL ({difference.key}; `areal_compat: true` gives AReaL's way)" in text
    assert difference.ours in text


@pytest.mark.parametrize("key", KEYS)
def test_every_key_can_be_explained(key: str) -> None:
    assert explain(key).startswith(f"{key}: ")


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_settings_and_each_of_them_points_back(stage: str) -> None:
    names = [word.strip(",") for word in STAGE_SETTINGS[stage].split() if word.startswith("actor.")]
    assert names or stage == "raw"
    for name in names:
        keys = [k for k in KEYS if k.startswith(name.removesuffix("*"))]
        assert keys, name
        assert any(f"stage {stage!r}" in explain(key) for key in keys)


def test_a_carried_key_is_said_to_have_no_effect() -> None:
    assert explain("cluster") == (
        "cluster: an AReaL key without effect in a diagnostic run; it is carried through."
    )
    assert "without effect" in explain("actor.attn_impl")


def test_a_misspelt_key_gets_the_nearest_name() -> None:
    with pytest.raises(
        ConfigError, match=r"actor\.kl_ctrl: no such key; did you mean actor\.kl_ctl\?"
    ):
        explain("actor.kl_ctrl")


def test_the_list_has_every_setting_with_a_line() -> None:
    lines = list_keys().splitlines()
    assert [line.split()[0] for line in lines] == [k for k, key in KEYS.items() if not key.section]
    assert all(len(line.split()) > 2 for line in lines)
