"""Sweeps in a storage folder: begun, gone on with, or found again."""

import os
import re
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from grpo_core.errors import ConfigError
from sweeps.plan import Plan
from sweeps.record import SweepHeader, SweepRecord
from sweeps.workspace import default_storage

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
"""What a sweep may be called: it names a folder."""


def open_sweep(
    planned: Plan, storage: Path | None, name: str | None, *, resume: bool
) -> SweepRecord:
    """The record of a planned sweep: a new one, or an existing one of equal content.

    Args:
        planned: What is to run.
        storage: Folder of the sweeps' records; None: the default one.
        name: Another name than the search space's.
        resume: Insist on an existing sweep.

    Raises:
        ConfigError: the name is none, or taken by another content, there is nothing to resume, or
            the folder cannot be written.
    """
    if name is not None and not re.fullmatch(NAME, name):
        raise ConfigError(
            [f"--name: got {name!r}, wanted letters, digits, `_`, `.` or `-`, 100 at most"]
        )
    folder = (storage or default_storage()) / (name or planned.space.name)
    record = SweepRecord(folder)
    try:
        if not record.exists():
            _begin(record, planned, resume=resume)
        elif record.header().content != planned.content:
            problem = (
                f"sweep {folder.name!r} exists in {folder.parent} with another content; give this "
                "one another name (--name), or another --storage"
            )
            raise ConfigError([problem])
        elif not os.access(folder / "trials", os.W_OK):
            raise ConfigError([f"--storage: {folder / 'trials'}: cannot be written"])
    except OSError as error:
        raise ConfigError([f"--storage: {folder}: cannot be written: {error.strerror}"]) from error
    return record


def find_sweep(sweep: str, storage: Path | None) -> SweepRecord:
    """The record of a sweep, by its name in the storage folder or by its own folder.

    Raises:
        ConfigError: there is no such sweep.
    """
    shelf = storage or default_storage()
    for folder in (shelf / sweep, Path(sweep)):
        record = SweepRecord(folder)
        if record.exists():
            return record
    names = sorted(path.parent.name for path in shelf.glob("*/sweep.json"))
    hint = f"; there are {', '.join(names)}" if names else ""
    raise ConfigError([f"sweep {sweep!r} is not in {shelf}{hint}"])


def package_version() -> str:
    """The version of this package; `unknown` where it is not installed."""
    try:
        return version("grpo-sweeps")
    except PackageNotFoundError:
        return "unknown"


def _begin(record: SweepRecord, planned: Plan, *, resume: bool) -> None:
    """Write a new sweep's header.

    Raises:
        ConfigError: an existing sweep was wanted.
    """
    space, folder = planned.space, record.folder
    if resume:
        raise ConfigError([f"--resume: there is no sweep {folder.name!r} in {folder.parent}"])
    record.create(
        SweepHeader(
            name=folder.name,
            content=planned.content,
            question=space.question,
            trials=planned.trials,
            not_run=planned.not_run,
            source=space.source,
            version=package_version(),
            created=time.time(),
            base={} if space.base is None else space.base.model_dump(),
        )
    )
