import os
from pathlib import Path

import pytest

from sweeps.environment import make_private_token, prepare_ray

NAMES = (
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_USAGE_STATS_ENABLED",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS",
)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:
        # Set before it is removed, so that the fixture puts the old value back afterwards.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def token(folder: Path) -> Path:
    return folder / ".ray" / "auth_token"


def test_ray_asks_for_a_token_that_only_its_owner_can_read(tmp_path: Path) -> None:
    prepare_ray()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert token(tmp_path).stat().st_mode & 0o777 == 0o600
    assert len(token(tmp_path).read_text()) == 64


def test_an_existing_token_is_kept_and_made_private(tmp_path: Path) -> None:
    path = token(tmp_path)
    path.parent.mkdir()
    path.write_text("mine")
    path.chmod(0o644)
    prepare_ray()
    assert path.read_text() == "mine"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RAY_AUTH_MODE", "disabled"),
        ("RAY_AUTH_TOKEN", "secret"),
        ("RAY_AUTH_TOKEN_PATH", "/somewhere"),
    ],
)
def test_what_the_user_has_set_stays_and_no_token_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    prepare_ray()
    assert os.environ[name] == value
    assert not token(tmp_path).exists()


def test_nothing_is_sent_to_anybody_unless_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    prepare_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"


def test_two_processes_that_make_a_token_at_once_agree(tmp_path: Path) -> None:
    path = tmp_path / "token"
    make_private_token(path)
    first = path.read_text()
    make_private_token(path)
    assert path.read_text() == first
