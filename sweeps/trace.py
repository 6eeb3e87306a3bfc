"""A run's curves, ready to be judged: one series per signal, absent signals known as absent."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_core.metrics import STAGES, StepMetrics

Numbers = NDArray[np.float64]

EMBEDDED_POLICIES = frozenset(["tiny"])
"""Policies that are known to be able to solve their tasks."""


@dataclass(frozen=True, slots=True)
class Series:
    """One signal at the steps where it was measured."""

    steps: NDArray[np.int64]
    """Step numbers, ascending."""
    values: Numbers
    """The signal; NaN and inf are evidence, not gaps."""

    def __len__(self) -> int:
        return len(self.values)

    def last(self, share: float) -> "Series":
        """The part within the last `share` of the steps; at least one point."""
        first = max(0, min(len(self) - 1, int(np.floor(len(self) * (1 - share)))))
        return Series(self.steps[first:], self.values[first:])

    def first(self, share: float) -> "Series":
        """The part within the first `share` of the steps; at least one point."""
        count = max(1, int(np.ceil(len(self) * share)))
        return Series(self.steps[:count], self.values[:count])


@dataclass(frozen=True, slots=True)
class Judge:
    """The strict check on held-out prompts, beside the training batches."""

    initial: float
    """Pass rate before training."""
    initial_prompts: int
    """Prompts of that evaluation."""
    final: float | None = None
    """Pass rate after the last step; None where the last step was not followed by a look."""
    final_prompts: int | None = None
    """Prompts of that evaluation."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that one run measured."""

    steps: NDArray[np.int64]
    """Steps that were run."""
    series: dict[str, Series]
    """Signals by name; one that was never measured is not there."""
    nonfinite: tuple[int, str] | None = None
    """Step and name of the first tensor that held NaN or inf."""
    judge: "Judge | None" = None
    """The independent evaluation; None where there was none."""
    solvable: bool = False
    """The policy is known to be able to reach a pass rate of 1, so a flat curve below is stuck."""
    inapplicable: frozenset[str] = frozenset()
    """Signals that this run could not have: nobody misses them."""
    framework: str | None = None
    """Whose log it is; None for our own trainer."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the log itself states, under AReaL's dotted names."""

    def __getitem__(self, name: str) -> Series:
        return self.series[name]

    def __contains__(self, name: str) -> bool:
        return name in self.series

    def __len__(self) -> int:
        return len(self.steps)

    def until(self, step: int) -> "Trace":
        """What was known once `step` had been run; the judge's last look had not come yet."""
        series = {
            name: Series(one.steps[one.steps <= step], one.values[one.steps <= step])
            for name, one in self.series.items()
        }
        broken = self.nonfinite if self.nonfinite and self.nonfinite[0] <= step else None
        return replace(
            self,
            steps=self.steps[self.steps <= step],
            series={name: one for name, one in series.items() if len(one)},
            nonfinite=broken,
            judge=None,
        )

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of `names` that the run did not measure; `component.*` stands for any component."""
        return tuple(name for name in names if not self._has(name))

    def _has(self, name: str) -> bool:
        if name.endswith("*"):
            return any(one.startswith(name[:-1]) for one in self.series)
        return name in self.series

    def together(self, *names: str) -> tuple[NDArray[np.int64], list[Numbers]]:
        """Steps at which all of `names` were measured, and each one's values there."""
        steps = functools.reduce(np.intersect1d, [self.series[name].steps for name in names])
        chosen = [self.series[name] for name in names]
        return steps, [series.values[np.isin(series.steps, steps)] for series in chosen]


def stage_signal(stage: str, part: str) -> str:
    """Name of a stage's signal in a trace: `clipped.silent`."""
    return f"{stage}.{part}"


def trace_of(
    metrics: list[StepMetrics], judge: Judge | None = None, *, solvable: bool = True
) -> Trace:
    """The trace of one of our own trials; the embedded policy can solve the embedded tasks."""
    points: dict[str, list[tuple[int, float]]] = {}
    asked: set[str] = set()
    for step in metrics:
        for name in step.__slots__:
            value = getattr(step, name)
            asked.add(name)
            if name not in ("step", "stages", "nonfinite") and value is not None:
                points.setdefault(name, []).append((step.step, float(value)))
        for stage in STAGES:
            signal = step.stages.get(stage)
            for part in () if signal is None else signal.__slots__:
                value = getattr(signal, part)
                asked.add(stage_signal(stage, part))
                if value is not None:
                    points.setdefault(stage_signal(stage, part), []).append(
                        (step.step, float(value))
                    )
    broken = next(((step.step, step.nonfinite) for step in metrics if step.nonfinite), None)
    return Trace(
        steps=np.array([step.step for step in metrics], dtype=np.int64),
        series={name: _series(pairs) for name, pairs in points.items()},
        nonfinite=broken,
        judge=judge,
        solvable=solvable,
        inapplicable=frozenset(asked - points.keys()),
    )


def _series(pairs: list[tuple[int, float]]) -> Series:
    steps, values = zip(*pairs, strict=True)
    return Series(np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64))
