"""A few groups of answers of the initial policy: how often they pass, how many groups are silent.

A group whose answers all get the same reward teaches nothing. With a pass rate of p, a group of G
answers is silent with probability p^G + (1 - p)^G, which is near 1 where a task is much too hard or
much too easy for the policy.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

import torch

from grpo_core.config import TrialConfig
from grpo_core.errors import ConfigError
from grpo_core.policy import load_policy
from grpo_core.rollout import RolloutBatch, sample_batch
from grpo_core.rules import check_rules
from grpo_core.tasks import load_task

PROMPTS = 32
"""Prompts of a probe."""
NO_SIGNAL, WEAK_SIGNAL = 0.9, 0.7
"""Silent share from which a task counts as without signal, or with little."""
MOSTLY_CUT = 0.5
"""Share of cut answers from which the length limit is in the way."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What the initial policy makes of a task."""

    policy: str
    """The policy's name."""
    task: str
    """The task's name."""
    prompts: int
    """Prompts asked."""
    answers: int
    """Answers of each."""
    pass_rate: float
    """Share of answers that pass the strict check."""
    equal_rewards: float
    """Share of the groups whose answers all got the same reward."""
    silent: dict[int, float]
    """Group size -> expected share of groups that are all right or all wrong."""
    truncated: float
    """Share of answers cut at the length limit."""
    answer_tokens: float
    """Mean length of an answer, tokens."""
    seconds: float
    """Wall-clock time of sampling."""
    notes: tuple[str, ...]
    """What the task's judge has to say."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What stands in the way of learning, in words."""
        found = [self._signal()] if self._signal() else []
        if self.truncated >= MOSTLY_CUT:
            found.append(
                f"{self.truncated:.0%} of the answers are cut: gconfig.max_new_tokens may be too "
                "small for this task"
            )
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return asdict(self) | {"warnings": list(self.warnings)}

    def _signal(self) -> str:
        if self.equal_rewards < WEAK_SIGNAL:
            return ""
        how = "hard" if self.pass_rate < 0.5 else "easy"
        lead = f"{self.task} is too {how} for {self.policy}: pass rate {self.pass_rate:.2f}, "
        if self.equal_rewards < NO_SIGNAL:
            return f"{lead}{self.equal_rewards:.0%} of the groups of {self.answers} are silent"
        return (
            f"{lead}{self.equal_rewards:.0%} of the groups of {self.answers} are silent, so that "
            "nearly every step would have nothing to learn from; take another task, solved "
            "examples (task.examples), graded rewards or larger groups"
        )


def expected_silent(passes: Iterable[int], answers: int, group: int) -> float:
    """Expected share of silent groups, unbiased: the mean over prompts of p^G + (1 - p)^G.

    Of all groups of G that can be drawn from a prompt's answers, the share that is all right or all
    wrong. Putting the observed rate into the formula instead would overrate silence: with few
    answers, rates of 0 and 1 are seen where none are.

    Args:
        passes: Right answers of each prompt.
        answers: Answers of each prompt.
        group: G, at most `answers`.
    """
    shares = [
        (comb(right, group) + comb(answers - right, group)) / comb(answers, group)
        for right in passes
    ]
    return sum(shares) / len(shares)


def probes_of(configs: Iterable[TrialConfig]) -> list[tuple[TrialConfig, tuple[int, ...]]]:
    """One configuration for each policy and task, with its largest group and all group sizes."""
    largest: dict[str, TrialConfig] = {}
    groups: dict[str, set[int]] = {}
    for config in configs:
        key = _asked(config)
        size = config.gconfig.n_samples
        groups.setdefault(key, set()).add(size)
        if key not in largest or size > largest[key].gconfig.n_samples:
            largest[key] = config
    return [(config, tuple(sorted(groups[key]))) for key, config in largest.items()]


def _asked(config: TrialConfig) -> str:
    """What decides the answers of the initial policy and their rewards."""
    sampling = config.gconfig.model_dump(exclude={"n_samples"})
    task = config.task.model_dump()
    return json.dumps([config.policy, config.actor.path, config.actor.dtype, sampling, task])


def probe(
    config: TrialConfig,
    groups: tuple[int, ...] = (),
    *,
    prompts: int = PROMPTS,
    device: str | torch.device = "cpu",
    notify: Callable[[str], None] = lambda _: None,
    allow_code: bool = True,
) -> Probe:
    """Ask the initial policy `prompts` training prompts, a group of answers each.

    Args:
        config: Policy, task, sampling.
        groups: Group sizes to expect silence for, at most `gconfig.n_samples`; that one if none.
        prompts: How many prompts.
        device: Where the policy is loaded.
        notify: Told when something takes long.
        allow_code: The configuration may name a function to import.

    Raises:
        ConfigError: the configuration cannot be trained.
    """
    problems = check_rules(config)
    if problems:
        raise ConfigError(problems)
    task = load_task(config.task.name, config.task, allow_code=allow_code)
    policy = load_policy(config, notify)
    policy.module.to(device)
    asked = config.model_copy(
        update={
            "train_dataset": config.train_dataset.model_copy(update={"batch_size": prompts}),
            "extensions": config.extensions.model_copy(update={"dynamic_sampling": None}),
        }
    )
    started = time.monotonic()
    batch = sample_batch(policy, task, asked, step=0, version=0)
    seconds = time.monotonic() - started
    return _read(batch, config, groups, seconds=seconds, notes=task.notes())


def _read(
    batch: RolloutBatch,
    config: TrialConfig,
    groups: tuple[int, ...],
    *,
    seconds: float,
    notes: tuple[str, ...],
) -> Probe:
    size = config.gconfig.n_samples
    passed = batch.passed.view(-1, size)
    rewards = batch.rewards.view(-1, size)
    passes = passed.sum(1).tolist()
    return Probe(
        policy=config.policy,
        task=config.task.name,
        prompts=len(passes),
        answers=size,
        pass_rate=passed.double().mean().item(),
        equal_rewards=(rewards == rewards[:, :1]).all(1).double().mean().item(),
        silent={group: expected_silent(passes, size, group) for group in groups or (size,)},
        truncated=batch.truncated.double().mean().item(),
        answer_tokens=batch.answer_lengths.double().mean().item(),
        seconds=seconds,
        notes=notes,
    )
