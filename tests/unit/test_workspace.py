from pathlib import Path

import pytest

from sweeps.workspace import STORAGE_VARIABLE, default_storage, workspace


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (STORAGE_VARIABLE, "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def test_sweeps_live_in_the_working_directory(tmp_path: Path) -> None:
    assert workspace() == tmp_path
    assert default_storage() == tmp_path / "sweep_results"
    assert list(tmp_path.iterdir()) == []


def test_inside_a_ray_job_they_live_at_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert workspace() == tmp_path / "home" / "grpo-sweeps"
    assert workspace().is_dir()


def test_a_copy_that_ray_made_of_the_working_directory_is_no_place_to_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy = tmp_path / "_ray_pkg_0123"
    copy.mkdir()
    monkeypatch.chdir(copy)
    assert workspace() == tmp_path / "home" / "grpo-sweeps"


def test_the_environment_names_another_storage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, "~/elsewhere")
    assert default_storage() == tmp_path / "home" / "elsewhere"
