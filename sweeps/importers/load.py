"""From a path, or the name of an MLflow run, to a run."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sweeps.importers.collector import Collector
from sweeps.importers.console import Console, looks_printed
from sweeps.importers.errors import LogError, NoLogError
from sweeps.importers.jsonl import JsonDocument, JsonLines
from sweeps.importers.lines import TextFile, encoding_of, head_of
from sweeps.importers.names import is_mlflow
from sweeps.importers.own import is_own, load_trial
from sweeps.importers.run import LoadedRun, Options, assemble
from sweeps.importers.settings import beside
from sweeps.importers.table import Table, looks_like_table
from sweeps.importers.tensorboard import MARK, Events, event_files

CONSOLES = frozenset([".log", ".txt", ".out"])
"""What captured consoles are called."""
LONGEST_START = 200_000
"""Lines of a console within which the first step is looked for."""


class Source(Protocol):
    """A log of some form."""

    ended: bool

    def read(self, collector: Collector, *, wait: bool = False) -> None:
        """Add the records that were not read before."""
        ...

    def notes(self) -> list[str]:
        """What was odd about it."""
        ...


def load_run(target: str, options: Options | None = None) -> LoadedRun:
    """The run in a log.

    Raises:
        LogError: it cannot be read or judged; says where and what was wanted.
    """  # noqa: DOC502 - raised by what it calls
    chosen = options or Options()
    path = Path(target)
    if path.is_file() and chosen.dialect in (None, "sweeps") and is_own(_head(path)):
        return load_trial(path)
    reader = Reader(target, chosen)
    reader.read()
    return reader.run()


class Reader:
    """A log that can be read again where it has grown.

    Lines of JSON and of a console are read on from where the last reading ended, also in the file
    that takes their place when the log is rotated; every other form is read anew.
    """

    def __init__(self, target: str, options: Options) -> None:
        self._target = target
        self._options = options
        self._collector = self._new_collector()
        self._source = source_of(target)
        self._file: tuple[int, int] | None = None

    @property
    def numbers(self) -> int:
        """Numbers read so far: they tell whether the log has grown."""
        return self._collector.count

    def read(self, *, wait: bool = False) -> None:
        """Read what has come; with `wait`, an unfinished last line is left for the next time.

        Raises:
            LogError: it cannot be read.
        """  # noqa: DOC502 - raised by what it calls
        if isinstance(self._source, JsonLines | Console):
            self._follow_rotation(self._source.text)
        elif self._file is not None:
            self._collector, self._source = self._new_collector(), source_of(self._target)
        self._source.read(self._collector, wait=wait)
        self._file = self._identity()

    def run(self) -> LoadedRun:
        """The run as far as it has been read.

        Raises:
            LogError: there is nothing to judge yet.
        """  # noqa: DOC502 - raised by what it calls
        settings: dict[str, object] = {}
        notes = self._source.notes()
        path = Path(self._target)
        if path.exists():
            settings, where = beside(path)
            notes += [f"settings of {where}"] if settings else []
        return assemble(
            self._collector,
            self._options,
            notes=notes,
            settings=settings,
            ended=self._source.ended,
        )

    def _new_collector(self) -> Collector:
        mapped = self._options.mapped.values()
        return Collector(self._target, mapped, self._options.dialect)

    def _identity(self) -> tuple[int, int] | None:
        try:
            stat = Path(self._target).stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size

    def _follow_rotation(self, text: TextFile) -> None:
        """Begin at the start of a file that has replaced the one read so far."""
        now = self._identity()
        if now is None or self._file is None:
            return
        if now[0] != self._file[0] or now[1] < text.offset:
            text.offset = 0


def source_of(target: str) -> Source:
    """The reader that a log's form asks for.

    Raises:
        LogError: there is no such log.
        NoLogError: the folder holds none.
    """
    path = Path(target)
    if not path.exists():
        if is_mlflow(target):
            from sweeps.importers.mlflow_runs import MlflowRun  # noqa: PLC0415 - the store

            return MlflowRun(target)
        raise LogError(f"{target}: no such file, folder, or MLflow run (runs:/ID)")
    if path.is_dir():
        if event_files(path):
            return Events(path)
        raise NoLogError(f"{target}: is a folder without a log")
    if MARK in path.name:
        return Events(path)
    return _text_source(path)


def _text_source(path: Path) -> Source:
    """The reader of a text file.

    Raises:
        LogError: it is empty.
        NoLogError: its form is not known.
    """
    head = _head(path)
    start = head.lstrip("\ufeff \t\r\n")
    if not start:
        raise LogError(f"{path}: is empty; wanted at least one step with metrics")
    for fits, source in _FORMS:
        if fits(start):
            return source(path)
    if _prints_later(path):
        return Console(path)
    raise NoLogError(
        f"{path}: is no log that is known; wanted JSON lines, trainer_state.json, CSV, a console "
        "log of AReaL, TRL or verl, or an event file"
    )


def _prints_later(path: Path) -> bool:
    """A console log that begins with a long start-up."""
    if path.suffix not in CONSOLES:
        return False
    lines = itertools.islice(TextFile(path).lines(), LONGEST_START)
    return any(looks_printed(line.text) for line in lines)


def _is_document(start: str) -> bool:
    """One JSON value over many lines, or a list of records in one."""
    first = start.split("\n", 1)[0].strip()
    if start.startswith("{"):
        return first == "{" or '"log_history"' in first
    return start.startswith("[") and (first == "[" or first.startswith("[{"))


_FORMS: tuple[tuple[Callable[[str], bool], Callable[[Path], Source]], ...] = (
    (_is_document, JsonDocument),
    (lambda start: start.startswith("{") and not start.startswith("{'"), JsonLines),
    (looks_printed, Console),
    (looks_like_table, Table),
    (lambda start: "\n{" in start, JsonLines),
)
"""Forms of text, the surer signs first."""


def _head(path: Path) -> str:
    """The first characters of a file, whatever its encoding."""
    raw = head_of(path)
    encoding, mark = encoding_of(raw)
    return raw[mark:].decode(encoding, errors="replace")
