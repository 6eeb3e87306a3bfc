"""Sweep records for tests: made by hand, without training."""

from pathlib import Path

from grpo_core.metrics import STAGES, StageSignal, StepMetrics
from sweeps.findings import Diagnosis
from sweeps.plan import TrialSpec
from sweeps.record import SweepHeader, SweepRecord, TrialEnd


def make_trial(level: float = 0.0, seed: int = 1, name: str = "") -> TrialSpec:
    """A trial that sweeps actor.kl_ctl."""
    configuration = name or f"kl_ctl={level}"
    return TrialSpec(
        id=f"{round(level * 1000):08x}{seed:04x}",
        config_hash=f"{round(level * 1000):08x}",
        name=f"{configuration} · s{seed}",
        configuration=configuration,
        seed=seed,
        levels={"kl": str(level)},
        swept={"actor.kl_ctl": level, "actor.adv_norm": {"std_level": "group"}},
        config={"actor": {"kl_ctl": level}, "seed": seed},
    )


def make_header(*trials: TrialSpec, name: str = "kl") -> SweepHeader:
    """The header of a sweep of these trials."""
    return SweepHeader(
        name=name,
        content="0123456789ab",
        question="How much KL does it take?",
        trials=trials,
        not_run=(),
        source="search_spaces/kl.yaml",
        version="0.1.0",
        created=1_700_000_000.0,
        base={"seed": 1},
    )


def make_record(folder: Path, *trials: TrialSpec, name: str = "kl") -> SweepRecord:
    """A record of these trials without any steps."""
    record = SweepRecord(folder / name)
    record.create(make_header(*trials, name=name))
    return record


def make_step(
    step: int, reward: float = 0.5, loss: float = 0.25, nonfinite: str | None = None
) -> StepMetrics:
    """A step with a value in every field."""
    return StepMetrics(
        step=step,
        reward_mean=reward,
        reward_std=0.1,
        reward_distinct=2,
        pass_rate=reward,
        eval_pass_rate=reward if step % 10 == 0 else None,
        eval_truncated=0.0 if step % 10 == 0 else None,
        length_mean=8.0 + 0.01 * step,
        truncated=0.0,
        entropy=1.0 / (step + 1),
        entropy_max=3.0,
        kl_reference=0.01 * step,
        kl_share=0.0,
        token_fidelity=0.9,
        stages={stage: StageSignal(0.5, 0.9 - 0.001 * step, 0.1, 1.0) for stage in STAGES},
        advantage_std=1.0,
        advantage_max=2.0,
        normalized_bound=2.5,
        group_mean_max=1e-7,
        clip_fraction=0.01,
        dual_clip_fraction=0.0,
        filtered_fraction=0.0,
        ratio_max=1.1,
        ratio_min=0.9,
        log_ratio_abs=0.01,
        effective_samples=0.99,
        logprob_gap=1e-6,
        loss=loss,
        loss_std=0.3,
        grad_norm=0.7 + 0.01 * step,
        grad_cosine=0.2,
        update_norm=0.05,
        learning_rate=1e-3,
        staleness=0.0,
        tokens=512,
        nonfinite=nonfinite,
    )


def make_end(
    *,
    outcome: str = "healthy",
    status: str = "finished",
    final: float | None = 0.75,
    error: str | None = None,
    started: float = 1_700_000_100.0,
) -> TrialEnd:
    """How a trial ended, 20 seconds after it started."""
    healthy = outcome == "healthy"
    diagnosis = Diagnosis(
        outcome="healthy" if healthy else "unhealthy",
        message="pass rate 0.25 -> 0.75" if healthy else "no group has contrast from step 3 on",
        confidence=0.9,
        state="improving" if healthy else None,
        symptom=None if healthy else "zero_signal",
        stage=None if healthy else "normalized",
        onset=None if healthy else 3,
        evidence={"pass_rate": 0.75},
    )
    return TrialEnd(
        status=status,
        diagnosis=diagnosis,
        seconds=20.0,
        started=started,
        initial=0.25,
        final=final,
        error=error,
    )
