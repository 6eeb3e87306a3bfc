"""What is shown while a sweep runs: a live table, or plain lines where there is no terminal."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from grpo_core.metrics import StepMetrics
from sweeps.plan import TrialSpec
from sweeps.record import IMPLIED, SweepHeader, SweepRecord, TrialEnd

MOST_ROWS = 30
"""Configurations that the live table shows at once."""
PLAIN_EVERY = 15.0
"""Seconds between progress lines where there is no terminal."""
STYLES = {"healthy": "green", "unhealthy": "red", "inconclusive": "yellow", "edge": "yellow"}
MARKS = {"healthy": "✓", "unhealthy": "✗", "inconclusive": "?"}


@dataclass(slots=True)
class Progress:
    """The state of a sweep, as events have told it."""

    header: SweepHeader
    """What is being run."""
    ends: dict[str, TrialEnd] = field(default_factory=dict)
    """Ended trials."""
    running: dict[str, StepMetrics | None] = field(default_factory=dict)
    """Running trials with their latest step."""
    started: float = field(default_factory=time.monotonic)
    """When this driver began."""
    steps_here: int = 0
    """Steps that this driver has recorded."""
    first_start: float | None = None
    """When its first trial got a process."""
    spared: frozenset[str] = frozenset()
    """Trials that are not run, because their end follows from another's."""

    @classmethod
    def of(cls, record: SweepRecord, spared: Iterable[str] = ()) -> "Progress":
        """The state that a record is in."""
        header = record.header()
        ends = {s.id: end for s in header.trials if (end := record.end(s.id)) is not None}
        return cls(header, ends, spared=frozenset(spared))

    @property
    def planned(self) -> list[TrialSpec]:
        """Trials within the budget."""
        left_out = set(self.header.not_run)
        return [spec for spec in self.header.trials if spec.id not in left_out]

    @property
    def waiting(self) -> int:
        """Trials that will run, and have neither ended nor a process."""
        return sum(s.id not in self.running for s in self._left)

    @property
    def _left(self) -> list[TrialSpec]:
        """Trials that run or will run."""
        return [s for s in self.planned if s.id not in self.ends and s.id not in self.spared]

    def seconds_left(self, now: float) -> float | None:
        """From the steps per second so far; None before there are any."""
        if self.first_start is None or not self.steps_here:
            return None
        steps = sum(self._steps_left(spec) for spec in self._left)
        return steps * (now - self.first_start) / self.steps_here

    def _steps_left(self, spec: TrialSpec) -> int:
        latest = self.running.get(spec.id)
        return int(spec.config["total_train_steps"]) - (0 if latest is None else latest.step + 1)

    def rows(self) -> list[str]:
        """All configurations, or in a large sweep those that move and the latest that ended."""
        names = {spec.id: spec.configuration for spec in self.header.trials}
        everything = list(dict.fromkeys(names.values()))
        if len(everything) <= MOST_ROWS:
            return everything
        latest = [names[trial_id] for trial_id in reversed(self.ends)]
        moving = [names[trial_id] for trial_id in self.running]
        return list(dict.fromkeys([*moving, *latest, *everything]))[:MOST_ROWS]

    def headline(self) -> str:
        """Counts, time, verdicts and the best so far, in one line."""
        done = sum(spec.id in self.ends for spec in self.planned)
        parts = [f"{done}/{len(self.planned)} done", f"{len(self.running)} running"]
        parts += [f"{self.waiting} waiting", _clock(time.monotonic() - self.started)]
        if self.first_start is None and self.waiting:
            parts.append("starting Ray (the first run on a machine also trains the warm start)")
        left = self.seconds_left(time.monotonic())
        if left is not None and done < len(self.planned):
            parts.append(f"about {_clock(left)} left")
        verdicts = [end.diagnosis.outcome for end in self.ends.values() if not end.implied]
        parts += [f"{verdicts.count(o)} {o}" for o in MARKS if o in verdicts]
        implied = len(self.ends) - len(verdicts)
        parts += [f"{implied} implied"] if implied else []
        best = self._best()
        if best is not None:
            parts.append(f"best {best[1]:.2f} ({best[0]})")
        return f"{self.header.name}: " + " · ".join(parts)

    def _best(self) -> tuple[str, float] | None:
        finals = [
            (spec.name, end.final)
            for spec in self.planned
            if (end := self.ends.get(spec.id)) is not None
            and end.final is not None
            and end.diagnosis.outcome == "healthy"
        ]
        return max(finals, key=lambda pair: pair[1], default=None)


class LiveView:
    """Shows a sweep's progress; a Listener of `run_trials` and a context manager."""

    def __init__(
        self, record: SweepRecord, stream: IO[str] | None = None, *, spared: Iterable[str] = ()
    ) -> None:
        self._record = record
        self._progress = Progress.of(record, spared)
        self._names = {spec.id: spec.name for spec in self._progress.header.trials}
        self._console = Console(file=stream, stderr=stream is None)
        self._live: Live | None = None
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._table, console=self._console, refresh_per_second=4
            )
            self._live.start()
        else:
            self._say(self._progress.headline())
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._live is not None:
            self._live.stop()

    def replan(self) -> None:
        """Trials were planned or dropped."""
        before = self._progress.header.dropped
        header = self._record.header()
        self._progress.header = header
        self._names = {spec.id: spec.name for spec in header.trials}
        if self._live is None:
            for trial_id, why in header.dropped.items():
                if trial_id not in before:
                    self._say(f"  {self._names[trial_id]}: dropped {why}")

    def trial_started(self, trial_id: str) -> None:
        """A trial has a process now."""
        self._progress.running.setdefault(trial_id, None)
        if self._progress.first_start is None:
            self._progress.first_start = time.monotonic()

    def trial_advanced(self, trial_id: str, steps: list[StepMetrics]) -> None:
        """New steps of a trial are in the record."""
        self._progress.running[trial_id] = steps[-1]
        self._progress.steps_here += len(steps)

    def trial_ended(self, trial_id: str, end: TrialEnd) -> None:
        """The end of a trial is in the record."""
        self._progress.running.pop(trial_id, None)
        self._progress.ends[trial_id] = end
        if self._live is None:
            self._say(f"  {self._names[trial_id]}: {describe_end(end)}")

    def _tick(self) -> None:
        while not self._stop.wait(PLAIN_EVERY):
            self._say(self._progress.headline())

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _table(self) -> Group:
        progress = self._progress
        seeds = list(dict.fromkeys(spec.seed for spec in progress.header.trials))
        table = Table(box=None, pad_edge=False)
        table.add_column("configuration", overflow="ellipsis", no_wrap=True)
        for seed in seeds:
            table.add_column(f"seed {seed}", no_wrap=True)
        table.add_column("symptom", no_wrap=True, overflow="ellipsis")
        by_name: dict[str, dict[int, TrialSpec]] = {}
        for spec in progress.header.trials:
            by_name.setdefault(spec.configuration, {})[spec.seed] = spec
        for name in progress.rows():
            specs = by_name[name]
            cells = [self._cell(specs.get(seed)) for seed in seeds]
            table.add_row(Text(name), *cells, self._symptom(specs))
        return Group(Text(progress.headline()), table)

    def _cell(self, spec: TrialSpec | None) -> Text:
        if spec is None:
            return Text("")
        end = self._progress.ends.get(spec.id)
        if end is not None:
            return _ended_cell(end)
        if spec.id not in self._progress.running:
            return Text(self._why_not(spec), style="dim")
        latest = self._progress.running[spec.id]
        if latest is None:
            return Text("starting", style="dim")
        total = spec.config["total_train_steps"]
        return Text(f"{latest.step + 1}/{total} {latest.pass_rate:.2f}", style="cyan")

    def _why_not(self, spec: TrialSpec) -> str:
        if spec.id in self._progress.header.dropped:
            return "dropped"
        return "implied" if spec.id in self._progress.spared else "·"

    def _symptom(self, specs: dict[int, TrialSpec]) -> Text:
        ends = [self._progress.ends.get(spec.id) for spec in specs.values()]
        symptoms = [e.diagnosis.symptom for e in ends if e is not None and e.diagnosis.symptom]
        return Text(", ".join(dict.fromkeys(symptoms)), style="red")


def _ended_cell(end: TrialEnd) -> Text:
    outcome = end.diagnosis.outcome
    if end.implied:
        return Text(f"{MARKS[outcome]} implied", style=f"dim {STYLES[outcome]}")
    final = "failed" if end.final is None else f"{end.final:.2f}"
    return Text(f"{MARKS[outcome]} {final}", style=STYLES[outcome])


def describe_end(end: TrialEnd) -> str:
    """How a trial ended, in a line."""
    diagnosis = end.diagnosis
    if end.error is not None:
        return f"failed: {end.error}"
    if end.implied:
        return f"implied {diagnosis.outcome}, not run: {diagnosis.message.removeprefix(IMPLIED)}"
    what = diagnosis.state or diagnosis.symptom or diagnosis.message
    where = f" at stage {diagnosis.stage}" if diagnosis.stage else ""
    since = f" from step {diagnosis.onset}" if diagnosis.onset is not None else ""
    final = "" if end.final is None else f", final pass rate {end.final:.2f}"
    return f"{diagnosis.outcome} ({what}{where}{since}){final}, {end.seconds:.0f} s"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
