"""What Ray reads from the environment, which must stand there before `ray` is imported."""

import contextlib
import os
import secrets
from pathlib import Path

RAY_TOKEN = Path("~/.ray/auth_token")
"""Where Ray looks for the cluster's token."""

_DEFAULTS = {
    "RAY_AUTH_MODE": "token",  # everything that we start asks for the token
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the record has the curves
    "RAY_AIR_NEW_OUTPUT": "0",  # our own view is what people see
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # sweeps.control has its own
    "TUNE_GLOBAL_CHECKPOINT_S": "600",  # Tune's own state is never read
    "TUNE_MAX_PENDING_TRIALS_PG": "200",  # as for its own grids; for a searcher it takes 1
}


def prepare_ray() -> None:
    """Set Ray's environment where the user has not, and see to a private token."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    given = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if os.environ["RAY_AUTH_MODE"] == "token" and not given:
        make_private_token(RAY_TOKEN.expanduser())


def make_private_token(path: Path) -> None:
    """A token that only its owner can read; Ray itself would write it readable to all."""
    if path.exists():
        path.chmod(0o600)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
