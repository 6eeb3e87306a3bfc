"""Steps as a log has them, brought into order: resumed, shuffled, repeated or missing ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Steps = NDArray[np.int64]

FEW_FALLS = 0.05
"""Share of the rows up to which a falling counter is a resume; beyond it the log is shuffled."""
GOES_ON = 3
"""Ascending rows behind a fall that make it a resume; fewer are rows out of place."""


@dataclass(frozen=True, slots=True)
class Order:
    """Which rows of a log count."""

    keep: NDArray[np.bool_]
    """False for rows that a resumed run has replaced."""
    resumed: tuple[int, ...]
    """Steps at which the counter fell back and went on from there."""
    out_of_place: int
    """Rows that stand behind a later step, resumes apart."""


def order(steps: Steps) -> Order:
    """What counts of rows with these steps, in the order of the log."""
    keep = np.ones(len(steps), dtype=np.bool_)
    falls = np.flatnonzero(np.diff(steps) < 0) + 1
    if len(falls) > max(2, FEW_FALLS * len(steps)):
        return Order(keep, (), len(falls))
    resumes = [int(at) for at in falls if _resumes(steps, falls, int(at))]
    for at in resumes:
        keep[:at] &= steps[:at] < steps[at]
    resumed = tuple(int(steps[at]) for at in resumes)
    return Order(keep, resumed, len(falls) - len(resumes))


def _resumes(steps: Steps, falls: Steps, at: int) -> bool:
    """The rows from `at` on are the run again, not rows out of place."""
    later = falls[falls > at]
    end = int(later[0]) if len(later) else len(steps)
    earlier, run = steps[:at], steps[at:end]
    least = GOES_ON if end < len(steps) else GOES_ON - 1
    # A late row is followed by steps that are new; a run that goes on repeats some first.
    repeats = np.count_nonzero(run <= earlier.max()) >= GOES_ON - 1
    return len(run) >= least and bool(repeats) and bool(run[-1] >= earlier.min())


def latest(steps: Steps) -> tuple[NDArray[np.intp], int]:
    """Rows in the order of their steps, of equal steps the last; how many steps were repeated."""
    ascending = np.argsort(steps, kind="stable")
    ordered = steps[ascending]
    last = np.append(np.diff(ordered) != 0, True) if len(ordered) else np.zeros(0, dtype=np.bool_)
    return ascending[last], int(len(steps) - np.count_nonzero(last))


def gaps(steps: Steps) -> tuple[int, int]:
    """Steps that are missing from an otherwise regular count, and its stride."""
    if len(steps) < 3:
        return 0, 1
    distances = np.diff(steps)
    values, counts = np.unique(distances, return_counts=True)
    stride = int(values[np.argmax(counts)])
    return int(np.sum(distances[distances > stride] // stride - 1)), stride
