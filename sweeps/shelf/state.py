"""How far the sweeps of a storage folder are."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from grpo_core.errors import GrpoError
from sweeps.record import SweepRecord

State = Literal["running", "unfinished", "finished", "damaged"]


@dataclass(frozen=True, slots=True)
class SweepState:
    """One sweep at a glance."""

    name: str
    """Its name."""
    folder: str
    """Its record."""
    state: State
    """`running`: a driver has it now; `unfinished`: the command that started it goes on with it."""
    trials: int
    """Planned, within the budget."""
    ended: int
    """Of these, ended."""
    failed: int
    """Of the ended ones, raised."""
    implied: int
    """Of the ended ones, not trained because their result follows."""
    steps: int
    """Recorded, of all trials."""
    outcomes: dict[str, int]
    """Ended trials by outcome."""
    created: float
    """Unix time of its start; 0 for a damaged one."""
    source: str
    """The search-space file."""
    problem: str | None = None
    """Why a damaged one can't be read."""

    def to_json(self) -> dict[str, Any]:
        """The documented shape of `sweeps status --json` and `sweeps list --json`."""
        return asdict(self)


def state_of(record: SweepRecord) -> SweepState:
    """How far one sweep is; also while it runs.

    Raises:
        GrpoError: its header cannot be read.
    """  # noqa: DOC502 - raised by the record
    header = record.header()
    left_out = set(header.not_run)
    planned = [spec for spec in header.trials if spec.id not in left_out]
    ends = [end for spec in planned if (end := record.end(spec.id)) is not None]
    state: State = "finished" if len(ends) == len(planned) else "unfinished"
    return SweepState(
        name=header.name,
        folder=str(record.folder),
        state="running" if record.driven() else state,
        trials=len(planned),
        ended=len(ends),
        failed=sum(end.status == "failed" for end in ends),
        implied=sum(end.implied for end in ends),
        steps=sum(record.count_steps(spec.id) for spec in planned),
        outcomes=dict(Counter(end.diagnosis.outcome for end in ends)),
        created=header.created,
        source=header.source,
    )


def list_sweeps(storage: Path) -> list[SweepState]:
    """Every sweep of a storage folder, the latest first; damaged ones with their problem."""
    states = []
    for path in storage.glob("*/sweep.json"):
        record = SweepRecord(path.parent)
        try:
            states.append(state_of(record))
        except GrpoError as error:
            states.append(_damaged(record, str(error)))
    return sorted(states, key=lambda state: (-state.created, state.name))


def _damaged(record: SweepRecord, problem: str) -> SweepState:
    return SweepState(
        name=record.folder.name,
        folder=str(record.folder),
        state="damaged",
        trials=0,
        ended=0,
        failed=0,
        implied=0,
        steps=0,
        outcomes={},
        created=0.0,
        source="",
        problem=problem,
    )
