"""Trainer: GRPO on one policy and one task, a batch per step.

A step samples a batch from the policy (or from one some versions old), runs the reward pipeline,
makes `ppo_n_minibatches` optimizer updates, lets the judge look when it is due, and reports
StepMetrics. Everything random comes from streams derived from (seed, purpose, step), so a trial gives
the same numbers alone, beside others, or resumed from a checkpoint.
"""

import json
import math
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from grpo_core.config import TrialConfig
from grpo_core.errors import CheckpointError, ConfigError
from grpo_core.losses import policy_loss
from grpo_core.measure import (
    MinibatchMeasure,
    group_mean_max,
    kl_to_reference,
    measure_kl_share,
    measure_minibatch,
    measure_stage_signals,
    measure_updates,
    normalized_bound,
)
from grpo_core.metrics import StepMetrics
from grpo_core.optimizer import build_optimizer, learning_rate
from grpo_core.pipeline import Experience, PipelineResult, run_pipeline
from grpo_core.policy import Policy, load_policy
from grpo_core.randomness import torch_stream
from grpo_core.rollout import Evaluation, RolloutBatch, evaluate, sample_batch
from grpo_core.rules import check_rules
from grpo_core.signal import token_fidelity
from grpo_core.tasks import Task, load_task

REFERENCE_EVERY = 4
"""Steps between looks at the KL to the reference where no setting needs it (7 % of a step)."""


class Trainer:
    """One trial: its policy, optimizer and position in training."""

    def __init__(
        self,
        config: TrialConfig,
        *,
        device: str | torch.device = "cpu",
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        problems = check_rules(config)
        if problems:
            raise ConfigError(problems)
        self.config = config
        self.device = torch.device(device)
        self.task: Task = load_task(config.task.name)
        self.policy: Policy = load_policy(config, notify)
        self.policy.module.to(self.device)
        self.reference = self.policy.copy()
        self.reference.module.requires_grad_(requires_grad=False)
        self.optimizer = build_optimizer(self.policy.module.parameters(), config.actor.optimizer)
        self.steps_done = 0
        self.nonfinite: str | None = None
        self._past: deque[dict[str, Tensor]] = deque(maxlen=config.rollout.max_head_offpolicyness)
        self._sampler = self.policy.copy() if self._past.maxlen else self.policy
        self._initial: Evaluation | None = None

    @property
    def finished(self) -> bool:
        """Every planned step is done, or a non-finite value ended the trial."""
        return self.nonfinite is not None or self.steps_done >= self.config.total_train_steps

    def initial_evaluation(self) -> Evaluation:
        """The judge's result before training."""
        if self._initial is None:
            prompts = self.config.evaluation.prompts
            self._initial = evaluate(self.reference, self.task, self.config, prompts)
        return self._initial

    def step(self) -> StepMetrics:
        """Sample, reward, update, measure: one training batch."""
        step = self.steps_done
        staleness = len(self._past)
        batch = sample_batch(
            self._behaviour(), self.task, self.config, step, version=step - staleness
        )
        reference = self._reference_logprobs(batch)
        experience = self._experience(batch, reference)
        result = run_pipeline(
            experience,
            self.config.actor,
            extensions=self.config.extensions,
            areal_compat=self.config.areal_compat,
        )
        self._note_nonfinite(
            rewards=batch.rewards,
            behaviour_logprobs=batch.behaviour_logprobs,
            advantages=result.advantages,
        )
        before = self._flat_weights()
        update = _Update(self, batch, result)
        update.run()
        self.steps_done += 1
        self._remember_weights(before)
        judged = self._judge()
        return self._metrics(step, batch, result, update, judged, reference, before)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON-like facts that `restore` continues from."""
        tensors = {f"policy.{k}": v for k, v in self.policy.module.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{k}": torch.as_tensor(v) for k, v in state.items()}
        for age, weights in enumerate(self._past):
            tensors |= {f"past.{age}.{name}": value for name, value in weights.items()}
        initial = self._initial
        facts = {
            "steps_done": self.steps_done,
            "nonfinite": self.nonfinite,
            "initial": None if initial is None else [initial.pass_rate, initial.truncated],
            "config": self.config.model_dump(mode="json"),
        }
        return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, facts

    def save(self, folder: Path) -> None:
        """Write a checkpoint into an existing folder."""
        tensors, facts = self.state()
        save_file(tensors, folder / "state.safetensors")
        (folder / "state.json").write_text(json.dumps(facts))

    def restore(self, folder: Path) -> None:
        """Continue from a checkpoint of the same configuration.

        Raises:
            CheckpointError: it is damaged or belongs to another configuration.
        """
        try:
            tensors = load_file(folder / "state.safetensors")
            facts = json.loads((folder / "state.json").read_text())
        except (OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(f"{folder} holds no readable checkpoint: {error}") from error
        if facts["config"] != self.config.model_dump(mode="json"):
            raise CheckpointError(f"{folder} is the checkpoint of another configuration")
        self.policy.module.load_state_dict(_under(tensors, "policy."))
        self._restore_optimizer(_under(tensors, "optimizer."))
        self._past.clear()
        for age in range(len({name.split(".")[1] for name in tensors if name.startswith("past.")})):
            weights = _under(tensors, f"past.{age}.")
            self._past.append({name: value.to(self.device) for name, value in weights.items()})
        self.steps_done, self.nonfinite = facts["steps_done"], facts["nonfinite"]
        self._initial = None if facts["initial"] is None else Evaluation(*facts["initial"])

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            index, _, key = name.partition(".")
            state.setdefault(int(index), {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _behaviour(self) -> Policy:
        """The policy that samples: the current one, or the oldest remembered version."""
        if not self._past:
            return self.policy
        self._sampler.module.load_state_dict(self._past[0])
        return self._sampler

    def _remember_weights(self, before: Tensor) -> None:
        """Keep the weights that this step started from, if later steps sample from them."""
        if not self._past.maxlen:
            return
        weights, offset = {}, 0
        for name, value in self.policy.module.state_dict().items():
            weights[name] = before[offset : offset + value.numel()].view_as(value).clone()
            offset += value.numel()
        self._past.append(weights)

    def _flat_weights(self) -> Tensor:
        state = self.policy.module.state_dict()
        return torch.cat([value.detach().flatten() for value in state.values()])

    def _reference_logprobs(self, batch: RolloutBatch) -> Float[Tensor, "B T"] | None:
        config, step = self.config, self.steps_done
        needed = config.actor.kl_ctl > 0 or config.extensions.kl_loss_coef > 0
        if config.ref is None and config.areal_compat:
            needed = False
        last = step + 1 == config.total_train_steps
        if not needed and step % REFERENCE_EVERY and not last:
            return None
        with torch.no_grad():
            return self.reference.logprobs(batch.ids, config.actor.temperature)

    def _experience(self, batch: RolloutBatch, reference: Tensor | None) -> Experience:
        config = self.config
        actor = config.actor
        proximal = None
        recomputed = actor.use_decoupled_loss and actor.prox_logp_method in ("recompute", "metrics")
        if recomputed or actor.recompute_logprob:
            with torch.no_grad():
                proximal = self.policy.logprobs(batch.ids, actor.temperature)
        versions = torch.where(batch.loss_mask, batch.version, -1)
        return Experience(
            rewards=batch.rewards,
            loss_mask=batch.loss_mask,
            lengths=batch.lengths,
            truncated=batch.truncated,
            behaviour_logprobs=batch.behaviour_logprobs,
            group_sizes=batch.group_sizes,
            reference_logprobs=None if config.ref is None else reference,
            proximal_logprobs=proximal,
            versions=versions,
            current_version=self.steps_done,
        )

    def _judge(self) -> Evaluation | None:
        """Evaluate after the step that has just been done, where one is due."""
        evaluation, done = self.config.evaluation, self.steps_done
        if self.nonfinite is not None or done == self.config.total_train_steps:
            return evaluate(self.policy, self.task, self.config, evaluation.prompts)
        if evaluation.every and done % evaluation.every == 0:
            return evaluate(self.policy, self.task, self.config, evaluation.interim_prompts)
        return None

    def _note_nonfinite(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            if self.nonfinite is None and not bool(torch.isfinite(tensor).all()):
                self.nonfinite = name

    def _metrics(  # noqa: PLR0913, PLR0917 - one step's facts, each used once
        self,
        step: int,
        batch: RolloutBatch,
        result: PipelineResult,
        update: "_Update",
        judged: Evaluation | None,
        reference: Tensor | None,
        before: Tensor,
    ) -> StepMetrics:
        mask = result.counted_mask
        trained = result.advantages[mask].double()
        rewards = batch.rewards.double()
        kl = None
        if reference is not None:
            kl = kl_to_reference(batch.behaviour_logprobs, reference, batch.loss_mask)
        return StepMetrics(
            step=step,
            reward_mean=rewards.mean().item(),
            reward_std=rewards.std().item() if len(rewards) > 1 else 0.0,
            reward_distinct=len(rewards.unique()),
            pass_rate=batch.passed.double().mean().item(),
            eval_pass_rate=None if judged is None else judged.pass_rate,
            eval_truncated=None if judged is None else judged.truncated,
            length_mean=batch.answer_lengths.double().mean().item(),
            truncated=batch.truncated.double().mean().item(),
            entropy=batch.entropy[batch.loss_mask].double().mean().item(),
            entropy_max=math.log(self.policy.vocabulary),
            kl_reference=kl,
            kl_share=measure_kl_share(result, self.config.actor),
            token_fidelity=token_fidelity(result.advantages, mask, batch.passed),
            stages=measure_stage_signals(result, batch),
            advantage_std=trained.std().item() if len(trained) > 1 else 0.0,
            advantage_max=trained.abs().max().item() if len(trained) else 0.0,
            normalized_bound=normalized_bound(self.config),
            group_mean_max=group_mean_max(result, batch, self.config),
            logprob_gap=update.logprob_gap,
            grad_cosine=update.grad_cosine(),
            update_norm=(self._flat_weights() - before).double().norm().item(),
            learning_rate=update.learning_rate,
            staleness=float(step - batch.version),
            tokens=int(batch.loss_mask.sum()),
            nonfinite=self.nonfinite,
            **measure_updates(update.measures, int(mask.sum())),
        )


class _Update:
    """The optimizer updates of one batch."""

    def __init__(self, trainer: Trainer, batch: RolloutBatch, result: PipelineResult) -> None:
        self.trainer, self.batch, self.result = trainer, batch, result
        config = trainer.config
        self.learning_rate = learning_rate(
            config.actor.optimizer, trainer.steps_done, config.total_train_steps
        )
        self.measures: list[MinibatchMeasure] = []
        self.logprob_gap = 0.0
        self._cosines: list[float] = []
        self._last_gradient: Tensor | None = None

    def run(self) -> None:
        """One update per minibatch; stops at the first non-finite value."""
        for group in self.trainer.optimizer.param_groups:
            group["lr"] = self.learning_rate
        for rows in self._minibatches():
            self._update(rows)
            if self.trainer.nonfinite is not None:
                return

    def grad_cosine(self) -> float | None:
        """Mean cosine between gradients of consecutive minibatches; None with one or a zero one."""
        return sum(self._cosines) / len(self._cosines) if self._cosines else None

    def _minibatches(self) -> list[Int[Tensor, " b"]]:
        config = self.trainer.config
        noise = torch_stream(config.seed, "minibatches", self.trainer.steps_done)
        order = torch.randperm(len(self.batch.ids), generator=noise).to(self.batch.ids.device)
        return [part for part in order.chunk(config.actor.ppo_n_minibatches) if len(part)]

    def _update(self, rows: Int[Tensor, " b"]) -> None:
        trainer, actor = self.trainer, self.trainer.config.actor
        width = int(self.batch.lengths[rows].max())
        inputs = self.result.rows(rows).loss_inputs()
        logprobs = trainer.policy.logprobs(self.batch.ids[rows, :width], actor.temperature)
        # Rows are cut to the minibatch's own width for the forward pass; behind it all is masked.
        logprobs = torch.nn.functional.pad(logprobs, (0, self.batch.ids.shape[1] - width))
        if not self.measures:
            self._measure_gap(logprobs, rows)
        outcome = policy_loss(
            logprobs,
            inputs,
            actor,
            extensions=trainer.config.extensions,
            areal_compat=trainer.config.areal_compat,
        )
        trainer.optimizer.zero_grad()
        outcome.loss.backward()
        grad_norm = self._clip_gradient(actor.optimizer.gradient_clipping)
        self.measures.append(measure_minibatch(outcome, grad_norm.item()))
        trainer._note_nonfinite(
            logprobs=logprobs.detach(), loss=outcome.loss.detach(), gradient=grad_norm
        )
        if trainer.nonfinite is None:
            trainer.optimizer.step()

    def _measure_gap(self, logprobs: Tensor, rows: Tensor) -> None:
        mask = self.batch.loss_mask[rows]
        gap = logprobs.detach() - self.batch.behaviour_logprobs[rows]
        self.logprob_gap = gap[mask].double().abs().mean().item()

    def _clip_gradient(self, limit: float) -> Tensor:
        """Global gradient norm before clipping to `limit` (0: no clipping)."""
        gradients = [p.grad for p in self.trainer.policy.module.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        norm = flat.norm()
        if self._last_gradient is not None:
            scale = norm * self._last_gradient.norm()
            if scale > 0:
                self._cosines.append((flat @ self._last_gradient / scale).item())
        self._last_gradient = flat
        if limit > 0:
            torch.nn.utils.clip_grads_with_norm_(
                self.trainer.policy.module.parameters(), limit, norm
            )
        return norm


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose name starts with `prefix`, without it."""
    return {name.removeprefix(prefix): v for name, v in tensors.items() if name.startswith(prefix)}
