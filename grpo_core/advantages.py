"""Generalized advantage estimation over tokens or turns, and the rules that set its lambda."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.config import LAMBDA_ARGUMENTS, LambdaArguments, LambdaRule
from grpo_core.errors import ConfigError

NO_TURN = -1


@dataclass(frozen=True, slots=True)
class Gae:
    """What generalized advantage estimation gives."""

    advantages: Float[Tensor, "B T"]
    """Estimated advantage of each position."""
    returns: Float[Tensor, "B T"]
    """Advantage plus value: what the value function should have said."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The time steps of each row that GAE runs over."""

    rewards: Float[Tensor, "B T"]
    """Reward of each position."""
    mask: Bool[Tensor, "B T"]
    """Positions that count."""
    values: Float[Tensor, "B T"] | None = None
    """Value of each position; None means 0."""
    bootstrap: Float[Tensor, " B"] | None = None
    """Value after the last position; None means 0."""


def gae_tokens(steps: Steps, *, discount: float, gae_lambda: float | Float[Tensor, " B"]) -> Gae:
    """Estimate advantages over the masked positions of each row.

        delta_t = r_t + discount * V_next - V_t;  A_t = delta_t + discount * lambda * A_next

    "Next" is the next masked position: positions between them are skipped, they neither discount
    nor contribute, and carry A_next. GAE: arXiv 1506.02438 eq. 16.

    Args:
        steps: Rewards, values, mask.
        discount: Discount per step.
        gae_lambda: Lambda, one for all or one per row.

    Returns:
        Advantages and returns; at positions outside the mask the advantage is the running one.
    """
    advantages = _recursion(steps, discount, gae_lambda)
    return Gae(advantages, advantages if steps.values is None else advantages + steps.values)


def gae_turns(
    steps: Steps,
    turn_ids: Int[Tensor, "B T"],
    *,
    discount: float,
    gae_lambda: float | Float[Tensor, " B"],
) -> Gae:
    """Estimate one advantage per turn and give it to each of the turn's masked positions.

    A turn's reward is the sum over its masked positions, its value the one at the first of them.

    Args:
        steps: Rewards, values, mask of each position.
        turn_ids: Turn of each position, increasing; NO_TURN for none.
        discount: Discount per turn.
        gae_lambda: Lambda, one for all or one per row.

    Returns:
        Advantages, 0 outside turns and mask; returns of the turn, the value itself outside.
    """
    values, on = steps.values, steps.mask & (turn_ids != NO_TURN)
    width = max(int(turn_ids.max()) + 1, 1)
    turns = torch.where(on, turn_ids, width).long()
    turn_mask = _sum_by_turn(on.to(steps.rewards.dtype), turns, width) > 0
    turn_values = None
    if values is not None:
        turn_values = torch.where(turn_mask, values.gather(1, _first_by_turn(turns, width)), 0.0)
    by_turn = gae_tokens(
        Steps(
            rewards=_sum_by_turn(torch.where(on, steps.rewards, 0.0), turns, width),
            mask=turn_mask,
            values=turn_values,
            bootstrap=steps.bootstrap,
        ),
        discount=discount,
        gae_lambda=gae_lambda,
    )
    own = turns.clamp(max=width - 1)
    outside = torch.zeros_like(steps.rewards) if values is None else values
    return Gae(
        torch.where(on, by_turn.advantages.gather(1, own), 0.0),
        torch.where(on, by_turn.returns.gather(1, own), outside),
    )


def turn_counts(mask: Bool[Tensor, "B T"], turn_ids: Int[Tensor, "B T"]) -> Int[Tensor, " B"]:
    """Count the turns of each row that have a masked position."""
    width = max(int(turn_ids.max()) + 1, 1)
    on = mask & (turn_ids != NO_TURN)
    turns = torch.where(on, turn_ids, width).long()
    return (_sum_by_turn(on.float(), turns, width) > 0).sum(1)


def lambda_per_row(
    rule: LambdaRule, arguments: LambdaArguments, lengths: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """Set GAE's lambda for each answer from its length L in time steps.

        constant: value;  VAPO: max(0, 1 - 1 / (alpha L)), 0 at L = 0;
        relative position: q^(1 / (L - 1)), 1 at L = 1, 0 at L = 0

    Length-adaptive: VAPO, arXiv 2504.05118 section 4.2.

    Args:
        rule: AReaL's name of the rule.
        arguments: The rule's argument.
        lengths: Trained tokens, or turns, of each answer.

    Returns:
        One lambda per answer.

    Raises:
        ConfigError: The rule's argument is missing.
    """
    kind = rule.rsplit(".", 1)[-1]
    argument: float | None = getattr(arguments, LAMBDA_ARGUMENTS[kind])
    if argument is None:
        problem = (
            f"actor.gae_lambda_kwargs.{LAMBDA_ARGUMENTS[kind]} must be set for "
            f"actor.gae_lambda={rule}, got null"
        )
        raise ConfigError([problem])
    steps = lengths.float()
    if kind == "constant_gae_lambda":
        return torch.full_like(steps, argument)
    if kind == "vapo_length_adaptive_gae":
        adaptive = (1 - 1 / (argument * steps.clamp(min=1))).clamp(min=0)
        return torch.where(steps > 0, adaptive, 0.0)
    relative = torch.where(steps == 1, 1.0, argument ** (1 / (steps - 1).clamp(min=1)))
    return torch.where(steps > 0, relative, 0.0)


def bootstrap_values(
    values: Float[Tensor, "B T"],
    lengths: Int[Tensor, " B"],
    truncated: Bool[Tensor, " B"],
    *,
    areal_compat: bool = False,
) -> Float[Tensor, " B"]:
    """Value of what a truncated answer would have gone on to earn; 0 for finished answers.

    It is the value after the last token of the row. AReaL reads the batch's last column, which is
    the same one in the only rows that it calls truncated.

    Args:
        values: Value of each position.
        lengths: Attended tokens of each row, prompt included.
        truncated: Rows that were cut off.
        areal_compat: Read the last column.

    Returns:
        One value per row.
    """
    last = values.shape[1] - 1
    columns = torch.full_like(lengths, last) if areal_compat else (lengths - 1).clamp(0, last)
    at_end = values.gather(1, columns.long().unsqueeze(1)).squeeze(1)
    return torch.where(truncated, at_end, 0.0)


def _recursion(
    steps: Steps, discount: float, gae_lambda: float | Float[Tensor, " B"]
) -> Float[Tensor, "B T"]:
    """Run GAE from right to left; without values and decay it is the sum of what follows."""
    rewards, values, bootstrap = steps.rewards, steps.values, steps.bootstrap
    if values is None and bootstrap is None and discount == 1.0 and _is_one(gae_lambda):
        return torch.where(steps.mask, rewards, 0.0).flip(1).cumsum(1).flip(1)
    columns = zip(
        reversed(rewards.unbind(1)),
        reversed((torch.zeros_like(rewards) if values is None else values).unbind(1)),
        reversed(steps.mask.unbind(1)),
        strict=True,
    )
    decay = discount * gae_lambda
    advantage = rewards.new_zeros(len(rewards))
    next_value = advantage if bootstrap is None else bootstrap
    advantages = []
    for reward, value, on in columns:
        step = reward + discount * next_value - value + decay * advantage
        advantage = torch.where(on, step, advantage)
        next_value = torch.where(on, value, next_value)
        advantages.append(advantage)
    return torch.stack(advantages[::-1], dim=1)


def _is_one(gae_lambda: float | Float[Tensor, " B"]) -> bool:
    return not isinstance(gae_lambda, Tensor) and gae_lambda == 1.0


def _sum_by_turn(
    x: Float[Tensor, "B T"], turns: Int[Tensor, "B T"], width: int
) -> Float[Tensor, "B K"]:
    """Sum positions of the same turn; turn `width` collects what belongs to none."""
    return x.new_zeros(len(x), width + 1).scatter_add(1, turns, x)[:, :width]


def _first_by_turn(turns: Int[Tensor, "B T"], width: int) -> Int[Tensor, "B K"]:
    """First column of each turn; 0 for turns without a position."""
    columns = torch.arange(turns.shape[1], device=turns.device).expand_as(turns)
    first = torch.full((len(turns), width + 1), turns.shape[1], device=turns.device)
    first = first.scatter_reduce(1, turns, columns, "amin")[:, :width]
    return torch.where(first < turns.shape[1], first, 0)
