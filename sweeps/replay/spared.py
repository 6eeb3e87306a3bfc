"""Trials of a sweep that are not run: their ends follow from a proof, or from another trial's end.

The ends are part of the record like any other, marked `implied`, and written once. What follows is
worked out anew whenever the sweep is taken up, so a driver may be killed at any moment.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_core.config import TrialConfig
from grpo_core.metrics import StepMetrics
from sweeps.findings import Diagnosis
from sweeps.plan import TrialSpec
from sweeps.record import IMPLIED, SweepRecord, TrialEnd
from sweeps.replay.dead import DeadProof
from sweeps.replay.proven import prove

Told = Callable[[str, TrialEnd], None]
"""Somebody who is told that a trial has ended."""


@dataclass(frozen=True, slots=True)
class Twin:
    """A trial of another configuration, with the same seed, that this one would repeat."""

    trial: str
    """Id of the other trial."""
    config_hash: str
    """Hash of its configuration."""
    configuration: str
    """The configuration's name."""
    proof: str
    """Why they are equal."""

    @property
    def words(self) -> str:
        """The proof, for people."""
        return f"equal to {self.configuration}, because {self.proof}"

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return {"of": self.config_hash, "proof": self.proof}


Grounds = DeadProof | Twin
"""Why a trial need not run."""


def ground_trials(trials: Sequence[TrialSpec]) -> dict[str, Grounds]:
    """The trials whose end follows without running them, with the reason, by their id.

    A trial of a repeating configuration whose twin is not among `trials` is left out.
    """
    specs = {spec.config_hash: spec for spec in reversed(trials)}
    hashes = list(dict.fromkeys(spec.config_hash for spec in trials))
    proofs = prove(TrialConfig.model_validate(specs[name].config) for name in hashes)
    by_hash = {hashes[i]: proof for i, proof in proofs.items()}
    of_seed = {(spec.config_hash, spec.seed): spec for spec in trials}
    grounds: dict[str, Grounds] = {}
    for spec in trials:
        proof = by_hash.get(spec.config_hash)
        if isinstance(proof, DeadProof):
            grounds[spec.id] = proof
        elif proof is not None:
            twin = of_seed.get((hashes[proof.of], spec.seed))
            if twin is not None:
                grounds[spec.id] = Twin(twin.id, twin.config_hash, twin.configuration, proof.text)
    return grounds


def count_spared(grounds: Mapping[str, Grounds]) -> str:
    """How many trials of a plan cost nothing, to follow its counts; empty for none."""
    dead = sum(isinstance(reason, DeadProof) for reason in grounds.values())
    parts = [(dead, "provably dead"), (len(grounds) - dead, "provably equal to another")]
    said = " and ".join(f"{count} {what}" for count, what in parts if count)
    return f"; not trained: {said} (--no-implied trains them)" if said else ""


def spare(record: SweepRecord) -> dict[str, Grounds]:
    """The trials within the budget that have not begun and need not.

    A trial that was begun, by a driver that was told to run everything, goes on.
    """
    grounds = ground_trials(record.header().trials)
    return {
        spec.id: grounds[spec.id]
        for spec in record.unfinished()
        if spec.id in grounds and not record.begun(spec.id)
    }


class Follower:
    """Records the ends of spared trials as they follow; a listener of the trials that run.

    Args:
        record: The sweep.
        spared: Which of its trials are not run, and why.
        told: Told about every end that is recorded here.
        clock: Unix time.
    """

    def __init__(
        self,
        record: SweepRecord,
        spared: dict[str, Grounds],
        told: Sequence[Told],
        clock: Callable[[], float],
    ) -> None:
        self._record, self._told, self._clock = record, told, clock
        self._dead = {i: proof for i, proof in spared.items() if isinstance(proof, DeadProof)}
        self._twins: dict[str, dict[str, Twin]] = {}
        for trial_id, twin in spared.items():
            if isinstance(twin, Twin):
                self._twins.setdefault(twin.trial, {})[trial_id] = twin

    def settle(self) -> None:
        """Record every end that follows from what is known by now."""
        for trial_id, proof in self._dead.items():
            self._finish(trial_id, dead_end(proof, self._clock()))
        for twin in self._twins:
            end = self._record.end(twin)
            if end is not None:
                self.trial_ended(twin, end)

    def trial_started(self, _trial_id: str) -> None:
        """Nothing follows from a start."""

    def trial_advanced(self, _trial_id: str, _steps: list[StepMetrics]) -> None:
        """Nothing follows before the end."""

    def trial_ended(self, trial_id: str, end: TrialEnd) -> None:
        """Record the ends of the trials that would have repeated this one."""
        for follower, twin in self._twins.get(trial_id, {}).items():
            if end.status == "finished":
                self._finish(follower, equal_end(twin, end, self._clock()))

    def _finish(self, trial_id: str, end: TrialEnd) -> None:
        if self._record.end(trial_id) is not None:
            return
        self._record.finish(trial_id, end)
        for told in self._told:
            told(trial_id, end)


def dead_end(proof: DeadProof, now: float) -> TrialEnd:
    """The end of a trial whose every update is provably zero; nothing was measured."""
    diagnosis = Diagnosis(
        "unhealthy", proof.text, 1.0, symptom=proof.symptom, stage=proof.stage, onset=0
    )
    return TrialEnd("implied", diagnosis, 0.0, now, None, None, proof=proof.text)


def equal_end(twin: Twin, end: TrialEnd, now: float) -> TrialEnd:
    """The end of a trial that would have repeated one that has ended."""
    diagnosis = replace(end.diagnosis, message=f"{IMPLIED}{twin.words}")
    return TrialEnd(
        "implied", diagnosis, 0.0, now, None, None, proof=twin.proof, of=twin.config_hash
    )
