"""Tasks made of questions: any source of question and answer, with a template and examples.

Which questions are held out is decided by a hash of the question's text. Sources repeat questions
(small data sets, procedural ones whose seeds overlap), so that no split by index or seed would keep
the judge's questions out of training.
"""

import hashlib
import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from grpo_core.config import TaskConfig
from grpo_core.errors import ConfigError, GrpoError
from grpo_core.tasks.base import Answer, Message, Prompt
from grpo_core.tasks.functions import RewardFunction, as_number

HELD_OUT_SHARE = 0.2
"""Of all questions, the share that is never trained on."""
PASS = 0.999
"""Score from which an answer counts as right: some graders pay partial credit below 1."""
PATIENCE = 3000
"""Draws in a row without a new question after which a source counts as exhausted."""
FEW = 100_000
"""Entries up to which a source is gone through in random order."""
LONGEST_SHOWN = 60
"""Characters of an answer in a note."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One question of a source."""

    question: str
    """Its text."""
    answer: str
    """What a right answer says."""
    fields: Mapping[str, str]
    """What a template may name."""
    raw: Mapping[str, Any]
    """The source's own entry."""


@runtime_checkable
class Questions(Protocol):
    """A source of questions and the judge of their answers."""

    @property
    def size(self) -> int:
        """Numbers of entries are 0 to size - 1."""
        ...

    def entry(self, index: int) -> Entry:
        """The same entry at every call."""
        ...

    def score(self, text: str, entry: Mapping[str, Any]) -> float | None:
        """Between 0 and 1; None: the answer cannot be read."""
        ...


class QuestionTask:
    """A source of questions as a task.

    Args:
        name: Its name in the configuration.
        source: Where questions come from.
        settings: Template, examples, chat.
        reward: The user's own reward function.

    Raises:
        ConfigError: the template names a field that entries lack, or the source is too small.
    """

    def __init__(
        self,
        name: str,
        source: Questions,
        settings: TaskConfig,
        reward: RewardFunction | None = None,
    ) -> None:
        self._name = name
        self._source, self._settings, self._reward = source, settings, reward
        first = source.entry(0)
        _check_template("task.template", settings.template, first.fields)
        _check_template("task.example", settings.example, {"prompt": "", "answer": ""})
        self._held_out: list[Entry] = []
        self._all_held_out = False
        self._shots = self._draw_examples()
        self._shown = frozenset(shot.question for shot in self._shots)
        self._judged = self._unreadable = 0
        self._unread = ""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self._name

    def training_prompts(self, rng: np.random.Generator, count: int) -> list[Prompt]:
        """Draw distinct questions outside the held-out set; repeats only in a tiny source.

        Raises:
            GrpoError: the source has no question to train on.
        """
        entries = self._distinct(
            rng, count, lambda text: not is_held_out(text) and text not in self._shown
        )
        if not entries:
            raise GrpoError(f"task {self.name!r} has no question to train on")
        return [self.prompt(entries[i % len(entries)]) for i in range(count)]

    def held_out_prompts(self, count: int) -> list[Prompt]:
        """The first `count` held-out questions; repeats only beyond their number.

        Raises:
            GrpoError: the source has no held-out question.
        """
        if len(self._held_out) < count and not self._all_held_out:
            self._held_out = self._distinct(np.random.default_rng(0), count, is_held_out)
            self._all_held_out = len(self._held_out) < count
        entries = self._held_out
        if not entries:
            raise GrpoError(
                f"task {self.name!r} has no held-out question: of its {self._source.size} entries "
                f"a share of {HELD_OUT_SHARE:g} is kept for the judge; give it more"
            )
        return [self.prompt(entries[i % len(entries)]) for i in range(count)]

    def prompt(self, entry: Entry) -> Prompt:
        """The question as the policy reads it."""
        settings = self._settings
        question = settings.template.format_map(entry.fields)
        if settings.chat:
            messages = [Message("system", settings.system)] if settings.system else []
            for shot in self._shots:
                messages.append(Message("user", settings.template.format_map(shot.fields)))
                messages.append(Message("assistant", shot.answer))
            messages.append(Message("user", question))
            return Prompt(question, entry.answer, tuple(messages), entry.raw)
        shown = "".join(
            settings.example.format(
                prompt=settings.template.format_map(shot.fields), answer=shot.answer
            )
            for shot in self._shots
        )
        return Prompt(shown + question, entry.answer, (), entry.raw)

    def passes(self, prompt: Prompt, answer: Answer) -> bool:
        """The source's own judge gives (nearly) its full score."""
        score = self._score(prompt, answer)
        self._judged += 1
        if score is None:
            self._unread = self._unread if self._unreadable else answer.text
            self._unreadable += 1
        return score is not None and score >= PASS

    def reward(self, prompt: Prompt, answer: Answer, config: TaskConfig) -> float:
        """The user's function, or between `reward_wrong` and `reward_right` by the verifier."""
        if self._reward is not None:
            completion = (answer.text, list(answer.prompt_ids), list(answer.ids))
            return as_number(self._reward(prompt.text, *completion, **prompt.entry))
        if config.verifier == "weak":
            merit = float(prompt.target in answer.text)
        else:
            score = self._score(prompt, answer) or 0.0
            merit = score if config.verifier == "graded" else float(score >= PASS)
        return config.reward_wrong + merit * (config.reward_right - config.reward_wrong)

    def notes(self) -> tuple[str, ...]:
        """How many answers the judge could not read."""
        if not self._unreadable:
            return ()
        note = (
            f"{self._unreadable} of {self._judged} answers could not be read by the judge of "
            f"{self.name} and count as wrong, the first: {self._unread[:LONGEST_SHOWN]!r}"
        )
        return (note,)

    def _score(self, prompt: Prompt, answer: Answer) -> float | None:
        found = extract(answer.text, self._settings.extract)
        return None if found is None else self._source.score(found, prompt.entry)

    def _distinct(
        self, rng: np.random.Generator, wanted: int, accept: Callable[[str], bool]
    ) -> list[Entry]:
        """The first `wanted` different questions that are accepted, in random order."""
        found: dict[str, Entry] = {}
        barren = 0
        for index in _random_order(rng, self._source.size):
            if len(found) == wanted or barren == PATIENCE:
                break
            entry = self._source.entry(index)
            fresh = accept(entry.question) and entry.question not in found
            barren = 0 if fresh else barren + 1
            if fresh:
                found[entry.question] = entry
        return list(found.values())

    def _draw_examples(self) -> tuple[Entry, ...]:
        """The first distinct questions outside the held-out set.

        Raises:
            ConfigError: there are not enough.
        """
        wanted = self._settings.examples
        found = self._distinct(np.random.default_rng(1), wanted, lambda t: not is_held_out(t))
        if len(found) < wanted:
            raise ConfigError(
                [f"task.examples={wanted}: {self.name} has only {len(found)} questions to show"]
            )
        return tuple(found)


def _random_order(rng: np.random.Generator, size: int) -> Iterator[int]:
    """Numbers below `size`: each once where they are few, else drawn one by one."""
    if size <= FEW:
        yield from map(int, rng.permutation(size))
        return
    while True:
        yield int(rng.integers(size))


def is_held_out(question: str) -> bool:
    """Whether a question belongs to the judge, by a hash of its text."""
    digest = hashlib.sha256(question.encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT_SHARE * 2**32


def extract(text: str, how: str) -> str | None:
    """The answer in a text, as `task.extract` says; None: there is none."""
    if how == "last-number":
        numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
        return numbers[-1].replace(",", "") if numbers else None
    if how == "tag":
        tags = re.findall(r"<answer>(.*?)</answer>", text, flags=re.DOTALL)
        return tags[-1].strip() if tags else None
    return text.strip()


def _check_template(key: str, template: str, fields: Mapping[str, str]) -> None:
    """Make sure that a template only names fields, plainly.

    Raises:
        ConfigError: it does not.
    """
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError([f"{key}: {template!r} cannot be read: {error}"]) from error
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if name not in fields or spec or conversion:
            names = ", ".join(f"{{{field}}}" for field in sorted(fields))
            raise ConfigError(
                [f"{key}: got {{{name}}}, wanted one of {names} (write {{{{ for a plain brace)"]
            )
