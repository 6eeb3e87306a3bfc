"""Kills parts of small sweeps at random moments; counts what is lost, repeated or different.

Run by hand or by `make chaos ROUNDS=20`: python benchmarks/chaos.py [--rounds N] [--seed N]

A small sweep is run once undisturbed. Then every round runs it anew under another name, with one to
three faults at random moments, and the same command again until it is done:

    trial      kill -9 of a process that serves trials
    driver     kill -9 of `sweeps run`
    server     kill -9 of the MLflow server, which comes back some seconds later
    interrupt  one SIGINT to the driver's process group, as a terminal sends it
    hang       SIGSTOP of a process that serves trials, with --stuck-after
    node       kill -9 of the raylet of the second node; such rounds run on a cluster of two nodes

At its end a round has `sweeps sync` deliver what is left. Then the results, every recorded step and
every point in MLflow are compared with the undisturbed sweep: a point is one metric at one step.
"""

import argparse
import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.record import SweepRecord
from sweeps.tracking.translate import batches, first_nonfinite, trial_end

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
SPACE = """
name: chaos
question: Is anything lost?
base:
  actor: {kl_ctl: 0.0, adv_norm: {mean_level: batch, std_level: batch}}
  evaluation: {prompts: 64, every: 10}
space:
  change:
    healthy: {}
    group norm: {actor.reward_norm: {mean_level: group, std_level: group}}
    kl: {actor.kl_ctl: 0.1}
    lr x20: {actor.optimizer.lr: 1.0e-2}
    dead: {actor.reward_scaling: 0.0}
    twin: {actor.kl_estimator: k3}
seeds: 2
budget: {steps: 60}
"""
FAULTS = ("trial", "driver", "server", "interrupt", "hang", "node")
STUCK_SECONDS = 40.0
"""More than a process needs for its first report on a busy machine: Python, torch, a chunk."""
MOST_RUNS = 8
"""Runs of the command in one round before it counts as stuck."""
PATIENCE = 600.0
"""Seconds that one run of the command may take."""
CONTINUES = {3, -signal.SIGKILL, -signal.SIGINT}
"""Exit codes after which the same command goes on with the sweep."""
LINGER_SECONDS = 30.0
"""That Ray's processes may outlive a driver that was killed."""
STOPPED_STATE = "T"
"""The kernel's letter for a process that SIGSTOP has stopped."""
TRIAL_TITLE = "ray::ResourceTrainable"
"""Begins the title that Ray gives to a process that serves trials with `with_resources`."""

Point = tuple[str, str, int]
"""Trial, metric, step."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens, and when."""

    kind: str
    """One of FAULTS."""
    after_steps: int
    """Recorded steps of the whole sweep that it waits for."""
    delay: float
    """Seconds from then on."""


@dataclass(slots=True)
class Round:
    """What was done to one sweep and what came of it."""

    name: str
    """Name of its sweep."""
    faults: tuple[Fault, ...]
    """Planned."""
    injected: list[str] = field(default_factory=list)
    """Kinds of those that met a target before the sweep ended."""
    codes: list[int] = field(default_factory=list)
    """Exit code of each run of the command; the last is 0 when all went well."""
    seconds: float = 0.0
    """Wall-clock time, synchronization included."""
    lost: int = 0
    """Steps and points that are missing."""
    duplicated: int = 0
    """Points in MLflow that are there more than once, or should not be there."""
    left_over: int = 0
    """Processes of the round that were still there some time after its end."""
    table_equal: bool = False
    """The results are those of the undisturbed sweep."""
    curves_equal: bool = False
    """So is every recorded step, to the last digit."""

    @property
    def right(self) -> bool:
        """Nothing is lost, repeated or different."""
        return self.table_equal and self.curves_equal and not self.lost + self.duplicated


def draw_rounds(count: int, rng: random.Random, steps: int, kinds: tuple[str, ...]) -> list[Round]:
    """Rounds whose first fault takes turns; up to two more of any kind that needs no cluster."""
    common = [kind for kind in kinds if kind != "node"] or ["trial"]
    rounds = []
    for number in range(count):
        chosen = [kinds[number % len(kinds)], *rng.choices(common, k=rng.randrange(3))]
        faults = [Fault(kind, rng.randrange(steps), rng.uniform(0.0, 2.0)) for kind in chosen]
        faults.sort(key=lambda fault: fault.after_steps)
        rounds.append(Round(f"round-{number + 1:03d}", tuple(faults)))
    return rounds


# --- processes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Process:
    """A living process."""

    pid: int
    parent: int
    session: int
    state: str
    """The kernel's letter: T is stopped."""
    command: str
    """Its command line, or the title that it gave itself."""


def living() -> dict[int, Process]:
    """Every process of the machine that is not a zombie."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            state, parent, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            command = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            pid = int(stat.parent.name)
            if state != "Z":
                found[pid] = Process(pid, int(parent), int(session), state, command)
    return found


def family(roots: set[int]) -> list[Process]:
    """The processes of these sessions and all that they started."""
    processes = living()
    found = {process.pid for process in processes.values() if process.session in roots}
    while more := {p.pid for p in processes.values() if p.parent in found} - found:
        found |= more
    return [processes[pid] for pid in sorted(found)]


def end_family(root: int) -> None:
    """Kill a session and all that it started."""
    for process in family({root}):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def trial_processes(roots: set[int]) -> list[int]:
    """Processes that serve trials and are not stopped."""
    return [
        process.pid
        for process in family(roots)
        if process.command.startswith(TRIAL_TITLE) and process.state != STOPPED_STATE
    ]


def free_port() -> int:
    """A port below those that Ray gives to workers.

    Raises:
        RuntimeError: all are taken.
    """
    for port in secrets.SystemRandom().sample(range(6379, 9999), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise RuntimeError("no free port between 6379 and 9999")


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Return when it holds.

    Raises:
        TimeoutError: it did not in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.2)


class Server:
    """An MLflow server of our own on SQLite."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "server.db"
        self._folder = folder
        self._port = free_port()
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.back_at: float | None = None

    def start(self) -> None:
        """Start it; it answers after 10 to 50 s."""
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.database}"]
        command += ["--artifacts-destination", str(self._folder / "artifacts")]
        command += ["--host", "127.0.0.1", "--port", str(self._port)]
        quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=clean_environment() | quiet, stdout=log, stderr=log, **OWN_SESSION
            )
        self.back_at = None

    def kill(self) -> None:
        """Kill it and its workers with -9."""
        if self._process is not None:
            end_family(self._process.pid)
            self._process.wait()
            self._process = None

    def ready(self) -> None:
        """Return when it answers; starts it where it is down."""
        if self._process is None:
            self.start()
        wait_for(self._answers, 180.0, "the MLflow server")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2.0):  # noqa: S310
                return True
        except (urllib.error.URLError, OSError):
            return False


class Cluster:
    """Two nodes on this machine, each with one CPU."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._token = folder / "token"
        self._head: int | None = None
        self._worker: int | None = None

    @property
    def sessions(self) -> set[int]:
        """Sessions of both nodes' processes."""
        return {session for session in (self._head, self._worker) if session is not None}

    @property
    def environment(self) -> dict[str, str]:
        """What a driver that joins needs."""
        address = f"127.0.0.1:{self._port}"
        return {"RAY_ADDRESS": address, "RAY_AUTH_TOKEN_PATH": str(self._token)}

    def ready(self) -> None:
        """Start what is not there."""
        if self._head is None:
            self._token.touch(mode=0o600)
            self._token.write_text(secrets.token_hex(32))
            ports = {"port": self._port, "ray-client-server-port": free_port()}
            self._head = self._start("head", ["--head", "--include-dashboard=false"], ports)
        if not self._raylets(self._worker):
            self._worker = self._start("worker", [f"--address=127.0.0.1:{self._port}"], {})

    def kill_worker_node(self) -> bool:
        """Kill the second node's raylet with -9; False where it is gone already."""
        raylets = self._raylets(self._worker)
        for pid in raylets:
            os.kill(pid, signal.SIGKILL)
        return bool(raylets)

    def stop(self) -> None:
        """Kill both nodes."""
        for session in self.sessions:
            end_family(session)

    def _raylets(self, session: int | None) -> list[int]:
        processes = [] if session is None else family({session})
        return [p.pid for p in processes if p.command.partition(" ")[0].endswith("/raylet")]

    def _start(self, name: str, options: list[str], ports: dict[str, int]) -> int:
        ports = ports | {"dashboard-agent-listen-port": free_port()}
        command = [str(BIN / "ray"), "start", "--num-cpus=1", "--disable-usage-stats", *options]
        command += [f"--{key}={value}" for key, value in ports.items()]
        command += [f"--temp-dir={self._folder / name}"] if name == "head" else []
        environment = clean_environment() | self.environment | {"RAY_AUTH_MODE": "token"}
        environment["RAY_ADDRESS"] = ""
        with (self._folder / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, **OWN_SESSION
            )
        if started.wait(300.0):
            raise RuntimeError(f"ray start failed; see {self._folder / f'{name}.log'}")
        return started.pid


OWN_SESSION: dict[str, Any] = {"start_new_session": True, "cwd": ROOT}


def clean_environment() -> dict[str, str]:
    """This environment without what would lead a sweep elsewhere."""
    foreign = ("RAY_", "TUNE_", "MLFLOW_", "GRPO_SWEEPS_STORAGE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"PYTHONPATH": str(ROOT)}


# --- a round -------------------------------------------------------------------------------------


class Chaos:
    """Runs sweeps in a folder and disturbs them."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self._rng = rng
        self.server = Server(folder)
        self.cluster = Cluster(folder)
        self._sessions: set[int] = set()
        (folder / "chaos.yaml").write_text(SPACE)

    def record(self, name: str) -> SweepRecord:
        """The record of one sweep."""
        return SweepRecord(self.folder / "results" / name)

    def run(self, this: Round) -> None:
        """Run a sweep to its end with the round's faults, and deliver it to MLflow."""
        began = time.monotonic()
        clustered = any(fault.kind == "node" for fault in this.faults)
        left = list(this.faults)
        self.server.ready()
        if clustered:
            self.cluster.ready()
        while len(this.codes) < MOST_RUNS:
            this.codes.append(self._run_once(this, left, clustered=clustered))
            self.server.ready()
            if this.codes[-1] not in CONTINUES:
                break
        self._sweeps("sync", this.name)
        this.seconds = time.monotonic() - began
        this.left_over = self._clear_up()

    def results(self, name: str) -> dict[str, Any]:
        """What `sweeps results --json` prints, without the sweep's name."""
        printed: dict[str, Any] = json.loads(self._sweeps("results", name, "--json"))
        return {key: value for key, value in printed.items() if key != "sweep"}

    def stop(self) -> None:
        """End everything that was started."""
        for session in self._sessions:
            end_family(session)
        self.server.kill()
        self.cluster.stop()

    def _clear_up(self) -> int:
        """How many processes of the drivers so far do not end by themselves; those are killed."""
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not family(self._sessions), LINGER_SECONDS, "processes of a driver")
        left = family(self._sessions)
        for process in left:
            print(f"left over: {process}", file=sys.stderr)
        for session in self._sessions:
            end_family(session)
        self._sessions.clear()
        return len(left)

    def _run_once(self, this: Round, left: list[Fault], *, clustered: bool) -> int:
        """One run of the command; takes from `left` what it injects."""
        options = ["--name", this.name, "--stuck-after", str(STUCK_SECONDS)]
        command = self._command("run", str(self.folder / "chaos.yaml"), *options)
        environment = self._environment() | (self.cluster.environment if clustered else {})
        with (self.folder / f"{this.name}.log").open("ab") as log:
            driver = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, **OWN_SESSION
            )
        self._sessions.add(driver.pid)
        deadline = time.monotonic() + PATIENCE
        due: dict[int, float] = {}
        while driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            self._inject(this, left, due, driver)
            if self.server.back_at is not None and time.monotonic() > self.server.back_at:
                self.server.start()
        driver.kill()
        return driver.wait()

    def _inject(
        self, this: Round, left: list[Fault], due: dict[int, float], driver: "subprocess.Popen[Any]"
    ) -> None:
        """Do what is due; a fault without a target now waits for one."""
        recorded = self.recorded(this.name)
        now = time.monotonic()
        for fault in list(left):
            if recorded < fault.after_steps or now < due.setdefault(id(fault), now + fault.delay):
                continue
            if self._do(fault.kind, driver):
                this.injected.append(fault.kind)
                left.remove(fault)
                return

    def _do(self, kind: str, driver: "subprocess.Popen[Any]") -> bool:
        """Whether the fault met its target."""
        match kind:
            case "driver":
                driver.kill()
            case "interrupt":
                os.killpg(driver.pid, signal.SIGINT)
            case "server":
                if self.server.back_at is not None:
                    return False
                self.server.kill()
                self.server.back_at = time.monotonic() + self._rng.uniform(2.0, 8.0)
            case "node":
                return self.cluster.kill_worker_node()
            case _:
                return self._hit_trial(kind, {driver.pid, *self.cluster.sessions})
        return True

    def _hit_trial(self, kind: str, sessions: set[int]) -> bool:
        candidates = trial_processes(sessions)
        if not candidates:
            return False
        pid = self._rng.choice(candidates)
        try:
            os.kill(pid, signal.SIGSTOP if kind == "hang" else signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def recorded(self, name: str) -> int:
        """Steps of all trials of a sweep."""
        trials = self.record(name).folder / "trials"
        return sum(path.read_bytes().count(b"\n") for path in trials.glob("*.jsonl"))

    def _sweeps(self, *words: str) -> str:
        done = subprocess.run(
            self._command(*words),
            env=self._environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"sweeps {' '.join(words)}: {done.stderr}")
        return done.stdout

    def _command(self, *words: str) -> list[str]:
        storage = ["--storage", str(self.folder / "results")]
        return [sys.executable, "-m", "sweeps", *words, *storage]

    def _environment(self) -> dict[str, str]:
        return clean_environment() | {"MLFLOW_TRACKING_URI": self.server.uri}


# --- what came of it -----------------------------------------------------------------------------


def expected_points(record: SweepRecord) -> set[Point]:
    """Every point that MLflow has to hold of a record, once."""
    points: set[Point] = set()
    for spec in record.header().trials:
        steps, end = record.steps(spec.id), record.end(spec.id)
        nonfinite = first_nonfinite(steps)
        for batch in batches(steps, None if nonfinite is None else nonfinite[0]):
            points |= {(spec.id, point.key, point.step) for point in batch}
        if end is not None:
            last = trial_end(end, nonfinite).points
            points |= {(spec.id, point.key, point.step) for point in last}
    return points


def stored_points(database: Path, sweep: str) -> Counter[Point]:
    """How often MLflow holds each point of a sweep, over all runs of a trial."""
    query = """
        SELECT tags.value, metrics.key, metrics.step, COUNT(*)
        FROM metrics
        JOIN runs ON runs.run_uuid = metrics.run_uuid
        JOIN experiments ON experiments.experiment_id = runs.experiment_id
        JOIN tags ON tags.run_uuid = metrics.run_uuid AND tags.key = 'trial_id'
        WHERE experiments.name = ?
        GROUP BY tags.value, metrics.key, metrics.step
    """
    with contextlib.closing(sqlite3.connect(database)) as store:
        rows = store.execute(query, (sweep,))
        return Counter({(trial, key, step): count for trial, key, step, count in rows})


def differences(wanted: set[Point], stored: Counter[Point]) -> tuple[int, int]:
    """How many points are missing, and how many are there too often or should not be there."""
    surplus = sum(count - (point in wanted) for point, count in stored.items())
    return len(wanted - set(stored)), surplus


def curves(record: SweepRecord) -> dict[str, str]:
    """Every trial's recorded steps, as they stand on disk."""
    return {path.stem: path.read_text() for path in record.folder.glob("trials/*.jsonl")}


def compare(chaos: Chaos, this: Round, quiet: Round) -> None:
    """Count what is missing, repeated or different in a round."""
    undisturbed = chaos.record(quiet.name)
    wanted = expected_points(undisturbed)
    stored = stored_points(chaos.server.database, this.name)
    before, after = curves(undisturbed), curves(chaos.record(this.name))
    unrecorded = sum(
        max(0, text.count("\n") - after.get(trial, "").count("\n"))
        for trial, text in before.items()
    )
    this.lost, this.duplicated = differences(wanted, stored)
    this.lost += unrecorded
    this.curves_equal = before == after
    finished = this.codes[-1] == 0
    this.table_equal = finished and chaos.results(this.name) == chaos.results(quiet.name)


def show(this: Round) -> None:
    """One line per round."""
    faults = " ".join(f"{f.kind}@{f.after_steps}+{f.delay:.1f}s" for f in this.faults)
    codes = ",".join(str(code) for code in this.codes)
    verdict = "ok" if this.right else "WRONG"
    print(
        f"{this.name}  {verdict:5}  {this.seconds:5.0f} s  exit {codes:10}  lost {this.lost}  "
        f"duplicated {this.duplicated}  left over {this.left_over}  "
        f"planned: {faults}  injected: {' '.join(this.injected)}",
        flush=True,
    )


def show_table(rounds: list[Round], quiet: Round) -> None:
    """One row per kind of fault, and the line that says it all."""
    print(f"\nundisturbed: {quiet.seconds:.0f} s")
    print("fault       injected  rounds  tables equal  curves equal  median s")
    for kind in FAULTS:
        hit = [r for r in rounds if kind in r.injected]
        if hit:
            times = sum(r.injected.count(kind) for r in hit)
            tables, same = sum(r.table_equal for r in hit), sum(r.curves_equal for r in hit)
            seconds = statistics.median(r.seconds for r in hit)
            row = f"{kind:10}  {times:8}  {len(hit):6}  {tables:12}  {same:12}  {seconds:8.0f}"
            print(row)
    lost, duplicated = sum(r.lost for r in rounds), sum(r.duplicated for r in rounds)
    equal = sum(r.table_equal for r in rounds)
    print(f"rounds={len(rounds)} lost={lost} duplicated={duplicated} tables_equal={equal}")


def run_all(chaos: Chaos, count: int, rng: random.Random, kinds: tuple[str, ...]) -> list[Round]:
    """The undisturbed sweep and every round, each shown as it ends.

    Raises:
        RuntimeError: the undisturbed sweep failed.
    """
    quiet = Round("quiet", ())
    chaos.run(quiet)
    if quiet.codes != [0]:
        raise RuntimeError(f"the undisturbed sweep ended with {quiet.codes}: {quiet.name}.log")
    compare(chaos, quiet, quiet)
    show(quiet)
    rounds = draw_rounds(count, rng, chaos.recorded(quiet.name), kinds)
    for this in rounds:
        chaos.run(this)
        compare(chaos, this, quiet)
        show(this)
    return [quiet, *rounds]


def main() -> None:
    """Run the rounds; exit code 1 if anything was lost, repeated or different."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS)
    arguments = parser.parse_args()
    # So that whoever ends this script leaves nothing of it behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rng = random.Random(arguments.seed)  # noqa: S311 - moments, no secrets
    # Not a deep folder: the paths of Ray's sockets may not be longer than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"in {folder}, kept if anything goes wrong", file=sys.stderr)
    chaos = Chaos(folder, rng)
    try:
        quiet, *rounds = run_all(chaos, arguments.rounds, rng, tuple(arguments.faults))
    finally:
        chaos.stop()
    show_table(rounds, quiet)
    if not all(this.right for this in (quiet, *rounds)):
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
