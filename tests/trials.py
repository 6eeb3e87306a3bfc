"""Trials for tests: an untrained policy, which needs no warm start, and tasks that fail."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from typing_extensions import override

from grpo_core.config import TaskConfig, TrialConfig
from grpo_core.policy import POLICIES, TinyPolicy
from grpo_core.policy.tiny import TinyDecoder, TinyShape
from grpo_core.randomness import torch_stream
from grpo_core.tasks import TASKS, Answer, Prompt
from grpo_core.tasks.letters import LetterTask

FAILURE = "the grader is out of order"


@dataclass(frozen=True, slots=True)
class FailingTask(LetterTask):
    """A task whose reward function raises on prompts that begin with `fails_on`."""

    fails_on: str = ""

    @override
    def reward(self, prompt: Prompt, answer: Answer, config: TaskConfig) -> float:
        if prompt.text[2:].startswith(self.fails_on):
            raise RuntimeError(FAILURE)
        return super(FailingTask, self).reward(prompt, answer, config)


@contextmanager
def registered_for_tests() -> Iterator[None]:
    """Policy `untrained`; tasks `broken` (always) and `brittle` (at the first prompt `dbc...`)."""
    decoder = TinyDecoder(TinyShape())
    decoder.initialize(torch_stream(0, "initial-weights"))
    POLICIES["untrained"] = lambda _config, _notify: TinyPolicy(decoder).copy()
    for name, fails_on in (("broken", ""), ("brittle", "dbc")):
        TASKS[name] = FailingTask(
            name=name, symbol="R", operation=lambda letters: letters[::-1], fails_on=fails_on
        )
    try:
        yield
    finally:
        del POLICIES["untrained"], TASKS["broken"], TASKS["brittle"]


def small_config(task: str = "think", steps: int = 4, policy: str = "untrained") -> TrialConfig:
    """A trial of a second or less."""
    return TrialConfig.model_validate(
        {
            "policy": policy,
            "total_train_steps": steps,
            "task": {"name": task},
            "train_dataset": {"batch_size": 3},
            "gconfig": {"n_samples": 2, "max_new_tokens": 4},
            "actor": {"adv_norm": {}, "ppo_n_minibatches": 2},
            "evaluation": {"prompts": 8, "interim_prompts": 8, "every": 2},
        }
    )
