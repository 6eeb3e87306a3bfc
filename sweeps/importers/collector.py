"""Gathers the records of a log into columns of numbers: only what a dialect knows is kept."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sweeps.importers.dialects import DIALECTS, match, match_stated
from sweeps.importers.errors import LogError
from sweeps.importers.groups import (
    CHECK_KEYS,
    GROUP_KEYS,
    LIST_KEYS,
    REWARD_KEYS,
    STEP_ONLY_KEYS,
    Batch,
    groups_in,
    signals_of_batch,
    signals_of_groups,
)
from sweeps.importers.values import flatten, is_list, parse, single

STEP_KEYS = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "iteration",
    "_step",
    "Step",
)
"""Where a record says its step; the first that is there counts."""
CONFIG_KEYS = ("config", "args", "hparams", "hyperparameters", "params")
"""Mappings that hold settings, not metrics."""
MOST_UNKNOWN = 5000
"""Keys that no dialect knows, as far as they are remembered."""
NO_STEP = -(2**62)
"""Marks a record that does not say its step."""
GROUP_SIZES = ("num_generations", "n_samples", "rollout.n", "gconfig.n_samples")
"""Settings that tell how a flat list of rewards falls into groups."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a log says at once: a line, a table's row, a printed dictionary."""

    values: Mapping[str, object]
    """Metrics, nested or flat, and the step."""
    line: int
    """Its line, from 1; its place where there are no lines."""


@dataclass(slots=True)
class Column:
    """One key's numbers."""

    rows: "array[int]" = field(default_factory=lambda: array("I"))
    """Rows of the log in which the key stands."""
    values: "array[float]" = field(default_factory=lambda: array("d"))
    """Its values there."""
    nulls: int = 0
    """Rows in which it is null; those are NaN in `values`."""
    null_rows: "array[int]" = field(default_factory=lambda: array("I"))
    """Those rows."""

    def numbers(self, *, null_is_nan: bool) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows and values; null counts as NaN, or as not there."""
        rows, values = np.array(self.rows, dtype=np.int64), np.array(self.values)
        if null_is_nan or not self.null_rows:
            return rows, values
        there = ~np.isin(rows, np.array(self.null_rows, dtype=np.int64))
        return rows[there], values[there]


class Collector:
    """Takes records one by one; memory grows with the numbers kept, not with the file.

    Args:
        path: The log, for messages.
        mapped: The user's own keys, kept besides what the dialects know.
        dialect: Keep only what this dialect knows.
    """

    def __init__(self, path: str, mapped: Iterable[str] = (), dialect: str | None = None) -> None:
        self.path = path
        self.steps = array("q")
        self.columns: dict[str, Column] = {}
        self.computed: dict[str, Column] = {}
        self.computed_from = ""
        self.unknown: dict[str, None] = {}
        self.settings: dict[str, object] = {}
        self.refused: dict[str, str] = {}
        self.averaged: dict[str, None] = {}
        self.has_steps = False
        self.count = 0
        self._mapped = tuple(mapped)
        self._dialects = [DIALECTS[dialect]] if dialect else list(DIALECTS.values())
        self._kept: dict[str, bool] = {}
        self._last_keys: set[str] = set()
        self._batch: Batch | None = None

    def add(self, record: Record) -> None:
        """Take what a dialect knows of `record`.

        Raises:
            LogError: its step is no whole number.
        """  # noqa: DOC502 - raised by what it calls
        values = record.values
        if isinstance(values.get("data"), Mapping) and set(values) <= {"step", "data"}:
            values = {**values, **values["data"]}  # type: ignore[dict-item]
            del values["data"]
        metrics = self._without_settings(values)
        if self._take_sample(metrics, record.line):
            return
        step = self._step(metrics, record.line)
        numbers = dict(self._numbers(metrics, record.line))
        computed = self._from_lists(metrics)
        if numbers or computed:
            self._store(step, numbers, computed)

    def close_batch(self) -> None:
        """Count the samples that were read last: no more of their step will come."""
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self._last_keys = set()
            self._store(batch.step, {}, signals_of_batch(batch))

    def __len__(self) -> int:
        return len(self.steps)

    def _without_settings(self, values: Mapping[str, object]) -> dict[str, object]:
        metrics = {}
        for key, value in values.items():
            if key in CONFIG_KEYS and isinstance(value, Mapping):
                self.settings |= {
                    name.replace("/", "."): setting for name, setting in flatten(value)
                }
            else:
                metrics[key] = value
        return metrics

    def _step(self, metrics: Mapping[str, object], line: int) -> int | None:
        """The record's step.

        Raises:
            LogError: it is no whole number.
        """  # noqa: DOC502 - raised by what it calls
        for key in STEP_KEYS:
            if metrics.get(key) not in (None, ""):
                return self._whole(metrics[key], key, line)
        train = metrics.get("train") or metrics.get("training")
        if isinstance(train, Mapping) and train.get("global_step") is not None:
            return self._whole(train["global_step"], "train/global_step", line)
        return None

    def _whole(self, value: object, key: str, line: int) -> int:
        """The number of steps in `value`.

        Raises:
            LogError: it is no whole number.
        """
        try:
            number = parse(value)
            whole = int(number) if isinstance(number, float) else None
        except (ValueError, OverflowError):
            number, whole = None, None
        if whole is None or whole != number or abs(whole) > 2**61:
            raise LogError(
                f"{self.path}:{line}: key {key!r}: wanted a whole number of steps, got {value!r}"
            )
        self.has_steps = True
        return whole

    def _numbers(self, metrics: Mapping[str, object], line: int) -> Iterator[tuple[str, float]]:
        for key, value in flatten(metrics):
            if key in STEP_KEYS or not self._keeps(key):
                continue
            try:
                parsed = parse(value)
            except ValueError as error:
                self.refused.setdefault(key, f"{self.path}:{line}: key {key!r}: {error}")
                continue
            if isinstance(parsed, list):
                self.averaged[key] = None
                parsed = single(parsed, key)
            if parsed is not None:
                yield key, parsed
            elif value is None:
                self._null(key)
                yield key, np.nan

    def _null(self, key: str) -> None:
        column = self.columns.setdefault(key, Column())
        column.nulls += 1

    def _keeps(self, key: str) -> bool:
        kept = self._kept.get(key)
        if kept is None:
            kept = self._is_known(key)
            if not kept and len(self.unknown) < MOST_UNKNOWN:
                self.unknown[key] = None
            if len(self._kept) < 4 * MOST_UNKNOWN:
                self._kept[key] = kept
        return kept

    def _is_known(self, key: str) -> bool:
        if key in self._mapped:
            return True
        return any(match(one, key) or match_stated(one, key) for one in self._dialects)

    def _from_lists(self, metrics: Mapping[str, object]) -> dict[str, float]:
        """Signals from lists of rewards in a step's record."""
        for key, value in flatten(metrics):
            if key.rpartition("/")[2] in LIST_KEYS and is_list(value):
                try:
                    groups = groups_in(value, self._group_size())
                except ValueError:
                    continue
                self.computed_from = f"the rewards in {key}"
                return signals_of_groups(groups)
        return {}

    def _group_size(self) -> int | None:
        sizes = [value for key, value in self.settings.items() if key.endswith(GROUP_SIZES)]
        return next((size for size in sizes if isinstance(size, int)), None)

    def _take_sample(self, metrics: Mapping[str, object], line: int) -> bool:
        """Add one sample of a log with a line per sample; False where `metrics` is no sample."""
        group = next((metrics[key] for key in GROUP_KEYS if key in metrics), None)
        reward = next((metrics[key] for key in REWARD_KEYS if key in metrics), None)
        of_a_step = any(key in metrics for key in STEP_ONLY_KEYS)
        if group is None or of_a_step or not isinstance(reward, int | float):
            return False
        step = self._step(metrics, line)
        if self._batch is None or self._batch.step != step:
            self.close_batch()
            self._batch = Batch(step)
        name = group if isinstance(group, int) else hash(str(group))
        self._batch.groups.setdefault(name, []).append(float(reward))
        check = next((metrics[key] for key in CHECK_KEYS if key in metrics), None)
        if isinstance(check, int | float):
            self._batch.checks.append(float(check))
        self.computed_from = "the samples' own rewards"
        return True

    def _store(
        self, step: int | None, numbers: dict[str, float], computed: dict[str, float]
    ) -> None:
        """Add a row, or complete the last one where it is the same step's."""
        known = NO_STEP if step is None else step
        keys = set(numbers) | {f"computed {name}" for name in computed}
        same = known != NO_STEP and len(self.steps) > 0 and self.steps[-1] == known
        if not same or self._last_keys & keys:
            self.steps.append(known)
            self._last_keys = set()
        self._last_keys |= keys
        row = len(self.steps) - 1
        for columns, found in ((self.columns, numbers), (self.computed, computed)):
            for key, value in found.items():
                column = columns.setdefault(key, Column())
                column.rows.append(row)
                column.values.append(value)
                self.count += 1
                if column.nulls > len(column.null_rows):
                    column.null_rows.append(row)
