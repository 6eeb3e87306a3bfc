"""The vocabulary of verdicts: what a detector reports and what is concluded from it."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

Outcome = Literal["healthy", "unhealthy", "inconclusive"]
State = Literal["converged", "improving", "saturated"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One symptom that one detector saw."""

    symptom: str
    """Stable id, documented in docs/verdicts.md."""
    onset: int
    """First step at which the symptom holds."""
    message: str
    """What was seen, with numbers, steps and the threshold."""
    evidence: dict[str, float]
    """The numbers behind the message."""
    confidence: float
    """How sure the detector is, 0 to 1."""
    stage: str | None = None
    """Pipeline stage at which the signal is lost, where the detector can tell."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What happened in one run, and why."""

    outcome: Outcome
    """healthy, unhealthy or inconclusive."""
    message: str
    """The verdict in a sentence, with its numbers."""
    confidence: float
    """How sure, 0 to 1."""
    state: State | None = None
    """How a healthy run ended."""
    symptom: str | None = None
    """The primary symptom of an unhealthy run."""
    stage: str | None = None
    """Pipeline stage at which the signal is lost."""
    onset: int | None = None
    """First step of the primary symptom."""
    evidence: dict[str, float] = field(default_factory=dict)
    """The numbers behind the verdict."""
    secondary: tuple[str, ...] = ()
    """Other symptoms, folded under the primary one as consequences."""
    missing: tuple[str, ...] = ()
    """Signals that were needed and absent."""

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        lists = {name: tuple(record[name]) for name in ("secondary", "missing")}
        return cls(**{**record, **lists})
