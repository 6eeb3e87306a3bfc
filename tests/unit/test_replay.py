import math
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_core.config import TaskConfig, TrialConfig
from grpo_core.pipeline import Experience
from grpo_core.replay import Recorded, Replayer, advantage_bound, lacking
from sweeps.documents import parse_mapping
from sweeps.replay.evaluate import evaluate
from sweeps.replay.figure import draw_outcome
from sweeps.replay.outcome import CellOutcome, Outcome, replay_space
from sweeps.replay.recording import Recording
from sweeps.space import parse_space


def batch(**changes: object) -> Recorded:
    """One group of two answers, of one and of two tokens; the first is right."""
    mask = torch.tensor([[False, True, False], [False, True, True]])
    fields: dict[str, Any] = {
        "rewards": torch.tensor([1.0, 0.0]),
        "loss_mask": mask,
        "lengths": torch.tensor([3, 4]),
        "truncated": torch.tensor([False, False]),
        "behaviour_logprobs": torch.where(mask, -0.5, 0.0),
        "group_sizes": torch.tensor([2]),
    }
    recorded: dict[str, Any] = {"passed": torch.tensor([True, False]), "task": TaskConfig()}
    recorded |= {name: changes.pop(name) for name in list(changes) if name in RECORDED}
    return Recorded(Experience(**(fields | changes)), **recorded)


RECORDED = ("passed", "task", "knows_truncation")


def config(**actor: object) -> TrialConfig:
    sections = {"kl_ctl": 0.0, "reward_norm": {"mean_level": "group", "std_level": None}} | actor
    extensions = sections.pop("extensions", {})
    rest = {name: sections.pop(name) for name in ("gconfig", "task", "critic") if name in sections}
    return TrialConfig.model_validate(
        {"gconfig": {"n_samples": 2}} | rest | {"actor": sections, "extensions": extensions}
    )


def weights(settings: TrialConfig, recorded: Recorded | None = None) -> list[float]:
    recorded = batch() if recorded is None else recorded
    result = Replayer(recorded).evaluate(settings)
    return result.weights[recorded.experience.loss_mask].tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # A = r - 1/2 = +-1/2, over 3 tokens, with the sign of a loss
        pytest.param(config(), [-1 / 6, 1 / 6, 1 / 6], id="token-mean"),
        # over 2 answers, and each answer over its own tokens
        pytest.param(
            config(extensions={"loss_aggregation": "sequence-mean"}),
            [-1 / 4, 1 / 8, 1 / 8],
            id="sequence-mean",
        ),
        # A = r - the other's r = +-1
        pytest.param(
            config(reward_norm={"mean_level": "group", "mean_leave1out": True, "std_level": None}),
            [-1 / 3, 1 / 3, 1 / 3],
            id="leave-one-out",
        ),
        # only right answers are pushed
        pytest.param(config(reward_norm=None), [-1 / 3, 0.0, 0.0], id="no-norm"),
        # groups of one: r - r
        pytest.param(config(gconfig={"n_samples": 1}), [0.0, 0.0, 0.0], id="groups-of-one"),
        # rewards of 5 and 10 in place of 0 and 1: A = +-2.5
        pytest.param(
            config(task={"reward_wrong": 5.0, "reward_right": 10.0}),
            [-2.5 / 3, 2.5 / 3, 2.5 / 3],
            id="other-rewards-of-the-same-task",
        ),
    ],
)
def test_loss_weights_by_hand(settings: TrialConfig, expected: list[float]) -> None:
    assert weights(settings) == pytest.approx(expected, abs=1e-7)


def test_a_recorded_policy_move_is_clipped() -> None:
    mask = batch().experience.loss_mask
    moved = torch.where(mask, -0.5 + math.log(1.5), 0.0)
    result = Replayer(batch(proximal_logprobs=moved)).evaluate(config())
    # ratio 1.5: the right answer is beyond 1.2 and gets nothing, the wrong one 1.5 times as much
    assert result.weights[mask].tolist() == pytest.approx([0.0, 0.25, 0.25], abs=1e-6)
    assert result.clip_share == pytest.approx(1 / 3)


def test_without_a_move_nothing_is_clipped_whatever_the_range() -> None:
    result = Replayer(batch()).evaluate(config(eps_clip=1e-6))
    assert result.clip_share == 0.0


def test_an_assumed_move_needs_noise_and_is_the_same_for_all_cells() -> None:
    with pytest.raises(ValueError, match=r"move=0\.1 needs a torch\.Generator"):
        Replayer(batch(), move=0.1)
    noise = torch.Generator().manual_seed(0)
    replayer = Replayer(batch(), move=0.1, noise=noise)
    first = replayer.evaluate(config()).weights
    replayer.evaluate(config(eps_clip=0.3))
    assert torch.equal(replayer.evaluate(config()).weights, first)


def test_refused_groups_get_no_weight() -> None:
    twice = Experience(
        rewards=torch.tensor([1.0, 0.0, 1.0, 1.0]),
        loss_mask=torch.ones(4, 1, dtype=torch.bool),
        lengths=torch.full((4,), 2),
        truncated=torch.zeros(4, dtype=torch.bool),
        behaviour_logprobs=torch.full((4, 1), -0.5),
        group_sizes=torch.tensor([2, 2]),
    )
    rule = {"dynamic_sampling": {"above": 0.0, "below": 1.0}}
    result = Replayer(Recorded(twice)).evaluate(config(extensions=rule))
    # the second group is left out of the denominator too: +-1/2 over 2 tokens
    assert result.weights.flatten().tolist() == pytest.approx([-0.25, 0.25, 0.0, 0.0])


@pytest.mark.parametrize(
    ("changes", "settings", "stage"),
    [
        pytest.param({}, config(reward_scaling=0.0), "scaled", id="scaling"),
        pytest.param({}, config(reward_bias=1.0, reward_clip=0.5), "clipped", id="clip"),
        pytest.param({}, config(gconfig={"n_samples": 1}), "normalized", id="alone"),
        pytest.param({"rewards": torch.ones(2)}, config(), "raw", id="nothing-to-begin-with"),
        pytest.param(
            {"truncated": torch.tensor([True, False])},
            config(mask_no_eos_with_zero=True),
            "normalized",
            id="the-only-other-answer-left-out",
        ),
    ],
)
def test_the_stage_where_contrast_ends(
    changes: dict[str, Any], settings: TrialConfig, stage: str
) -> None:
    result = Replayer(batch(**changes)).evaluate(settings)
    assert not result.weights.any()
    assert result.silent_stage == stage


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        pytest.param({}, config(kl_ctl=0.1), "needs log-probs of a reference", id="reference"),
        pytest.param({}, config(critic={}), "a critic needs recorded values", id="values"),
        pytest.param(
            {"knows_truncation": False},
            config(mask_no_eos_with_zero=True),
            "need to know which answers were truncated",
            id="truncation",
        ),
        pytest.param(
            {},
            config(use_decoupled_loss=True, prox_logp_method="loglinear"),
            "needs versions",
            id="versions",
        ),
        pytest.param(
            {"versions": torch.zeros(2, 3, dtype=torch.long), "current_version": 1},
            config(use_decoupled_loss=True),
            "need recomputed log-probs",
            id="stale-without-proximal",
        ),
    ],
)
def test_what_a_batch_lacks_is_said(
    changes: dict[str, Any], settings: TrialConfig, message: str
) -> None:
    (problem,) = lacking(batch(**changes), settings)
    assert message in problem


@pytest.mark.parametrize(
    ("settings", "bound"),
    [
        pytest.param(config(reward_norm=None), 20.0, id="the-clip"),
        pytest.param(config(), 40.0, id="twice-the-clip-around-a-mean"),
        # n = 2 answers, n - 1: 1 / sqrt(2), but never below 1
        pytest.param(
            config(reward_norm={"mean_level": "group", "std_level": "group"}), 1.0, id="group"
        ),
        pytest.param(
            config(reward_norm={"mean_level": None, "std_level": "group"}),
            math.sqrt(2),
            id="not-centred",
        ),
        # n = 3 tokens: 2 / sqrt(3)
        pytest.param(config(adv_norm={}), 2 / math.sqrt(3), id="tokens-of-the-batch"),
    ],
)
def test_bound_of_the_advantage(settings: TrialConfig, bound: float) -> None:
    assert advantage_bound(batch().experience, settings.actor) == pytest.approx(bound)


BASE = """
policy: tiny
base:
  gconfig: {n_samples: 2}
  actor: {kl_ctl: 0.0, reward_norm: {mean_level: group, std_level: null}}
space:
"""


def replayed(axes: str, recorded: Recorded | None = None) -> Outcome:
    document = parse_mapping(BASE + axes, "space.yaml")
    space = parse_space(document, source=Path("space.yaml"))
    recording = Recording(batch() if recorded is None else recorded, "batch.npz")
    return replay_space(space, recording)


def by_level(outcome: Outcome) -> dict[str, CellOutcome]:
    return {" ".join(cell.levels.values()): cell for cell in outcome.cells}


def test_direction_and_size_against_the_base() -> None:
    outcome = replayed("  extensions.loss_aggregation: [token-mean, sequence-mean]\n")
    cells = by_level(outcome)
    # (-1, 1, 1) / 6 and (-2, 1, 1) / 8: cos = 4 / sqrt(18), sizes sqrt(3) / 6 and sqrt(6) / 8
    assert cells["sequence-mean"].cosine == pytest.approx(4 / math.sqrt(18), abs=1e-6)
    assert cells["sequence-mean"].size == pytest.approx(math.sqrt(6) / 8 / (math.sqrt(3) / 6))
    assert cells["token-mean"].cosine == pytest.approx(1.0)
    (knob,) = outcome.knobs
    assert knob.turn.turn == pytest.approx(1 - 4 / math.sqrt(18), abs=1e-6)
    assert knob.turn.pairs == 1


def test_seen_settings_give_identical_cells_and_unseen_ones_do_not() -> None:
    outcome = replayed(
        "  actor.reward_clip: [20.0, 5.0]\n"
        "  actor.optimizer.lr: [1.0e-3, 1.0e-2]\n"
        "  actor.reward_bias: [0.0, 1.0]\n"
    )
    cells = by_level(outcome)
    first = cells["20 0.001 0"].name
    assert cells["5 0.001 0"].identical_to == first
    assert cells["20 0.001 1"].identical_to == first
    assert cells["20 0.01 0"].identical_to is None
    assert cells["20 0.01 0"].indistinguishable_from == first
    assert list(cells["20 0.01 0"].unseen) == ["actor.optimizer.lr"]
    assert cells["5 0.01 1"].identical_to == cells["20 0.01 0"].name
    assert outcome.distinct == 1
    unseen = {knob.axis: knob for knob in outcome.knobs}["actor.optimizer.lr"]
    assert unseen.turn.turn is None
    assert not unseen.seen
    assert unseen.blind is not None
    assert "not which way" in unseen.blind


def test_equal_updates_prove_nothing_about_ratios_or_an_unmoved_policy() -> None:
    behaviour = batch().experience.behaviour_logprobs
    recorded = batch(reference_logprobs=behaviour)
    outcome = replayed(
        "  actor.kl_ctl: [0.0, 0.1]\n  actor.eps_clip: [0.1, 0.2]\n", recorded=recorded
    )
    assert all(cell.identical_to is None for cell in outcome.cells)
    assert [cell.indistinguishable_from for cell in outcome.cells[1:]] == [
        outcome.cells[0].name
    ] * 3
    assert any("still equals the reference" in note for note in outcome.notes)


def test_one_update_on_fresh_rollouts_makes_clip_ranges_the_same() -> None:
    outcome = replayed("  actor.eps_clip: [0.1, 0.2]\n  actor.ppo_n_minibatches: [1, 2]\n")
    cells = by_level(outcome)
    assert cells["0.2 1"].identical_to == cells["0.1 1"].name
    assert cells["0.2 2"].identical_to is None
    assert cells["0.2 2"].indistinguishable_from == cells["0.1 1"].name


def test_dead_and_exploding_cells_are_named_with_the_reason() -> None:
    mask = batch().experience.loss_mask
    reference = torch.where(mask, torch.tensor([[0.0, -2.5, 0.0], [0.0, -2.5, -1.5]]), 0.0)
    outcome = replayed(
        "  actor.reward_scaling: [1.0, 0.0]\n  actor.kl_ctl: [0.0, 100.0]\n",
        recorded=batch(reference_logprobs=reference),
    )
    cells = by_level(outcome)
    assert [cell.verdict for cell in outcome.cells] == ["live", "exploding", "dead", "exploding"]
    dead = cells["0 0"]
    assert dead.proven
    assert dead.cosine is None
    assert "reward_scaling=0" in (dead.reason or "")
    # KL 2 and 2, 1 nats: returns of -200 and -300, -100, beyond twice 2 * reward_clip = 40
    assert "max |advantage| 300, beyond the outcome's own bound 40" in (cells["1 100"].reason or "")
    assert {knob.axis: knob.turn.switches for knob in outcome.knobs} == {
        "actor.reward_scaling": 1,
        "actor.kl_ctl": 1,
    }


def test_cells_without_their_inputs_are_not_evaluated() -> None:
    outcome = replayed("  actor.kl_ctl: [0.0, 0.1]\n")
    assert [cell.verdict for cell in outcome.cells] == ["live", "not evaluated"]
    assert "reference policy" in (outcome.cells[1].reason or "")


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(tmp_path: Path) -> None:
    configs = [config(), config(extensions={"loss_aggregation": "sequence-mean"})]
    one = evaluate(configs, batch(), tmp_path)
    weights = one.weights.copy()
    two = evaluate(configs, batch(), tmp_path, processes=2, alone_below=0)
    assert one.rows == two.rows
    assert (weights == two.weights).all()


def test_the_heat_map_is_drawn(tmp_path: Path) -> None:
    outcome = replayed("  extensions.loss_aggregation: [token-mean, sequence-mean]\n")
    draw_outcome(outcome, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
