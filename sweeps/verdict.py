"""From findings to the diagnosis of a run, and from runs to the verdict on a configuration."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sweeps.curve import CLOSED, LearningCurve, learning_curve
from sweeps.detectors import (
    DETECTORS,
    MECHANISM_SYMPTOMS,
    OUTCOME_SYMPTOMS,
    PROVEN_SYMPTOMS,
    SIGNAL_SYMPTOMS,
    TELEMETRY_SYMPTOMS,
    lacks,
)
from sweeps.detectors.base import mean_last
from sweeps.findings import Diagnosis, Finding, Outcome, State
from sweeps.measure import measure_of
from sweeps.trace import Series, Trace, stage_signal

LEAST_STEPS = 10
"""Below this many steps only certain findings are reported."""
BARE = 0.5
"""Share of the detectors that must be able to look before a run is called healthy."""


@dataclass(frozen=True, slots=True)
class ConfigurationVerdict:
    """What the seeds of one configuration say together."""

    outcome: Literal["healthy", "unhealthy", "edge", "inconclusive"]
    """`edge`: some seeds are healthy and some are not."""
    healthy: int
    """Healthy seeds."""
    seeds: int
    """Seeds with a verdict or without."""
    symptom: str | None
    """The commonest primary symptom among unhealthy seeds."""
    stage: str | None
    """The commonest stage among seeds with that symptom."""
    onset: int | None
    """Median onset among seeds with that symptom."""


def diagnose(trace: Trace) -> Diagnosis:
    """What happened in one run: one primary symptom, or a healthy state, or why nobody can tell."""
    if len(trace) == 0:
        return inconclusive("no step was recorded", trace.missing(("pass_rate",)))
    measure = measure_of(trace)
    if measure is None:
        return inconclusive("no pass rate and no reward", ("pass_rate", "reward_mean"))
    trace = _finite_only(trace, measure.signal)
    if len(trace[measure.signal]) == 0:
        return inconclusive(f"the {measure.word} is never finite")
    return _judge(trace, learning_curve(trace))


def _judge(trace: Trace, curve: LearningCurve) -> Diagnosis:
    findings, missing, looked = _run_detectors(trace, curve)
    telling = [one for one in findings if one.symptom not in TELEMETRY_SYMPTOMS]
    state = _healthy_state(trace, curve)
    if telling or (findings and state is None):
        return _unhealthy(_primary(telling or findings), findings, missing)
    if state is None or len(trace) < LEAST_STEPS:
        return inconclusive(_doubt(trace, curve), missing)
    if looked < BARE:
        return inconclusive(
            f"the {curve.measure.word} looks {state}, but {1 - looked:.0%} of the checks could not "
            f"run: the log lacks {', '.join(missing)}",
            missing,
        )
    return _healthy(state, curve, missing, findings)


def _finite_only(trace: Trace, signal: str) -> Trace:
    """The trace; in a foreign log, without the steps whose reward is not a number."""
    series = trace[signal]
    good = np.isfinite(series.values)
    if trace.solvable or good.all():
        return trace
    kept = {**trace.series, signal: Series(series.steps[good], series.values[good])}
    return replace(trace, series=kept)


def conclude(diagnoses: list[Diagnosis]) -> ConfigurationVerdict:
    """The verdict on a configuration, over the diagnoses of its seeds."""
    outcomes = Counter(diagnosis.outcome for diagnosis in diagnoses)
    sick = [diagnosis for diagnosis in diagnoses if diagnosis.outcome == "unhealthy"]
    symptom = _commonest([diagnosis.symptom for diagnosis in sick])
    same = [diagnosis for diagnosis in sick if diagnosis.symptom == symptom]
    onsets = sorted(diagnosis.onset for diagnosis in same if diagnosis.onset is not None)
    return ConfigurationVerdict(
        outcome=_together(outcomes),
        healthy=outcomes["healthy"],
        seeds=len(diagnoses),
        symptom=symptom,
        stage=_commonest([diagnosis.stage for diagnosis in same]),
        onset=onsets[(len(onsets) - 1) // 2] if onsets else None,
    )


def inconclusive(reason: str, missing: tuple[str, ...] = ()) -> Diagnosis:
    """Nobody can tell, and why."""
    return Diagnosis("inconclusive", f"cannot tell: {reason}", 0.0, missing=missing)


def _together(
    outcomes: Counter[Outcome],
) -> Literal["healthy", "unhealthy", "edge", "inconclusive"]:
    healthy, unhealthy = outcomes["healthy"], outcomes["unhealthy"]
    if healthy and unhealthy:
        return "edge"
    if outcomes["inconclusive"] or not healthy + unhealthy:
        return "inconclusive"
    return "healthy" if healthy else "unhealthy"


def _commonest(values: list[str | None]) -> str | None:
    present = Counter(value for value in values if value is not None)
    return present.most_common(1)[0][0] if present else None


def _run_detectors(
    trace: Trace, curve: LearningCurve
) -> tuple[list[Finding], tuple[str, ...], float]:
    """Findings, signals that were wanted and absent, share of the detectors that could look."""
    findings: list[Finding] = []
    missing: dict[str, None] = {}
    looked = 0
    for detector in DETECTORS:
        absent = lacks(detector, trace)
        missed = [name for name in absent if name not in trace.inapplicable]
        missing |= dict.fromkeys(missed)
        looked += not missed
        if not absent and len(trace) >= detector.least_steps:
            finding = detector(trace, curve)
            findings += [] if finding is None else [finding]
    return findings, tuple(missing), looked / len(DETECTORS)


def _primary(findings: list[Finding]) -> Finding:
    """The cause.

    Outcomes count only for want of a cause. A dead signal is the cause if nothing went wrong before
    it; a policy that collapsed gets constant rewards afterwards. Then come causes that a stage
    proves, then those that name a mechanism, then the rest. Within a class the earliest onset
    counts; equal onsets fall to the order of DETECTORS.
    """
    causes = [finding for finding in findings if finding.symptom not in OUTCOME_SYMPTOMS]
    if not causes:
        return findings[0]
    first = min(causes, key=lambda finding: finding.onset)
    if first.symptom in SIGNAL_SYMPTOMS:
        return first
    proven = [one for one in causes if one.symptom in PROVEN_SYMPTOMS and one.stage is not None]
    mechanisms = [one for one in causes if one.symptom in MECHANISM_SYMPTOMS]
    return min(proven or mechanisms or causes, key=lambda finding: finding.onset)


def _doubt(trace: Trace, curve: LearningCurve) -> str:
    """Why nobody can tell."""
    word, series = curve.measure.word, curve.series
    broken = np.flatnonzero(~np.isfinite(series.values))
    if len(broken):
        return f"the {word} is not finite from step {int(series.steps[broken[0]])} on"
    if len(trace) < LEAST_STEPS:
        return f"only {len(trace)} steps; wanted {LEAST_STEPS} or more"
    converged = curve.measure.converged
    if converged is not None and curve.late.mean >= converged > curve.end.mean:
        return (
            f"the last look at the policy gives {curve.end.mean:.2f}, its last quarter of training "
            f"{curve.late.mean:.2f}: a dip, the beginning of a fall, or another way of sampling"
        )
    return (
        f"the {word} went from {curve.start.mean:.2f} to {curve.end.mean:.2f}, and its noise "
        "hides whether it is still rising: run longer, or more seeds"
    )


def _healthy_state(trace: Trace, curve: LearningCurve) -> State | None:
    silent = trace.series.get(stage_signal("raw", "silent"))
    if curve.arrived:
        full = curve.end.mean >= curve.measure.passing(0.95)
        done = silent is not None and mean_last(silent) >= 0.9 and full
        return "saturated" if done else "converged"
    if curve.rising and curve.end.mean > curve.start.mean:
        return "improving"
    return None


def _healthy(
    state: State, curve: LearningCurve, missing: tuple[str, ...], notes: list[Finding]
) -> Diagnosis:
    message = f"the {curve.measure.word} began at {curve.start.mean:.2f}, {_told(state, curve)}"
    evidence = {"start": curve.start.mean, "end": curve.end.mean, "late": curve.late.mean}
    confidence = 0.95 if state != "improving" else 0.8
    if missing:
        confidence -= 0.2
    secondary = tuple(note.symptom for note in notes)
    return Diagnosis(
        "healthy",
        "; ".join([message, *(note.message for note in notes)]),
        confidence,
        state,
        evidence=evidence,
        secondary=secondary,
        missing=missing,
    )


def _told(state: State, curve: LearningCurve) -> str:
    """How a healthy run went on, in words."""
    converged, end, late = curve.measure.converged, curve.end.mean, curve.late.mean
    if state == "improving":
        told = f"is at {end:.2f} and still rising"
    elif state == "saturated":
        told = f"reached {end:.2f}; nearly every group passes, no signal is left"
    elif converged is None:
        told = f"rose to {late:.2f} and holds it (its ceiling is not known)"
    elif end >= converged:
        told = f"reached {end:.2f} (threshold {converged:g}) and holds it"
    elif late >= converged:
        told = (
            f"held {late:.2f} over the last quarter (threshold {converged:g}), {end:.2f} at the "
            "last look"
        )
    else:
        told = (
            f"rose by {curve.closed:.0%} of the way to the ceiling (threshold {CLOSED:.0%}) and "
            f"holds {late:.2f}"
        )
    return told


def _unhealthy(primary: Finding, findings: list[Finding], missing: tuple[str, ...]) -> Diagnosis:
    return Diagnosis(
        outcome="unhealthy",
        message=primary.message,
        confidence=primary.confidence,
        symptom=primary.symptom,
        stage=primary.stage,
        onset=primary.onset,
        evidence={name: float(np.float64(value)) for name, value in primary.evidence.items()},
        secondary=tuple(f.symptom for f in findings if f is not primary),
        missing=missing,
    )
