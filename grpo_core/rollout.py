"""Sampling a training batch: prompts, groups of answers, rewards."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_core.config import GenerationConfig, TaskConfig, TrialConfig
from grpo_core.errors import GrpoError
from grpo_core.policy.base import Policy
from grpo_core.policy.sampling import Generated
from grpo_core.randomness import numpy_stream, torch_stream
from grpo_core.tasks import Answer, Prompt, Task


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


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The judge's result."""

    pass_rate: float
    """Share of held-out prompts whose one sampled answer passes the strict check."""
    truncated: float
    """Share of answers cut at the length limit."""


def sample_batch(
    policy: Policy, task: Task, config: TrialConfig, step: int, version: int
) -> RolloutBatch:
    """One training batch; prompts and noise depend only on (seed, step)."""
    rng = numpy_stream(config.seed, "prompts", step)
    questions = task.training_prompts(rng, config.train_dataset.batch_size)
    group = config.gconfig.n_samples
    prompts = tuple(question for question in questions for _ in range(group))
    encoded = [policy.encode(prompt.text) for prompt in prompts]
    noise = torch_stream(config.seed, "sampling", step)
    generated = policy.generate(encoded, config.gconfig, noise)
    answers = _answers(policy, generated)
    rewards = [
        checked_reward(task, prompt, answer, config.task)
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    passed = [task.passes(p, a) for p, a in zip(prompts, answers, strict=True)]
    device = generated.ids.device
    return RolloutBatch(
        **_align(encoded, generated),
        truncated=~generated.ended,
        rewards=torch.tensor(rewards, dtype=torch.float32, device=device),
        passed=torch.tensor(passed, device=device),
        group_sizes=torch.full((len(questions),), group, device=device),
        version=version,
        prompts=prompts,
        answers=answers,
    )


def evaluate(policy: Policy, task: Task, config: TrialConfig, prompts: int) -> Evaluation:
    """Strict pass rate at temperature 1 on the first `prompts` held-out prompts.

    The noise is the same at every call of a trial, so that two evaluations differ by the policy alone.
    """
    questions = task.held_out_prompts(prompts)
    generation = GenerationConfig(n_samples=1, max_new_tokens=config.gconfig.max_new_tokens)
    noise = torch_stream(config.seed, "evaluation")
    encoded = [policy.encode(question.text) for question in questions]
    generated = policy.generate(encoded, generation, noise)
    answers = _answers(policy, generated)
    passed = sum(task.passes(q, a) for q, a in zip(questions, answers, strict=True))
    return Evaluation(
        pass_rate=passed / prompts, truncated=1.0 - generated.ended.float().mean().item()
    )


def checked_reward(task: Task, prompt: Prompt, answer: Answer, config: TaskConfig) -> float:
    """The task's reward of one answer as a float.

    Raises:
        GrpoError: the reward function raised or returned no number; the message names the sample.
    """
    try:
        reward = task.reward(prompt, answer, config)
    except Exception as error:
        message = (
            f"reward of task {task.name!r} raised {error!r} on {prompt.text!r} -> {answer.text!r}"
        )
        raise GrpoError(message) from error
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise GrpoError(
            f"reward of task {task.name!r} must be a number, got {reward!r} "
            f"on {prompt.text!r} -> {answer.text!r}"
        )
    return float(reward)


def _answers(policy: Policy, generated: Generated) -> tuple[Answer, ...]:
    return tuple(
        Answer(text=policy.decode(ids), ended=bool(ended))
        for ids, ended in zip(generated.ids.tolist(), generated.ended.tolist(), strict=True)
    )


def _align(prompts: list[list[int]], generated: Generated) -> dict[str, Tensor]:
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
    return {
        "ids": ids[:, :width],
        "loss_mask": mask,
        "lengths": lengths,
        "answer_lengths": generated.lengths,
        "behaviour_logprobs": spread.scatter(1, predictions, generated.logprobs)[:, :width],
        "entropy": spread.scatter(1, predictions, generated.entropy)[:, :width],
    }
