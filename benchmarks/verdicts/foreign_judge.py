"""Verdicts on one log: ours, those of textbook rules, and those that a rival gave."""

import json
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreign_keys import SHOWS
from foreign_labels import HEALTHY, LABELS, RIVAL_SYMPTOMS, Label
from foreign_naive import naive_verdict

from grpo_core.errors import GrpoError
from sweeps.alarm import CRITICAL, Alarm
from sweeps.diagnose.judge import judge
from sweeps.findings import Diagnosis
from sweeps.importers import load_run
from sweeps.trace import Trace
from sweeps.verdict import diagnose

WELL = "healthy"
"""What those say who know no states: right where every healthy state is."""
WELL_WORDS = (*HEALTHY, WELL)
CHECKS = 20
"""Looks at a growing log: every 5 %."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a simulator, as it was injected."""

    simulator: str
    label: str
    seed: int
    steps: int
    onset: int
    """First step with the fault; 1 where it is there from the start."""
    name: str

    @property
    def meant(self) -> Label:
        """What is right on it."""
        return LABELS[self.simulator][self.label]

    def visible(self, dialect: str) -> bool:
        """The dialect logs something that shows the fault."""
        shown = SHOWS.get(dialect)
        return shown is None or any(name in shown for name in self.meant.shown_by)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What somebody says of one log."""

    word: str
    """The first verdict in its own words."""
    means: tuple[str, ...]
    """The same in our words."""
    alarm: bool
    """It says that something is wrong."""
    critical: bool = False
    """It says so at its highest rank; ours: a symptom that may stop a run."""
    named: tuple[str, ...] = ()
    """Everything that it names, in our words."""
    confidence: float | None = None
    """What it states, 0 to 1."""
    onset: int | None = None
    """First step that it names."""
    error: str | None = None
    """What it raised."""

    def right(self, case: Case, dialect: str) -> bool:
        """It is what the label means."""
        return self._fits(case, dialect, self.means)

    def names_it(self, case: Case, dialect: str) -> bool:
        """The right symptom is the verdict or stands beside it."""
        return self._fits(case, dialect, (*self.means, *self.named))

    def _fits(self, case: Case, dialect: str, words: tuple[str, ...]) -> bool:
        label = case.meant
        if label.healthy:
            return not self.alarm and any(word in WELL_WORDS for word in self.means)
        accepted = {*label.accepted, *label.rival_only}
        if not case.visible(dialect):
            accepted |= set(label.otherwise)
        if accepted.issuperset(HEALTHY):
            accepted.add(WELL)
        return any(word in accepted for word in words)


@dataclass(frozen=True, slots=True)
class Followed:
    """What was said while a log grew."""

    first_right: int | None = None
    """Step of the first look with the right verdict, at or after the onset."""
    alarmed: int | None = None
    """Step at which `sweeps.alarm.Alarm` went off."""
    symptom: str | None = None
    """Its symptom."""


@dataclass(slots=True)
class Judged:
    """Everything that was said of one log."""

    ours: Verdict
    """The diagnosis."""
    naive: Verdict
    """The first textbook rule that fires."""
    followed: Followed | None = None
    """Our verdicts while it grew; None where nobody looked."""


def read_runs(path: Path) -> list[Case]:
    """The runs that the writer made."""
    return [Case(**run) for run in json.loads(path.read_text())]


def judge_log(path: Path, case: Case | None = None, dialect: str = "") -> Judged:
    """Our verdict and the textbook's; with `case`, also while the log grows."""
    try:
        run = load_run(str(path))
    except GrpoError as error:
        return Judged(_failed("refused", str(error)), _failed("refused", str(error)))
    try:
        ours = our_verdict(judge(run).diagnosis)
        followed = None if case is None else follow(run.trace, case, dialect)
    except Exception:  # noqa: BLE001 - a crash is a result of the benchmark
        ours, followed = _failed("crash", traceback.format_exc()), None
    return Judged(ours, naive(run.trace), followed)


def our_verdict(diagnosis: Diagnosis) -> Verdict:
    """A diagnosis as a verdict."""
    word = diagnosis.symptom or diagnosis.outcome
    if diagnosis.state is not None:
        word = f"healthy/{diagnosis.state}"
    return Verdict(
        word=word,
        means=(word,),
        alarm=diagnosis.outcome == "unhealthy",
        critical=diagnosis.symptom in CRITICAL,
        named=diagnosis.secondary,
        confidence=diagnosis.confidence,
        onset=diagnosis.onset,
    )


def naive(trace: Trace) -> Verdict:
    """The textbook's verdict."""
    word = naive_verdict(trace)
    sick = word != "healthy"
    return Verdict(word, (word,) if sick else (WELL,), alarm=sick, critical=word in CRITICAL)


def rival_verdict(rival: str, told: dict[str, Any]) -> Verdict:
    """What a rival said, in our words; a mere information is a verdict, but no alarm."""
    table = RIVAL_SYMPTOMS[rival]
    named = told["named"]
    if not named:
        return Verdict(WELL, (WELL,), alarm=False)
    means = table[named[0]] if told["alarm"] else (*table[named[0]], WELL)
    others = tuple(symptom for name in named for symptom in table[name])
    word = named[0] if told["alarm"] else f"{named[0]} (info)"
    return Verdict(word, means, told["alarm"], told["critical"], others)


def follow(trace: Trace, case: Case, dialect: str) -> Followed:
    """Judge every beginning of the log, as a guard beside the run would."""
    remembered = _Remembered()
    alarm, first_right, alarmed = Alarm(judge=remembered), None, None
    for look in range(1, CHECKS + 1):
        step = round(case.steps * look / CHECKS)
        begun = trace.until(step)
        right = our_verdict(remembered(begun)).right(case, dialect)
        if right and first_right is None and step >= case.onset:
            first_right = step
        if alarmed is None:
            found = alarm.check(begun)
            alarmed = None if found is None else (step, found.symptom)
    return Followed(first_right, *(alarmed or (None, None)))


class _Remembered:
    """`diagnose`, which keeps its last answer."""

    def __init__(self) -> None:
        self._last: tuple[Trace, Diagnosis] | None = None

    def __call__(self, trace: Trace) -> Diagnosis:
        if self._last is None or self._last[0] is not trace:
            self._last = (trace, diagnose(trace))
        return self._last[1]


def _failed(word: str, error: str) -> Verdict:
    return Verdict(word, (), alarm=False, error=error)
