"""Golden cases as they lie on disk: an index in JSON, arrays in an .npz beside it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Case:
    """One reference computation."""

    id: str
    kind: str
    config: Mapping[str, Any]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Section:
    """The cases of one index."""

    name: str
    cases: tuple[Case, ...]


def load_sections(folder: Path) -> list[Section]:
    """Read every index in a folder.

    Args:
        folder: Where the .json and .npz files lie.

    Returns:
        One section per index, by name.

    Raises:
        FileNotFoundError: The folder holds no index.
    """
    indices = [
        path for path in sorted(folder.glob("*.json")) if "cases" in json.loads(path.read_text())
    ]
    if not indices:
        raise FileNotFoundError(
            f"wanted golden indices (*.json with `cases`) in {folder}, found none"
        )
    return [load_section(path) for path in indices]


def load_section(path: Path) -> Section:
    """Read one index and its arrays."""
    index = json.loads(path.read_text())
    with np.load(path.with_name(index["archive"])) as archive:
        arrays = {key: torch.from_numpy(archive[key]) for key in archive.files}
    cases = tuple(
        Case(
            id=entry["id"],
            kind=entry["kind"],
            config=entry["config"],
            inputs={name: arrays[array["key"]] for name, array in entry["inputs"].items()},
            outputs={name: arrays[array["key"]] for name, array in entry["outputs"].items()},
        )
        for entry in index["cases"]
    )
    return Section(index.get("section", path.stem), cases)
