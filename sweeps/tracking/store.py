"""Where runs are kept: the default store, whether it can be used, and the command that shows it.

Answers without importing MLflow, so that a sweep finds out before anything starts.
"""

import base64
import contextlib
import http.client
import importlib.util
import os
import re
import shlex
import sqlite3
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from sweeps.tracking.base import TrackingError

DEFAULT_FILE = "mlflow.db"
"""SQLite database in the working directory."""
ARTIFACTS = "mlartifacts"
"""Folder of artifacts, beside the database."""
DEFAULT_UI = "http://127.0.0.1:5000"
"""Where the printed command serves the pages."""
PATIENCE_SECONDS = 5.0
"""How long a server may take to answer the check."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
"""Environment of MLflow's client: errors reach people through our status; we retry ourselves."""
_DATABASES = ("postgresql", "mysql", "mssql")
_REVISION = re.compile(r"""^(down_)?revision\s*=\s*["'](\w+)["']""", re.MULTILINE)


def store_uri(uri: str | None = None) -> str:
    """The store that counts: `uri`, MLFLOW_TRACKING_URI, or SQLite in the working directory."""
    chosen = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{DEFAULT_FILE}"
    path = sqlite_path(chosen)
    return chosen if path is None else f"sqlite:///{path}"


def sqlite_path(uri: str) -> Path | None:
    """Absolute path of the database file; None for other stores."""
    return Path(uri.removeprefix("sqlite:///")).absolute() if uri.startswith("sqlite:///") else None


def artifact_folder(uri: str) -> Path | None:
    """Where this process writes artifacts; None where a server takes them."""
    if is_server(uri):
        return None
    path = sqlite_path(uri)
    return (Path.cwd() if path is None else path.parent) / ARTIFACTS


def is_server(uri: str) -> bool:
    """The store is behind a tracking server."""
    return not uri.startswith(("sqlite", *_DATABASES))


def public_uri(uri: str) -> str:
    """The address without its password."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", uri)


def check_store(uri: str | None = None) -> str:
    """The address of the store, once it is sure that runs can be written to it.

    Raises:
        TrackingError: it cannot be used; says why and what to do.
    """
    chosen = store_uri(uri)
    scheme = urllib.parse.urlsplit(chosen).scheme
    path = sqlite_path(chosen)
    if path is not None:
        _check_sqlite(path)
    elif scheme in {"http", "https"}:
        _check_server(chosen)
    elif scheme.split("+")[0] in _DATABASES:
        _check_database(chosen)
    elif scheme in {"", "file", "sqlite"}:
        raise TrackingError(
            f"MLflow keeps no runs in {chosen!r} (it no longer takes folders); "
            f"use sqlite:///{DEFAULT_FILE} or the address of a server"
        )
    return chosen


def mlflow_command(uri: str | None = None) -> str | None:
    """The shell command that shows the store in a browser; None where a server already does."""
    chosen = store_uri(uri)
    folder = artifact_folder(chosen)
    if folder is None:
        return None
    address = urllib.parse.urlsplit(DEFAULT_UI)
    store, artifacts = shlex.quote(chosen), shlex.quote(str(folder))
    return (
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false MLFLOW_DISABLE_TELEMETRY=true "
        f"{_mlflow_program()} server "
        f"--backend-store-uri {store} --artifacts-destination {artifacts} "
        f"--host {address.hostname} --port {address.port} --workers 1"
    )


def _mlflow_program() -> str:
    """MLflow's program of this environment, by its path: the user's shell may not be in it."""
    program = Path(sys.executable).with_name("mlflow")
    return shlex.quote(str(program)) if program.exists() else "mlflow"


def ui_address(uri: str | None = None) -> str:
    """Where the pages are: the server itself, or what `mlflow_command` starts."""
    chosen = store_uri(uri)
    return chosen.rstrip("/") if is_server(chosen) else DEFAULT_UI


def calm_environment() -> None:
    """Keep MLflow's client quiet, quick to give up, and from reporting usage; what is set stays."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def _check_sqlite(path: Path) -> None:
    """Look for a folder that cannot be written and for a database of another kind.

    Raises:
        TrackingError: one of these.
    """
    for target in (path, path.parent / ARTIFACTS):
        existing = next(parent for parent in (target, *target.parents) if parent.exists())
        if existing is not target and not existing.is_dir():
            raise TrackingError(f"cannot write {target}: {existing} is not a folder")
        if not os.access(existing, os.W_OK):
            raise TrackingError(f"cannot write {target}: {existing} is read-only")
    if path.exists():
        _check_revision(_sqlite_revision(path), f"sqlite:///{path}")


def _sqlite_revision(path: Path) -> str | None:
    """Schema revision of an MLflow database; None for an empty one.

    Raises:
        TrackingError: the file is something else.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            tables = {name for (name,) in database.execute("select name from sqlite_master")}
            if "alembic_version" in tables:
                row = database.execute("select version_num from alembic_version").fetchone()
                return None if row is None else str(row[0])
    except sqlite3.Error as error:
        raise TrackingError(f"{path} is not a usable SQLite database: {error}") from error
    if tables:
        raise TrackingError(f"{path} is a database, but not one of MLflow")
    return None


def _check_revision(found: str | None, uri: str) -> None:
    """Compare a database's schema with what the installed MLflow writes.

    Raises:
        TrackingError: it is older or newer.
    """
    known, head = _schema_revisions()
    if found is None or head is None or found == head:
        return
    if found in known:
        raise TrackingError(
            f"{public_uri(uri)} was written by an older MLflow; back it up, then run: "
            f"mlflow db upgrade {shlex.quote(public_uri(uri))}"
        )
    raise TrackingError(
        f"{public_uri(uri)} has schema {found!r}, which the installed MLflow does not know; "
        "it was written by a newer one. Install that, or name another store"
    )


def _schema_revisions() -> tuple[frozenset[str], str | None]:
    """Every schema revision that the installed MLflow knows, and the newest; None if it hides them.

    Raises:
        TrackingError: MLflow is not installed.
    """
    spec = importlib.util.find_spec("mlflow")
    if spec is None or spec.origin is None:
        raise TrackingError("MLflow is not installed; run: pip install mlflow")
    folder = Path(spec.origin).parent / "store" / "db_migrations" / "versions"
    revisions: set[str] = set()
    replaced: set[str] = set()
    for script in folder.glob("*.py"):
        for is_down, revision in _REVISION.findall(script.read_text()):
            (replaced if is_down else revisions).add(revision)
    heads = revisions - replaced
    return frozenset(revisions), heads.pop() if len(heads) == 1 else None


def _check_server(uri: str) -> None:
    """Ask one small question that needs the server, its interface and the right to read.

    Raises:
        TrackingError: no answer, or a refusal.
    """
    address = f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/search?max_results=1"
    request = urllib.request.Request(address, headers=_authorization())  # noqa: S310 - http(s) only
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        raise TrackingError(_refusal(public_uri(uri), error)) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TrackingError(
            f"no MLflow server answers at {public_uri(uri)}: {reason}. Start it, or unset "
            "MLFLOW_TRACKING_URI to keep runs in a local file"
        ) from error


def _refusal(uri: str, error: urllib.error.HTTPError) -> str:
    advice = {
        401: "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
        403: "check the credentials and the server's --allowed-hosts",
        404: "there is a server, but not one of MLflow",
    }
    return f"{uri} answers {error.code} {error.reason}; {advice.get(error.code, 'see its log')}"


def _authorization() -> dict[str, str]:
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    user = os.environ.get("MLFLOW_TRACKING_USERNAME")
    if user is not None:
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _check_database(uri: str) -> None:
    """Connect as MLflow will and compare the schema's revision.

    Raises:
        TrackingError: no driver, no connection, or another schema.
    """
    import sqlalchemy  # noqa: PLC0415 - half a second that only these stores need

    try:
        engine = sqlalchemy.create_engine(uri)
        with engine.connect() as connection:
            tables = sqlalchemy.inspect(connection).get_table_names()
            found = None
            if "alembic_version" in tables:
                query = sqlalchemy.text("select version_num from alembic_version")
                found = connection.execute(query).scalar()
    except (ImportError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise TrackingError(f"cannot use {public_uri(uri)}: {error}") from error
    _check_revision(found, uri)
