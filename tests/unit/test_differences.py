from pathlib import Path

import pytest

from grpo_core.config import TrialConfig
from grpo_core.differences import DIFFERENCES, Difference, differences_of, render_document

ROOT = Path(__file__).resolve().parents[2]


def test_the_document_is_generated() -> None:
    document = ROOT / "docs" / "areal_differences.md"
    assert document.read_text(encoding="utf-8") == render_document()


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda item: f"{item.key}: {item.areal}")
def test_every_difference_concerns_a_setting_that_exists(difference: Difference) -> None:
    node = TrialConfig.model_validate(
        {"actor": {"reward_norm": {}, "adv_norm": {}, "rejection_sampling": {}}, "critic": {}}
    )
    for name in difference.key.split("."):
        node = getattr(node, name)
    texts = (difference.areal, difference.ours, difference.reason, difference.source)
    assert all(texts)
    assert not any("|" in text for text in texts)


def test_a_key_finds_what_lies_above_and_below_it() -> None:
    assert len(differences_of("actor.rejection_sampling.metric")) == 3
    assert {item.key for item in differences_of("actor.adv_norm")} == {
        "actor.adv_norm",
        "actor.adv_norm.mean_leave1out",
        "actor.adv_norm.std_unbiased",
    }
    assert differences_of("gconfig.top_p") == ()
