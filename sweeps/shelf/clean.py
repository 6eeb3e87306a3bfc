"""What a sweep leaves behind that nobody needs any more."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from grpo_core.errors import GrpoError
from sweeps.record import SweepRecord

SCRATCH = ("tune", "checkpoints")
"""What the scheduler wrote, and checkpoints of trials that have ended."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was removed."""

    paths: tuple[Path, ...]
    """Folders and files."""
    bytes: int
    """Their size."""


def clean(record: SweepRecord, *, rollouts: bool = False, unfinished: bool = False) -> Cleaned:
    """Remove what neither the results nor MLflow need; steps, ends and the report stay.

    Args:
        record: The sweep.
        rollouts: Also the recorded batches.
        unfinished: Also the checkpoints of trials that have not ended: those begin anew.

    Raises:
        GrpoError: a driver has the sweep now.
    """
    if record.driven():
        raise GrpoError(f"sweep {record.folder.name!r} is running; `sweeps cancel` ends it")
    left = {spec.id for spec in record.unfinished()}
    paths = []
    for name in SCRATCH:
        folder = record.folder / name
        entries = sorted(folder.iterdir()) if folder.is_dir() else []
        keep = left if name == "checkpoints" and not unfinished else set()
        paths += [entry for entry in entries if entry.name not in keep]
    if rollouts and (record.folder / "rollouts").is_dir():
        paths.append(record.folder / "rollouts")
    size = sum(_size(path) for path in paths)
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return Cleaned(tuple(paths), size)


def _size(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return sum(_size(entry) for entry in path.iterdir())
    return path.lstat().st_size
