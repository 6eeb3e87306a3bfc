"""reasoning_gym: procedural data sets with their own judges."""

import difflib
import json
from collections.abc import Mapping
from typing import Any

from grpo_core.config import TaskConfig
from grpo_core.errors import ConfigError
from grpo_core.tasks.questions import Entry

SIZE = 1_000_000
"""Entries of a data set. It is procedural: entry i comes from seed + i, so that one seed is enough,
and two seeds would overlap."""
SEED = 0


class ReasoningGym:
    """One data set of reasoning_gym."""

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - the package has no type for it
        self._dataset = dataset

    @classmethod
    def load(cls, name: str, settings: TaskConfig) -> "ReasoningGym":
        """The data set called `name` with `task.options`.

        Raises:
            ConfigError: there is none, an option is wrong, or the package is missing.
        """
        try:
            from reasoning_gym.factory import DATASETS, create_dataset  # noqa: PLC0415 - optional
        except ImportError as error:
            problem = (
                f"task.name=reasoning_gym:{name}: {error}; install it with "
                "`pip install grpo-sweeps[hf]`"
            )
            raise ConfigError([problem]) from error
        if name not in DATASETS:
            close = difflib.get_close_matches(name, DATASETS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError([f"task.name: reasoning_gym has no data set {name!r}{hint}"])
        options = read_options(settings.options)
        try:
            return cls(create_dataset(name, seed=SEED, size=SIZE, **options))
        except (TypeError, ValueError, AssertionError) as error:
            raise ConfigError([f"task.options: {name} refuses {options}: {error}"]) from error

    @property
    def size(self) -> int:
        """Entries of the data set."""
        return SIZE

    def entry(self, index: int) -> Entry:
        """The question, its answer, and the text and numbers among its metadata."""
        raw: Mapping[str, Any] = self._dataset[index]
        metadata = raw["metadata"]
        plain = {k: str(v) for k, v in metadata.items() if isinstance(v, str | int | float)}
        question, answer = raw["question"], str(raw["answer"])
        return Entry(question, answer, plain | {"question": question, "answer": answer}, raw)

    def score(self, text: str, entry: Mapping[str, Any]) -> float | None:
        """The data set's score; None: its judge raised."""
        try:
            return float(self._dataset.score_answer(text, entry))
        # Some judges raise on what a model writes, each in its own way.
        except Exception:  # noqa: BLE001
            return None


def read_options(options: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` texts, each value as JSON, or as text where it is none.

    Raises:
        ConfigError: lists every option that is not of that form.
    """
    read: dict[str, Any] = {}
    problems = []
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name.strip().isidentifier():
            problems.append(f"task.options: got {option!r}, wanted name=value")
            continue
        try:
            read[name.strip()] = json.loads(text)
        except ValueError:
            read[name.strip()] = text.strip()
    if problems:
        raise ConfigError(problems)
    return read
