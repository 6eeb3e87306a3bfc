"""Invariances that hold for every rollout."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.config import NormConfig
from grpo_core.losses import LossInputs, loss_denominator, policy_loss
from grpo_core.normalization import normalize
from grpo_core.pipeline import run_pipeline
from grpo_core.rejection import m2_mask, row_mean
from tests.properties.scenario import (
    GROUP_SIZE,
    GROUPS,
    LOSS_SETTINGS,
    Scenario,
    actor_of,
    extensions_of,
    make,
    train,
)

SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=8, deadline=None, derandomize=True)
GROUP_NORM = {"mean_level": "group", "std_level": "group"}
SHAPING = {"reward_norm": GROUP_NORM, "adv_norm": {}, "kl_ctl": 0.05}
AGGREGATIONS = ["token-mean", "sequence-mean", "sequence-sum", "constant"]

every_loss = pytest.mark.parametrize("name", LOSS_SETTINGS)


def scribbled(tensor: Tensor | None, mask: Tensor, value: float) -> Tensor | None:
    return None if tensor is None else torch.where(mask, tensor, value)


@every_loss
@given(seed=SEEDS, value=st.sampled_from([1e30, -1e30, torch.inf, -torch.inf, torch.nan]))
@FEW
def test_masked_values_are_inert(name: str, seed: int, value: float) -> None:
    actor, extensions = LOSS_SETTINGS[name]
    plain = make(seed)
    rollout, mask = plain.experience, plain.experience.loss_mask
    changed = replace(
        rollout,
        behaviour_logprobs=torch.where(mask, rollout.behaviour_logprobs, value),
        reference_logprobs=scribbled(rollout.reference_logprobs, mask, value),
        proximal_logprobs=scribbled(rollout.proximal_logprobs, mask, value),
    )
    dirty = Scenario(changed, torch.where(mask, plain.current, value))
    _, clean_loss, clean_gradient = train(plain, SHAPING | actor, extensions)
    _, dirty_loss, dirty_gradient = train(dirty, SHAPING | actor, extensions)
    torch.testing.assert_close(dirty_loss.loss, clean_loss.loss)
    torch.testing.assert_close(dirty_gradient, clean_gradient)


@every_loss
@given(seed=SEEDS, order=st.permutations(range(GROUPS)))
@FEW
def test_permuting_groups_permutes_results(name: str, seed: int, order: list[int]) -> None:
    actor, extensions = LOSS_SETTINGS[name]
    plain = make(seed)
    rows = torch.cat([torch.arange(GROUP_SIZE) + group * GROUP_SIZE for group in order])
    sizes = plain.experience.group_sizes
    moved = Scenario(replace(plain.experience.rows(rows), group_sizes=sizes), plain.current[rows])
    result, loss, gradient = train(plain, SHAPING | actor, extensions)
    moved_result, moved_loss, moved_gradient = train(moved, SHAPING | actor, extensions)
    torch.testing.assert_close(moved_result.advantages, result.advantages[rows])
    torch.testing.assert_close(moved_loss.loss, loss.loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moved_gradient, gradient[rows], rtol=1e-5, atol=1e-6)


@given(seed=SEEDS, leave_one_out=st.booleans(), std=st.sampled_from(["group", "batch", None]))
@FEW
def test_group_means_are_zero(*, seed: int, leave_one_out: bool, std: str | None) -> None:
    norm = NormConfig.model_validate(
        {"mean_level": "group", "std_level": std, "mean_leave1out": leave_one_out}
    )
    rollout = make(seed, torch.float64).experience
    normalized = normalize(rollout.rewards, norm, group_sizes=rollout.group_sizes)
    means = normalized.reshape(GROUPS, GROUP_SIZE).mean(1)
    torch.testing.assert_close(means, torch.zeros(GROUPS, dtype=torch.float64))


@given(seed=SEEDS, shift=st.floats(-5, 5), factor=st.floats(0.1, 10))
@FEW
def test_group_normalization_forgets_shift_and_scale(
    seed: int, shift: float, factor: float
) -> None:
    norm = NormConfig(mean_level="group", std_level="group", eps=0.0)
    rollout = make(seed, torch.float64).experience
    plain = normalize(rollout.rewards, norm, group_sizes=rollout.group_sizes)
    moved = normalize(rollout.rewards * factor + shift, norm, group_sizes=rollout.group_sizes)
    torch.testing.assert_close(moved, plain)


@given(seed=SEEDS, length=st.integers(1, 6))
@FEW
def test_equal_lengths_make_aggregations_agree(seed: int, length: int) -> None:
    plain = make(seed)
    mask = (torch.arange(plain.current.shape[1]) < length).expand_as(plain.current)
    rollout = replace(plain.experience, loss_mask=mask)
    gradients = [
        train(
            Scenario(rollout, plain.current),
            SHAPING | {"max_new_tokens": length},
            {"loss_aggregation": aggregation},
        )[2]
        for aggregation in ("token-mean", "sequence-mean", "constant")
    ]
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[2], gradients[0])


@every_loss
@given(seed=SEEDS)
@FEW
def test_before_the_first_update_the_ratio_is_one_and_the_kl_is_zero(name: str, seed: int) -> None:
    actor, extensions = LOSS_SETTINGS[name]
    fresh = make(seed)
    current = fresh.current
    rollout = replace(
        fresh.experience,
        behaviour_logprobs=current,
        proximal_logprobs=current,
        reference_logprobs=current,
    )
    result, loss, gradient = train(Scenario(rollout, current), SHAPING | actor, extensions)
    ones, zeros = torch.ones_like(current), torch.zeros_like(current)
    torch.testing.assert_close(torch.where(loss.mask, loss.ratio, 1.0), ones)
    torch.testing.assert_close(result.kl_rewards, zeros)
    if loss.kl is not None:
        torch.testing.assert_close(loss.kl, zeros)
    assert loss.mask.equal(rollout.loss_mask)
    assert not loss.clip_mask.any()
    assert not loss.dual_clip_mask.any()
    counts = loss.mask.sum(1, keepdim=True)
    weight = torch.full_like(current, 1 / int(loss.mask.sum()))
    if extensions.get("loss_aggregation") == "sequence-mean":
        weight = 1 / (counts * len(current))
    credit = result.advantages
    if actor.get("importance_sampling_level") == "sequence":
        credit = row_mean(credit, loss.mask).expand_as(credit)
    expected = torch.where(loss.mask, -credit * weight, 0.0)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


@every_loss
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(seed=SEEDS, cut=st.integers(1, GROUPS * GROUP_SIZE - 1))
@settings(max_examples=2, deadline=None, derandomize=True)
def test_micro_batches_add_up(name: str, aggregation: str, seed: int, cut: int) -> None:
    settings_, beyond = LOSS_SETTINGS[name]
    actor = actor_of(SHAPING | settings_)
    extensions = extensions_of(beyond | {"loss_aggregation": aggregation})
    scenario = make(seed)
    inputs = run_pipeline(scenario.experience, actor, extensions=extensions).loss_inputs()
    whole = loss_denominator(inputs.counted_mask, actor, extensions)

    def part(rows: Tensor) -> Tensor:
        piece = policy_loss(
            scenario.current[rows],
            inputs.rows(rows),
            actor,
            extensions=extensions,
            denominator=whole,
        )
        return piece.loss

    rows = torch.arange(GROUPS * GROUP_SIZE)
    together = policy_loss(scenario.current, inputs, actor, extensions=extensions).loss
    torch.testing.assert_close(part(rows[:cut]) + part(rows[cut:]), together, rtol=1e-4, atol=1e-6)


@every_loss
@given(seed=SEEDS)
@FEW
def test_float32_agrees_with_float64(name: str, seed: int) -> None:
    actor, extensions = LOSS_SETTINGS[name]
    single, double = make(seed), make(seed, torch.float64)
    result, loss, gradient = train(single, SHAPING | actor, extensions)
    exact, exact_loss, exact_gradient = train(double, SHAPING | actor, extensions)
    torch.testing.assert_close(result.advantages.double(), exact.advantages, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss.loss.double(), exact_loss.loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-3, atol=1e-5)


@given(seed=SEEDS, threshold=st.floats(1e-4, 1.0))
@FEW
def test_m2_keeps_the_mean_below_its_threshold_and_grows_with_it(
    seed: int, threshold: float
) -> None:
    rollout = make(seed, torch.float64).experience
    assert rollout.proximal_logprobs is not None
    gaps = rollout.behaviour_logprobs - rollout.proximal_logprobs
    zeros = torch.zeros_like(gaps)
    kept = m2_mask(gaps, zeros, rollout.loss_mask, threshold)
    wider = m2_mask(gaps, zeros, rollout.loss_mask, 2 * threshold)
    assert not (kept & ~rollout.loss_mask).any()
    assert not (kept & ~wider).any()
    assert kept.sum() == 1 or (gaps[kept] ** 2).mean() < threshold


@given(seed=SEEDS, width=st.integers(1, 5))
@FEW
def test_padding_changes_nothing_by_default(seed: int, width: int) -> None:
    plain = make(seed)
    rollout = plain.experience

    def padded(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else torch.nn.functional.pad(tensor, (0, width))

    mask = torch.nn.functional.pad(rollout.loss_mask, (0, width), value=False)
    wide = replace(
        rollout,
        loss_mask=mask,
        behaviour_logprobs=torch.nn.functional.pad(rollout.behaviour_logprobs, (0, width)),
        reference_logprobs=padded(rollout.reference_logprobs),
        proximal_logprobs=padded(rollout.proximal_logprobs),
        turn_ids=None,
        versions=None,
    )
    current = torch.nn.functional.pad(plain.current, (0, width))
    shaping = SHAPING | {"mask_no_eos_with_zero": True}
    narrow_gradient = train(plain, shaping, {})[2]
    wide_gradient = train(Scenario(wide, current), shaping, {})[2]
    columns = plain.current.shape[1]
    torch.testing.assert_close(wide_gradient[:, :columns], narrow_gradient)


@given(seed=SEEDS)
@FEW
def test_zero_advantages_give_no_gradient(seed: int) -> None:
    scenario = make(seed)
    rollout = scenario.experience
    mask = rollout.loss_mask
    for name, (actor, extensions) in LOSS_SETTINGS.items():
        if extensions.get("kl_loss_coef"):
            continue
        inputs = LossInputs(
            torch.zeros_like(scenario.current),
            mask,
            mask,
            rollout.behaviour_logprobs,
            rollout.proximal_logprobs,
        )
        current = scenario.current.clone().requires_grad_()
        loss = policy_loss(current, inputs, actor_of(actor), extensions=extensions_of(extensions))
        (gradient,) = torch.autograd.grad(loss.loss, current)
        assert not gradient.any(), name
