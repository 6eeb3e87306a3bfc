"""From findings to the diagnosis of a run, and from runs to the verdict on a configuration."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sweeps.curve import CONVERGED, LearningCurve, learning_curve
from sweeps.detectors import (
    DETECTORS,
    MECHANISM_SYMPTOMS,
    OUTCOME_SYMPTOMS,
    PROVEN_SYMPTOMS,
    SIGNAL_SYMPTOMS,
)
from sweeps.detectors.base import mean_last
from sweeps.findings import Diagnosis, Finding, Outcome, State
from sweeps.trace import Trace, stage_signal

LEAST_STEPS = 10
"""Below this many steps only certain findings are reported."""


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
    missing = trace.missing(("pass_rate",))
    if missing or len(trace) == 0:
        return inconclusive("no step was recorded" if len(trace) == 0 else "no pass rate", missing)
    curve = learning_curve(trace)
    findings, missing = _run_detectors(trace, curve)
    if findings:
        return _unhealthy(_primary(findings), findings, missing)
    state = _healthy_state(trace, curve)
    if state is None or len(trace) < LEAST_STEPS:
        return inconclusive(_doubt(trace, curve), missing)
    return _healthy(state, curve, missing)


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


def _run_detectors(trace: Trace, curve: LearningCurve) -> tuple[list[Finding], tuple[str, ...]]:
    findings: list[Finding] = []
    missing: dict[str, None] = {}
    for detector in DETECTORS:
        absent = trace.missing(detector.needs)
        missing |= dict.fromkeys(absent)
        if not absent and len(trace) >= detector.least_steps:
            finding = detector(trace, curve)
            findings += [] if finding is None else [finding]
    return findings, tuple(missing)


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
    for symptoms in (PROVEN_SYMPTOMS, MECHANISM_SYMPTOMS):
        found = [finding for finding in causes if finding.symptom in symptoms]
        if found:
            return min(found, key=lambda finding: finding.onset)
    return first


def _doubt(trace: Trace, curve: LearningCurve) -> str:
    """Why nobody can tell."""
    broken = np.flatnonzero(~np.isfinite(curve.series.values))
    if len(broken):
        return f"the pass rate is not finite from step {int(curve.series.steps[broken[0]])} on"
    if len(trace) < LEAST_STEPS:
        return f"only {len(trace)} steps; wanted {LEAST_STEPS} or more"
    if curve.late.mean >= CONVERGED > curve.end.mean:
        return (
            f"the last look at the policy gives {curve.end.mean:.2f}, its last quarter of training "
            f"{curve.late.mean:.2f}: a dip, the beginning of a fall, or another way of sampling"
        )
    return (
        f"the pass rate went from {curve.start.mean:.2f} to {curve.end.mean:.2f}, and its noise "
        "hides whether it is still rising: run longer, or more seeds"
    )


def _healthy_state(trace: Trace, curve: LearningCurve) -> State | None:
    silent = trace.series.get(stage_signal("raw", "silent"))
    if curve.arrived:
        done = silent is not None and mean_last(silent) >= 0.9 and curve.end.mean >= 0.95
        return "saturated" if done else "converged"
    if curve.rising and curve.end.mean > curve.start.mean:
        return "improving"
    return None


def _healthy(state: State, curve: LearningCurve, missing: tuple[str, ...]) -> Diagnosis:
    reached = f"reached {curve.end.mean:.2f} (threshold {CONVERGED}) and holds it"
    if curve.end.mean < CONVERGED:
        reached = (
            f"held {curve.late.mean:.2f} over the last quarter (threshold {CONVERGED}), "
            f"{curve.end.mean:.2f} at the last look"
        )
    words = {
        "converged": reached,
        "saturated": f"reached {curve.end.mean:.2f}; nearly every group passes, no signal is left",
        "improving": f"is at {curve.end.mean:.2f} and still rising",
    }
    message = f"the pass rate began at {curve.start.mean:.2f}, {words[state]}"
    evidence = {"start": curve.start.mean, "end": curve.end.mean, "late": curve.late.mean}
    confidence = 0.95 if state != "improving" else 0.8
    if missing:
        confidence -= 0.2
    return Diagnosis("healthy", message, confidence, state, evidence=evidence, missing=missing)


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
