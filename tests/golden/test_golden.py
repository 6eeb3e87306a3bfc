"""Our maths against reference values, through the same functions that the trainer calls."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_core.config import ActorConfig
from tests.golden.check import check_case, check_section, main, relative_error, render
from tests.golden.packing import pack, unpack
from tests.golden.store import Case, load_sections
from tests.golden.write_hand import CASES, HandCase, write

HERE = Path(__file__).resolve().parent
HAND = HERE / "hand"
SHARED = HERE.parents[2] / "shared" / "golden"


def hand_case(case_id: str) -> Case:
    (section,) = load_sections(HAND)
    return next(case for case in section.cases if case.id == case_id)


def test_the_reference_values_of_areal_and_trl() -> None:
    if not SHARED.is_dir():
        pytest.skip(
            f"GOLDEN VALUES MISSING: {SHARED} does not exist, so agreement with AReaL and TRL "
            "is NOT checked here; only the hand-computed cases are"
        )
    reports = [check_section(section) for section in load_sections(SHARED)]
    assert reports
    text = "\n".join(render(report) for report in reports)
    assert all(report.agrees for report in reports), text


def test_the_hand_computed_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(HAND)]) == 0
    assert f"{len(CASES)} cases, {len(CASES)} agree" in capsys.readouterr().out


def test_the_committed_hand_cases_are_what_the_script_writes(tmp_path: Path) -> None:
    write(tmp_path)
    assert (tmp_path / "hand.json").read_text() == (HAND / "hand.json").read_text()
    (fresh,), (committed,) = load_sections(tmp_path), load_sections(HAND)
    for ours, theirs in zip(fresh.cases, committed.cases, strict=True):
        for tensors, others in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
            assert all(tensors[name].equal(others[name]) for name in tensors)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_wrong_number_is_noticed(case: HandCase) -> None:
    loaded = hand_case(case.id)
    name = next(iter(loaded.outputs))
    wrong = loaded.outputs[name].clone()
    wrong = ~wrong if wrong.dtype == torch.bool else wrong + 0.01
    outcome = check_case(replace(loaded, outputs={**loaded.outputs, name: wrong}))
    assert name in outcome.disagreements


def test_disagreement_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = replace(CASES[0], outputs={"normalized": CASES[0].outputs["normalized"] + 1})
    write(tmp_path, [case])
    assert main([str(tmp_path)]) == 1
    assert "DISAGREES hand-norm-grpo: normalized" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"kind": "tea_leaves"}, "kind tea_leaves", id="kind"),
        pytest.param({"config": {"norm": {"mean_level": "moon"}}}, "mean_level", id="config"),
        pytest.param({"outputs": {"mood": torch.ones(1)}}, "output mood", id="output"),
    ],
)
def test_what_we_do_not_have_is_reported_as_unsupported(
    change: dict[str, Any], reason: str
) -> None:
    outcome = check_case(replace(hand_case("hand-norm-grpo"), **change))
    assert outcome.unsupported is not None
    assert reason in outcome.unsupported


def test_a_folder_without_indices_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="wanted golden indices"):
        load_sections(tmp_path)


def test_the_folder_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ours", "theirs", "error"),
    [
        pytest.param([1.0], [1.0], 0.0, id="equal"),
        pytest.param([torch.nan], [torch.nan], 0.0, id="both-nan"),
        pytest.param([torch.nan], [1.0], torch.inf, id="one-nan"),
        pytest.param([torch.inf], [torch.inf], 0.0, id="both-infinite"),
        pytest.param([1e-6], [0.0], 1e-5, id="absolute"),
        pytest.param([1.0, 1.0], [1.0], torch.inf, id="shape"),
    ],
)
def test_relative_error_by_hand(ours: list[float], theirs: list[float], error: float) -> None:
    # The denominator is |theirs| plus 1e-6 / 1e-5.
    found = relative_error(torch.tensor(ours), torch.tensor(theirs), 1e-5)
    assert found == pytest.approx(error, rel=1e-5)


def test_packing_is_undone_by_unpacking() -> None:
    boundaries = torch.tensor([0, 1, 1, 4], dtype=torch.int32)
    packed = torch.tensor([1.0, 2.0, 3.0, 4.0])
    rows = unpack(packed, boundaries)
    assert rows.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [2.0, 3.0, 4.0]]
    assert pack(rows, boundaries).equal(packed)


def test_areal_defaults_are_ours() -> None:
    # The golden README lists AReaL's defaults: a case leaves out what has its default.
    actor = ActorConfig()
    assert (actor.eps_clip, actor.kl_ctl, actor.kl_estimator) == (0.2, 0.1, "k1")
    assert (actor.reward_clip, actor.reward_scaling, actor.reward_bias) == (20.0, 1.0, 0.0)
    assert (actor.sapo_tau_pos, actor.sapo_tau_neg, actor.max_new_tokens) == (1.0, 1.05, 1024)
    assert (actor.discount, actor.gae_lambda, actor.gae_timestep_unit) == (1.0, 1.0, "token")
    assert actor.eps_clip_higher is actor.c_clip is actor.m2_threshold is None
    assert actor.reward_norm is None
    assert actor.adv_norm is None
    assert actor.rejection_sampling is None
