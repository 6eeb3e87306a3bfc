"""From what a trial reported to how it ended: its verdict, and what its own settings did."""

from dataclasses import replace

from grpo_core.config import TrialConfig
from grpo_core.metrics import StepMetrics
from sweeps.causes import explain_stage
from sweeps.findings import Diagnosis
from sweeps.plan import TrialSpec
from sweeps.record import TrialEnd
from sweeps.trace import EMBEDDED_POLICIES, Judge, trace_of
from sweeps.trial import Chunk
from sweeps.verdict import diagnose, inconclusive


def conclude_trial(
    steps: list[StepMetrics],
    spec: TrialSpec,
    started: float,
    *,
    error: str | None,
    chunk: Chunk | None,
) -> TrialEnd:
    """How a trial ended, with the diagnosis of its whole curve.

    A trial that failed has no verdict: what its setting would have done was not seen.
    """
    initial = None if chunk is None else chunk.initial
    final = _last_look(steps, chunk) if error is None else None
    looks = [step.kl_reference for step in steps if step.kl_reference is not None]
    if error is None:
        prompts = spec.config["evaluation"]["prompts"]
        judge = None if initial is None else Judge(initial, prompts, final, prompts)
        solvable = spec.config["policy"] in EMBEDDED_POLICIES
        seen = _stopped(steps, spec, chunk) or diagnose(trace_of(steps, judge, solvable=solvable))
        diagnosis = _with_cause(seen, spec)
    else:
        diagnosis = inconclusive(f"the trial failed after {len(steps)} steps: {error}")
    return TrialEnd(
        status="finished" if error is None else "failed",
        diagnosis=diagnosis,
        seconds=0.0 if chunk is None else chunk.seconds,
        started=started,
        initial=initial,
        final=final,
        kl_reference=looks[-1] if looks else None,
        error=error,
    )


def _last_look(steps: list[StepMetrics], chunk: Chunk | None) -> float | None:
    """The judge's pass rate of the policy that the trial ended with."""
    if chunk is not None and chunk.stopped is not None:
        return chunk.final
    return steps[-1].eval_pass_rate if steps else None


def _stopped(steps: list[StepMetrics], spec: TrialSpec, chunk: Chunk | None) -> Diagnosis | None:
    """The diagnosis that ended the trial early, which says so."""
    if chunk is None or chunk.stopped is None:
        return None
    planned = spec.config["total_train_steps"]
    message = f"{chunk.stopped.message} (stopped after {len(steps)} of {planned} steps)"
    return replace(chunk.stopped, message=message)


def _with_cause(diagnosis: Diagnosis, spec: TrialSpec) -> Diagnosis:
    """The diagnosis, with what the trial's own settings do at its stage."""
    if diagnosis.stage is None:
        return diagnosis
    cause = explain_stage(diagnosis.stage, TrialConfig.model_validate(spec.config))
    if cause is None:
        return diagnosis
    return replace(diagnosis, message=f"{diagnosis.message}. Here {cause}")
