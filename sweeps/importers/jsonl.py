"""Logs with a JSON record per line, and JSON documents with a list of records."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from sweeps.importers.collector import Collector, Record
from sweeps.importers.errors import LogError, NoLogError
from sweeps.importers.lines import Line, TextFile

FEW_BROKEN = 0.01
"""Share of the lines that may be broken by a crash or by two writers."""
CHUNK = 2**20
"""Characters read at once of a JSON document."""
_STATE = {
    "steps": re.compile(r'"global_step"\s*:\s*(\d+)'),
    "most": re.compile(r'"max_steps"\s*:\s*(\d+)'),
}


class JsonLines:
    """One JSON object per line: TRL's log history, AReaL's statistics, verl's file logger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = TextFile(path)
        self.ended = False
        self._broken: list[int] = []
        self._broken_count = 0
        self._foreign = 0
        self._cut: int | None = None

    def read(self, collector: Collector, *, wait: bool = False) -> None:
        """Add the records behind those already read.

        Raises:
            LogError: a step is no whole number, or too many lines are broken.
        """
        for line in self.text.lines(wait=wait):
            self._take(line, collector)
        collector.close_batch()
        if self._broken_count > max(3, FEW_BROKEN * self.text.number):
            raise LogError(
                f"{self.path}:{self._broken[0]}: is not JSON, nor are {self._broken_count - 1} "
                "other lines; wanted one JSON object per line"
            )

    def notes(self) -> list[str]:
        """What was odd about the lines."""
        notes = []
        if self._cut is not None:
            notes.append(f"line {self._cut}, the last one, is cut off; it was left out")
        if self._broken_count:
            notes.append(
                f"{self._broken_count} broken lines were left out (the first: line "
                f"{self._broken[0]})"
            )
        if self._foreign:
            notes.append(f"{self._foreign} lines that hold no JSON object were left out")
        return notes + encoding_notes(self.text)

    def _take(self, line: Line, collector: Collector) -> None:
        text = line.text.strip()
        if not text:
            return
        if not text.startswith("{"):
            self._foreign += 1
            return
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            self._refuse(line)
            return
        self._cut = None
        self.ended = "train_runtime" in values
        collector.add(Record(values, line.number))

    def _refuse(self, line: Line) -> None:
        if not line.complete:
            self._cut = line.number
            return
        if not self._broken_count:
            self._broken.append(line.number)
        self._broken_count += 1


class JsonDocument:
    """A JSON list of records, or an object with one: the Trainer's `trainer_state.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = TextFile(path)
        self.ended = False
        self._cut = False

    def read(self, collector: Collector, *, wait: bool = False) -> None:  # noqa: ARG002
        """Add all records, one after another.

        Raises:
            NoLogError: it holds no list of records.
        """
        buffer = _Buffer(self.text)
        before = buffer.skip_to_list()
        if before is None:
            raise NoLogError(
                f"{self.path}: wanted JSON lines, a list of records, or a log_history with one"
            )
        for number, values in enumerate(self._objects(buffer), start=1):
            collector.add(Record(values, number))
        collector.close_batch()
        after = buffer.rest()
        found = {name: pattern.search(before + after) for name, pattern in _STATE.items()}
        numbers = {name: int(hit.group(1)) for name, hit in found.items() if hit}
        self.ended = 0 < numbers.get("most", 0) <= numbers.get("steps", -1)

    def notes(self) -> list[str]:
        """What was odd about the file."""
        cut = ["the file is cut off; what comes before was read"] if self._cut else []
        return cut + encoding_notes(self.text)

    def _objects(self, buffer: "_Buffer") -> Iterator[dict[str, object]]:
        """The records of the list.

        Raises:
            NoLogError: its first entry is no record.
            LogError: a later one is none.
        """  # noqa: DOC502 - whichever `problem` is
        problem: type[LogError] = NoLogError
        while True:
            try:
                values = buffer.next_object()
            except ValueError as error:
                raise problem(f"{self.path}:{self.text.number}: is not JSON: {error}") from error
            problem = LogError
            if values is None:
                self._cut = buffer.cut
                return
            yield values


class _Buffer:
    """A sliding window over a JSON document."""

    def __init__(self, text: TextFile) -> None:
        self._lines = text.lines()
        self._window = ""
        self._decoder = json.JSONDecoder()
        self.cut = False

    def skip_to_list(self) -> str | None:
        """Move behind the `[` of the list of records; what stood before it, or None."""
        self._grow()
        while True:
            hit = re.match(r'\s*\[|.*?"log_history"\s*:\s*\[', self._window, re.DOTALL)
            if hit:
                self._window = self._window[hit.end() :]
                return hit.group(0)
            if len(self._window) > 4 * CHUNK or not self._grow():
                return None

    def next_object(self) -> dict[str, object] | None:
        """The next record; None at the end of the list.

        Raises:
            ValueError: what comes is no JSON object.
        """
        while True:
            self._window = self._window.lstrip(" \t\r\n,")
            if self._window.startswith("]"):
                return None
            try:
                value, end = self._decoder.raw_decode(self._window)
            except ValueError:
                if self._grow():
                    continue
                self.cut = self._window.startswith("{") or not self._window
                if self.cut:
                    return None
                raise
            self._window = self._window[end:]
            if isinstance(value, dict):
                return value
            raise ValueError(f"wanted a record, got {str(value)[:40]!r}")

    def rest(self) -> str:
        """What follows the list, as far as it matters."""
        while len(self._window) < CHUNK and self._grow():
            pass
        return self._window

    def _grow(self) -> bool:
        """Read on by at least a record's worth; False at the end of the file."""
        least = max(65536, len(self._window))
        parts, size = [], 0
        for line in self._lines:
            parts.append(line.text)
            size += len(line.text)
            if size >= least:
                break
        self._window += "\n".join(parts)
        return bool(parts)


def encoding_notes(text: TextFile) -> list[str]:
    """What was odd about a file's encoding."""
    if not text.undecodable_count:
        return []
    count, first = text.undecodable_count, text.undecodable[0]
    return [f"{count} lines are not UTF-8 and were read as Latin-1 (the first: line {first})"]
