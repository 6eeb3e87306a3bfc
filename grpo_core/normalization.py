"""Take a mean and a spread out of rewards [B] or token values [B, T].

    y = mask * (x - mean) / (spread + eps)

A level says whose statistics are used: the whole batch's or the own group's. The spread is the root
mean square deviation from the mean that was subtracted, whatever its level (0 if none was).
Statistics of token values run over active positions, so long answers weigh more.

Where AReaL's behaviour is a defect, `areal_compat` reproduces it and the default does this:

* Rows left over by a fixed group size form a last, smaller group (AReaL: mean 0 and spread 0, so
  they come out as x / eps).
* Leave-one-out leaves out an answer, in [B, T] with all its tokens (AReaL: one token).
* An element without others to compare with is its own baseline and becomes 0 at every level (AReaL:
  0 in a group of one row, unchanged otherwise).
* The spread of a one-row group in [B, T] comes from its tokens (AReaL: 1 when unbiased).
* Group means keep float64 (AReaL: rounded to the input's precision before they are subtracted).
* Without any active position the result is 0 (AReaL: the input).

Source: AReaL's observed behaviour; RLOO: arXiv 2402.14740; Dr.GRPO: arXiv 2503.20783.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.config import Level, NormConfig

NO_GROUP = -1

StdAbout = Literal["subtracted-mean", "own-mean"]


@dataclass(frozen=True, slots=True)
class _Scope:
    """Who shares a statistic: one bucket for a batch, one per group for groups."""

    level: Level
    buckets: Int[Tensor, " B"]
    """Bucket of each row; rows without a group share an extra last bucket."""
    count: int
    """Number of buckets, the extra one included."""
    grouped: Bool[Tensor, " B"]
    """Rows that belong to a batch or group."""
    row_counts: Int[Tensor, " B"]
    """Rows in each row's bucket."""

    def total(self, per_row: Float[Tensor, " B"]) -> Float[Tensor, "B 1"]:
        """Sum over each row's bucket."""
        if self.count == 1:
            return per_row.sum().expand(len(per_row)).unsqueeze(1)
        sums = per_row.new_zeros(self.count).index_add_(0, self.buckets, per_row)
        return sums[self.buckets].unsqueeze(1)


def assign_groups(
    rows: int,
    group_size: int,
    group_sizes: Int[Tensor, " G"] | None = None,
    *,
    areal_compat: bool = False,
    device: torch.device | None = None,
) -> Int[Tensor, " B"]:
    """Give the group of every row; rows of a group are adjacent.

    Args:
        rows: Number of rows, B.
        group_size: Rows per group where `group_sizes` is absent.
        group_sizes: Rows of each group; takes precedence.
        areal_compat: Leave rows beyond the last whole group without a group (NO_GROUP).
        device: Where the result lives.

    Returns:
        Group index of each row.

    Raises:
        ValueError: The sizes do not add up to the rows, or a group size is not positive.
    """
    if group_sizes is not None:
        if int(group_sizes.sum()) != rows or bool((group_sizes < 0).any()):
            raise ValueError(
                f"group_sizes must be >= 0 and add up to {rows} rows, got {group_sizes.tolist()}"
            )
        index = torch.arange(len(group_sizes), device=group_sizes.device)
        return torch.repeat_interleave(index, group_sizes).to(device)
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, got {group_size}")
    groups = torch.arange(rows, device=device) // group_size
    if not areal_compat:
        return groups
    whole = rows - rows % group_size
    return torch.where(torch.arange(rows, device=device) < whole, groups, NO_GROUP)


def normalize(
    x: Float[Tensor, "*B"],
    norm: NormConfig,
    *,
    mask: Bool[Tensor, "*B"] | None = None,
    group_sizes: Int[Tensor, " G"] | None = None,
    areal_compat: bool = False,
    std_about: StdAbout = "subtracted-mean",
) -> Float[Tensor, "*B"]:
    """Normalize rewards [B] or token values [B, T]; inactive entries become 0.

    Computed in float64 and rounded to the input's dtype at the end.

    Args:
        x: Values, one per row or per position.
        norm: Levels, leave-one-out, divisor and eps.
        mask: Active entries; absent means all.
        group_sizes: Rows of each group; absent means blocks of `norm.group_size`.
        areal_compat: Reproduce AReaL's defects (module docstring).
        std_about: Take the spread around the subtracted mean, or around the mean at its own level.

    Returns:
        Normalized values, in the dtype of `x`.
    """
    active = torch.ones_like(x, dtype=torch.bool) if mask is None else mask
    if areal_compat and not active.any():
        return x.clone()
    table, on = x.reshape(len(x), -1), active.reshape(len(x), -1)
    values = torch.where(on, table, torch.zeros_like(table)).double()
    mean_scope = _scope(norm.mean_level, norm, x, group_sizes, areal_compat=areal_compat)
    std_scope = _scope(norm.std_level, norm, x, group_sizes, areal_compat=areal_compat)
    centred = values
    if mean_scope is not None:
        mean = _baseline(values, on, mean_scope, norm, areal_compat=areal_compat)
        if areal_compat and mean_scope.level == "group":
            mean = mean.to(x.dtype).double()
        centred = torch.where(on, values - mean, 0.0)
    if std_scope is not None:
        deviations = centred
        if std_about == "own-mean":
            deviations = torch.where(on, values - _mean(values, on, std_scope), 0.0)
        spread = _spread(deviations, on, std_scope, norm, areal_compat=areal_compat)
        centred = torch.where(on, centred / (spread + norm.eps), 0.0)
    return centred.reshape(x.shape).to(x.dtype)


def whiten(
    x: Float[Tensor, "B T"],
    mask: Float[Tensor, "B T"] | None = None,
    *,
    dims: tuple[int, ...] = (0, 1),
    unbiased: bool = False,
    eps: float = 1e-5,
    high_precision: bool = True,
) -> Float[Tensor, "B T"]:
    """Whiten over dimensions; masked entries count as x = 0 and are centred like the others.

        y = (m x - mean) / (sqrt(mean of (m x)^2 - mean^2) + eps), means over m = 1

    AReaL's separate whitening helper; `normalize` is what the pipeline uses.

    Args:
        x: Values.
        mask: Active entries; absent means all.
        dims: Dimensions over which the statistics run.
        unbiased: Multiply the variance by n / (n - 1).
        eps: Added to the spread.
        high_precision: Compute in float64 rather than float32.

    Returns:
        Whitened values in float32.
    """
    dtype = torch.float64 if high_precision else torch.float32
    weights = torch.ones_like(x, dtype=dtype) if mask is None else mask.to(dtype)
    values = x.to(dtype) * weights
    count = weights.sum(dims, keepdim=True)
    mean = values.sum(dims, keepdim=True) / count
    variance = (values**2).sum(dims, keepdim=True) / count - mean**2
    if unbiased:
        variance = variance * count / (count - 1)
    return ((values - mean) / (variance.sqrt() + eps)).float()


def _scope(
    level: Level | None,
    norm: NormConfig,
    x: Float[Tensor, "*B"],
    group_sizes: Int[Tensor, " G"] | None,
    *,
    areal_compat: bool,
) -> _Scope | None:
    """Buckets of rows for a level; None where the level is null."""
    if level is None:
        return None
    rows = len(x)
    if level == "batch":
        zeros = torch.zeros(rows, dtype=torch.long, device=x.device)
        everyone = torch.ones(rows, dtype=torch.bool, device=x.device)
        return _Scope(level, zeros, 1, everyone, zeros + rows)
    groups = assign_groups(
        rows, norm.group_size, group_sizes, areal_compat=areal_compat, device=x.device
    )
    number = int(groups.max()) + 1 if rows else 0
    buckets = torch.where(groups == NO_GROUP, number, groups)
    sizes = torch.bincount(buckets, minlength=number + 1)
    return _Scope(level, buckets, number + 1, groups != NO_GROUP, sizes[buckets])


def _mean(
    values: Float[Tensor, "B T"], active: Bool[Tensor, "B T"], scope: _Scope
) -> Float[Tensor, "B 1"]:
    """Mean over the active entries of each row's bucket; 0 for rows without a group."""
    count = scope.total(active.sum(1).double())
    mean = scope.total(values.sum(1)) / count.clamp(min=1)
    return torch.where(scope.grouped.unsqueeze(1), mean, 0.0)


def _baseline(
    values: Float[Tensor, "B T"],
    active: Bool[Tensor, "B T"],
    scope: _Scope,
    norm: NormConfig,
    *,
    areal_compat: bool,
) -> Float[Tensor, "B _"]:
    """What is subtracted: the mean, or the mean of the others under leave-one-out."""
    if not norm.mean_leave1out:
        return _mean(values, active, scope)
    total = scope.total(values.sum(1))
    count = scope.total(active.sum(1).double())
    if areal_compat:
        own, own_count = values, torch.ones_like(values)
        lonely = (scope.row_counts == 1).unsqueeze(1)
        alone = torch.where(lonely, values, 0.0) if scope.level == "group" else 0.0 * values
    else:
        own, own_count = values.sum(1, keepdim=True), active.sum(1, keepdim=True).double()
        alone = values
        lonely = torch.zeros_like(own, dtype=torch.bool)
    others = count - own_count
    compared = (total - own) / others.clamp(min=1)
    has_others = (others > 0) & ~(lonely & (scope.level == "group"))
    baseline = torch.where(has_others, compared, alone)
    return torch.where(scope.grouped.unsqueeze(1), baseline, 0.0)


def _spread(
    deviations: Float[Tensor, "B T"],
    active: Bool[Tensor, "B T"],
    scope: _Scope,
    norm: NormConfig,
    *,
    areal_compat: bool,
) -> Float[Tensor, "B 1"]:
    """Root mean square deviation of each row's bucket; 1 where an unbiased one is undefined."""
    count = scope.total(active.sum(1).double())
    divisor = (count - int(norm.std_unbiased)).clamp(min=1)
    spread = (scope.total((deviations**2).sum(1)) / divisor).sqrt()
    if norm.std_unbiased:
        undefined = count < 2
        if areal_compat and scope.level == "group":
            undefined = undefined | (scope.row_counts == 1).unsqueeze(1)
        spread = torch.where(undefined, 1.0, spread)
    return torch.where(scope.grouped.unsqueeze(1), spread, 0.0)
