"""The trials of a planned sweep, wave by wave: seed 1 of every cell, then seed 2, and so on."""

from collections.abc import Mapping, Sequence

from grpo_core.metrics import StepMetrics
from sweeps.plan import TrialSpec
from sweeps.record import SweepRecord, TrialEnd
from sweeps.replay.spared import Grounds, Twin
from sweeps.search.queue import Changed
from sweeps.search.race import Cell, decide, is_certain


class WaveQueue:
    """Hands out every trial that has not ended; with racing, only to cells that need it.

    When a wave's last trials run, a free core takes trials of the next wave whose cell goes on
    however those end.

    Args:
        record: The sweep.
        spared: Trials that are not run, and why.
        racing: Drop the further seeds of cells that are certainly broken or cannot win.
        changed: Told when trials were dropped.
    """

    def __init__(
        self,
        record: SweepRecord,
        spared: Mapping[str, Grounds],
        *,
        racing: bool,
        changed: Sequence[Changed] = (),
    ) -> None:
        self._record, self._spared, self._changed = record, spared, changed
        record.drop({})
        header = record.header()
        left_out = set(header.not_run) | set(spared)
        run = [spec for spec in header.trials if spec.id not in left_out]
        self.specs: dict[str, TrialSpec] = {spec.id: spec for spec in run}
        ends = {spec.id: record.end(spec.id) for spec in run}
        self._ends = {trial_id: end for trial_id, end in ends.items() if end is not None}
        self._handed: set[str] = set()
        self._cells = _cells_of(run)
        self._racing = racing
        self._waves = 1 if racing else max((len(c.trials) for c in self._cells), default=0)
        self._alive = list(self._cells)
        self._dropped: dict[str, str] = {}
        self._advance()

    @property
    def exhausted(self) -> bool:
        """Every trial was handed out or dropped."""
        return not any(self._waits(spec) for spec in self.specs.values())

    def next(self) -> TrialSpec | None:
        """The next trial: of this wave the longest; or of the next one, where that is certain."""
        ready = [
            spec
            for wave in range(self._waves)
            for spec in self._longest_first(self._cells, wave)
            if self._waits(spec)
        ]
        ready = ready or self._certain() or self._begun()
        if not ready:
            return None
        self._handed.add(ready[0].id)
        return ready[0]

    def trial_started(self, _trial_id: str) -> None:
        """Nothing follows from a start."""

    def trial_advanced(self, _trial_id: str, _steps: list[StepMetrics]) -> None:
        """Nothing follows before the end."""

    def trial_ended(self, trial_id: str, end: TrialEnd) -> None:
        """Decide on the next wave when this was the last trial of one."""
        if trial_id in self.specs:
            self._ends[trial_id] = end
            self._advance()

    def _waits(self, spec: TrialSpec) -> bool:
        gone = spec.id in self._handed or spec.id in self._ends
        return not gone and spec.id not in self._dropped

    def _certain(self) -> list[TrialSpec]:
        """Trials of the next wave that will be run however this one ends."""
        certain = [
            cell
            for cell in self._alive
            if len(cell.trials) > self._waves
            and self._waits(cell.trials[self._waves])
            and is_certain(cell, self._alive, self._ends, self._waves)
        ]
        return self._longest_first(certain, self._waves)

    def _begun(self) -> list[TrialSpec]:
        """Trials that an earlier driver began, of cells that were dropped since."""
        alive = {cell.config_hash for cell in self._alive}
        rest = (cell for cell in self._cells if cell.config_hash not in alive)
        return [spec for cell in rest for spec in cell.trials if self._waits(spec)]

    def _longest_first(self, cells: Sequence[Cell], wave: int) -> list[TrialSpec]:
        """Their trials of a wave; those with most steps first, so that none is left for the end."""
        trials = [cell.trials[wave] for cell in cells if len(cell.trials) > wave]
        return sorted(trials, key=lambda spec: -int(spec.config["total_train_steps"]))

    def _advance(self) -> None:
        """Go on to the next wave as often as all trials of this one have ended.

        A cell that is left alone races against nobody: it gets the rest of its seeds at once.
        """
        while any(len(cell.trials) > self._waves for cell in self._alive):
            waiting = (spec for cell in self._alive for spec in cell.trials[: self._waves])
            if any(spec.id not in self._ends for spec in waiting):
                return
            self._drop(decide(self._alive, self._ends, self._waves))
            alone = len(self._alive) == 1
            self._waves = len(self._alive[0].trials) if alone else self._waves + 1

    def _drop(self, reasons: Mapping[str, str]) -> None:
        """Drop what has not begun of these cells, and what would have repeated it."""
        if not reasons:
            return
        for cell in self._alive:
            if cell.config_hash in reasons:
                self._dropped |= self._further(cell, reasons[cell.config_hash])
        self._alive = [cell for cell in self._alive if cell.config_hash not in reasons]
        for trial_id, grounds in self._spared.items():
            if isinstance(grounds, Twin) and grounds.trial in self._dropped:
                self._dropped[trial_id] = self._dropped[grounds.trial]
        self._record.drop(dict(self._dropped))
        for changed in self._changed:
            changed()

    def _further(self, cell: Cell, reason: str) -> dict[str, str]:
        """The trials of a cell that have not begun, and why they will not."""
        after = _after([spec.seed for spec in cell.trials[: self._waves]])
        return {
            spec.id: f"{after}: {reason}"
            for spec in cell.trials[self._waves :]
            if self._waits(spec) and not self._record.begun(spec.id)
        }


def _after(seeds: list[int]) -> str:
    return f"after seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _cells_of(trials: Sequence[TrialSpec]) -> list[Cell]:
    cells: dict[str, list[TrialSpec]] = {}
    for spec in trials:
        cells.setdefault(spec.config_hash, []).append(spec)
    return [Cell(specs[0].configuration, name, tuple(specs)) for name, specs in cells.items()]
