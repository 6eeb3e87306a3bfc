"""Sweeps that tests start as a user does, watch, disturb and compare."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.record import SweepRecord

ROOT = Path(__file__).parents[1]
PATIENCE = 400.0
"""Seconds for what takes 40 on two quiet cores."""


@dataclass(frozen=True)
class RunningSweep:
    """One sweep's files and the commands on it."""

    work: Path
    """Working directory; MLflow's database is there."""
    space: Path
    """The search-space file, named after the sweep."""
    storage: Path
    """Folder of the record."""

    @property
    def name(self) -> str:
        return self.space.stem

    @property
    def record(self) -> SweepRecord:
        return SweepRecord(self.storage / self.name)

    def start(self, command: str, *options: str) -> "subprocess.Popen[str]":
        """Start `sweeps COMMAND` in a session of its own, as a terminal gives it one."""
        subject = str(self.space) if command == "run" else self.name
        foreign = ("RAY_ADDRESS", "GRPO_SWEEPS_STORAGE", "MLFLOW_TRACKING_URI")
        kept = {name: value for name, value in os.environ.items() if name not in foreign}
        words = [command, subject, "--storage", str(self.storage), *options]
        return subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", "sweeps", *words],
            cwd=self.work,
            env=kept | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(self.work)])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run it to its end."""
        return ended(self.start(command, *options))

    def steps(self) -> int:
        """Recorded steps of all trials."""
        files = self.record.folder.glob("trials/*.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in files)

    def outcome(self) -> tuple[dict[str, Any], dict[str, str]]:
        """What `sweeps results --json` prints, and every curve as it stands on disk."""
        printed = self.run("results", "--json")
        assert printed.returncode == 0, printed.stderr
        results: dict[str, Any] = json.loads(printed.stdout)
        files = sorted(self.record.folder.glob("trials/*.jsonl"))
        return results, {path.stem: path.read_text() for path in files}


def make_sweep(work: Path, text: str, name: str, storage: Path | None = None) -> RunningSweep:
    """A search-space file in an existing folder."""
    space = work / f"{name}.yaml"
    space.write_text(text)
    return RunningSweep(work, space, storage or work / "sweep_results")


def ended(process: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
    """The process at its end, with what it printed."""
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Return when it holds, while the process lives.

    Raises:
        AssertionError: the process ended before, or it took too long.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode}: {process.communicate()}")
        if time.monotonic() > deadline:
            raise AssertionError("took too long")
        time.sleep(0.05)
