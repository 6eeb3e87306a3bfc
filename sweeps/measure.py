"""What counts as success in a log: its pass rate or its reward, and how much of a change is one."""

from dataclasses import dataclass

import numpy as np

from sweeps.statistics import Numbers, point_noise, smooth
from sweeps.trace import Trace

CONVERGED = 0.8
"""Pass rate from which a flat curve counts as arrived, not stuck (the tasks' ceiling is 1)."""
RISE = 0.10
"""Smallest change of a pass rate that is called one; healthy seeds differ by 0.08 at most."""
FLAT = 4.0
"""A curve within this many standard deviations of a smoothed value has not moved."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The signal that says how well a run does, with its scale."""

    signal: str
    """Its name in the trace."""
    word: str
    """What messages call it."""
    rise: float
    """Smallest change that is called one, in the signal's own units."""
    floor: float | None
    """What a policy that can do nothing gets; None where nobody knows."""
    ceiling: float | None
    """What a perfect policy gets; None where nobody knows."""

    @property
    def converged(self) -> float | None:
        """Level from which a flat curve counts as arrived; None without a known ceiling."""
        if self.ceiling is None or self.floor is None:
            return None
        return self.floor + CONVERGED * (self.ceiling - self.floor)

    def passing(self, share: float) -> float:
        """Level at `share` of the way from floor to ceiling; infinite without a ceiling."""
        if self.ceiling is None or self.floor is None:
            return float("inf")
        return self.floor + share * (self.ceiling - self.floor)


GOLDEN = ("accuracy", "correct", "answer", "pass", "exact", "golden", "solve", "task")
"""Parts of the name of a reward component that stands for the task itself."""
COMPONENT = "component."
"""Prefix of a reward component's name in a trace."""


SLACK = 0.05
"""How far a share of the full reward may be logged outside of 0 to 1: small penalties, rounding."""


def is_share(values: Numbers) -> bool:
    """The values can be shares of a full reward."""
    return len(values) > 0 and bool(values.min() >= -SLACK and values.max() <= 1.0 + SLACK)


def task_component(trace: Trace) -> str | None:
    """The one reward component that stands for the task, if it is a share of the full reward."""
    named = [
        name
        for name in trace.series
        if name.startswith(COMPONENT)
        and any(word in name.removeprefix(COMPONENT).lower() for word in GOLDEN)
    ]
    if len(named) != 1:
        return None
    values = _finite(trace, named[0])
    share = is_share(values)
    whole = len(trace[named[0]]) >= len(trace) / 2
    return named[0] if share and whole else None


def measure_of(trace: Trace) -> Measure | None:
    """What to judge `trace` by; None where it has neither a pass rate nor a reward.

    Of a reward with several components the one that stands for the task counts, if there is one.
    A reward between 0 and 1 throughout is taken for a share of the full reward. Any other is
    measured in the spread between answers where the log has it (a pass rate moves by 0.1 when it
    moves by a fifth of a binary reward's spread), else in its own range over the run.
    """
    for signal, word in (("pass_rate", "pass rate"), ("reward_mean", "reward")):
        if signal in trace and len(trace[signal]):
            if signal == "pass_rate":
                return Measure(signal, word, RISE, 0.0, 1.0)
            task = task_component(trace)
            if task is not None:
                return Measure(task, f"{task.removeprefix(COMPONENT)} reward", RISE, 0.0, 1.0)
            return _of_reward(trace, signal, word)
    return None


def share_of_best(trace: Trace, value: float) -> float | None:
    """Where a mean reward lies between the least and the largest that any answer got.

    Not a scale for rises: the extremes of thousands of answers are far apart.
    """
    tops, bottoms = _finite(trace, "reward_max"), _finite(trace, "reward_min")
    if len(tops) == 0 or len(bottoms) == 0 or not float(tops.max()) > float(bottoms.min()):
        return None
    return (value - float(bottoms.min())) / (float(tops.max()) - float(bottoms.min()))


def _of_reward(trace: Trace, signal: str, word: str) -> Measure:
    values = _finite(trace, signal)
    highest = max((float(_finite(trace, name).max(initial=0.0)) for name in _TOP), default=0.0)
    lowest = min((float(_finite(trace, name).min(initial=0.0)) for name in _BOTTOM), default=0.0)
    if len(values) == 0 or (lowest >= 0.0 and highest <= 1.0 + 1e-6):
        return Measure(signal, word, RISE, 0.0, 1.0)
    spread = _finite(trace, "reward_std")
    if len(spread) and float(np.median(spread)) > 0:
        return Measure(signal, word, RISE * 2 * float(np.median(spread)), None, None)
    smoothed = smooth(values, max(3, len(values) // 8))
    span = float(smoothed.max() - smoothed.min())
    noise = point_noise(values).spread / np.sqrt(max(3, len(values) // 8))
    unit = max(span, FLAT * float(noise) / RISE, 1e-12)
    return Measure(signal, word, RISE * unit, None, None)


_TOP = ("reward_mean", "reward_max")
_BOTTOM = ("reward_mean", "reward_min")


def _finite(trace: Trace, name: str) -> Numbers:
    if name not in trace:
        return np.zeros(0)
    values = trace[name].values
    return values[np.isfinite(values)]
