from pathlib import Path

import pytest

from grpo_core.errors import GrpoError
from sweeps.record import SweepRecord


def test_a_second_driver_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    first, second = SweepRecord(tmp_path / "kl"), SweepRecord(tmp_path / "kl")
    (tmp_path / "kl").mkdir()
    with (
        first.sole_driver(),
        pytest.raises(GrpoError, match="sweep 'kl' is being run by another process"),
        second.sole_driver(),
    ):
        pass
    with second.sole_driver():
        assert (tmp_path / "kl" / "driver.lock").exists()
