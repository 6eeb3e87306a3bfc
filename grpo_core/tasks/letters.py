"""The embedded tasks: letters to rearrange, with two habits of answering.

A demonstration is either *careful* (copies the input, then answers, few slips) or *sloppy* (answers
at once, many slips). A warm-started policy therefore passes about a third of its attempts, and GRPO
has a low-dimensional direction to find: select the careful habit. Answers grow longer on the way,
truncation falls, entropy falls, as in real runs with verifiable rewards. Some demonstrations answer
twice, go on after the answer or never end, so that a weak verifier can be gamed and truncation
exists.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grpo_core.config import TaskConfig
from grpo_core.tasks.base import Answer, Prompt

ALPHABET = "abcd"
LENGTHS = (3, 4, 5)
ANSWER_MARK = "#"
HELD_OUT_SHARE = 0.3
"""Of all possible prompts, the share that is never trained on."""
LONGEST_ANSWER = 18
"""Tokens of a demonstration that never ends: the usual `gconfig.max_new_tokens`."""


@dataclass(frozen=True, slots=True)
class Habits:
    """Shares and slip rates of the demonstrations."""

    careful: float = 0.35
    """Share of demonstrations that copy the input before they answer."""
    careful_slip: float = 0.06
    """Probability that a careful answer gets a letter wrong."""
    sloppy_slip: float = 0.45
    """Probability that a sloppy answer gets a letter wrong."""
    filler: float = 0.15
    """Probability of one more filler character before anything else."""
    second_answer: float = 0.10
    """Share that adds a second, sloppy answer."""
    goes_on: float = 0.10
    """Share that goes on with letters after the answer."""
    never_ends: float = 0.06
    """Share that fills up with filler instead of ending."""


@dataclass(frozen=True, slots=True)
class LetterTask:
    """Answer `#` followed by a rearrangement of the prompt's letters; the last answer decides."""

    name: str
    symbol: str
    """Character of the prompt that names the operation."""
    operation: Callable[[str], str]
    habits: Habits = Habits()

    def training_prompts(self, rng: np.random.Generator, count: int) -> list[Prompt]:
        """Draw prompts of 3 to 5 letters outside the held-out set."""
        prompts: list[Prompt] = []
        while len(prompts) < count:
            letters = _random_letters(rng, _random_length(rng))
            if not _is_held_out(letters):
                prompts.append(self.prompt(letters))
        return prompts

    def held_out_prompts(self, count: int) -> list[Prompt]:
        """The first `count` draws from the held-out set; repeats only beyond its size."""
        rng = np.random.default_rng(0)
        prompts: list[Prompt] = []
        while len(prompts) < count:
            letters = _random_letters(rng, _random_length(rng))
            if _is_held_out(letters):
                prompts.append(self.prompt(letters))
        return prompts

    def prompt(self, letters: str) -> Prompt:
        """The question about `letters`."""
        return Prompt(text=f"^{self.symbol}{letters}=", target=self.operation(letters))

    def passes(self, prompt: Prompt, answer: Answer) -> bool:
        """The last answer is the target, whether or not the text was cut behind it."""
        return _answers(answer.text)[-1:] == [prompt.target]

    def reward(self, prompt: Prompt, answer: Answer, config: TaskConfig) -> float:
        """Between `reward_wrong` and `reward_right`, by the verifier that `config` names."""
        merit = _MERITS[config.verifier](_answers(answer.text), prompt.target)
        return config.reward_wrong + merit * (config.reward_right - config.reward_wrong)

    def notes(self) -> tuple[str, ...]:
        """Nothing: every answer can be judged."""
        return ()

    def demonstration(self, rng: np.random.Generator, prompt: Prompt) -> Answer:
        """One careful or sloppy attempt, with the flaws of `habits`."""
        habits = self.habits
        careful = rng.random() < habits.careful
        text = "~" * (int(rng.geometric(1 - habits.filler)) - 1)
        if careful:
            text += prompt.text[2:-1] + ";"
        slip = habits.careful_slip if careful else habits.sloppy_slip
        text += ANSWER_MARK + _with_slips(rng, prompt.target, slip)
        if rng.random() < habits.second_answer:
            text += ANSWER_MARK + _with_slips(rng, prompt.target, habits.sloppy_slip)
        if rng.random() < habits.goes_on:
            text += ";" + _random_letters(rng, int(rng.integers(1, 4)))
        if rng.random() < habits.never_ends:
            text = text.ljust(LONGEST_ANSWER, "~")
        cut = len(text) >= LONGEST_ANSWER
        return Answer(text=text[:LONGEST_ANSWER], ended=not cut)


def _random_letters(rng: np.random.Generator, length: int) -> str:
    return "".join(ALPHABET[i] for i in rng.integers(len(ALPHABET), size=length))


def _random_length(rng: np.random.Generator) -> int:
    return LENGTHS[int(rng.integers(len(LENGTHS)))]


def _is_held_out(letters: str) -> bool:
    digest = hashlib.sha256(letters.encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT_SHARE * 2**32


def _with_slips(rng: np.random.Generator, letters: str, slip: float) -> str:
    return "".join(
        _other_letter(rng, letter) if rng.random() < slip else letter for letter in letters
    )


def _other_letter(rng: np.random.Generator, letter: str) -> str:
    shift = int(rng.integers(1, len(ALPHABET)))
    return ALPHABET[(ALPHABET.index(letter) + shift) % len(ALPHABET)]


def _answers(text: str) -> list[str]:
    """Every run of letters that follows an answer mark."""
    found = []
    for part in text.split(ANSWER_MARK)[1:]:
        stop = next((i for i, character in enumerate(part) if character not in ALPHABET), len(part))
        found.append(part[:stop])
    return found


def _matching_share(answer: str, target: str) -> float:
    """Share of the target's positions that the answer gets right."""
    return sum(a == b for a, b in zip(answer, target, strict=False)) / len(target)


_MERITS: dict[str, Callable[[list[str], str], float]] = {
    "strict": lambda answers, target: float(answers[-1:] == [target]),
    "weak": lambda answers, target: float(target in answers),
    "graded": lambda answers, target: _matching_share(answers[-1] if answers else "", target),
}
"""Share of the full reward that a verifier gives, from all answers and the target."""
