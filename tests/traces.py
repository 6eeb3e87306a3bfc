"""Hand-made traces for tests: a healthy run, of which a test bends single signals."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from grpo_core.metrics import STAGES
from sweeps.curve import learning_curve
from sweeps.detectors import DETECTORS, lacks
from sweeps.findings import Finding
from sweeps.trace import Judge, Series, Trace, stage_signal

ANSWERS = 96
"""Answers per training batch."""
PROMPTS = 256
"""Prompts of the judge."""
Signal = float | Sequence[float] | NDArray[np.float64]


def sampled(rates: Sequence[float] | NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """Pass rates of training batches whose true rates are these."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.binomial(ANSWERS, np.asarray(rates)) / ANSWERS)


def rise(
    steps: int, start: float = 0.3, end: float = 0.95, speed: float = 1.0
) -> NDArray[np.float64]:
    """True pass rates of a healthy run: slow, fast, slow; at speed 1 it arrives at half time."""
    logistic = 1 / (1 + np.exp(-speed * 20 * (np.arange(steps) / steps - 0.25)))
    return np.asarray(start + (end - start) * logistic, dtype=np.float64)


def make_trace(
    pass_rate: Sequence[float] | NDArray[np.float64],
    *bent: Mapping[str, Signal],
    judge: tuple[float, float] | None = None,
    missing: Sequence[str] = (),
    **also: Signal,
) -> Trace:
    """A healthy run with this pass rate, except for the signals in `bent` and `also`.

    Names of stage signals have two underscores: `advantage__silent` is `advantage.silent`.
    """
    count = len(pass_rate)
    passed = np.asarray(pass_rate, dtype=np.float64)
    signals: dict[str, Signal] = {
        "pass_rate": passed,
        "reward_mean": passed,
        "reward_distinct": 2.0,
        "entropy": np.linspace(0.7, 0.1, count),
        "entropy_max": 3.3,
        "kl_reference": np.linspace(0.0, 0.15, count),
        "kl_share": 0.0,
        "grad_norm": 1.0,
        "update_norm": 0.05,
        "learning_rate": 1e-3,
        "loss": 0.1,
        "ratio_max": 1.2,
        "log_ratio_abs": 0.02,
        "effective_samples": 0.99,
        "staleness": 0.0,
        "length_mean": np.linspace(5.0, 4.0, count),
        "truncated": 0.02,
        "logprob_gap": 1e-7,
        "advantage_std": 0.9,
        "token_fidelity": 0.9,
        "group_mean_max": 1e-8,
        "eval_pass_rate": passed,
    }
    for stage in STAGES:
        signals |= {stage_signal(stage, "silent"): 0.1, stage_signal(stage, "fidelity"): 1.0}
        signals |= {stage_signal(stage, "extreme"): 2.4 if stage == "normalized" else 1.0}
    for changes in (*bent, also):
        signals |= {name.replace("__", "."): value for name, value in changes.items()}
    steps = np.arange(count, dtype=np.int64)
    series = {
        name: Series(steps, np.broadcast_to(np.asarray(value, dtype=np.float64), count).copy())
        for name, value in signals.items()
        if name not in missing
    }
    return Trace(
        steps=steps,
        series=series,
        judge=None if judge is None else Judge(judge[0], PROMPTS, judge[1], PROMPTS),
        solvable=True,
    )


def make_log(
    reward: Sequence[float] | NDArray[np.float64],
    missing: Sequence[str] = (),
    settings: Mapping[str, float] | None = None,
    **also: Signal,
) -> Trace:
    """What another trainer logs of a healthy run with this reward, except for `also`.

    A component's name has two underscores: `component__format` is `component.format`.
    """
    count = len(reward)
    rng = np.random.default_rng(7)
    signals: dict[str, Signal] = {
        "reward_mean": np.asarray(reward, dtype=np.float64),
        "entropy": np.linspace(0.5, 0.3, count) + rng.normal(0, 0.01, count),
        "kl_reference": 0.05 * np.sqrt(np.arange(count) / count),
        "grad_norm": np.exp(rng.normal(-1.0, 0.2, count)),
        "loss": rng.normal(0.0, 0.01, count),
        "learning_rate": 1e-6,
        "length_mean": 300 + rng.normal(0, 10, count),
        "truncated": np.clip(rng.normal(0.02, 0.005, count), 0, 1),
        "clip_fraction": np.clip(rng.normal(0.004, 0.001, count), 0, 1),
        "raw.silent": np.clip(rng.normal(0.25, 0.05, count), 0, 1),
        "advantage_mean": 0.0,
        "advantage_std": 0.9,
    }
    signals |= {name.replace("__", "."): value for name, value in also.items()}
    steps = np.arange(count, dtype=np.int64)
    series = {
        name: Series(steps, np.broadcast_to(np.asarray(value, dtype=np.float64), count).copy())
        for name, value in signals.items()
        if name not in missing
    }
    return Trace(steps=steps, series=series, framework="trl", settings=dict(settings or {}))


def from_stage(stage: str, part: str, value: float) -> dict[str, Signal]:
    """The signals of a stage and all later ones, for `make_trace`."""
    later = STAGES[STAGES.index(stage) :]
    return {f"{name}__{part}": value for name in later}


def symptoms_of(trace: Trace) -> dict[str, Finding]:
    """What every detector says on its own, by symptom."""
    curve = learning_curve(trace)
    findings = [
        detector(trace, curve)
        for detector in DETECTORS
        if not lacks(detector, trace) and len(trace) >= detector.least_steps
    ]
    return {finding.symptom: finding for finding in findings if finding is not None}


def cut(trace: Trace, count: int) -> Trace:
    """The first `count` steps, without a judge's look behind them."""
    return trace.until(count - 1)
