"""How a running sweep is asked to end: Ctrl-C, or `sweeps cancel` from anywhere."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Literal

Reason = Literal["interrupted", "cancelled"]
REQUEST = "cancel"
"""File in a sweep's folder that asks its driver to end."""


class StopRequest:
    """Whether somebody wants the sweep to end, and who.

    What runs is not cut: trials end behind their running chunk, whose checkpoint is kept, and the
    same command goes on from there.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / REQUEST
        self._interrupted = False

    @property
    def reason(self) -> Reason | None:
        """Who asked; None while nobody did."""
        if self._interrupted:
            return "interrupted"
        return "cancelled" if self._file.exists() else None

    def withdraw(self) -> None:
        """Forget an old request: whoever starts a sweep wants it to run."""
        self._file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the first Ctrl-C for a request; the second ends everything at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
        print(
            "stopping behind the running chunks; Ctrl-C again stops at once",
            file=sys.stderr,
            flush=True,
        )


def request_stop(folder: Path) -> None:
    """Ask the driver of the sweep in `folder` to end."""
    (folder / REQUEST).touch()
