"""What the engine adds to the trials' own time: a sweep of short trials in a folder of its own.

Run by hand or by `make bench`: python benchmarks/sweep_overhead.py [--trials N] [--steps N]
Prints the wall time, the trials' own time, and what is left per trial and slot; start-up apart.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPACE = """
name: overhead
policy: tiny
task: think
base: {actor: {kl_ctl: 0.0, adv_norm: {mean_level: batch, std_level: batch}}}
space: {actor.optimizer.lr: [5.0e-4]}
seeds: %d
budget: {steps: %d}
"""


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder) / "overhead.yaml"
        space.write_text(SPACE % (arguments.trials, arguments.steps))
        started = time.time()
        command = [sys.executable, "-m", "sweeps", "run", str(space), "--storage", folder]
        environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        wall = time.time() - started
        ends = [
            json.loads(path.read_text()) for path in Path(folder).glob("overhead/trials/*.json")
        ]
    own = sum(end["seconds"] for end in ends)
    first = min(end["started"] for end in ends) - started
    slots = os.cpu_count() or 1
    left = wall - first - own / slots
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"trials                                {len(ends):>10}")
    print(f"wall                                  {wall:>10.1f} s")
    print(f"until the first trial has a process   {first:>10.1f} s")
    print(f"trials' own time, sum                 {own:>10.1f} s")
    print(f"left per trial and slot               {left * slots / len(ends):>10.2f} s")
    print(f"CPU of the driver and its children    {usage.ru_utime + usage.ru_stime:>10.1f} s")


if __name__ == "__main__":
    main()
