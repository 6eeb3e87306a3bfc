"""Lines of a text file of any size and encoding, one at a time."""

import codecs
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sweeps.importers.errors import LogError

LONGEST_LINE = 64 * 2**20
"""Bytes; a longer line is no log."""
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    number: int
    """From 1."""
    text: str
    """Without its end."""
    complete: bool = True
    """It ended with a newline; the last line of a log that is being written may not."""


@dataclass(slots=True)
class TextFile:
    """A file that is read line by line, and again where it has grown."""

    path: Path
    """Where it is."""
    encoding: str = "utf-8"
    """As its first bytes say."""
    offset: int = 0
    """Bytes read, up to the end of the last complete line."""
    number: int = 0
    """Lines read."""
    undecodable: list[int] = field(default_factory=list)
    """Lines that are not in the file's encoding and were read as Latin-1 (numbers, the first 1)."""
    undecodable_count: int = 0
    """How many those are."""

    def lines(self, *, wait: bool = False) -> Iterator[Line]:
        """The lines from `offset` on; with `wait`, an unfinished last line stays for the next time.

        Raises:
            LogError: the file cannot be read, or has a line that is too long.
        """
        try:
            with self.path.open("rb") as file:
                if self.offset == 0:
                    self._sniff(file)
                file.seek(self.offset)
                reader = self._narrow if self.encoding == "utf-8" else self._wide
                yield from reader(file, wait=wait)
        except OSError as error:
            raise LogError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _sniff(self, file: BinaryIO) -> None:
        """Learn the encoding from the first bytes.

        Raises:
            LogError: it is no text.
        """
        head = file.read(4096)
        self.encoding, self.offset = encoding_of(head)
        if self.offset == 0 and b"\0" in head[:64] and b"\0" not in (head[0:1], head[1:2]):
            raise LogError(f"{self.path}: is no text: it has a zero byte in its first bytes")

    def _narrow(self, file: BinaryIO, *, wait: bool) -> Iterator[Line]:
        """Lines of UTF-8, and of encodings that share its digits.

        Raises:
            LogError: a line is too long.
        """
        while raw := file.readline(LONGEST_LINE):
            complete = raw.endswith(b"\n")
            if not complete and len(raw) == LONGEST_LINE:
                raise LogError(
                    f"{self.path}:{self.number + 1}: a line of more than "
                    f"{LONGEST_LINE // 2**20} MiB; wanted one record per line"
                )
            if wait and not complete:
                return
            self.number += 1
            self.offset += len(raw)
            yield Line(self.number, self._decoded(raw).rstrip("\r\n"), complete)

    def _decoded(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            if not self.undecodable_count:
                self.undecodable.append(self.number)
            self.undecodable_count += 1
            return raw.decode("latin-1")

    def _wide(self, file: BinaryIO, *, wait: bool) -> Iterator[Line]:
        """Lines of UTF-16 and UTF-32.

        Raises:
            LogError: it is not what its first bytes promise.
        """
        reader = io.TextIOWrapper(file, encoding=self.encoding, newline="\n")
        try:
            while text := reader.readline(LONGEST_LINE):
                complete = text.endswith("\n")
                if wait and not complete:
                    return
                self.number += 1
                self.offset += len(text.encode(self.encoding))
                yield Line(self.number, text.rstrip("\r\n"), complete)
        except UnicodeDecodeError as error:
            raise LogError(
                f"{self.path}: near line {self.number + 1}: cannot be read: it is not the "
                f"{self.encoding} text that its first bytes promise"
            ) from error
        finally:
            reader.detach()


def encoding_of(head: bytes) -> tuple[str, int]:
    """The encoding that a file's first bytes tell, and how many of them only serve to tell it."""
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return encoding, len(bom)
    if b"\0" in head[:64]:
        return ("utf-16-le" if head[1:2] == b"\0" else "utf-16-be"), 0
    return "utf-8", 0


def tail_of(path: Path, size: int = 65536) -> bytes:
    """The last bytes of a file.

    Raises:
        LogError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read(size)
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from error


def head_of(path: Path, size: int = 65536) -> bytes:
    """The first bytes of a file.

    Raises:
        LogError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from error
