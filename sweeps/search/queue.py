"""What the engine sees of a sweep: the next trial, if there is one now."""

from collections.abc import Callable, Mapping
from typing import Protocol

from grpo_core.metrics import StepMetrics
from sweeps.plan import TrialSpec
from sweeps.record import TrialEnd

Changed = Callable[[], None]
"""Somebody who is told that the record's header has changed."""


class Queue(Protocol):
    """Hands out trials; what it hands out depends on the record's ends and never on the clock."""

    @property
    def specs(self) -> Mapping[str, TrialSpec]:
        """Every trial that was handed out or may be, by id."""
        ...

    @property
    def exhausted(self) -> bool:
        """Every trial was handed out; none will follow."""
        ...

    def next(self) -> TrialSpec | None:
        """The next trial to run; None while that depends on trials that run."""
        ...

    def trial_started(self, trial_id: str, /) -> None:
        """A trial has a process now."""
        ...

    def trial_advanced(self, trial_id: str, steps: list[StepMetrics], /) -> None:
        """New steps of a trial are in the record."""
        ...

    def trial_ended(self, trial_id: str, end: TrialEnd, /) -> None:
        """The end of a trial is in the record."""
        ...
