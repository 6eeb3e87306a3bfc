import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from grpo_core.config import ActorConfig, ExtensionsConfig
from grpo_core.losses import (
    LOSSES,
    LossInputs,
    LossName,
    PolicyLoss,
    loss_denominator,
    loss_name,
    policy_loss,
    value_loss,
)

SETTINGS: dict[LossName, tuple[dict[str, object], dict[str, object]]] = {
    "ppo": ({}, {}),
    "sapo": ({"use_sapo_loss": True}, {}),
    "cispo": ({"use_cispo_loss": True, "eps_clip": 0.2, "eps_clip_higher": 0.2}, {}),
    "vespo": ({}, {"vespo": {}}),
}


def on(*flags: int) -> Tensor:
    return torch.tensor([flags]).bool()


def row(*values: float) -> Tensor:
    return torch.tensor([values])


def loss_of(
    ratios: Tensor,
    advantages: Tensor,
    actor: Mapping[str, object] | None = None,
    extensions: Mapping[str, object] | None = None,
    *,
    mask: Tensor | None = None,
    areal_compat: bool = False,
    **inputs: Tensor,
) -> tuple[PolicyLoss, Tensor]:
    """Loss and gradient at given ratios; the current policy has log-prob log(ratio) - 1."""
    trained = torch.ones_like(ratios, dtype=torch.bool) if mask is None else mask
    logprobs = (ratios.log() - 1).requires_grad_()
    old = torch.full_like(ratios, -1.0)
    result = policy_loss(
        logprobs,
        LossInputs(
            advantages=advantages,
            loss_mask=trained,
            counted_mask=inputs.get("counted_mask", trained),
            old_logprobs=inputs.get("old_logprobs", old),
            proximal_logprobs=old,
            reference_logprobs=inputs.get("reference_logprobs"),
        ),
        ActorConfig.model_validate({} if actor is None else actor),
        extensions=ExtensionsConfig.model_validate({} if extensions is None else extensions),
        areal_compat=areal_compat,
    )
    (gradient,) = torch.autograd.grad(result.loss, logprobs)
    return result, gradient


# d(-r A) / d logp = -r A where the plain branch is taken, 0 where the clipped one is.
@pytest.mark.parametrize(
    ("ratio", "advantage", "actor", "loss", "gradient"),
    [
        pytest.param(1.5, 2.0, {}, -2.4, 0.0, id="good-clipped-at-1.2"),
        pytest.param(0.5, 2.0, {}, -1.0, -1.0, id="good-below-the-range-not-clipped"),
        pytest.param(0.5, -2.0, {}, 1.6, 0.0, id="bad-clipped-at-0.8"),
        pytest.param(1.5, -2.0, {}, 3.0, 3.0, id="bad-above-the-range-not-clipped"),
        pytest.param(1.1, 2.0, {}, -2.2, -2.2, id="inside"),
        pytest.param(1.5, 2.0, {"eps_clip_higher": 0.28}, -2.56, 0.0, id="higher-bound"),
        pytest.param(4.0, -2.0, {"c_clip": 3.0}, 6.0, 0.0, id="dual-clip"),
        pytest.param(2.0, -2.0, {"c_clip": 3.0}, 4.0, 4.0, id="below-the-dual-clip"),
        pytest.param(4.0, 2.0, {"c_clip": 3.0}, -2.4, 0.0, id="dual-clip-spares-good-tokens"),
        pytest.param(1.0, 2.0, {"eps_clip": 0.0}, -2.0, -1.0, id="at-both-bounds-half-gradient"),
    ],
)
def test_ppo_by_hand(
    *, ratio: float, advantage: float, actor: dict[str, object], loss: float, gradient: float
) -> None:
    result, slope = loss_of(row(ratio), row(advantage), actor)
    assert result.loss.item() == pytest.approx(loss)
    assert slope.item() == pytest.approx(gradient)


def test_a_ratio_cap_limits_bad_tokens() -> None:
    # The ratio 4 counts as 1.6.
    result, gradient = loss_of(row(4.0), row(-2.0), extensions={"ratio_cap": 1.6})
    assert result.loss.item() == pytest.approx(3.2)
    assert gradient.item() == 0.0


def test_sapo_by_hand() -> None:
    # tau 2 for A > 0, r = 1: gate 4/2 * 1/2 = 1; slope 4 * s (1 - s) * r = 1.
    actor = {"use_sapo_loss": True, "sapo_tau_pos": 2.0, "sapo_tau_neg": 4.0}
    result, gradient = loss_of(row(1.0, 1.0), row(3.0, -3.0), actor)
    # tau 4 for A < 0: gate 4/4 * 1/2 = 1/2.
    torch.testing.assert_close(result.token_loss, row(-3.0, 1.5))
    torch.testing.assert_close(gradient, row(-1.5, 1.5))
    assert result.gates is not None
    torch.testing.assert_close(result.gates.gate, row(1.0, 0.5))


def test_cispo_keeps_the_gradient_of_clipped_tokens() -> None:
    # Weight min(3, 1 + 1) = 2, constant; log-prob log(3) - 1; dL/dlogp = -2 * A.
    actor = {"use_cispo_loss": True, "eps_clip": 1.0, "eps_clip_higher": 1.0}
    result, gradient = loss_of(row(3.0), row(0.5), actor)
    assert result.loss.item() == pytest.approx(-2 * 0.5 * (math.log(3) - 1))
    assert gradient.item() == pytest.approx(-1.0)
    assert result.clip_mask.item()


def test_vespo_weighs_by_the_whole_answer() -> None:
    # w = 2 * 1/4 = 1/2; good: w^2 exp(3 (1 - w)) = exp(1.5) / 4; bad: w^3 exp(2 (1 - w)) = e / 8.
    ratios = torch.tensor([[2.0, 0.25], [2.0, 0.25]])
    advantages = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    _, gradient = loss_of(ratios, advantages, extensions={"vespo": {}})
    good, bad = -math.exp(1.5) / 4 / 4, math.e / 8 / 4
    torch.testing.assert_close(gradient, torch.tensor([[good, good], [bad, bad]]))


def test_sequence_level_takes_the_geometric_mean_of_ratios_and_the_mean_advantage() -> None:
    # Ratios 4 and 1/4 cancel; advantages 1 and 3 average to 2; d r / d logp_t = r / 2 each.
    result, gradient = loss_of(
        row(4.0, 0.25, 9.0),
        row(1.0, 3.0, 9.0),
        {"importance_sampling_level": "sequence"},
        mask=on(1, 1, 0),
    )
    torch.testing.assert_close(result.ratio, row(1.0, 1.0, 0.0))
    torch.testing.assert_close(result.token_loss, row(-2.0, -2.0, 0.0))
    torch.testing.assert_close(gradient, row(-1.0, -1.0, 0.0))


# Two answers of 1 and 3 tokens, loss -1 per token; actor.max_new_tokens 5.
@pytest.mark.parametrize(
    ("aggregation", "loss", "short", "long"),
    [
        pytest.param("token-mean", -1.0, -1 / 4, -1 / 4, id="token-mean"),
        pytest.param("sequence-mean", -1.0, -1 / 2, -1 / 6, id="sequence-mean"),
        pytest.param("sequence-sum", -2.0, -1 / 2, -1 / 2, id="sequence-sum"),
        pytest.param("constant", -0.4, -1 / 10, -1 / 10, id="constant"),
    ],
)
def test_aggregation_by_hand(aggregation: str, loss: float, short: float, long: float) -> None:
    mask = torch.tensor([[True, False, False], [True, True, True]])
    result, gradient = loss_of(
        torch.ones(2, 3),
        torch.ones(2, 3),
        {"max_new_tokens": 5},
        {"loss_aggregation": aggregation},
        mask=mask,
    )
    assert result.loss.item() == pytest.approx(loss)
    torch.testing.assert_close(gradient, torch.tensor([[short, 0, 0], [long, long, long]]))


def test_dropped_tokens_stay_in_the_denominator() -> None:
    # Of two tokens the filter drops one (weight 2 > 1.5): -1 * 1 / 2.
    result, _ = loss_of(
        row(1.0, 1.0),
        row(1.0, 1.0),
        {"use_decoupled_loss": True, "rejection_sampling": {"upper": 1.5}},
        old_logprobs=row(-1.0, -1.0 - math.log(2)),
    )
    assert result.loss.item() == pytest.approx(-0.5)
    assert result.denominator.item() == 2
    assert result.mask.tolist() == [[True, False]]
    assert result.entering_mask.tolist() == [[True, True]]


def test_the_staleness_weight_multiplies_the_loss() -> None:
    result, gradient = loss_of(
        row(1.0),
        row(1.0),
        {"use_decoupled_loss": True, "rejection_sampling": {"upper": 5.0}},
        old_logprobs=row(-1.0 - math.log(3)),
    )
    assert result.loss.item() == pytest.approx(-3.0)
    assert gradient.item() == pytest.approx(-3.0)


@pytest.mark.parametrize(
    ("weighted", "loss", "gradient"),
    [
        # k1 = logp - ref = (log 2 - 1) - (-1) = log 2; slope 1.
        pytest.param(False, math.log(2), 1.0, id="plain"),
        # times the ratio 2; slope 2 + log 2 * 2.
        pytest.param(True, 2 * math.log(2), 2 + 2 * math.log(2), id="ratio-weighted"),
    ],
)
def test_kl_in_the_loss_by_hand(*, weighted: bool, loss: float, gradient: float) -> None:
    extensions = {
        "kl_loss_coef": 0.5,
        "kl_loss_estimator": "k1",
        "kl_loss_ratio_weighted": weighted,
    }
    result, slope = loss_of(row(2.0), row(0.0), extensions=extensions, reference_logprobs=row(-1.0))
    assert result.loss.item() == pytest.approx(0.5 * loss)
    assert slope.item() == pytest.approx(0.5 * gradient)


def test_kl_in_the_loss_needs_a_reference() -> None:
    with pytest.raises(ValueError, match=r"kl_loss_coef=0\.5 needs reference_logprobs"):
        loss_of(row(1.0), row(1.0), extensions={"kl_loss_coef": 0.5})


def test_a_sampler_weight_multiplies_the_surrogate_but_not_the_kl() -> None:
    result, _ = loss_of(
        row(1.0),
        row(1.0),
        extensions={
            "sampler_correction": {"level": "token", "action": "truncate", "upper": 2.0},
            "kl_loss_coef": 1.0,
            "kl_loss_estimator": "k1",
        },
        old_logprobs=row(-1.0 - math.log(4)),
        reference_logprobs=row(-1.25),
    )
    # 2 * -1 + 0.25
    assert result.loss.item() == pytest.approx(-1.75)


def test_off_policy_answers_keep_only_their_kl() -> None:
    result, _ = loss_of(
        row(0.5),
        row(-1.0),
        extensions={
            "off_policy_mask_threshold": 0.5,
            "kl_loss_coef": 1.0,
            "kl_loss_estimator": "k1",
        },
        reference_logprobs=row(-1.0),
    )
    # The gap is log 2 = 0.69 > 0.5, so that only k1 = -log 2 is left.
    assert result.loss.item() == pytest.approx(-math.log(2))


def test_m2_follows_the_proximal_policy_that_the_loss_derives() -> None:
    # reuse_train_logp: proximal = current, squared gaps log(2)^2 = 0.48 and 0.
    logprobs = torch.tensor([[-1.0 + math.log(2), -1.0]], requires_grad=True)
    ones = torch.ones(1, 2)
    inputs = LossInputs(ones, on(1, 1), on(1, 1), -ones)
    actor = ActorConfig(
        use_decoupled_loss=True, prox_logp_method="reuse_train_logp", m2_threshold=0.1
    )
    result = policy_loss(logprobs, inputs, actor)
    assert result.entering_mask.tolist() == [[False, True]]
    assert result.denominator.item() == 2
    assert policy_loss(logprobs, inputs, actor, areal_compat=True).denominator.item() == 1


@pytest.mark.parametrize(
    ("actor", "message"),
    [
        ({"use_decoupled_loss": True}, "recompute needs proximal_logprobs"),
        ({"use_decoupled_loss": True, "prox_logp_method": "loglinear"}, "needs versions"),
    ],
)
def test_a_proximal_method_says_what_it_needs(actor: dict[str, object], message: str) -> None:
    ones = torch.ones(1, 1)
    inputs = LossInputs(ones, on(1), on(1), ones)
    with pytest.raises(ValueError, match=message):
        policy_loss(ones, inputs, ActorConfig.model_validate(actor))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_chosen_by_its_settings(name: LossName) -> None:
    actor, extensions = SETTINGS[name]
    chosen = loss_name(
        ActorConfig.model_validate(actor), ExtensionsConfig.model_validate(extensions)
    )
    assert chosen == name


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_the_policy_gradient_on_fresh_data(name: LossName) -> None:
    # At ratio 1 every loss has the slope -A / N, where SAPO's gate has slope 1 for any tau.
    actor, extensions = SETTINGS[name]
    advantages = torch.tensor([[1.0, -2.0], [0.5, 7.0]])
    mask = torch.tensor([[True, True], [True, False]])
    _, gradient = loss_of(torch.ones(2, 2), advantages, actor, extensions, mask=mask)
    torch.testing.assert_close(gradient, torch.where(mask, -advantages / 3, 0.0))


@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_lets_a_masked_overflow_through(name: LossName) -> None:
    actor, extensions = SETTINGS[name]
    ratios = row(1.0, math.exp(80)) * 1e10
    ratios[0, 0] = 1.0
    result, gradient = loss_of(ratios, row(1.0, 1.0), actor, extensions, mask=on(1, 0))
    assert result.loss.isfinite()
    torch.testing.assert_close(gradient, row(-1.0, 0.0))


def test_areal_lets_a_masked_overflow_through() -> None:
    ratios = row(1.0, torch.inf)
    _, gradient = loss_of(ratios, row(1.0, 1.0), mask=on(1, 0), areal_compat=True)
    assert gradient[0, 1].isnan()


def test_an_empty_mask_gives_a_loss_of_zero() -> None:
    result, gradient = loss_of(row(1.0), row(1.0), mask=on(0))
    assert result.loss.item() == 0.0
    assert gradient.item() == 0.0


def test_the_denominators_of_parts_add_up() -> None:
    mask = torch.tensor([[True, False], [True, True], [True, True]])
    actor = ActorConfig(max_new_tokens=4)
    for aggregation in ("token-mean", "sequence-mean", "sequence-sum", "constant"):
        extensions = ExtensionsConfig(loss_aggregation=aggregation)
        parts = [loss_denominator(part, actor, extensions) for part in (mask[:1], mask[1:])]
        assert sum(parts).item() == loss_denominator(mask, actor, extensions).item()  # type: ignore[union-attr]


# Old value 1, clip 1/2, target 3.
@pytest.mark.parametrize(
    ("value", "kind", "loss", "gradient", "clipped"),
    [
        pytest.param(1.25, "mse", 1.53125, -1.75, False, id="inside"),
        # Clipped 1.5 is further from 3 than 2 is: (1.5 - 3)^2 / 2 and no gradient.
        pytest.param(2.0, "mse", 1.125, 0.0, True, id="clipped"),
        # |e| = 17: 10 * (17 - 5); clipped 0.5: e = 2.5, smaller.
        pytest.param(-14.0, "huber", 120.0, -10.0, False, id="huber-linear"),
        pytest.param(1.25, "huber", 1.53125, -1.75, False, id="huber-near"),
    ],
)
def test_value_loss_by_hand(
    *, value: float, kind: str, loss: float, gradient: float, clipped: bool
) -> None:
    values = row(value, 99.0).requires_grad_()
    result = value_loss(
        values,
        row(1.0, 0.0),
        row(3.0, 0.0),
        on(1, 0),
        eps_clip=0.5,
        kind=kind,  # type: ignore[arg-type]
    )
    (slope,) = torch.autograd.grad(result.loss, values)
    assert result.loss.item() == pytest.approx(loss)
    torch.testing.assert_close(slope, row(gradient, 0.0))
    assert result.clip_mask.tolist() == [[clipped, False]]
