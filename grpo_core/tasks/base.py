"""What a task has to offer: prompts, a strict check, rewards and demonstrations."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from grpo_core.config import TaskConfig


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question with its only right answer."""

    text: str
    """What the policy reads."""
    target: str
    """What a right answer says."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the policy wrote."""

    text: str
    """The generated text, without the end-of-sequence token."""
    ended: bool
    """The end-of-sequence token came; otherwise the answer was cut at the length limit."""


@runtime_checkable
class Task(Protocol):
    """A verifiable task with a fixed held-out set."""

    @property
    def name(self) -> str:
        """Its key in TASKS."""
        ...

    def training_prompts(self, rng: np.random.Generator, count: int) -> list[Prompt]:
        """Draw prompts that are never in the held-out set."""
        ...

    def held_out_prompts(self, count: int) -> list[Prompt]:
        """The same `count` prompts at every call, none of which is ever trained on."""
        ...

    def passes(self, prompt: Prompt, answer: Answer) -> bool:
        """The strict check: what the user really wants, beyond the reach of any reward setting."""
        ...

    def reward(self, prompt: Prompt, answer: Answer, config: TaskConfig) -> float:
        """The raw reward that training sees."""
        ...

    def demonstration(self, rng: np.random.Generator, prompt: Prompt) -> Answer:
        """One imperfect solution; the warm start learns from these."""
        ...
