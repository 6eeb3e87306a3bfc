"""How runs in an MLflow store are named on the command line."""

import re

RUN, EXPERIMENT = "runs:/", "experiments:/"
"""Prefix of a run's id (MLflow's own form), and of the name of an experiment."""
_ID = re.compile(r"[0-9a-f]{32}")


def is_mlflow(target: str) -> bool:
    """The target names something in MLflow."""
    return target.startswith((RUN, EXPERIMENT)) or _ID.fullmatch(target) is not None
