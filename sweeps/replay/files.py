"""Our own files of recorded rollouts: safetensors whose metadata holds a JSON header."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from grpo_core.config import TaskConfig, TrialConfig
from grpo_core.errors import ConfigError
from grpo_core.rollout import RolloutBatch
from sweeps.replay.recording import PER_ANSWER, PER_TOKEN, Array, Recording, check_arrays

FORMAT_VERSION = 1
"""Raised when a reader of the version before would misread a file."""
HEADER = "grpo_sweeps_rollouts"
"""Key of the header in the metadata."""
MOST_MEGABYTES = 256.0
"""What a folder of recordings may hold unless told otherwise."""
SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of a recording."""

    path: Path
    """Where it lies."""
    dropped: tuple[Path, ...]
    """Older recordings that had to make room."""

    @property
    def said(self) -> str:
        """The same in a line."""
        if not self.dropped:
            return f"recorded {self.path}"
        names = ", ".join(path.name for path in self.dropped)
        return f"recorded {self.path}; dropped the oldest to make room: {names}"


def record_rollout(  # noqa: PLR0913 - one argument per thing that may be recorded
    batch: RolloutBatch,
    reference_logprobs: Tensor | None,
    path: Path,
    *,
    config: TrialConfig | None = None,
    proximal_logprobs: Tensor | None = None,
    values: Tensor | None = None,
    current_version: int | None = None,
    most_megabytes: float = MOST_MEGABYTES,
) -> Kept:
    """Write a batch in one piece; its folder keeps at most `most_megabytes`, the newest.

    Args:
        batch: What was sampled.
        reference_logprobs: Reference policy, prediction-aligned; None where not computed.
        path: File to write, ending in .safetensors.
        config: The configuration that sampled it.
        proximal_logprobs: The policy about to be updated; None where it is the sampler.
        values: Value of each position; None without a critic.
        current_version: Policy version about to be trained; None means the batch's own.
        most_megabytes: Limit of the folder, in 10^6 bytes; the new file itself always stays.

    Returns:
        Where it is, and which recordings were dropped.
    """
    sizes = batch.group_sizes
    tensors = {
        "rewards": batch.rewards.float(),
        "group_ids": torch.repeat_interleave(torch.arange(len(sizes)), sizes.cpu()),
        "passed": batch.passed,
        "truncated": batch.truncated,
        "lengths": batch.lengths,
        "logprobs": batch.behaviour_logprobs,
        "mask": batch.loss_mask,
        "versions": torch.where(batch.loss_mask, batch.version, -1),
    }
    optional = {
        "reference_logprobs": reference_logprobs,
        "proximal_logprobs": proximal_logprobs,
        "values": values,
    }
    tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {
        "format_version": FORMAT_VERSION,
        "alignment": "prediction",
        "tensors": {
            name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
            for name, tensor in ready.items()
        },
        "group_sizes": sizes.tolist(),
        "policy_version": batch.version,
        "current_version": batch.version if current_version is None else current_version,
        "config": None if config is None else config.model_dump(mode="json"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    save_file(ready, partial, metadata={HEADER: json.dumps(header)})
    partial.replace(path)
    return Kept(path, _make_room(path, most_megabytes))


def _make_room(path: Path, most_megabytes: float) -> tuple[Path, ...]:
    others = [other for other in path.parent.glob(f"*{SUFFIX}") if other != path]
    ages = {other: other.stat() for other in others}
    total = path.stat().st_size + sum(stat.st_size for stat in ages.values())
    dropped = []
    for other in sorted(ages, key=lambda other: (ages[other].st_mtime_ns, other.name)):
        if total <= most_megabytes * 1e6:
            break
        total -= ages[other].st_size
        other.unlink(missing_ok=True)
        dropped.append(other)
    return tuple(dropped)


def newest_recording(folder: Path) -> Path:
    """The newest recording of a folder.

    Raises:
        ConfigError: There is none.
    """
    found = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    if not found:
        raise ConfigError([f"{folder}: holds no recorded rollouts (*{SUFFIX})"])
    return found[-1]


def load_safetensors(path: Path) -> Recording:
    """Read a recording of ours.

    Raises:
        ConfigError: Lists everything that is wrong with the file.
    """
    header = _read_header(path)
    arrays = _read_tensors(path)
    problems = _header_problems(header, arrays)
    if problems:
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    config = header.get("config")
    recording = check_arrays(
        arrays,
        str(path),
        token_aligned=header.get("alignment") == "token",
        current_version=header.get("current_version"),
        task=_task(config, path),
    )
    return replace(recording, config=config)


def _read_header(path: Path) -> dict[str, Any]:
    _check_length(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise ConfigError([f"{path}: is no safetensors file: {error}"]) from error
    if HEADER not in metadata:
        raise ConfigError([f"{path}: is a safetensors file without the header {HEADER}"])
    try:
        header = json.loads(metadata[HEADER])
        version = int(header["format_version"])
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError([f"{path}: its header {HEADER} cannot be read: {error}"]) from error
    if version > FORMAT_VERSION:
        problem = (
            f"{path}: has format version {version}; this release reads up to {FORMAT_VERSION}, a "
            "newer one wrote it"
        )
        raise ConfigError([problem])
    return dict(header)


def _check_length(path: Path) -> None:
    """A safetensors file says at its beginning how long it is.

    Raises:
        ConfigError: The file is shorter, or cannot be read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            beginning = file.read(min(length, size))
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    if size < 8 or length > size - 8:
        raise ConfigError([f"{path}: is truncated (or no safetensors file): it has {size} bytes"])
    try:
        entries = json.loads(beginning)
        end = max((e["data_offsets"][1] for n, e in entries.items() if n != "__metadata__"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError([f"{path}: is no safetensors file"]) from error
    if size < 8 + length + end:
        raise ConfigError([f"{path}: is truncated: {size} bytes, wanted {8 + length + end}"])


def _read_tensors(path: Path) -> dict[str, Array]:
    known = {*PER_ANSWER, *PER_TOKEN}
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys() if name in known}  # noqa: SIM118
    return {
        name: np.asarray(t.float() if t.is_floating_point() else t) for name, t in tensors.items()
    }


def _header_problems(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[str]:
    listed = header.get("tensors", {})
    problems = [
        f"tensor {name} is missing, though the header lists it with shape {entry['shape']}"
        for name, entry in listed.items()
        if name not in arrays
    ]
    problems += [
        f"tensor {name} has shape {list(arrays[name].shape)}, wanted {entry['shape']} as its "
        "header says"
        for name, entry in listed.items()
        if name in arrays and list(arrays[name].shape) != entry["shape"]
    ]
    return problems


def _task(config: Mapping[str, Any] | None, path: Path) -> TaskConfig | None:
    if config is None:
        return None
    try:
        return TaskConfig.model_validate(config.get("task", {}))
    except ValidationError as error:
        raise ConfigError([f"{path}: its header names a task that is none: {error}"]) from error
