"""What a task has to offer: prompts, a strict check, rewards and demonstrations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from grpo_core.config import TaskConfig


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    """Who says it."""
    content: str
    """What is said."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question with its only right answer."""

    text: str
    """What the policy reads; in a chat, the question alone."""
    target: str
    """What a right answer says."""
    messages: tuple[Message, ...] = ()
    """The chat up to the answer; empty: plain text."""
    entry: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The data set's own entry."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the policy wrote."""

    text: str
    """The generated text, without the end-of-sequence token or the text that ended it."""
    ended: bool
    """The end-of-sequence token came; otherwise the answer was cut at the length limit."""
    ids: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """Generated tokens, end-of-sequence included."""
    prompt_ids: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """Tokens that the policy read."""


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

    def notes(self) -> tuple[str, ...]:
        """What a person should know about the answers judged so far, in words."""
        ...


@runtime_checkable
class EmbeddedTask(Task, Protocol):
    """A task that the embedded policy can be warm-started on."""

    def demonstration(self, rng: np.random.Generator, prompt: Prompt) -> Answer:
        """One imperfect solution; the warm start learns from these."""
        ...
