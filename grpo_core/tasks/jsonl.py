"""Questions from a file in GSM8K's form, judged by math-verify.

Each line is {"question": "...", "answer": "... #### 42"}; what stands behind the last #### is the
answer, or all of it where there is none. Further fields may be named by the template and are passed
to a reward function.
"""

import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_core.config import TaskConfig
from grpo_core.errors import ConfigError
from grpo_core.tasks.questions import Entry

MARK = "####"
SHOWN = 5
"""Lines with a problem that are listed one by one."""
LONGEST_READ = 4000
"""Characters at the end of an answer that math-verify looks at."""
SECONDS = 5
"""Most time that math-verify spends on one answer."""


class JsonlQuestions:
    """The questions of a file."""

    def __init__(self, rows: list[dict[str, Any]], targets: list[str]) -> None:
        self._rows, self._targets = rows, targets

    @classmethod
    def load(cls, file: str, _settings: TaskConfig) -> "JsonlQuestions":
        """Read and check the whole file.

        Raises:
            ConfigError: lines cannot be read, or math-verify cannot read their answer.
        """
        path = Path(file).expanduser()
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"task.name=jsonl:{file}: {error}"]) from error
        rows, targets, problems = [], [], []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = _read_line(line)
                target = _target(row)
                _check_target(target)
            except ValueError as error:
                problems.append(f"{file}:{number}: {error}")
                continue
            rows.append(row)
            targets.append(target)
        if problems:
            more = f"{file}: {len(problems)} of {len(lines)} lines have a problem"
            raise ConfigError([*problems[:SHOWN], more])
        if not rows:
            raise ConfigError([f"task.name=jsonl:{file}: the file has no question"])
        return cls(rows, targets)

    @property
    def size(self) -> int:
        """Questions in the file."""
        return len(self._rows)

    def entry(self, index: int) -> Entry:
        """One line of the file."""
        raw, target = self._rows[index], self._targets[index]
        plain = {k: str(v) for k, v in raw.items() if isinstance(v, str | int | float)}
        return Entry(raw["question"], target, plain | {"answer": target}, raw)

    def score(self, text: str, entry: Mapping[str, Any]) -> float | None:
        """1 where math-verify finds the answer equal, else 0; None: it finds no answer."""
        found = read_mathematics(text[-LONGEST_READ:])
        if not found:
            return None
        return float(_equal(_read_target(_target(entry)), found))


def read_mathematics(text: str) -> list[Any]:
    """What math-verify reads in a text; empty: nothing."""
    parse = _math_verify().parse
    try:
        read: list[Any] = parse(text, parsing_timeout=_seconds())
    # Its parser raises in many ways on what a model writes.
    except Exception:  # noqa: BLE001
        return []
    return read


def _equal(gold: list[Any], found: list[Any]) -> bool:
    try:
        return bool(_math_verify().verify(gold, found, timeout_seconds=_seconds()))
    # The same: what cannot be compared is not equal.
    except Exception:  # noqa: BLE001
        return False


def _math_verify() -> Any:  # noqa: ANN401 - a module
    try:
        import math_verify  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigError(
            [f"task.name=jsonl: {error}; install it with `pip install grpo-sweeps[hf]`"]
        ) from error
    return math_verify


def _seconds() -> int | None:
    """Its time limit works by a signal, which only the main thread can receive."""
    return SECONDS if threading.current_thread() is threading.main_thread() else None


def _read_line(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"wanted a mapping, got {type(row).__name__}")  # noqa: TRY004 - of a line
    for name in ("question", "answer"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            got = repr(row[name])[:40] if name in row else "nothing"
            raise ValueError(f"{name!r} has to be text, got {got}")
    return row


def _target(row: Mapping[str, Any]) -> str:
    target = str(row["answer"]).rsplit(MARK, 1)[-1].strip()
    if not target:
        raise ValueError(f"no answer behind {MARK}")
    return target


def _check_target(target: str) -> None:
    if not _PLAIN_NUMBER.fullmatch(target) and not _read_target(target):
        raise ValueError(f"math-verify cannot read the answer {target!r}")


def _read_target(target: str) -> list[Any]:
    """The right answer, which may be written in LaTeX without its dollar signs."""
    return read_mathematics(f"${target}$" if "\\" in target and "$" not in target else target)


_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?")
