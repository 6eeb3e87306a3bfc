"""Cells chosen by Optuna's TPE from the results so far.

Nothing of a study is kept: it is made anew from the record for every cell that is asked, with a
sampler seeded by the design's seed and the number of the cell. A sweep that is killed and taken up
again therefore asks what it would have asked. With several trials at once, which results are known
when a cell is asked depends on how long trials take.
"""

import random
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from grpo_core.metrics import StepMetrics
from sweeps.plan import TrialSpec, most_cells, trial_of
from sweeps.record import SweepRecord, TrialEnd
from sweeps.replay.dead import prove_dead
from sweeps.replay.spared import Told, dead_end
from sweeps.search.queue import Changed
from sweeps.search.race import Cell as RacingCell
from sweeps.search.race import decide
from sweeps.space import Axis, Cell, Space

PENALTY = 1.0
"""Taken off the pass rate of a cell that is not healthy on every seed: it ranks behind all others,
and by how well it still did among its like."""
STARTUP = 10
"""Most cells that are drawn at random before the model is asked."""
TRIES = 100
"""Suggestions that may be known or excluded before a cell is drawn at random."""

Point = tuple[str, ...]
"""Level names, axis by axis."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A cell that was asked before."""

    point: Point
    """Its levels."""
    ended: bool
    """All of its seeds have ended."""
    value: float | None
    """What it is worth; None while it runs, or where a trial raised and nothing was seen."""


def worth(ends: Sequence[TrialEnd]) -> float | None:
    """The value of a cell: the pass rate of its worst seed, so that one lucky seed does not win.

    With a seed that is not healthy, whether it was stopped or diverged, less `PENALTY`; a pass rate
    that was never measured counts as 0. None where a trial raised: that says nothing of the cell.
    """
    if not ends or any(end.status == "failed" for end in ends):
        return None
    worst = min(0.0 if end.final is None else end.final for end in ends)
    healthy = all(end.diagnosis.outcome == "healthy" for end in ends)
    return worst if healthy else worst - PENALTY


def propose(
    axes: Sequence[Axis],
    asked: Sequence[Asked],
    candidates: Sequence[Point],
    *,
    cells: int,
    seed: int,
) -> Point:
    """The cell to ask next: one of the candidates that was not asked before.

    Args:
        axes: The knobs; each is one categorical parameter, a linked one as well.
        asked: What was asked before, in order.
        candidates: Every cell that there is.
        cells: How many will be asked in all.
        seed: Seed of the search.

    Raises:
        ValueError: every candidate was asked.
    """
    left = set(candidates) - {one.point for one in asked}
    if not left:
        raise ValueError(f"all {len(candidates)} candidates were asked")
    number = len(asked)
    space: dict[str, BaseDistribution] = {
        axis.name: CategoricalDistribution([level.name for level in axis.levels]) for axis in axes
    }
    study = _study(seed + 1000 * number, min(STARTUP, max(cells // 3, 1)))
    study.add_trials([_told(one, axes, space) for one in asked])
    for _ in range(TRIES):
        trial = study.ask(space)
        point = tuple(str(trial.params[axis.name]) for axis in axes)
        if point in left:
            return point
        study.tell(trial, state=TrialState.FAIL)
    rng = random.Random(seed + 1000 * number)  # noqa: S311
    return rng.choice([point for point in candidates if point in left])


def _study(seed: int, startup: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=startup, multivariate=True, constant_liar=True
        )
    return optuna.create_study(direction="maximize", sampler=sampler)


def _told(one: Asked, axes: Sequence[Axis], space: dict[str, BaseDistribution]) -> FrozenTrial:
    params = {axis.name: level for axis, level in zip(axes, one.point, strict=True)}
    state = TrialState.COMPLETE if one.value is not None else TrialState.FAIL
    return optuna.trial.create_trial(
        state=state if one.ended else TrialState.RUNNING,
        value=one.value if one.ended else None,
        params=params,
        distributions=space,
    )


class TpeQueue:
    """Asks for a cell whenever a slot is free, and plans its trials in the record.

    Args:
        record: The sweep.
        space: Its search space.
        slots: Trials that run at once.
        racing: Give a cell that is certainly broken on its first seed no further ones.
        implied: Record the end of a cell that is provably dead without training it.
        changed: Told when trials were planned or dropped.
        told: Told about ends that are recorded here.
    """

    def __init__(  # noqa: PLR0913 - what it is asked for, in names
        self,
        record: SweepRecord,
        space: Space,
        *,
        slots: Callable[[], int],
        racing: bool,
        implied: bool,
        changed: Sequence[Changed] = (),
        told: Sequence[Told] = (),
    ) -> None:
        self._record, self._space, self._slots = record, space, slots
        self._racing, self._implied = racing, implied
        self._changed, self._told = changed, told
        self._candidates = {_point(space, cell): cell for cell in space.cells}
        record.drop({})
        self._asked: dict[Point, tuple[TrialSpec, ...]] = {}
        for spec in record.header().trials:
            point = tuple(spec.levels[axis.name] for axis in space.axes)
            self._asked[point] = (*self._asked.get(point, ()), spec)
        self.specs: dict[str, TrialSpec] = {s.id: s for ss in self._asked.values() for s in ss}
        ends = {trial_id: record.end(trial_id) for trial_id in self.specs}
        self._ends = {trial_id: end for trial_id, end in ends.items() if end is not None}
        self._handed: set[str] = set()
        self._dropped: dict[str, str] = {}
        for specs in self._asked.values():
            self._race(specs)

    @property
    def exhausted(self) -> bool:
        """Every cell was asked and every trial of theirs handed out."""
        return not self._may_ask and not any(self._waits(spec) for spec in self.specs.values())

    def next(self) -> TrialSpec | None:
        """A trial of a cell that was asked, else the first of a new one."""
        if len(self._handed - self._ends.keys()) >= self._slots():
            return None
        while True:
            ready = self._ready()
            if ready is not None:
                self._handed.add(ready.id)
                return ready
            if not self._may_ask:
                return None
            self._ask()

    def trial_started(self, _trial_id: str) -> None:
        """Nothing follows from a start."""

    def trial_advanced(self, _trial_id: str, _steps: list[StepMetrics]) -> None:
        """Nothing follows before the end."""

    def trial_ended(self, trial_id: str, end: TrialEnd) -> None:
        """Note the end, and drop the further seeds of a cell that it breaks."""
        if trial_id not in self.specs:
            return
        self._ends[trial_id] = end
        config_hash = self.specs[trial_id].config_hash
        self._race([s for s in self.specs.values() if s.config_hash == config_hash])

    @property
    def _may_ask(self) -> bool:
        return len(self._asked) < most_cells(self._space)

    def _waits(self, spec: TrialSpec) -> bool:
        gone = spec.id in self._handed or spec.id in self._ends
        return not gone and spec.id not in self._dropped

    def _ready(self) -> TrialSpec | None:
        """The next trial of a cell that was asked; with racing, a further seed behind the first."""
        for first, *others in self._asked.values():
            if self._waits(first):
                return first
            if self._racing and first.id not in self._ends:
                continue
            for spec in others:
                if self._waits(spec):
                    return spec
        return None

    def _ask(self) -> None:
        design = self._space.design
        asked = [self._result(point, specs) for point, specs in self._asked.items()]
        point = propose(
            self._space.axes,
            asked,
            list(self._candidates),
            cells=most_cells(self._space),
            seed=design.seed,
        )
        cell = self._candidates[point]
        specs = tuple(trial_of(self._space, cell, seed) for seed in self._space.seeds)
        self._asked[point] = specs
        self.specs |= {spec.id: spec for spec in specs}
        self._record.extend(specs)
        for changed in self._changed:
            changed()
        self._settle(cell, specs)

    def _settle(self, cell: Cell, specs: Sequence[TrialSpec]) -> None:
        """Record the ends of a cell that is provably dead."""
        proof = prove_dead(cell.config) if self._implied else None
        if proof is None:
            return
        for spec in specs:
            end = dead_end(proof, time.time())
            self._record.finish(spec.id, end)
            self._ends[spec.id] = end
            for told in self._told:
                told(spec.id, end)

    def _result(self, point: Point, specs: Sequence[TrialSpec]) -> Asked:
        ends = [self._ends[spec.id] for spec in specs if spec.id in self._ends]
        run = [spec for spec in specs if spec.id not in self._dropped]
        ended = len(ends) == len(run)
        return Asked(point, ended, worth(ends) if ended else None)

    def _race(self, specs: Sequence[TrialSpec]) -> None:
        """Drop the further seeds of a cell that its first seed shows to be broken."""
        first = specs[0]
        if not self._racing or first.id not in self._ends:
            return
        alone = RacingCell(first.configuration, first.config_hash, tuple(specs))
        reason = decide([alone], self._ends, 1).get(first.config_hash)
        if reason is None:
            return
        fresh = {
            spec.id: f"after seed {first.seed}: {reason}"
            for spec in specs[1:]
            if self._waits(spec) and not self._record.begun(spec.id)
        }
        if fresh.keys() - self._dropped.keys():
            self._dropped |= fresh
            self._record.drop(dict(self._dropped))
            for changed in self._changed:
                changed()


def _point(space: Space, cell: Cell) -> Point:
    return tuple(cell.levels[axis.name].name for axis in space.axes)
