"""Where sweeps and the MLflow store live when nobody says so."""

import os
from pathlib import Path

STORAGE_VARIABLE = "GRPO_SWEEPS_STORAGE"
"""Environment variable that names the storage folder."""


def workspace() -> Path:
    """The working directory; inside a Ray job, where that is a throw-away copy, a home folder."""
    here = Path.cwd()
    if os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "_ray_pkg_" in str(here):
        home = Path("~/grpo-sweeps").expanduser()
        home.mkdir(parents=True, exist_ok=True)
        return home
    return here


def tracking_store() -> str:
    """MLflow's address: `$MLFLOW_TRACKING_URI`, else a database in the workspace."""
    named = os.environ.get("MLFLOW_TRACKING_URI")
    return named or f"sqlite:///{workspace() / 'mlflow.db'}"


def default_storage() -> Path:
    """`$GRPO_SWEEPS_STORAGE`, else `sweep_results` in the workspace."""
    named = os.environ.get(STORAGE_VARIABLE)
    return Path(named).expanduser() if named else workspace() / "sweep_results"
