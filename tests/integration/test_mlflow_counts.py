"""The meter of `make chaos`: does it see a point that is missing, doubled or wrong?"""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from benchmarks.chaos import differences, expected_points, stored_points
from sweeps.tracking import MlflowTracker, sync
from tests.integration.test_mlflow_store import ended_record

pytestmark = [
    pytest.mark.slow,
    # MLflow uses what SQLAlchemy has deprecated, and leaves connections to the garbage collector.
    pytest.mark.filterwarnings("ignore"),
]
LOSE = "DELETE FROM metrics WHERE key = 'train/loss' AND step = 3"
DOUBLE = """
    INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan)
    SELECT key, value, timestamp + 1, run_uuid, step, is_nan FROM metrics
    WHERE key = 'reward/mean' AND step = 5
"""
STRANGE = """
    INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan)
    SELECT key, value, timestamp, run_uuid, step + 1000, is_nan FROM metrics
    WHERE key = 'reward/mean' AND step = 5
"""


def test_the_meter_of_chaos_sees_what_is_lost_and_what_is_there_twice(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    record = ended_record(tmp_path, "metered", steps=10)
    sync(record, MlflowTracker(f"sqlite:///{database}"))
    wanted = expected_points(record)
    assert differences(wanted, stored_points(database, "metered")) == (0, 0)
    # Two trials: each statement hits one point of both.
    for statement, seen in ((LOSE, (2, 0)), (DOUBLE, (2, 2)), (STRANGE, (2, 6))):
        with contextlib.closing(sqlite3.connect(database)) as store:
            store.execute(statement)
            store.commit()
        assert differences(wanted, stored_points(database, "metered")) == seen
