"""Sampling a training batch: prompts, groups of answers, rewards."""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.config import GenerationConfig, TaskConfig, TrialConfig
from grpo_core.errors import ConfigError, GrpoError
from grpo_core.policy.base import Policy
from grpo_core.policy.sampling import Generated
from grpo_core.randomness import numpy_stream, torch_stream
from grpo_core.rewards import accept_groups
from grpo_core.tasks import Answer, Prompt, Task
from grpo_core.tasks.functions import RewardError

MOST_ROUNDS = 8
"""Rounds of dynamic sampling before a step trains on the groups it has."""


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """Sampled answers with their rewards; rows of one prompt are adjacent.

    Arrays over positions are prediction-aligned: entry t belongs to the prediction of token t + 1.
    """

    ids: Int[Tensor, "B T"]
    """Prompt and answer, right-padded."""
    loss_mask: Bool[Tensor, "B T"]
    """The position predicts a generated token."""
    lengths: Int[Tensor, " B"]
    """Tokens of prompt plus answer."""
    answer_lengths: Int[Tensor, " B"]
    """Generated tokens, end-of-sequence included."""
    truncated: Bool[Tensor, " B"]
    """The answer was cut at the length limit."""
    behaviour_logprobs: Float[Tensor, "B T"]
    """The sampler's log-probs; 0 outside the mask."""
    entropy: Float[Tensor, "B T"]
    """Entropy that each token was drawn with, nats; 0 outside the mask."""
    rewards: Float[Tensor, " B"]
    """Raw rewards."""
    passed: Bool[Tensor, " B"]
    """The strict check."""
    group_sizes: Int[Tensor, " G"]
    """Answers of each prompt."""
    version: int
    """Policy version that sampled the batch: optimizer batches behind it."""
    prompts: tuple[Prompt, ...]
    """The prompt of each row."""
    answers: tuple[Answer, ...]
    """The text of each row."""
    accepted_groups: float = 1.0
    """Share of the sampled groups that dynamic sampling accepted."""

    def groups(self, chosen: Bool[Tensor, " G"]) -> "RolloutBatch":
        """Keep the chosen groups' rows."""
        rows = torch.repeat_interleave(chosen, self.group_sizes)
        picked: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                picked[item.name] = value[chosen if item.name == "group_sizes" else rows]
            elif isinstance(value, tuple):
                kept = zip(value, rows.tolist(), strict=True)
                picked[item.name] = tuple(entry for entry, keep in kept if keep)
        return replace(self, **picked)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The judge's result."""

    pass_rate: float
    """Share of held-out prompts whose one sampled answer passes the strict check."""
    truncated: float
    """Share of answers cut at the length limit."""


def sample_batch(
    policy: Policy, task: Task, config: TrialConfig, *, step: int, version: int
) -> RolloutBatch:
    """One training batch; prompts and noise depend only on (seed, step).

    With `extensions.dynamic_sampling` only accepted groups are kept (DAPO, arXiv 2503.14476 section
    3.2): rounds of prompts are sampled until `train_dataset.batch_size` groups are accepted, at
    most MOST_ROUNDS, or one round with `dynamic_bs`. If none is accepted, the last round is kept as
    it is.
    """
    rule = config.extensions.dynamic_sampling
    drawn = _sample_round(policy, task, config, _Draw(step, 0, version))
    if rule is None:
        return drawn
    rounds = 1 if config.dynamic_bs else MOST_ROUNDS
    wanted = config.train_dataset.batch_size
    kept: list[RolloutBatch] = []
    found = index = 0
    for index in range(1, rounds + 1):
        accepted = accept_groups(drawn.rewards, drawn.group_sizes, rule)
        kept += [drawn.groups(accepted)] if bool(accepted.any()) else []
        found = sum(len(part.group_sizes) for part in kept)
        if found >= wanted or index == rounds:
            break
        drawn = _sample_round(policy, task, config, _Draw(step, index, version))
    batch = _join(kept, wanted) if kept else drawn
    return replace(batch, accepted_groups=found / (wanted * index))


@dataclass(frozen=True, slots=True)
class _Aligned:
    """Rows of prompt and answer; arrays over positions are prediction-aligned."""

    ids: Int[Tensor, "B T"]
    loss_mask: Bool[Tensor, "B T"]
    lengths: Int[Tensor, " B"]
    behaviour_logprobs: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"]


@dataclass(frozen=True, slots=True)
class _Draw:
    """Which round of sampling: its streams and the policy's version."""

    step: int
    index: int
    version: int

    def purpose(self, name: str) -> str:
        """The stream's name; further rounds have streams of their own."""
        return name if self.index == 0 else f"{name}-{self.index}"


def _sample_round(policy: Policy, task: Task, config: TrialConfig, draw: _Draw) -> RolloutBatch:
    rng = numpy_stream(config.seed, draw.purpose("prompts"), draw.step)
    questions = task.training_prompts(rng, config.train_dataset.batch_size)
    group = config.gconfig.n_samples
    prompts = tuple(question for question in questions for _ in range(group))
    encoded = encode_prompts(policy, questions, config.gconfig)
    encoded = [ids for ids in encoded for _ in range(group)]
    noise = torch_stream(config.seed, draw.purpose("sampling"), draw.step)
    generated = policy.generate(encoded, config.gconfig, noise)
    answers = read_answers(policy, encoded, generated, config.gconfig)
    rewards = [
        checked_reward(task, prompt, answer, config.task)
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    passed = [task.passes(p, a) for p, a in zip(prompts, answers, strict=True)]
    device = generated.ids.device
    aligned = _align(encoded, generated)
    return RolloutBatch(
        ids=aligned.ids,
        loss_mask=aligned.loss_mask,
        lengths=aligned.lengths,
        answer_lengths=generated.lengths,
        behaviour_logprobs=aligned.behaviour_logprobs,
        entropy=aligned.entropy,
        truncated=~generated.ended,
        rewards=torch.tensor(rewards, dtype=torch.float32, device=device),
        passed=torch.tensor(passed, device=device),
        group_sizes=torch.full((len(questions),), group, device=device),
        version=draw.version,
        prompts=prompts,
        answers=answers,
    )


def _join(parts: list[RolloutBatch], groups: int) -> RolloutBatch:
    """The first `groups` groups of several batches, padded to one width."""
    width = max(part.ids.shape[1] for part in parts)
    joined: dict[str, Any] = {}
    for item in fields(RolloutBatch):
        values = [getattr(part, item.name) for part in parts]
        if isinstance(values[0], Tensor):
            padded = [_widen(value, width) if value.ndim == 2 else value for value in values]
            joined[item.name] = torch.cat(padded)
        elif isinstance(values[0], tuple):
            joined[item.name] = tuple(entry for value in values for entry in value)
        else:
            joined[item.name] = values[0]
    whole = RolloutBatch(**joined)
    first = torch.arange(len(whole.group_sizes), device=whole.ids.device) < groups
    return whole.groups(first)


def _widen(values: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(values, (0, width - values.shape[1]))


def evaluate(policy: Policy, task: Task, config: TrialConfig, prompts: int) -> Evaluation:
    """Strict pass rate at temperature 1 on the first `prompts` held-out prompts.

    The noise is the same at every call of a trial, so that two evaluations differ by the policy
    alone.
    """
    questions = task.held_out_prompts(prompts)
    generation = GenerationConfig(
        n_samples=1,
        max_new_tokens=config.gconfig.max_new_tokens,
        stop=config.gconfig.stop,
        stop_token_ids=config.gconfig.stop_token_ids,
    )
    noise = torch_stream(config.seed, "evaluation")
    encoded = encode_prompts(policy, questions, generation)
    generated = policy.generate(encoded, generation, noise)
    answers = read_answers(policy, encoded, generated, generation)
    passed = sum(task.passes(q, a) for q, a in zip(questions, answers, strict=True))
    return Evaluation(
        pass_rate=passed / prompts, truncated=1.0 - generated.ended.float().mean().item()
    )


def checked_reward(task: Task, prompt: Prompt, answer: Answer, config: TaskConfig) -> float:
    """The task's reward of one answer as a float.

    Raises:
        GrpoError: the reward function raised or returned no number; the message names the sample.
    """
    sample = f"on {prompt.text!r} -> {answer.text!r}"
    try:
        reward = task.reward(prompt, answer, config)
    except RewardError as error:
        raise GrpoError(f"reward of task {task.name!r} {error} {sample}") from error
    except Exception as error:
        raise GrpoError(f"reward of task {task.name!r} raised {error!r} {sample}") from error
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise GrpoError(f"reward of task {task.name!r} must be a number, got {reward!r} {sample}")
    return float(reward)


def encode_prompts(
    policy: Policy, prompts: list[Prompt], config: GenerationConfig
) -> list[list[int]]:
    """Token ids of the prompts.

    Raises:
        ConfigError: a prompt and its answer would not fit into the policy's context.
    """
    encoded = [policy.encode_prompt(prompt) for prompt in prompts]
    longest = max(map(len, encoded))
    if longest + config.max_new_tokens > policy.longest:
        prompt = prompts[max(range(len(prompts)), key=lambda i: len(encoded[i]))].text
        problem = (
            f"gconfig.max_new_tokens={config.max_new_tokens}: a prompt of {longest} tokens and its "
            f"answer do not fit into the policy's context of {policy.longest}; lower it, or "
            f"shorten the prompts ({prompt[:60]!r}...)"
        )
        raise ConfigError([problem])
    return encoded


def read_answers(
    policy: Policy, prompts: list[list[int]], generated: Generated, config: GenerationConfig
) -> tuple[Answer, ...]:
    """The texts that were generated, each cut before what ended it."""
    answers = []
    rows = zip(prompts, generated.ids.tolist(), generated.lengths.tolist(), strict=True)
    for (prompt, ids, length), ended in zip(rows, generated.ended.tolist(), strict=True):
        text = policy.decode(ids[:length])
        for stop in config.stop or ():
            text = text.split(stop, 1)[0]
        answers.append(Answer(text, bool(ended), tuple(ids[:length]), tuple(prompt)))
    return tuple(answers)


def _align(prompts: list[list[int]], generated: Generated) -> _Aligned:
    """Join prompts and answers into right-padded rows; shift per-token arrays by one."""
    device = generated.ids.device
    starts = torch.tensor([len(prompt) for prompt in prompts], device=device)
    lengths = starts + generated.lengths
    width = int(lengths.max())
    ids = torch.zeros(len(prompts), width + generated.ids.shape[1], dtype=torch.long, device=device)
    padded = max(map(len, prompts))
    ids[:, :padded] = torch.tensor(
        [prompt + [0] * (padded - len(prompt)) for prompt in prompts], device=device
    )
    columns = torch.arange(generated.ids.shape[1], device=device)[None, :]
    ids.scatter_(1, starts[:, None] + columns, generated.ids)
    predictions = starts[:, None] + columns - 1
    spread = torch.zeros(ids.shape, device=device)
    positions = torch.arange(width, device=device)[None, :]
    mask = (positions >= starts[:, None] - 1) & (positions < lengths[:, None] - 1)
    return _Aligned(
        ids=ids[:, :width],
        loss_mask=mask,
        lengths=lengths,
        behaviour_logprobs=spread.scatter(1, predictions, generated.logprobs)[:, :width],
        entropy=spread.scatter(1, predictions, generated.entropy)[:, :width],
    )
