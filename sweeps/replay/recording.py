"""Arrays of one batch, from whatever file, checked and aligned."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grpo_core.config import TaskConfig
from grpo_core.errors import ConfigError
from grpo_core.pipeline import Experience
from grpo_core.replay import Recorded

Array = NDArray[Any]

PER_ANSWER = ("rewards", "group_ids", "passed", "truncated", "lengths")
"""Arrays with one entry per answer."""
PER_TOKEN = (
    "logprobs",
    "mask",
    "reference_logprobs",
    "proximal_logprobs",
    "values",
    "versions",
    "turn_ids",
)
"""Arrays with one entry per answer and position."""
REQUIRED = ("rewards", "logprobs", "mask", "group_ids")
FLOATS = ("rewards", "logprobs", "reference_logprobs", "proximal_logprobs", "values")
"""Arrays that have to be finite: `rewards` everywhere, the others where the mask is true."""
LOGPROBS = ("logprobs", "reference_logprobs", "proximal_logprobs")
IMPOSSIBLE = 1e-3
"""A log-prob above this is none; below it, rounding."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded batch and where it is from."""

    recorded: Recorded
    """The batch."""
    source: str
    """Path of the file."""
    notes: tuple[str, ...] = ()
    """What was taken for granted."""
    config: Mapping[str, Any] | None = None
    """The configuration that sampled it."""

    @property
    def shape(self) -> str:
        """How much there is, in words."""
        experience = self.recorded.experience
        rows, width = experience.loss_mask.shape
        sizes = experience.group_sizes
        groups = 0 if sizes is None else len(sizes)
        tokens = int(experience.loss_mask.sum())
        return f"{rows} answers in {groups} groups, {rows} x {width} positions, {tokens} trained"


def check_arrays(
    arrays: Mapping[str, Array],
    source: str,
    *,
    token_aligned: bool = False,
    current_version: int | None = None,
    task: TaskConfig | None = None,
) -> Recording:
    """Build a recording out of named arrays.

    Args:
        arrays: `rewards` [B], `group_ids` [B], `logprobs` [B, T], `mask` [B, T], and optionally
            `reference_logprobs`, `proximal_logprobs`, `values`, `versions`, `turn_ids` [B, T],
            `passed`, `truncated`, `lengths` [B].
        source: Where they are from, for messages.
        token_aligned: Entry t belongs to token t; otherwise to the prediction of token t + 1.
        current_version: Policy version about to be trained.
        task: The task that gave the rewards.

    Returns:
        The recording, rows of a group adjacent.

    Raises:
        ConfigError: Lists every array that is missing, unknown, misshapen or not finite.
    """
    problems = _shape_problems(arrays) or _value_problems(arrays)
    if problems:
        raise ConfigError([f"{source}: {problem}" for problem in problems])
    notes: list[str] = []
    tidy = {name: np.asarray(value) for name, value in arrays.items()}
    if token_aligned:
        tidy = {n: _shift(v, n) if n in PER_TOKEN else v for n, v in tidy.items()}
    tidy = _grouped(tidy, notes)
    experience = _experience(tidy, current_version)
    if "truncated" not in tidy:
        notes.append("not recorded: which answers were truncated")
    if "reference_logprobs" not in tidy:
        notes.append("not recorded: reference log-probs; cells with a KL term are not evaluated")
    if "versions" not in tidy:
        notes.append("not recorded: versions; taken as sampled by the policy about to be updated")
    recorded = Recorded(
        experience=experience,
        passed=torch.as_tensor(tidy["passed"].astype(bool)) if "passed" in tidy else None,
        task=task,
        knows_truncation="truncated" in tidy,
    )
    return Recording(recorded, source, tuple(notes))


def _shape_problems(arrays: Mapping[str, Array]) -> list[str]:
    known = (*PER_ANSWER, *PER_TOKEN)
    problems = [
        f"tensor {name} is missing; wanted {', '.join(REQUIRED)}"
        for name in REQUIRED
        if name not in arrays
    ]
    problems += [
        f"tensor {name} is not known; wanted some of {', '.join(known)}"
        for name in arrays
        if name not in known
    ]
    if problems or arrays["logprobs"].ndim != 2:
        if not problems:
            problems.append(
                f"tensor logprobs has shape {list(arrays['logprobs'].shape)}, wanted [B, T]"
            )
        return problems
    rows, width = arrays["logprobs"].shape
    for name, array in arrays.items():
        wanted = [rows] if name in PER_ANSWER else [rows, width]
        if list(array.shape) != wanted:
            problems.append(
                f"tensor {name} has shape {list(array.shape)}, wanted {wanted} as logprobs "
                f"[{rows}, {width}]"
            )
        elif array.dtype.kind not in "fiub":
            problems.append(f"tensor {name} has dtype {array.dtype}, wanted numbers")
    if not problems and not rows:
        problems.append("tensor logprobs has no row, wanted at least one answer")
    return problems


def _value_problems(arrays: Mapping[str, Array]) -> list[str]:
    mask = arrays["mask"].astype(bool)
    problems = []
    if not mask.any():
        problems.append("tensor mask is false everywhere: no token is trained on")
    for name in FLOATS:
        if name not in arrays:
            continue
        bad = ~np.isfinite(arrays[name].astype(np.float64))
        bad &= mask if bad.ndim == 2 else True
        if bad.any():
            place = ", ".join(f"{axis} {i}" for axis, i in zip(_AXES, _first(bad), strict=False))
            value = arrays[name][_first(bad)]
            problems.append(f"tensor {name} holds {value} (first at {place}; {bad.sum()} in all)")
        elif name in LOGPROBS and (arrays[name][mask] > IMPOSSIBLE).any():
            row, position = _first((arrays[name] > IMPOSSIBLE) & mask)
            problems.append(
                f"tensor {name} holds {arrays[name][row, position]:g} at row {row}, position "
                f"{position}; log-probs are at most 0"
            )
    return problems


_AXES = ("row", "position")


def _first(bad: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])


def _shift(array: Array, name: str) -> Array:
    """From entry t for token t to entry t for the prediction of token t + 1."""
    shifted = np.roll(array, -1, axis=1)
    shifted[:, -1] = -1 if name in {"versions", "turn_ids"} else 0
    return shifted


def _grouped(arrays: dict[str, Array], notes: list[str]) -> dict[str, Array]:
    """Rows of a group made adjacent, groups in order of their first row."""
    ids = arrays["group_ids"]
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first[inverse], kind="stable")
    if (order == np.arange(len(ids))).all():
        return arrays
    notes.append("rows were sorted by group")
    return {name: array[order] for name, array in arrays.items()}


def _experience(arrays: dict[str, Array], current_version: int | None) -> Experience:
    mask = torch.as_tensor(arrays["mask"].astype(bool))
    rows, width = mask.shape
    ends = torch.where(mask, torch.arange(width), -2).amax(1) + 2
    lengths = torch.as_tensor(arrays["lengths"].astype(np.int64)) if "lengths" in arrays else ends
    # The last predicted token lies one column behind its prediction.
    pad = max(int(lengths.max()) - width, 0)

    def table(name: str, empty: float) -> Tensor | None:
        if name not in arrays:
            return None
        kind = np.int64 if name in {"versions", "turn_ids"} else np.float32
        values = torch.as_tensor(arrays[name].astype(kind))
        return torch.nn.functional.pad(torch.where(mask, values, empty), (0, pad), value=empty)

    _, first, inverse = np.unique(arrays["group_ids"], return_index=True, return_inverse=True)
    sizes = np.bincount(inverse)[np.argsort(first)]
    truncated = torch.as_tensor(arrays["truncated"].astype(bool)) if "truncated" in arrays else None
    behaviour = table("logprobs", 0.0)
    assert behaviour is not None  # noqa: S101 - required above
    versions = table("versions", -1)
    if versions is not None and current_version is None:
        current_version = int(versions.max())
    return Experience(
        rewards=torch.as_tensor(arrays["rewards"].astype(np.float32)),
        loss_mask=torch.nn.functional.pad(mask, (0, pad)),
        lengths=lengths,
        truncated=torch.zeros(rows, dtype=torch.bool) if truncated is None else truncated,
        behaviour_logprobs=behaviour,
        group_sizes=torch.as_tensor(sizes),
        reference_logprobs=table("reference_logprobs", 0.0),
        proximal_logprobs=table("proximal_logprobs", 0.0),
        values=table("values", 0.0),
        versions=versions,
        turn_ids=table("turn_ids", -1),
        current_version=current_version,
    )


def first_groups(recording: Recording, count: int) -> Recording:
    """The first groups of a recording, said in its notes."""
    recorded = recording.recorded
    sizes = recorded.experience.group_sizes
    if sizes is None or count >= len(sizes):
        return recording
    rows = torch.arange(int(sizes[:count].sum()))
    part = replace(
        recorded,
        experience=replace(recorded.experience.rows(rows), group_sizes=sizes[:count]),
        passed=None if recorded.passed is None else recorded.passed[rows],
    )
    note = f"the first {count} of {len(sizes)} groups"
    return replace(recording, recorded=part, notes=(*recording.notes, note))
