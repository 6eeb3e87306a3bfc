"""What trainers print: AReaL's tables, verl's `step:N - key:value` lines, TRL's dictionaries."""

import re
from collections.abc import Iterator
from pathlib import Path

from sweeps.importers.collector import Collector, Record
from sweeps.importers.jsonl import encoding_notes
from sweeps.importers.lines import TextFile

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_VERL = re.compile(r"\bstep:(\d+) - (.+)$", re.MULTILINE)
_AREAL_STEP = re.compile(r"\bTrain step (\d+)/(\d+) done\b")
_AREAL_END = "Training completes!"
_TRL = re.compile(r"\{'[^{}]+\}")
_TRL_PAIR = re.compile(r"'([^']+)': '?([^,'{}]+)'?")
_NUMBER = re.compile(r"[-+]?(?:nan|inf|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)", re.IGNORECASE)
_VALUE = re.compile(rf"(?:np\.\w+\()?({_NUMBER.pattern})\)?", re.IGNORECASE)
BAR = "│"
"""Between the cells of AReaL's tables."""
BOTTOM = "╘"
"""Begins the last line of such a table."""


def looks_printed(head: str) -> bool:
    """The text is what a trainer printed."""
    plain = _COLOUR.sub("", head)
    if _VERL.search(plain) or _AREAL_STEP.search(plain):
        return True
    if BAR in plain and "/" in plain:
        return True
    return any("'loss'" in hit or "'reward'" in hit for hit in _TRL.findall(plain))


class Console:
    """A captured console."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = TextFile(path)
        self.ended = False
        self._step: int | None = None
        self._cells: dict[str, object] = {}

    def read(self, collector: Collector, *, wait: bool = False) -> None:
        """Add the records behind those already read."""
        for line in self.text.lines(wait=wait):
            for values in self._records(_COLOUR.sub("", line.text)):
                collector.add(Record(values, line.number))
        if not wait and self._cells:
            collector.add(Record(self._table(), self.text.number))

    def notes(self) -> list[str]:
        """What was odd about the text."""
        return encoding_notes(self.text)

    def _records(self, text: str) -> Iterator[dict[str, object]]:
        hit = _VERL.search(text)
        if hit:
            yield {"step": int(hit.group(1)), **dict(_pairs(hit.group(2)))}
            return
        begun = _AREAL_STEP.search(text)
        if begun:
            if self._cells:
                yield self._table()
            self._step = int(begun.group(1))
            self.ended = begun.group(1) == begun.group(2)
        elif BAR in text:
            self._cells |= _cells(text)
        elif BOTTOM in text and self._cells:
            yield self._table()
        elif _AREAL_END in text or "'train_runtime'" in text:
            self.ended = True
        else:
            yield from _dictionaries(text)

    def _table(self) -> dict[str, object]:
        cells, self._cells = self._cells, {}
        return cells if self._step is None else {"step": self._step, **cells}


def _pairs(text: str) -> Iterator[tuple[str, object]]:
    for part in text.split(" - "):
        key, _, value = part.rpartition(":")
        hit = _VALUE.match(value.strip())
        if key and hit:
            yield key, hit.group(1)


def _cells(text: str) -> dict[str, object]:
    parts = [part.strip() for part in text.split(BAR)[1:-1]]
    pairs = zip(parts[::2], parts[1::2], strict=False)
    return {key: value for key, value in pairs if key and _NUMBER.fullmatch(value)}


def _dictionaries(text: str) -> Iterator[dict[str, object]]:
    for printed in _TRL.findall(text):
        pairs = dict(_TRL_PAIR.findall(printed))
        numbers = {key: value for key, value in pairs.items() if _NUMBER.fullmatch(value.strip())}
        if len(numbers) >= 2:
            yield numbers
