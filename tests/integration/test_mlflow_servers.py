"""MLflow on PostgreSQL and behind a password, each a real one that the test starts.

Neither driver nor password form is among our requirements. To run all of it:
`pip install psycopg2-binary flask-wtf`, and Debian's package `postgresql`.
"""

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweeps.record import SweepRecord
from sweeps.tracking import MlflowTracker, TrackingError, check_store, sync
from sweeps.tracking.store import calm_environment
from tests.integration.test_mlflow_store import HIGH, LOW, DyingTracker, Store, ended_record

pytestmark = [
    pytest.mark.slow,
    # MLflow uses what SQLAlchemy has deprecated, and leaves connections to the garbage collector.
    pytest.mark.filterwarnings("ignore"),
]
PATIENCE = 240.0
"""Seconds; a server with accounts needs 60 on two quiet cores."""


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


# --- PostgreSQL ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL of our own, on loopback, with a password."""

    folder: Path
    port: int
    password: str
    owner: str | None
    """Account that runs it: PostgreSQL refuses root; None: this one."""

    @property
    def uri(self) -> str:
        return f"postgresql+psycopg2://mlflow:{self.password}@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        data = self.folder / "data"
        data.mkdir()
        for path in (self.folder, secret, data):
            if self.owner is not None:
                shutil.chown(path, self.owner)
        self._call("initdb", "-D", str(data), "-U", "mlflow", "-A", "scram-sha-256", "-N")
        self.start()

    def start(self) -> None:
        options = f"-h 127.0.0.1 -p {self.port} -k {self.folder}"
        log = str(self.folder / "log")
        data = str(self.folder / "data")
        self._call("pg_ctl", "-D", data, "-l", log, "-w", "-t", "120", "-o", options, "start")

    def die(self) -> None:
        """Stop without any shutdown, as after a loss of power."""
        self._call("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")

    def _call(self, program: str, *arguments: str) -> None:
        extra = ["--pwfile", str(self.folder / "password")] if program == "initdb" else []
        done = subprocess.run(  # noqa: S603
            [str(postgres_program(program)), *arguments, *extra],
            user=self.owner,
            cwd=self.folder,
            # pg_ctl's server would keep a pipe open.
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "errors").open("a"),
            check=False,
        )
        assert done.returncode == 0, (self.folder / "errors").read_text()


def postgres_program(name: str) -> Path | None:
    """Where Debian keeps it, else what is on the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name)
    return debian[-1] if debian else None if found is None else Path(found)


def unprivileged() -> str | None:
    """An account other than root to run PostgreSQL as, where this one is root."""
    return pwd.getpwnam("postgres").pw_name if os.getuid() == 0 else None


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    missing = [name for name in ("initdb", "pg_ctl") if postgres_program(name) is None]
    if os.getuid() == 0 and "postgres" not in {account.pw_name for account in pwd.getpwall()}:
        missing.append("the account postgres")
    missing += [] if importlib.util.find_spec("psycopg2") else ["the Python package psycopg2"]
    if missing:
        pytest.skip(f"POSTGRESQL IS NOT TESTED: {' and '.join(missing)} not installed")
    # A folder that another account can enter.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    folder.chmod(0o755)
    server = Postgres(folder, free_port(), secrets.token_hex(16), unprivileged())
    try:
        server.create()
        yield server
        server.die()
    finally:
        shutil.rmtree(folder)


def test_a_sweep_is_delivered_to_postgresql_though_drivers_and_the_database_die(
    tmp_path: Path, postgres: Postgres
) -> None:
    assert check_store(postgres.uri) == postgres.uri
    record = ended_record(tmp_path, "postgres")
    for deliveries in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            sync(SweepRecord(record.folder), DyingTracker(postgres.uri, deliveries))
        postgres.die()
        with pytest.raises(TrackingError, match="MLflow at postgresql"):
            sync(SweepRecord(record.folder), MlflowTracker(postgres.uri))
        postgres.start()
    assert sync(SweepRecord(record.folder), MlflowTracker(postgres.uri)).pending == 0
    assert check_store(postgres.uri) == postgres.uri, "the check knows MLflow's schema there"
    store = Store(postgres.uri, "postgres")
    for trial in (LOW, HIGH):
        assert store.steps(trial.id) == list(range(60))
        assert store.steps(trial.id, "train/loss") == list(range(60))
    assert store.run(HIGH.id).data.tags["verdict"] == "unhealthy"


def test_a_wrong_password_is_refused_at_once_and_never_shown(postgres: Postgres) -> None:
    wrong = postgres.uri.replace(postgres.password, "0123456789")
    with pytest.raises(TrackingError, match="password authentication failed") as refused:
        check_store(wrong)
    assert "0123456789" not in str(refused.value)


# --- a server with accounts ----------------------------------------------------------------------


@dataclass(frozen=True)
class Guarded:
    """An MLflow server that asks for a name and a password."""

    address: str
    database: str
    password: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if not importlib.util.find_spec("flask_wtf"):
        pytest.skip("A SERVER WITH ACCOUNTS IS NOT TESTED: the package flask-wtf is not installed")
    folder = tmp_path_factory.mktemp("guarded")
    server = Guarded(
        f"http://127.0.0.1:{free_port()}", f"sqlite:///{folder / 'mlflow.db'}", "a-long-password-1"
    )
    (folder / "auth.ini").write_text(
        "[mlflow]\ndefault_permission = NO_PERMISSIONS\n"
        f"database_uri = sqlite:///{folder / 'auth.db'}\n"
        f"admin_username = admin\nadmin_password = {server.password}\n"
        "auth_cache_ttl_seconds = 60\n"
    )
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth"]
    command += ["--backend-store-uri", server.database, "--workers", "1"]
    command += ["--artifacts-destination", str(folder / "artifacts"), "--host", "127.0.0.1"]
    command += ["--port", server.address.rpartition(":")[2]]
    settings = {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603
            command, env=os.environ | settings, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until_it_asks(server.address, process, folder / "log")
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until_it_asks(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the server refuses a stranger, which is when it is up."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            check_store(address)
        except TrackingError as error:
            if " answers 401 " in str(error):
                return
        else:
            pytest.fail("the server lets strangers in")
        time.sleep(0.5)
    pytest.fail(f"the server does not come up: {log.read_text()}")


def test_a_server_with_accounts_takes_a_sweep_from_whoever_has_the_password(
    tmp_path: Path, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm_environment()
    with pytest.raises(TrackingError, match=r"answers 401 .*set MLFLOW_TRACKING_USERNAME and"):
        check_store(guarded.address)
    record = ended_record(tmp_path, "guarded")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
    with pytest.raises(TrackingError, match="answers 401"):
        check_store(guarded.address)
    with pytest.raises(TrackingError):
        sync(record, MlflowTracker(guarded.address))
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", guarded.password)
    assert check_store(guarded.address) == guarded.address
    assert sync(record, MlflowTracker(guarded.address)).pending == 0
    store = Store(guarded.database, "guarded")
    for trial in (LOW, HIGH):
        assert store.steps(trial.id) == list(range(60))
    assert guarded.password not in (record.folder / "mirror.json").read_text()
