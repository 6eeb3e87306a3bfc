"""CSV files: our own, or what a tracker exports."""

import csv
from collections.abc import Iterator
from pathlib import Path

from sweeps.importers.collector import STEP_KEYS, Collector, Record
from sweeps.importers.errors import LogError
from sweeps.importers.jsonl import encoding_notes
from sweeps.importers.lines import TextFile

_OF_A_RUN = " - "
"""Between a run's name and a metric in the CSV that Weights & Biases exports."""
_BOUNDS = ("__MIN", "__MAX")
"""What it adds to the columns of a metric's extremes."""


class Table:
    """One row per step, one column per metric."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = TextFile(path)
        self.ended = False
        self._short = 0

    def read(self, collector: Collector, *, wait: bool = False) -> None:  # noqa: ARG002
        """Add all rows.

        Raises:
            LogError: it has no header, or holds several runs.
        """
        rows = csv.reader(self._texts(), delimiter=self._delimiter())
        try:
            header = next(rows, None)
            if header is None:
                raise LogError(f"{self.path}: is empty; wanted a header and a row per step")
            names = self._names(header)
            for row in rows:
                if len(row) < len(header):
                    self._short += bool(row)
                values = zip(names, row, strict=False)
                cells = {name: cell.strip() for name, cell in values if name}
                collector.add(Record(cells, rows.line_num))
        except csv.Error as error:
            raise LogError(f"{self.path}:{rows.line_num}: is not CSV: {error}") from error
        collector.close_batch()

    def notes(self) -> list[str]:
        """What was odd about the rows."""
        short = [f"{self._short} rows have fewer cells than the header"] if self._short else []
        return short + encoding_notes(self.text)

    def _texts(self) -> Iterator[str]:
        for line in self.text.lines():
            yield line.text

    def _delimiter(self) -> str:
        first = next(TextFile(self.path).lines(), None)
        text = "" if first is None else first.text
        return max(",;\t", key=text.count)

    def _names(self, header: list[str]) -> list[str]:
        """The metrics' names; empty for columns that are none.

        Raises:
            LogError: the columns belong to several runs.
        """
        runs = {name.split(_OF_A_RUN)[0] for name in header if _OF_A_RUN in name}
        if len(runs) > 1:
            shown = ", ".join(sorted(runs)[:4])
            raise LogError(
                f"{self.path}:1: holds {len(runs)} runs ({shown}); wanted one run per file"
            )
        names = [name.strip().rpartition(_OF_A_RUN)[2] for name in header]
        return ["" if name.endswith(_BOUNDS) else name for name in names]


def looks_like_table(head: str) -> bool:
    """The first line is a header: at least a step or a metric beside another column."""
    first = head.lstrip("\ufeff").split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    names = [name.strip().strip('"') for name in first.split(delimiter)]
    if len(names) < 2:
        return False
    return any(name in STEP_KEYS or "/" in name or "reward" in name for name in names)
