"""Logs, one by one, to verdicts; a bad log never keeps the others from theirs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from grpo_core.errors import GrpoError
from sweeps.findings import Diagnosis
from sweeps.importers import LoadedRun, Options, Target, load_run
from sweeps.importers.errors import NoLogError
from sweeps.verdict import diagnose


@dataclass(frozen=True, slots=True)
class Judged:
    """A log that was read, and what happened in it."""

    run: LoadedRun
    """The log."""
    diagnosis: Diagnosis
    """The verdict."""

    @property
    def path(self) -> str:
        """Where the log is."""
        return self.run.path

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        run, diagnosis = self.run, self.diagnosis.to_json()
        return {
            "path": run.path,
            "name": run.name,
            "dialect": run.dialect,
            "decided": run.decided,
            "steps": len(run.trace),
            "outcome": diagnosis["outcome"],
            "state": diagnosis["state"],
            "symptom": diagnosis["symptom"],
            "onset": diagnosis["onset"],
            "stage": diagnosis["stage"],
            "confidence": diagnosis["confidence"],
            "evidence": {name: plain(value) for name, value in diagnosis["evidence"].items()},
            "message": diagnosis["message"],
            "secondary": list(diagnosis["secondary"]),
            "missing": list(diagnosis["missing"]),
            "lacking": run.lacking,
            "found": run.found,
            "derived": list(run.derived),
            "settings": {name: plain(value) for name, value in run.trace.settings.items()},
            "unknown": list(run.unknown),
            "notes": list(run.notes),
            "ended": run.ended,
        }


@dataclass(frozen=True, slots=True)
class Refused:
    """A log that could not be read."""

    path: str
    """Where it is."""
    error: str
    """What is wrong with it."""

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return {"path": self.path, "error": self.error}


def judge_all(
    targets: Iterable[Target], options: Options
) -> tuple[list[Judged | Refused], list[str]]:
    """The verdict on every log; and files that a search found but that hold no log."""
    results: list[Judged | Refused] = []
    others: list[str] = []
    for target in targets:
        try:
            results.append(judge(load_run(target.path, options)))
        except NoLogError as error:
            if target.sure:
                results.append(Refused(target.path, str(error)))
            else:
                others.append(target.path)
        except GrpoError as error:
            results.append(Refused(target.path, str(error)))
    return results, others


def judge(run: LoadedRun) -> Judged:
    """The verdict on one log."""
    return Judged(run, diagnose(run.trace))


def plain(value: Any) -> Any:  # noqa: ANN401 - any value of a setting
    """A value that JSON can hold: NaN and infinity as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    return value if isinstance(value, int | float | str | list | None) else str(value)
