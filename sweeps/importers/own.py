"""Our own trials, as their record has them: nothing is renamed, nothing is lost."""

import json
from pathlib import Path

from grpo_core.errors import GrpoError
from grpo_core.metrics import StepMetrics
from sweeps.importers.errors import LogError
from sweeps.importers.jsonl import encoding_notes
from sweeps.importers.lines import TextFile
from sweeps.importers.run import LoadedRun
from sweeps.importers.signals import lacking
from sweeps.record import SweepRecord
from sweeps.trace import Judge, trace_of

HEADER = "sweep.json"
"""What makes a folder a sweep's record."""


def is_own(head: str) -> bool:
    """The first line is a step of one of our trials."""
    return '"stages"' in head.split("\n", 1)[0] and '"reward_distinct"' in head


def trials_of(folder: Path) -> list[Path]:
    """The recorded trials of a sweep, in running order."""
    header = SweepRecord(folder).header()
    paths = [folder / "trials" / f"{trial.id}.jsonl" for trial in header.trials]
    return [path for path in paths if path.exists()]


def load_trial(path: Path) -> LoadedRun:
    """A trial's file of steps.

    Raises:
        LogError: a line is no step of ours, or there is none.
    """
    text = TextFile(path)
    steps: list[StepMetrics] = []
    notes = []
    for line in text.lines():
        try:
            steps.append(StepMetrics.from_json(json.loads(line.text)))
        except (ValueError, TypeError, KeyError) as error:
            if line.complete:
                raise LogError(f"{path}:{line.number}: is no step of a trial: {error}") from error
            notes.append(f"line {line.number}, the last one, is cut off; it was left out")
    if not steps:
        raise LogError(f"{path}: is empty; wanted at least one step")
    judge, name, ended = _end_of(path, steps)
    trace = trace_of(steps, judge)
    return LoadedRun(
        path=str(path),
        name=name,
        dialect="sweeps",
        decided="a step of a trial per line",
        trace=trace,
        found={signal: signal for signal in trace.series},
        derived=(),
        lacking=lacking(frozenset(trace.series)),
        notes=(*notes, *encoding_notes(text)),
        ended=ended,
    )


def _end_of(path: Path, steps: list[StepMetrics]) -> tuple[Judge | None, str, bool]:
    """The judge's looks at a trial, its name and whether it has ended, if its sweep is there."""
    folder = path.parent.parent
    record = SweepRecord(folder)
    if path.parent.name != "trials" or not record.exists():
        return None, "", False
    try:
        trial = next((one for one in record.header().trials if one.id == path.stem), None)
        end = record.end(path.stem)
    except (GrpoError, ValueError, KeyError, TypeError):
        return None, "", False
    if trial is None or end is None or end.initial is None:
        return None, f"{folder.name}: {trial.name}" if trial else "", end is not None
    prompts = int(trial.config["evaluation"]["prompts"])
    final = steps[-1].eval_pass_rate if end.error is None else None
    judge = Judge(end.initial, prompts, final, None if final is None else prompts)
    return judge, f"{folder.name}: {trial.name}", True
