"""A guard beside a training run: follows its log until it is sick, done, or silent."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sweeps.alarm import Alarm, Mode
from sweeps.diagnose.judge import Judged, judge
from sweeps.importers import LogError, Options, Reader
from sweeps.importers.names import is_mlflow


@dataclass(frozen=True, slots=True)
class Pace:
    """How often to look, and when to give up."""

    interval: float = 30.0
    """Seconds between two looks."""
    until_idle: float | None = None
    """Seconds without anything new after which it ends; None waits for ever."""


@dataclass(frozen=True, slots=True)
class Watched:
    """How a watch ended."""

    last: Judged | None
    """The last verdict; None where nothing could be judged."""
    alarm: bool
    """A critical diagnosis was sustained."""
    reason: str
    """Why it ended, in words."""


class Watch:
    """One log, looked at again and again.

    Args:
        target: The log; it may not be there yet.
        options: What the user says about it.
        mode: Which diagnoses count.
        tell: Takes every verdict that differs from the one before.
        warn: Takes what else there is to say.
    """

    def __init__(
        self,
        target: str,
        options: Options,
        mode: Mode = "safe",
        *,
        tell: Callable[[Judged], None],
        warn: Callable[[str], None],
    ) -> None:
        self._target = target
        self._options = options
        self._alarm = Alarm(mode)
        self._tell = tell
        self._warn = warn
        self._reader: Reader | None = None
        self._numbers = 0
        self._last: Judged | None = None
        self._problem: str | None = None

    def follow(
        self,
        pace: Pace,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Watched:
        """Look until the run is sick, its log says that it ended, or nothing new comes.

        Raises:
            LogError: the log never became one that could be judged.
        """
        heard = clock()
        while True:
            if self._look():
                heard = clock()
                if self._sustained():
                    return Watched(self._last, alarm=True, reason="a critical diagnosis held")
            if self._last is not None and self._last.run.ended:
                return Watched(self._last, alarm=False, reason="training ended")
            if pace.until_idle is not None and clock() - heard >= pace.until_idle:
                if self._last is None:
                    raise LogError(self._problem or f"{self._target}: no such log")
                reason = f"nothing new for {pace.until_idle:g} s"
                return Watched(self._last, alarm=False, reason=reason)
            sleep(pace.interval)

    def _look(self) -> bool:
        """Read on; True where there was something new to judge."""
        if not Path(self._target).exists() and not is_mlflow(self._target):
            self._note(f"{self._target}: not there yet")
            return False
        try:
            if self._reader is None:
                self._reader = Reader(self._target, self._options)
            self._reader.read(wait=True)
            if self._reader.numbers == self._numbers:
                return self._has_ended()
            self._numbers = self._reader.numbers
            self._judge()
        except LogError as error:
            # A document that is being written anew is whole again at the next look.
            self._note(str(error))
            return False
        return True

    def _has_ended(self) -> bool:
        """The log has not grown, but its end may have been noted since."""
        if self._reader is not None and self._numbers and self._reader.run().ended:
            self._judge()
        return False

    def _judge(self) -> None:
        if self._reader is None:
            return
        judged = judge(self._reader.run())
        if self._last is None or _gist(judged) != _gist(self._last):
            self._tell(judged)
        self._last = judged

    def _sustained(self) -> bool:
        return self._last is not None and self._alarm.check(self._last.run.trace) is not None

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._warn(problem)


def _gist(judged: Judged) -> tuple[str | None, ...]:
    diagnosis = judged.diagnosis
    return diagnosis.outcome, diagnosis.state, diagnosis.symptom
