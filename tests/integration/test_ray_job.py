"""A sweep as a job on a Ray head of its own: followed, read back, refused without token, resumed.

The cluster, its token, its storage and its MLflow store are in a folder of their own. What is
stopped at the end is the session that `ray start` opened and its descendants, never `ray stop`,
which ends every Ray process of the machine.
"""

import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    # MLflow uses what SQLAlchemy has deprecated.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.platform != "linux", reason="finds the cluster's processes in /proc"),
]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATIENCE = 400.0
"""Seconds for a command that takes 40 on two quiet cores."""
SPACE = """
name: {name}
question: Does a sweep run as a job?
base: {{actor: {{kl_ctl: 0.0}}}}
space:
  change:
    healthy: {{}}
    no signal: {{actor.reward_scaling: 0.0}}
seeds: 1
budget: {{steps: 24}}
implied: false
stop: "off"
"""


class Cluster:
    """One head, with a token of its own, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = folder / "results"
        self.store = f"sqlite:///{folder / 'mlflow.db'}"
        self.jobs = f"http://127.0.0.1:{free_port()}"
        self._session: int | None = None
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        foreign = ("RAY_", "TUNE_", "MLFLOW_", "GRPO_SWEEPS_STORAGE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.environment = kept | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # as in an activated environment
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_ADDRESS": self.jobs,
        }

    def start(self) -> None:
        # A fixed port of the default worker range (10002 and up) may be taken by a worker.
        ports = {
            "port": free_port(),
            "dashboard-port": self.jobs.rpartition(":")[2],
            "dashboard-agent-listen-port": free_port(),
            "ray-client-server-port": free_port(),
        }
        command = ["ray", "start", "--head", "--num-cpus=2", "--disable-usage-stats"]
        command += ["--include-dashboard=true", "--dashboard-host=127.0.0.1"]
        command += [f"--{name}={port}" for name, port in ports.items()]
        command += [f"--temp-dir={self.folder / 'ray'}"]
        starting = subprocess.Popen(  # noqa: S603 - our own command
            command,
            env=self.environment | {"RAY_ADDRESS": ""},
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._session = starting.pid
        assert starting.wait(PATIENCE) == 0

    def stop(self) -> None:
        if self._session is None:
            return
        for ending, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 30.0)):
            for pid in session_and_descendants(self._session):
                try:
                    os.kill(pid, ending)
                except ProcessLookupError:
                    continue
            if waits_for(lambda: not session_and_descendants(self._session), patience):
                return
        left = session_and_descendants(self._session)
        pytest.fail(f"processes of the cluster are left: {left}")

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`ray job submit` from the project's folder, as the README has it."""
        variables = {"env_vars": {"MLFLOW_TRACKING_URI": self.store}}
        options = ["--runtime-env-json", json.dumps(variables), "--working-dir", "."]
        return self.ray("job", "submit", *options, *arguments)

    def ray(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run("ray", *arguments, env=self.environment | variables)

    def results(self, sweep: str) -> dict[str, Any]:
        command = ("-m", "sweeps", "results", sweep, "--storage", str(self.storage), "--json")
        done = run("python", *command, env=self.environment)
        assert done.returncode == 0, done.stderr
        results: dict[str, Any] = json.loads(done.stdout)
        return results

    def space(self, name: str) -> str:
        path = self.folder / f"{name}.yaml"
        path.write_text(SPACE.format(name=name))
        return str(path)


def run(*command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own command
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def free_port() -> int:
    for port in secrets.SystemRandom().sample(range(6379, 9999), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 6379 and 9999")


def session_and_descendants(session: int | None) -> set[int]:
    """Living processes of a session, and what they started, also in sessions of their own."""
    parents, found = {}, set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it has just ended
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
            if int(its_session) == session:
                found.add(int(stat.parent.name))
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def waits_for(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Not pytest's folder: the paths of Ray's sockets may not be longer than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="gs-"))
    head = Cluster(folder)
    try:
        head.start()
        yield head
    finally:
        head.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def finished(cluster: Cluster) -> subprocess.CompletedProcess[str]:
    """The sweep `tiny`, submitted and followed to its end."""
    command = ("python", "-m", "sweeps", "run", cluster.space("tiny"))
    return cluster.submit("--", *command, "--storage", str(cluster.storage))


def test_a_submitted_sweep_is_followed_to_success(
    finished: subprocess.CompletedProcess[str],
) -> None:
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "no signal · s1: unhealthy (zero_signal" in finished.stdout
    assert "succeeded" in finished.stdout + finished.stderr


def test_its_results_are_read_from_the_storage(
    cluster: Cluster, finished: subprocess.CompletedProcess[str]
) -> None:
    assert finished.returncode == 0
    results = cluster.results("tiny")
    verdicts = {c["config"]: c["verdict"]["outcome"] for c in results["configurations"]}
    assert verdicts == {"healthy": "healthy", "no signal": "unhealthy"}
    assert results["not_run"] == []


def test_its_runs_are_read_from_mlflow(
    cluster: Cluster, finished: subprocess.CompletedProcess[str]
) -> None:
    assert finished.returncode == 0
    client = MlflowClient(cluster.store)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.kind = 'trial'")
    assert {run.data.tags["verdict"]: run.data.tags["symptom"] for run in runs} == {
        "healthy": "",
        "unhealthy": "zero_signal",
    }
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        history = client.get_metric_history(run.info.run_id, "reward/mean")
        assert sorted(point.step for point in history) == list(range(24))


def test_only_what_git_keeps_is_uploaded(
    cluster: Cluster, finished: subprocess.CompletedProcess[str]
) -> None:
    assert finished.returncode == 0
    (package,) = (cluster.folder / "ray").glob("session_2*/runtime_resources/*/_ray_pkg_*/")
    assert (package / "sweeps" / "cli.py").exists()
    assert (package / "grpo_core" / "trainer.py").exists()
    ignored = (".git", ".venv", ".mypy_cache", "mlflow.db", "sweep_results")
    assert [name for name in ignored if (package / name).exists()] == []
    size = sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
    assert size < 20 * 2**20


def test_a_submission_without_the_token_is_refused(cluster: Cluster) -> None:
    without = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": ""}
    refused = cluster.ray("job", "submit", "--", "true", **without)
    assert refused.returncode != 0
    assert "Missing authentication token" in refused.stderr


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param({}, 401, id="no token"),
        pytest.param({"Authorization": f"Bearer {'0' * 64}"}, 403, id="another token"),
    ],
)
def test_a_request_is_refused_with(cluster: Cluster, header: dict[str, str], status: int) -> None:
    connection = http.client.HTTPConnection(cluster.jobs.removeprefix("http://"), timeout=60)
    headers = {"Content-Type": "application/json"} | header
    connection.request("POST", "/api/jobs/", json.dumps({"entrypoint": "true"}), headers)
    assert connection.getresponse().status == status
    connection.close()


def test_a_stopped_job_goes_on_when_it_is_submitted_again(
    cluster: Cluster, finished: subprocess.CompletedProcess[str]
) -> None:
    assert finished.returncode == 0
    options = ("--storage", str(cluster.storage), "--max-concurrent", "1")
    command = ("python", "-m", "sweeps", "run", cluster.space("stopped"), *options)
    trials = cluster.storage / "stopped" / "trials"
    cluster.submit("--submission-id", "first", "--no-wait", "--", *command)
    assert waits_for(lambda: any(trials.glob("*.json")), PATIENCE)
    assert cluster.ray("job", "stop", "first").returncode == 0
    ended = {path: path.stat().st_mtime_ns for path in trials.glob("*.json")}

    again = cluster.submit("--", *command)

    assert again.returncode == 0, again.stdout + again.stderr
    assert {path: path.stat().st_mtime_ns for path in ended} == ended
    assert len(list(trials.glob("*.json"))) == 2
    assert cluster.results("stopped") == cluster.results("tiny") | {"sweep": "stopped"}
