"""The optimizer updates of one batch: policy and value function."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from grpo_core.config import OptimizerConfig, TrialConfig
from grpo_core.losses import policy_loss, value_loss
from grpo_core.measure import MinibatchMeasure, measure_minibatch
from grpo_core.optimizer import learning_rate
from grpo_core.pipeline import PipelineResult
from grpo_core.policy import Policy
from grpo_core.randomness import torch_stream
from grpo_core.rollout import RolloutBatch


@dataclass(slots=True)
class GradientNoise:
    """How far the minibatch gradients of one step agree.

        SNR = |E g|^2 / tr Var(g),  with  |E g|^2 ~ (K |mean|^2 - m) / (K - 1)
                                    and tr Var(g) ~ K (m - |mean|^2) / (K - 1)

    for K gradients g with the mean square norm m: both are unbiased, as in McCandlish et al.,
    arXiv 1812.06162, appendix A.1, with minibatches as the small and the step as the large batch;
    SNR = B_small / B_simple there. Where noise hides the signal it may come out negative, down to
    -1/K. The weights move between the minibatches of a step, so what the updates themselves change
    of the gradient counts as noise too; minibatches count alike, whatever their tokens.
    """

    count: int = 0
    """Gradients so far."""
    squares: float = 0.0
    """Sum of their squared norms."""
    total: Tensor | None = None
    """Their sum."""

    def add(self, gradient: Float[Tensor, " n"], norm: float) -> None:
        """Take in one gradient, which must not change afterwards, and its norm."""
        self.count += 1
        self.squares += norm**2
        if self.total is None:
            self.total = gradient
        elif self.count == 2:
            self.total = self.total + gradient  # not in place: the first one is the caller's
        else:
            self.total += gradient

    @property
    def snr(self) -> float | None:
        """The signal-to-noise ratio; None with one gradient, or where all are equal."""
        if self.total is None or self.count < 2:
            return None
        mean_square = self.squares / self.count
        square_of_mean: float = (self.total.norm().item() / self.count) ** 2
        noise = self.count * (mean_square - square_of_mean)
        if not noise > EQUAL_GRADIENTS * mean_square:
            return None
        return (self.count * square_of_mean - mean_square) / noise


EQUAL_GRADIENTS = 1e-5
"""Variance of the gradients, as a share of their mean square, that is rounding: norms are float32,
so a difference of two squares is known to some 1e-6 of them."""


@dataclass(slots=True)
class UpdateReport:
    """What the updates of one batch were like."""

    learning_rate: float
    """Learning rate of all of them."""
    measures: list[MinibatchMeasure] = field(default_factory=list)
    """One per update."""
    cosines: list[float] = field(default_factory=list)
    """Between the gradients of consecutive updates."""
    noise: GradientNoise = field(default_factory=GradientNoise)
    """Over the gradients of all updates."""
    logprob_gap: float = 0.0
    """Mean absolute gap between sampler and trainer before the first update, nats."""
    nonfinite: str | None = None
    """The first tensor that held NaN or inf; no update was made with it, nor after it."""

    @property
    def grad_cosine(self) -> float | None:
        """Mean of the cosines; None with one update, or where a gradient was 0."""
        return sum(self.cosines) / len(self.cosines) if self.cosines else None


def first_nonfinite(**tensors: Tensor) -> str | None:
    """Name of the first tensor that holds NaN or inf."""
    return next((n for n, t in tensors.items() if not bool(torch.isfinite(t).all())), None)


def update_policy(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    *,
    batch: RolloutBatch,
    result: PipelineResult,
    config: TrialConfig,
    step: int,
) -> UpdateReport:
    """Make `actor.ppo_n_minibatches` updates on random parts of the batch."""
    settings = config.actor.optimizer
    report = UpdateReport(learning_rate(settings, step, config.total_train_steps))
    _set_rate(optimizer, report.learning_rate)
    previous: Tensor | None = None
    for rows in minibatches(batch, config.actor.ppo_n_minibatches, config.seed, step):
        logprobs = _padded(
            policy.logprobs(batch.ids[rows, : _width(batch, rows)], config.actor.temperature), batch
        )
        if not report.measures:
            report.logprob_gap = _gap(logprobs, batch, rows)
        outcome = policy_loss(
            logprobs,
            result.rows(rows).loss_inputs(),
            config.actor,
            extensions=config.extensions,
            areal_compat=config.areal_compat,
        )
        gradient = _gradient(outcome.loss, policy.module, optimizer)
        norm = gradient.norm()
        report.measures.append(measure_minibatch(outcome, norm.item()))
        report.nonfinite = first_nonfinite(
            logprobs=logprobs.detach(), loss=outcome.loss.detach(), gradient=norm
        )
        if report.nonfinite is not None:
            break
        if previous is not None and norm > 0 and previous.norm() > 0:
            report.cosines.append((gradient @ previous / (norm * previous.norm())).item())
        previous = gradient
        report.noise.add(gradient, norm.item())
        _clipped_step(policy.module, optimizer, norm, settings)
    return report


def update_critic(
    critic: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    batch: RolloutBatch,
    result: PipelineResult,
    config: TrialConfig,
    step: int,
) -> float:
    """Make `critic.ppo_n_minibatches` updates of the value function; their mean loss.

    Raises:
        ValueError: the batch was sampled without values.
    """
    settings = config.critic
    if settings is None or result.values is None:
        raise ValueError("update_critic needs a critic section and the batch's values, got none")
    _set_rate(optimizer, learning_rate(settings.optimizer, step, config.total_train_steps))
    losses = []
    for rows in minibatches(batch, settings.ppo_n_minibatches, config.seed, step):
        values = _padded(critic(batch.ids[rows, : _width(batch, rows)]), batch)
        part = result.rows(rows)
        outcome = value_loss(
            values,
            result.values[rows],
            part.returns,
            part.counted_mask,
            eps_clip=settings.eps_clip,
            kind=config.extensions.value_loss,
        )
        norm = _gradient(outcome.loss, critic, optimizer).norm()
        losses.append(outcome.loss.item())
        _clipped_step(critic, optimizer, norm, settings.optimizer)
    return sum(losses) / len(losses)


def minibatches(
    batch: RolloutBatch, count: int, seed: int, step: int
) -> Iterator[Int[Tensor, " b"]]:
    """Row numbers of `count` random parts of nearly equal size; fewer if there are fewer rows."""
    noise = torch_stream(seed, "minibatches", step)
    order = torch.randperm(len(batch.ids), generator=noise).to(batch.ids.device)
    yield from (part for part in order.tensor_split(count) if len(part))


def _width(batch: RolloutBatch, rows: Int[Tensor, " b"]) -> int:
    """Longest row of a minibatch: the forward pass is cut there, behind it all is masked."""
    return int(batch.lengths[rows].max())


def _padded(values: Float[Tensor, "b t"], batch: RolloutBatch) -> Float[Tensor, "b T"]:
    return nn.functional.pad(values, (0, batch.ids.shape[1] - values.shape[1]))


def _gap(logprobs: Tensor, batch: RolloutBatch, rows: Int[Tensor, " b"]) -> float:
    gap = logprobs.detach() - batch.behaviour_logprobs[rows]
    return gap[batch.loss_mask[rows]].double().abs().mean().item()


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _gradient(loss: Tensor, module: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """The gradient of all weights as one vector."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


def _clipped_step(
    module: nn.Module, optimizer: torch.optim.Optimizer, norm: Tensor, config: OptimizerConfig
) -> None:
    """One update, with the gradient cut to `gradient_clipping` (0: as it is)."""
    if config.gradient_clipping > 0:
        nn.utils.clip_grads_with_norm_(module.parameters(), config.gradient_clipping, norm)
    optimizer.step()
