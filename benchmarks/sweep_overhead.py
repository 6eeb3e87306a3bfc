"""What the engine adds to the trials' own time: sweeps of short trials in folders of their own.

Run by hand, by `make bench` or by `make bench-engine` (10, 100 and 1,000 trials):
python benchmarks/sweep_overhead.py [--trials N ...] [--steps N]

One row per size. Start-up is apart; the rest of the wall time, over all slots, that no trial spent
in its own steps is what the engine costs. CPU and memory are the driver's alone, without Ray's
processes. A write is one transaction on MLflow's database.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SPACE = """
name: overhead
policy: tiny
task: think
base:
  actor: {kl_ctl: 0.0, adv_norm: {mean_level: batch, std_level: batch}}
  evaluation: {prompts: 64, every: 0}
space: {actor.optimizer.lr: %s}
seeds: 1
budget: {steps: %d}
"""
"""One seed of many cells: racing has every cell wait for its earlier seeds."""
CHANGE_COUNTER = 24
"""Where a SQLite file counts its write transactions: 4 bytes, big-endian."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process used so far."""

    cpu: float
    """CPU seconds, its threads included, its children not."""
    memory: float
    """Most resident memory, 10^6 bytes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One sweep."""

    trials: int
    wall: float
    """Seconds of the whole command."""
    first: float
    """Seconds until the first trial has a process: Ray's start, imports."""
    own: float
    """Seconds in steps, sum over trials."""
    driver: Usage
    writes: int
    """Transactions on MLflow's database, beyond those that make an empty one."""

    @property
    def overhead(self) -> float:
        """Seconds per trial in one slot, the end of the sweep included."""
        return ((self.wall - self.first) * slots() - self.own) / self.trials


def slots() -> int:
    """Trials at once."""
    return len(os.sched_getaffinity(0))


def usage_of(pid: int) -> Usage | None:
    """What a living process used; None when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), None)
    if peak is None:  # a zombie has no memory
        return None
    cpu = (int(fields[11]) + int(fields[12])) / TICKS
    return Usage(cpu, int(peak.split()[1]) * 1024 / 1e6)


def watched(command: list[str], environment: dict[str, str]) -> Usage:
    """Run a command to its end; what its own process used.

    Raises:
        RuntimeError: it failed.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        usage = Usage(0.0, 0.0)
        while process.poll() is None:
            usage = usage_of(process.pid) or usage
            time.sleep(0.1)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(said.read().decode())
    return usage


def transactions(database: Path) -> int:
    """Write transactions that a SQLite database has seen."""
    with database.open("rb") as file:
        file.seek(CHANGE_COUNTER)
        return int(struct.unpack(">I", file.read(4))[0])


def empty_store(folder: Path) -> int:
    """Write transactions that it takes MLflow to make its tables."""
    script = "import mlflow, sys; mlflow.MlflowClient(sys.argv[1]).search_experiments()"
    database = folder / "empty.db"
    command = [sys.executable, "-c", script, f"sqlite:///{database}"]
    subprocess.run(command, check=True, capture_output=True)
    return transactions(database)


def measure(trials: int, steps: int) -> Measured:
    """Run one sweep."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        space = folder / "overhead.yaml"
        rates = [round(5e-4 * (1 + number / trials), 9) for number in range(trials)]
        space.write_text(SPACE % (rates, steps))
        store = folder / "mlflow.db"
        command = [sys.executable, "-m", "sweeps", "run", str(space), "--storage", name]
        started = time.time()
        driver = watched(command, os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{store}"})
        wall = time.time() - started
        files = folder.glob("overhead/trials/*.json")
        ends = [json.loads(path.read_text()) for path in files]
        return Measured(
            trials=len(ends),
            wall=wall,
            first=min(end["started"] for end in ends) - started,
            own=sum(end["seconds"] for end in ends),
            driver=driver,
            writes=transactions(store) - empty_store(folder),
        )


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[20])
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    print(
        f"{'trials':>6} {'wall s':>8} {'start s':>8} {'own s':>8} {'own s each':>10} "
        f"{'engine s each':>13} {'driver CPU s':>12} {'CPU ms each':>11} {'peak MB':>8} "
        f"{'writes each':>11}"
    )
    for trials in arguments.trials:
        m = measure(trials, arguments.steps)
        print(
            f"{m.trials:6} {m.wall:8.1f} {m.first:8.1f} {m.own:8.1f} {m.own / m.trials:10.2f} "
            f"{m.overhead:13.2f} {m.driver.cpu:12.1f} {m.driver.cpu / m.trials * 1e3:11.0f} "
            f"{m.driver.memory:8.0f} {m.writes / m.trials:11.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
