"""What replay found about a search space."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from grpo_core.config import TrialConfig
from grpo_core.replay import Recorded
from sweeps.plan import configuration_name
from sweeps.replay.blind import Sight, blind_spot
from sweeps.replay.compare import (
    PARALLEL,
    Turn,
    collect_families,
    cosine_matrix,
    cosines_to,
    first_of_each,
    group_equal,
    has_direction,
    measure_turn,
)
from sweeps.replay.dead import DeadProof, prove_dead
from sweeps.replay.evaluate import Evaluated, Measured, build_replayer, evaluate
from sweeps.replay.inert import plain_value
from sweeps.replay.recording import Recording
from sweeps.space import Cell, Space
from sweeps.stages import STAGE_SETTINGS

Verdict = Literal["live", "dead", "no contrast", "exploding", "not evaluated"]

EXPLODING = 2.0
"""Times the bound of the outcome alone: beyond it most of the advantage is something else."""
MOST_IN_MATRIX = 40
"""Distinct updates whose cosines are shown pair by pair."""


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """One cell."""

    name: str
    """How people call it."""
    levels: dict[str, str]
    """Axis -> level."""
    verdict: Verdict
    """What becomes of it."""
    reason: str | None
    """Why, where it is not simply live."""
    stage: str | None
    """Where contrast or finite numbers ended."""
    proven: bool
    """The configuration alone proves that the update is zero, whatever the batch."""
    identical_to: str | None
    """The first cell with the same update that replay can take for the same configuration."""
    indistinguishable_from: str | None
    """The first cell with the same update, where unseen settings differ."""
    unseen: dict[str, str]
    """Settings in which it differs from that cell, or else from the base, unseen -> why."""
    cosine: float | None
    """Direction against the base; None where either has none."""
    size: float | None
    """Norm of the loss weights, relative to the base's; None where either has none."""
    parallel: bool
    """Same direction as the base at another size: Adam hardly tells them apart."""
    measured: Measured
    """The numbers."""


@dataclass(frozen=True, slots=True)
class KnobOutcome:
    """One axis."""

    axis: str
    """Its name."""
    levels: tuple[str, ...]
    """Its levels."""
    turn: Turn
    """How far it turns the update."""
    blind: str | None
    """Why replay cannot see it, wholly or in part; None where it sees all of it."""
    seen: bool
    """Some pair of its levels has different updates."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that replay found."""

    space: str
    """Name of the search space."""
    recording: Recording
    """The batch."""
    base: str
    """What directions are compared with."""
    cells: tuple[CellOutcome, ...]
    """Every cell, in grid order."""
    knobs: tuple[KnobOutcome, ...]
    """Every axis, the one that turns most first; unseen ones last."""
    distinct: int
    """Different updates among live cells."""
    matrix_names: tuple[str, ...]
    """Cells of the cosine matrix, one for each distinct update; none where there are too many."""
    matrix: tuple[tuple[float, ...], ...]
    """Their cosines."""
    notes: tuple[str, ...]
    """What was taken for granted."""

    @property
    def counts(self) -> dict[str, int]:
        """How many cells have which verdict, and how many repeat another."""
        counts = Counter[str](cell.verdict for cell in self.cells)
        counts["identical"] = sum(cell.identical_to is not None for cell in self.cells)
        counts["not distinguishable"] = sum(
            cell.indistinguishable_from is not None for cell in self.cells
        )
        return dict(counts)

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return {
            "format_version": 1,
            "space": self.space,
            "rollouts": self.recording.source,
            "batch": self.recording.shape,
            "base": self.base,
            "notes": list(self.notes),
            "counts": self.counts,
            "distinct_updates": self.distinct,
            "knobs": [asdict(knob) for knob in self.knobs],
            "cells": [asdict(cell) for cell in self.cells],
            "cosines": {"cells": list(self.matrix_names), "matrix": [*map(list, self.matrix)]},
        }


def replay_space(
    space: Space, recording: Recording, *, move: float = 0.0, processes: int = 1
) -> Outcome:
    """Evaluate every configuration of a space on a recorded batch.

    Args:
        space: The search space.
        recording: The batch.
        move: Standard deviation of an assumed policy move, in nats; 0 for none.
        processes: How many work at once.
    """
    configs = [cell.config for cell in space.cells]
    based = space.base is not None
    if space.base is not None:
        configs.append(space.base)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="replay-") as folder:
            evaluated = evaluate(
                configs, recording.recorded, Path(folder), move=move, processes=processes
            )
            judge = _Judge(space, recording, evaluated, move)
            return judge.conclude(based=based)
    finally:
        torch.set_num_threads(threads)


class _Judge:
    """Puts the numbers of all cells together."""

    def __init__(
        self, space: Space, recording: Recording, evaluated: Evaluated, move: float
    ) -> None:
        self._space, self._recording, self._evaluated = space, recording, evaluated
        self._move = move
        self._sight = Sight.of(build_replayer(recording.recorded, move))
        self._keys = sorted({key for axis in space.axes for key in axis.keys})
        self._canonical = evaluated.configs
        self._names = [configuration_name(space.axes, cell) for cell in space.cells]

    def conclude(self, *, based: bool) -> Outcome:
        """The outcome; `based`: the last configuration evaluated is the space's base."""
        evaluated, space = self._evaluated, self._space
        rows, row_of = evaluated.rows, evaluated.row_of
        usable = based and has_direction(rows[row_of[-1]])
        base = row_of[-1] if usable else self._first_live()
        name = "the base" if usable else self._names[row_of.index(base)]
        cosines, sizes = cosines_to(base, rows, evaluated.weights)
        equal = group_equal(rows, evaluated.weights)
        heads, twins = self._repeats([equal[row] for row in row_of[: len(space.cells)]])
        against = self._canonical[-1 if usable else row_of.index(base)]
        cells = tuple(
            self._cell(i, against, (heads[i], twins[i]), (cosines[row_of[i]], sizes[row_of[i]]))
            for i in range(len(space.cells))
        )
        classes = sorted({head for i, head in enumerate(heads) if cells[i].verdict == "live"})
        shown = classes if len(classes) <= MOST_IN_MATRIX else []
        matrix = (
            cosine_matrix([row_of[i] for i in shown], rows, evaluated.weights).tolist()
            if shown
            else []
        )
        return Outcome(
            space=space.name,
            recording=self._recording,
            base=name,
            cells=cells,
            knobs=self._knobs(equal),
            distinct=len(classes),
            matrix_names=tuple(self._names[i] for i in shown),
            matrix=tuple(map(tuple, matrix)),
            notes=self._notes(),
        )

    def _first_live(self) -> int:
        rows, row_of = self._evaluated.rows, self._evaluated.row_of
        cells = row_of[: len(self._space.cells)]
        return next((row for row in cells if has_direction(rows[row])), cells[0])

    def _repeats(self, equal: Sequence[int | None]) -> tuple[list[int], list[int]]:
        """For each cell the first with the same update, and the first that is the same to replay.

        Two updates without direction are never the same.
        """
        keys: list[object] = [i if row is None else ("row", row) for i, row in enumerate(equal)]
        heads = first_of_each(keys)
        signatures = [(heads[i], self._signature(i)) for i in range(len(keys))]
        return heads, first_of_each(signatures)

    def _signature(self, cell: int) -> tuple[object, ...]:
        """Values of the settings whose effect equal updates do not exclude."""
        config = self._canonical[cell]
        return tuple(
            (key, _hashable(plain_value(config, key)))
            for key in self._keys
            if self._blind(key, config) is not None
        )

    def _blind(self, key: str, config: TrialConfig) -> str | None:
        return blind_spot(key, config, self._recording.recorded, self._sight)

    def _cell(
        self,
        cell: int,
        against: TrialConfig,
        repeats: tuple[int, int],
        direction: tuple[float | None, float | None],
    ) -> CellOutcome:
        (head, twin), (cosine, size) = repeats, direction
        measured = self._evaluated.rows[self._evaluated.row_of[cell]]
        proof = prove_dead(self._space.cells[cell].config)
        verdict, reason = _judge(measured, proof)
        twinned = twin != cell
        similar = head != cell and not twinned
        other = self._canonical[head] if similar else against
        return CellOutcome(
            name=self._names[cell],
            levels=_levels(self._space.cells[cell]),
            verdict=verdict,
            reason=reason,
            stage=measured.nonfinite or (None if verdict == "live" else _stage(measured)),
            proven=proof is not None,
            identical_to=self._names[twin] if twinned else None,
            indistinguishable_from=self._names[head] if similar else None,
            unseen=self._differences(cell, other),
            cosine=cosine,
            size=size,
            parallel=cosine is not None
            and size is not None
            and 1 - cosine < PARALLEL
            and abs(size - 1) > 1e-4,
            measured=measured,
        )

    def _differences(self, cell: int, other: TrialConfig) -> dict[str, str]:
        """Unseen settings in which a cell differs from another configuration, with the reason."""
        config = self._canonical[cell]
        return {
            key: why
            for key in self._keys
            if plain_value(config, key) != plain_value(other, key)
            and (why := self._blind(key, config)) is not None
        }

    def _knobs(self, equal: Sequence[int | None]) -> tuple[KnobOutcome, ...]:
        space, evaluated = self._space, self._evaluated
        levels = [tuple(_levels(cell).values()) for cell in space.cells]
        found = []
        for i, axis in enumerate(space.axes):
            names = tuple(level.name for level in axis.levels)
            families = collect_families(levels, evaluated.row_of, i, names)
            turn = measure_turn(families, evaluated.rows, evaluated.weights)
            config = self._canonical[0]
            reasons = {key: self._blind(key, config) for key in sorted(axis.keys)}
            blind = _by_reason(reasons)
            seen = any(len({equal[row] for row in family if row >= 0}) > 1 for family in families)
            found.append(KnobOutcome(axis.name, names, turn, "; ".join(blind) or None, seen=seen))
        unseen = [knob for knob in found if knob.blind is not None and not knob.seen]
        shown = [knob for knob in found if knob not in unseen]
        shown.sort(key=lambda knob: -(knob.turn.turn or 0.0))
        return (*shown, *(replace(knob, turn=_without_turn(knob.turn)) for knob in unseen))

    def _notes(self) -> tuple[str, ...]:
        sight, recorded = self._sight, self._recording.recorded
        notes = list(self._recording.notes)
        notes += _policy_notes(sight, recorded, self._move)
        alive = [row for row in self._evaluated.rows if not row.lacking]
        if alive and all(row.silent_stage == "raw" for row in alive):
            notes.append(
                "no group of this batch has contrast in its raw rewards: replay can tell nothing "
                "about rewards from it"
            )
        sizes = recorded.experience.group_sizes
        wanted = {cell.config.gconfig.n_samples for cell in self._space.cells}
        if sizes is not None:
            real = sorted(set(sizes.tolist()))
            cut = sorted(n for n in wanted if real != [n] and not bool((sizes % n).any()))
            notes += [
                f"gconfig.n_samples={n}: the recorded groups of {_listed(real)} are cut into "
                f"groups of {n}"
                for n in cut
            ]
            notes += [
                f"gconfig.n_samples={n}: evaluated on the recorded groups of {_listed(real)}"
                for n in sorted(wanted)
                if bool((sizes % n).any())
            ]
        return tuple(notes)


def _policy_notes(sight: Sight, recorded: Recorded, move: float) -> list[str]:
    notes = []
    if move > 0:
        notes.append(
            f"clip shares are for an assumed policy move: normal log-ratios with a standard "
            f"deviation of {move:g} nats (--move)"
        )
    elif sight.moved:
        notes.append("clip shares are for the recorded log-ratios of policy to sampler")
    else:
        notes.append(
            "the recorded policy is the sampler: every ratio is 1 and every clip share 0 by "
            "construction; --move 0.1 assumes a policy move"
        )
    if recorded.experience.reference_logprobs is not None and not sight.kl:
        notes.append(
            "the policy still equals the reference: KL settings show nothing in these rollouts"
        )
    return notes


def _judge(measured: Measured, proof: DeadProof | None) -> tuple[Verdict, str | None]:
    if measured.lacking:
        return "not evaluated", "; ".join(measured.lacking)
    if measured.nonfinite is not None:
        return "exploding", f"NaN or infinity at {_at(measured.nonfinite)}"
    if measured.norm == 0:
        return (
            "dead",
            proof.text
            if proof
            else f"no contrast is left at {_at(_stage(measured))} on this batch",
        )
    return _judge_size(measured)


def _judge_size(measured: Measured) -> tuple[Verdict, str | None]:
    if measured.advantage_max > EXPLODING * measured.advantage_bound:
        return "exploding", (
            f"max |advantage| {measured.advantage_max:.3g}, beyond the outcome's own bound "
            f"{measured.advantage_bound:.3g}"
        )
    if measured.silent == 1.0:
        return "no contrast", (
            f"answers of a group are not told apart from {_at(_stage(measured))} on; what is left "
            "pushes all of them alike, or is rounding"
        )
    return "live", None


def _stage(measured: Measured) -> str:
    return measured.silent_stage or "loss"


def _at(stage: str) -> str:
    settings = STAGE_SETTINGS.get(stage)
    return f"stage {stage}" if settings is None else f"stage {stage} ({settings})"


def _levels(cell: Cell) -> dict[str, str]:
    return {axis: level.name for axis, level in cell.levels.items()}


def _without_turn(turn: Turn) -> Turn:
    """Updates that are the same because replay is blind have no turn to speak of."""
    return replace(turn, turn=None, resize=None)


def _by_reason(reasons: dict[str, str | None]) -> list[str]:
    """Each reason once, with its settings."""
    gathered: dict[str, list[str]] = {}
    for key, why in reasons.items():
        if why is not None:
            gathered.setdefault(why, []).append(key)
    return [f"{', '.join(keys)}: {why}" for why, keys in gathered.items()]


def _hashable(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _listed(sizes: Sequence[int]) -> str:
    return " or ".join(map(str, sizes[:5]))
