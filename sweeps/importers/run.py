"""A log as a trace: chooses the dialect and the columns, orders the steps, derives, and says so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Never

import numpy as np

from sweeps.importers.collector import NO_STEP, Collector, Column
from sweeps.importers.derive import Derivation, derive
from sweeps.importers.detect import Detected, detect
from sweeps.importers.dialects import DIALECTS, Dialect, Match, match, match_stated
from sweeps.importers.errors import LogError, NoLogError
from sweeps.importers.order import Order, Steps, gaps, latest, order
from sweeps.importers.settings import in_areal_terms
from sweeps.importers.signals import AUXILIARY, lacking, nearest
from sweeps.trace import Series, Trace

HELD_OUT = "eval_pass_rate"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user says about a log."""

    dialect: str | None = None
    """Whose it is; None finds out."""
    mapped: Mapping[str, str] = field(default_factory=dict)
    """Signal -> the log's own key."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the log does not state, under AReaL's names."""


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """One log, read."""

    path: str
    """Where it was."""
    dialect: str
    """Whose it is."""
    decided: str
    """What told so."""
    trace: Trace
    """Its signals."""
    found: dict[str, str]
    """Signal -> the log's key, or what it was derived from."""
    derived: tuple[str, ...]
    """Those of `found` that were derived."""
    lacking: dict[str, str]
    """Signals that matter and are not there -> what cannot be told without them."""
    unknown: tuple[str, ...] = ()
    """Keys that nobody knows."""
    notes: tuple[str, ...] = ()
    """What was odd, and what was done about it."""
    ended: bool = False
    """The log says that training ended."""
    name: str = ""
    """What people call it, where that is not its path."""


def assemble(
    collected: Collector,
    options: Options,
    *,
    notes: Iterable[str] = (),
    settings: Mapping[str, object] | None = None,
    ended: bool = False,
) -> LoadedRun:
    """What was collected, as a run.

    Args:
        collected: The log's numbers.
        options: What the user says.
        notes: What the reader noticed.
        settings: Settings from beside the log, in AReaL's terms.
        ended: The log says that training ended.

    Raises:
        LogError: there is nothing to judge, or a key of the user's is not there.
    """  # noqa: DOC502 - raised by what it calls
    remarks = list(notes)
    detected = _dialect(collected, options)
    dialect = detected.dialect
    if detected.others:
        remarks.append(
            f"mixed dialects: besides {dialect.title} it holds {'; '.join(detected.others)}; "
            "those are not read (--format reads them instead)"
        )
    steps = _steps(collected, remarks)
    ordered = order(steps)
    remarks += _order_notes(ordered)
    taken = _Taken(collected, dialect, steps, ordered)
    chosen = _choose(collected, dialect, options)
    series, found = taken.series_of(chosen)
    computed, sources = taken.computed()
    series, found = series | computed, found | sources
    stated = _settings(collected, dialect, options, settings or {})
    worked = Derivation(series, stated)
    derive(worked)
    remarks += worked.notes + taken.notes()
    signals = {name: one for name, one in series.items() if not name.startswith(AUXILIARY)}
    if not signals:
        _refuse(collected)
    trained = _trained_steps(signals)
    remarks += _gap_notes(trained)
    shown = {name: key for name, key in found.items() if not name.startswith(AUXILIARY)}
    names = frozenset(signals)
    return LoadedRun(
        path=collected.path,
        dialect=dialect.name,
        decided=detected.decided,
        trace=Trace(
            steps=trained,
            series=signals,
            framework=None if dialect.name == "sweeps" else dialect.name,
            settings=stated,
        ),
        found=shown | worked.derived,
        derived=tuple(worked.derived),
        lacking=lacking(names),
        unknown=tuple(collected.unknown),
        notes=tuple(dict.fromkeys(remarks)),
        ended=ended,
    )


def _dialect(collected: Collector, options: Options) -> Detected:
    if options.dialect is not None:
        return Detected(DIALECTS[options.dialect], "--format")
    detected = detect([*collected.columns, *collected.refused])
    if detected is not None:
        return detected
    if collected.computed:
        return Detected(DIALECTS["plain"], collected.computed_from)
    if not (options.mapped and collected.columns):
        _refuse(collected)
    return Detected(DIALECTS["plain"], "--map")


def _refuse(collected: Collector) -> Never:
    """Say why there is nothing to judge.

    Raises:
        LogError: the log is empty.
        NoLogError: it holds something else.
    """
    keys = list(collected.unknown)
    if not keys and not len(collected):
        raise LogError(f"{collected.path}: is empty; wanted at least one step with metrics")
    shown = ", ".join(keys[:6]) + (", ..." if len(keys) > 6 else "")
    raise NoLogError(
        f"{collected.path}: none of its keys is known ({shown}); wanted the metrics of AReaL, TRL "
        "or verl, or --map SIGNAL=KEY"
    )


def _steps(collected: Collector, notes: list[str]) -> Steps:
    steps = np.array(collected.steps, dtype=np.int64)
    unstated = steps == NO_STEP
    if not collected.has_steps:
        notes.append("the log has no step counter: its records are counted from 1")
        return np.arange(1, len(steps) + 1, dtype=np.int64)
    if np.any(unstated):
        notes.append(f"{np.count_nonzero(unstated)} records without a step were left out")
    return steps


def _order_notes(ordered: Order) -> list[str]:
    notes = [
        f"the step counter restarts at {step} (a resume): earlier values from there on are replaced"
        for step in ordered.resumed
    ]
    if ordered.out_of_place:
        notes.append(f"steps are out of order in {ordered.out_of_place} places; they were sorted")
    return notes


def _gap_notes(steps: Steps) -> list[str]:
    missing, stride = gaps(steps)
    every = f" of every {stride}" if stride > 1 else ""
    return [f"{missing} steps{every} are missing"] if missing else []


class _Taken:
    """Turns columns into series, and counts what was odd about them."""

    def __init__(
        self,
        collected: Collector,
        dialect: Dialect,
        steps: Steps,
        ordered: Order,
    ) -> None:
        self._collected = collected
        self._dialect = dialect
        self._steps = steps
        self._keep = ordered.keep & (steps != NO_STEP)
        self._repeated = 0
        self._averaged: list[str] = []

    def series_of(
        self, chosen: Mapping[str, list[str]]
    ) -> tuple[dict[str, Series], dict[str, str]]:
        """The series of every signal that has a value left, and its keys."""
        series, found = {}, {}
        for signal, keys in chosen.items():
            one = self._mean([self._one(self._collected.columns[key]) for key in keys])
            if len(one):
                series[signal] = one
                found[signal] = ", ".join(keys)
                self._averaged += [key for key in keys if key in self._collected.averaged]
        return series, found

    def computed(self) -> tuple[dict[str, Series], dict[str, str]]:
        """Signals worked out from single rewards."""
        series = {name: self._one(column) for name, column in self._collected.computed.items()}
        return series, dict.fromkeys(series, f"from {self._collected.computed_from}")

    def notes(self) -> list[str]:
        """What was repeated and what was averaged."""
        notes = []
        if self._repeated:
            notes.append(f"{self._repeated} steps are logged more than once; the last one counts")
        if self._averaged:
            keys = ", ".join(self._averaged[:3])
            notes.append(f"several numbers in place of one ({keys}): their mean or extreme counts")
        return notes

    def _one(self, column: Column) -> Series:
        rows, values = column.numbers(null_is_nan=self._dialect.null_is_nan)
        left = self._keep[rows]
        steps = self._steps[rows[left]]
        last, repeated = latest(steps)
        self._repeated = max(self._repeated, repeated)
        return Series(steps[last], values[left][last])

    def _mean(self, several: list[Series]) -> Series:
        if len(several) == 1:
            return several[0]
        steps = np.unique(np.concatenate([one.steps for one in several]))
        sums, counts = np.zeros(len(steps)), np.zeros(len(steps))
        for one in several:
            at = np.searchsorted(steps, one.steps)
            sums[at] += one.values
            counts[at] += 1
        return Series(steps, sums / counts)


def _choose(collected: Collector, dialect: Dialect, options: Options) -> dict[str, list[str]]:
    """Signal -> the key or keys that it is read from.

    Raises:
        LogError: a key of the user's is not in the log, or a key holds no numbers.
    """
    best: dict[str, list[tuple[str, Match]]] = {}
    for key in collected.columns.keys() | collected.refused.keys():
        found = match(dialect, key)
        if found is not None:
            best.setdefault(found.signal, []).append((key, found))
    chosen = {signal: _best(fits) for signal, fits in best.items()}
    for signal, key in options.mapped.items():
        if key not in collected.columns and key not in collected.refused:
            known = [*collected.columns, *collected.unknown]
            raise LogError(
                f"{collected.path}: --map {signal}={key}: no such key in the log"
                f"{nearest(key, known)}"
            )
        chosen[signal] = [key]
    for keys in chosen.values():
        for key in keys:
            if key in collected.refused:
                raise LogError(collected.refused[key])
    return {signal: chosen[signal] for signal in sorted(chosen, key=_place)}


def _place(signal: str) -> tuple[bool, str]:
    return signal.startswith(AUXILIARY), signal


def _best(fits: list[tuple[str, Match]]) -> list[str]:
    first = min(found.rank for _, found in fits)
    equal = sorted(key for key, found in fits if found.rank == first)
    several = next(found.entry.several for _, found in fits if found.rank == first)
    return equal if several else equal[:1]


def _settings(
    collected: Collector, dialect: Dialect, options: Options, beside: Mapping[str, object]
) -> dict[str, Any]:
    stated = in_areal_terms(beside, "areal")
    for key, column in collected.columns.items():
        found = match_stated(dialect, key)
        if found is not None and column.values:
            stated[found.signal] = column.values[-1]
    return stated | in_areal_terms(collected.settings, dialect.name) | dict(options.settings)


def _trained_steps(
    signals: Mapping[str, Series],
) -> Steps:
    """Steps at which anything but the held-out evaluation was measured."""
    training = [one.steps for name, one in signals.items() if name != HELD_OUT]
    return np.unique(np.concatenate(training or [one.steps for one in signals.values()]))
