"""Whole sweeps made by hand for tests: planned from YAML, with ends as a test wants them."""

from pathlib import Path

from sweeps.documents import parse_mapping
from sweeps.findings import Diagnosis, Outcome
from sweeps.plan import Plan, TrialSpec, plan
from sweeps.record import SweepRecord, TrialEnd
from sweeps.space import parse_space
from sweeps.storage import open_sweep


def planned(text: str, name: str = "kl") -> Plan:
    """The plan of a search space."""
    source = Path(f"{name}.yaml")
    return plan(parse_space(parse_mapping(text, source.name), source=source))


def begun(folder: Path, text: str, name: str = "kl") -> SweepRecord:
    """A record of that plan, without any step."""
    return open_sweep(planned(text, name), folder, None, resume=False)


def end_of(
    final: float | None = 0.9,
    *,
    outcome: Outcome = "healthy",
    symptom: str | None = None,
    stage: str | None = None,
    onset: int | None = None,
    kl: float | None = 0.1,
    initial: float | None = 0.3,
    error: str | None = None,
) -> TrialEnd:
    """How a trial ended."""
    diagnosis = Diagnosis(
        outcome=outcome,
        message=f"because of {symptom}" if symptom else "it is fine",
        confidence=0.9,
        state="converged" if outcome == "healthy" else None,
        symptom=symptom,
        stage=stage,
        onset=onset,
    )
    return TrialEnd(
        status="finished" if error is None else "failed",
        diagnosis=diagnosis,
        seconds=4.0,
        started=1_700_000_000.0,
        initial=initial,
        final=final,
        kl_reference=kl,
        error=error,
    )


def implied_end(
    *, of: str | None = None, outcome: Outcome = "unhealthy", symptom: str | None = "zero_signal"
) -> TrialEnd:
    """The end of a trial that was not run: a dead one, or one that repeats configuration `of`."""
    proof = "reward_scaling=0" if of is None else "the estimator decides nothing"
    diagnosis = Diagnosis(
        outcome=outcome,
        message=proof if of is None else f"implied: equal to a, because {proof}",
        confidence=1.0,
        state="converged" if outcome == "healthy" else None,
        symptom=symptom if outcome == "unhealthy" else None,
        stage="scaled" if of is None else None,
        onset=0 if of is None else None,
    )
    return TrialEnd("implied", diagnosis, 0.0, 1_700_000_000.0, None, None, proof=proof, of=of)


def finish(record: SweepRecord, ends: dict[str, list[TrialEnd | None]]) -> SweepRecord:
    """End the trials of configurations, by name, seed by seed; None leaves one running."""
    specs: dict[str, list[TrialSpec]] = {}
    for spec in record.header().trials:
        specs.setdefault(spec.configuration, []).append(spec)
    assert set(ends) <= set(specs), f"configurations are {list(specs)}"
    for name, of_seeds in ends.items():
        for spec, end in zip(specs[name], of_seeds, strict=False):
            if end is not None:
                record.finish(spec.id, end)
    return record
