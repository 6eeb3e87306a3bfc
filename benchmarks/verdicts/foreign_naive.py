"""Textbook rules with absolute thresholds: what anybody writes down first, as a baseline."""

from collections.abc import Callable

import numpy as np

from sweeps.trace import Numbers, Trace

WATCHED = ("loss", "grad_norm", "reward_mean", "kl_reference", "entropy")


def naive_verdict(trace: Trace) -> str:
    """The first rule that fires, or `healthy`."""
    return next((symptom for symptom, fires in RULES if fires(trace)), "healthy")


def early(trace: Trace, name: str, absent: float) -> float:
    """Mean of the first fifth; `absent` where the signal is not there."""
    values = _finite(trace, name)
    return float(values[: max(1, len(values) // 5)].mean()) if len(values) else absent


def late(trace: Trace, name: str, absent: float) -> float:
    """Mean of the last fifth; `absent` where the signal is not there."""
    values = _finite(trace, name)
    return float(values[-max(1, len(values) // 5) :].mean()) if len(values) else absent


def best(trace: Trace, name: str, absent: float) -> float:
    """Highest mean of a tenth of the run; `absent` where the signal is not there."""
    values = _finite(trace, name)
    parts = np.array_split(values, 10) if len(values) >= 10 else []
    return max((float(part.mean()) for part in parts), default=absent)


def _finite(trace: Trace, name: str) -> Numbers:
    values = trace[name].values if name in trace else np.zeros(0)
    return values[np.isfinite(values)]


def _not_finite(trace: Trace) -> bool:
    return any(not np.isfinite(trace[name].values).all() for name in WATCHED if name in trace)


def _spikes(trace: Trace) -> bool:
    norms = _finite(trace, "grad_norm")
    return len(norms) > 0 and bool(norms.max() > 10 * np.median(norms))


def _moved(trace: Trace) -> float:
    return late(trace, "reward_mean", 1.0) - early(trace, "reward_mean", 0.0)


RULES: tuple[tuple[str, Callable[[Trace], bool]], ...] = (
    ("nonfinite", _not_finite),
    ("zero_signal", lambda run: late(run, "raw.silent", 0.0) > 0.9),
    ("dead_update", lambda run: late(run, "grad_norm", 1.0) < 1e-6),
    ("overshoot", _spikes),
    ("kl_runaway", lambda run: late(run, "kl_reference", 0.0) > 1.0),
    ("ratio_instability", lambda run: late(run, "clip_fraction", 0.0) > 0.3),
    ("entropy_collapse", lambda run: late(run, "entropy", 1.0) < 0.1),
    ("entropy_explosion", lambda run: late(run, "entropy", 0.0) > 1.5 * early(run, "entropy", 9.0)),
    ("length_explosion", lambda run: late(run, "truncated", 0.0) > 0.3),
    (
        "length_explosion",
        lambda run: late(run, "length_mean", 0.0) > 2 * early(run, "length_mean", 1e9),
    ),
    (
        "length_collapse",
        lambda run: late(run, "length_mean", 1e9) < 0.3 * early(run, "length_mean", 0.0),
    ),
    (
        "reward_hacking",
        lambda run: (
            _moved(run) > 0.1
            and late(run, "eval_pass_rate", 1.0) < best(run, "eval_pass_rate", 0.0) - 0.1
        ),
    ),
    (
        "reward_collapse",
        lambda run: late(run, "reward_mean", 1.0) < best(run, "reward_mean", 0.0) - 0.2,
    ),
    ("reward_plateau", lambda run: _moved(run) < 0.05 and late(run, "reward_mean", 1.0) < 0.8),
)
"""Symptom and rule, in the order in which they are tried."""
