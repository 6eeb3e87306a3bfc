"""Trainer: GRPO on one policy and one task, a batch per step.

A step samples a batch from the policy (or from one some versions old), runs the reward pipeline,
makes `ppo_n_minibatches` optimizer updates, lets the judge look when it is due, and reports
StepMetrics. Everything random comes from streams derived from (seed, purpose, step), so a trial
gives the same numbers alone, beside others, or resumed from a checkpoint.
"""

import contextlib
import json
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from grpo_core.config import TrialConfig
from grpo_core.errors import CheckpointError, ConfigError, GrpoError
from grpo_core.measure import (
    group_mean_max,
    kl_to_reference,
    measure_kl_share,
    measure_stage_signals,
    measure_updates,
    normalized_bound,
)
from grpo_core.metrics import StepMetrics
from grpo_core.optimizer import build_optimizer
from grpo_core.pipeline import Experience, PipelineResult, run_pipeline
from grpo_core.policy import Policy, load_policy
from grpo_core.rollout import Evaluation, RolloutBatch, evaluate, sample_batch
from grpo_core.rules import check_rules
from grpo_core.signal import token_fidelity
from grpo_core.tasks import Task, load_task
from grpo_core.update import UpdateReport, first_nonfinite, update_critic, update_policy

SAMPLING_MEMORY = (
    "sampling: lower train_dataset.batch_size, gconfig.n_samples or gconfig.max_new_tokens"
)
UPDATE_MEMORY = (
    "the update: raise actor.ppo_n_minibatches, set actor.gradient_checkpointing or actor.use_lora "
    "to true, or lower train_dataset.batch_size, gconfig.n_samples or gconfig.max_new_tokens"
)
NORM_BLOCK = 2**26
"""Weights whose change is held in double precision at once."""
REFERENCE_EVERY = 4
"""Steps between looks at the KL to the reference where no setting needs it (7 % of a step)."""


class Trainer:
    """One trial: its policy, optimizer and position in training.

    Args:
        config: What to train.
        device: Where the weights live; noise is always drawn on the CPU.
        policy: The initial policy, instead of the one that `config.policy` names.
        notify: Told when something takes long before the first step.
        allow_code: The configuration may name a function to import (`task.reward_fn`).

    Raises:
        ConfigError: the configuration breaks a rule, or names no policy or task.
    """

    def __init__(
        self,
        config: TrialConfig,
        *,
        device: str | torch.device = "cpu",
        policy: Policy | None = None,
        notify: Callable[[str], None] = lambda _: None,
        allow_code: bool = True,
    ) -> None:
        problems = check_rules(config)
        if problems:
            raise ConfigError(problems)
        self.config = config
        self.device = torch.device(device)
        self.task: Task = load_task(config.task.name, config.task, allow_code=allow_code)
        self.policy: Policy = load_policy(config, notify) if policy is None else policy
        self.policy.module.to(self.device)
        self.reference = self.policy.reference()
        trained = [p for p in self.policy.module.parameters() if p.requires_grad]
        self.optimizer = build_optimizer(trained, config.actor.optimizer)
        self.critic: nn.Module | None = None
        self.critic_optimizer: torch.optim.Optimizer | None = None
        if config.critic is not None:
            self.critic = self.policy.build_critic().to(self.device)
            parameters = [p for p in self.critic.parameters() if p.requires_grad]
            self.critic_optimizer = build_optimizer(parameters, config.critic.optimizer)
        self.observer: Callable[[RolloutBatch, Experience], None] | None = None
        """Shown every batch before the update; must not change it."""
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
            with out_of_memory_means(SAMPLING_MEMORY):
                self._initial = evaluate(self.reference, self.task, self.config, prompts)
        return self._initial

    def notes(self) -> tuple[str, ...]:
        """What a person should know about the answers judged so far, in words."""
        return self.task.notes()

    def step(self) -> StepMetrics:
        """Sample, reward, update, measure: one training batch."""
        step = self.steps_done
        staleness = len(self._past)
        with out_of_memory_means(SAMPLING_MEMORY):
            batch = sample_batch(
                self._behaviour(), self.task, self.config, step=step, version=step - staleness
            )
        with out_of_memory_means(UPDATE_MEMORY):
            reference = self._reference_logprobs(batch)
            experience = self._experience(batch, reference)
        if self.observer is not None:
            self.observer(batch, experience)
        result = run_pipeline(
            experience,
            self.config.actor,
            extensions=self.config.extensions,
            areal_compat=self.config.areal_compat,
        )
        before = self._flat_weights()
        self.nonfinite = first_nonfinite(
            rewards=batch.rewards,
            behaviour_logprobs=batch.behaviour_logprobs,
            advantages=result.advantages,
        )
        with out_of_memory_means(UPDATE_MEMORY):
            report = update_policy(
                self.policy,
                self.optimizer,
                batch=batch,
                result=result,
                config=self.config,
                step=step,
            )
            value_loss = self._update_critic(batch, result)
        self.nonfinite = self.nonfinite or report.nonfinite
        self.steps_done += 1
        self._remember_weights(before)
        with out_of_memory_means(SAMPLING_MEMORY):
            judged = self._judge()
        facts = _StepFacts(batch, result, report, judged, reference, value_loss)
        return self._metrics(step, facts, _distance(self.policy.weights(), before))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON-like facts that `restore` continues from."""
        tensors = {f"policy.{k}": v for k, v in self.policy.weights().items()}
        tensors |= _optimizer_tensors("optimizer", self.optimizer)
        if self.critic is not None and self.critic_optimizer is not None:
            tensors |= {f"critic.{k}": v for k, v in self.critic.state_dict().items()}
            tensors |= _optimizer_tensors("critic_optimizer", self.critic_optimizer)
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
        self.policy.load_weights(_under(tensors, "policy."))
        _restore_optimizer(self.optimizer, _under(tensors, "optimizer."))
        if self.critic is not None and self.critic_optimizer is not None:
            self.critic.load_state_dict(_under(tensors, "critic."))
            _restore_optimizer(self.critic_optimizer, _under(tensors, "critic_optimizer."))
        self._past.clear()
        for age in range(len({name.split(".")[1] for name in tensors if name.startswith("past.")})):
            weights = _under(tensors, f"past.{age}.")
            self._past.append({name: value.to(self.device) for name, value in weights.items()})
        self.steps_done, self.nonfinite = facts["steps_done"], facts["nonfinite"]
        self._initial = None if facts["initial"] is None else Evaluation(*facts["initial"])

    def _behaviour(self) -> Policy:
        """The policy that samples: the current one, or the oldest remembered version."""
        if not self._past:
            return self.policy
        self._sampler.load_weights(self._past[0])
        return self._sampler

    def _remember_weights(self, before: Tensor) -> None:
        """Keep the weights that this step started from, if later steps sample from them."""
        if not self._past.maxlen:
            return
        weights, offset = {}, 0
        for name, value in self.policy.weights().items():
            weights[name] = before[offset : offset + value.numel()].view_as(value).clone()
            offset += value.numel()
        self._past.append(weights)

    def _flat_weights(self) -> Tensor:
        return torch.cat([value.detach().flatten() for value in self.policy.weights().values()])

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
            values=self._values(batch),
            versions=versions,
            current_version=self.steps_done,
        )

    def _values(self, batch: RolloutBatch) -> Float[Tensor, "B T"] | None:
        if self.critic is None:
            return None
        with torch.no_grad():
            values: Tensor = self.critic(batch.ids)
            return values

    def _judge(self) -> Evaluation | None:
        """Evaluate after the step that has just been done, where one is due."""
        evaluation, done = self.config.evaluation, self.steps_done
        if self.nonfinite is not None or done == self.config.total_train_steps:
            return evaluate(self.policy, self.task, self.config, evaluation.prompts)
        if evaluation.every and done % evaluation.every == 0:
            return evaluate(self.policy, self.task, self.config, evaluation.interim_prompts)
        return None

    def _update_critic(self, batch: RolloutBatch, result: PipelineResult) -> float | None:
        if self.critic is None or self.critic_optimizer is None:
            return None
        return update_critic(
            self.critic,
            self.critic_optimizer,
            batch=batch,
            result=result,
            config=self.config,
            step=self.steps_done,
        )

    def _metrics(self, step: int, facts: "_StepFacts", update_norm: float) -> StepMetrics:
        batch, result, report = facts.batch, facts.result, facts.report
        mask = result.counted_mask
        trained = result.advantages[mask].double()
        rewards = batch.rewards.double()
        kl = None
        if facts.reference is not None:
            kl = kl_to_reference(batch.behaviour_logprobs, facts.reference, batch.loss_mask)
        judged = facts.judged
        return StepMetrics(
            step=step,
            reward_mean=rewards.mean().item(),
            reward_std=rewards.std().item() if len(rewards) > 1 else 0.0,
            reward_distinct=len(set(rewards.tolist())),
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
            logprob_gap=report.logprob_gap,
            grad_cosine=report.grad_cosine,
            grad_snr=report.noise.snr,
            update_norm=update_norm,
            learning_rate=report.learning_rate,
            staleness=float(step - batch.version),
            tokens=int(batch.loss_mask.sum()),
            accepted_groups=batch.accepted_groups,
            value_loss=facts.value_loss,
            nonfinite=self.nonfinite,
            **measure_updates(report.measures, int(mask.sum())),
        )


@dataclass(frozen=True, slots=True)
class _StepFacts:
    """Everything that a step's metrics are read from."""

    batch: RolloutBatch
    result: PipelineResult
    report: UpdateReport
    judged: Evaluation | None
    reference: Float[Tensor, "B T"] | None
    value_loss: float | None


@contextlib.contextmanager
def out_of_memory_means(advice: str) -> Iterator[None]:
    """Turn running out of memory into something that a user can put right.

    Raises:
        GrpoError: memory ran out; says which settings decide how much is needed.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        first = str(error).partition("\n")[0]
        raise GrpoError(f"out of memory in {advice} ({first})") from error


def _distance(weights: dict[str, Tensor], before: Tensor) -> float:
    """Length of the change since `before`, in blocks: a large model has no room for a copy."""
    offset = held = 0
    norms: list[Tensor] = []
    block: list[Tensor] = []
    for value in weights.values():
        size = value.numel()
        block.append(value.detach().flatten() - before[offset : offset + size])
        offset, held = offset + size, held + size
        if held >= NORM_BLOCK:
            norms.append(torch.cat(block).double().norm())
            block, held = [], 0
    if block:
        norms.append(torch.cat(block).double().norm())
    return norms[0].item() if len(norms) == 1 else torch.stack(norms).norm().item()


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose name starts with `prefix`, without it."""
    return {name.removeprefix(prefix): v for name, v in tensors.items() if name.startswith(prefix)}


def _optimizer_tensors(name: str, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}.{index}.{key}": torch.as_tensor(value)
        for index, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
        if value is not None
    }


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
