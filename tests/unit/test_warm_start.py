import multiprocessing
from pathlib import Path

import pytest
import torch

from grpo_core.errors import CheckpointError
from grpo_core.policy.warm_start import (
    CACHE_VARIABLE,
    Recipe,
    cache_folder,
    train_warm_start,
    warm_start,
)

QUICK = Recipe(task="think", steps=2, batch=4)


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def build(_: int) -> list[float]:
    torch.set_num_threads(1)
    return next(warm_start(QUICK).parameters()).flatten()[:4].tolist()


def test_rebuilding_gives_the_same_weights_to_the_last_bit() -> None:
    one, two = train_warm_start(QUICK), train_warm_start(QUICK)
    assert all(map(torch.equal, one.parameters(), two.parameters()))


def test_it_is_trained_once_and_then_read(private_cache: Path) -> None:
    messages: list[str] = []
    first = warm_start(QUICK, messages.append)
    second = warm_start(QUICK, messages.append)
    assert len(messages) == 1
    assert all(map(torch.equal, first.parameters(), second.parameters()))
    assert len(list(private_cache.rglob("*.safetensors"))) == 1


@pytest.mark.slow
def test_processes_that_need_it_at_once_get_the_same_file(private_cache: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        one, two = pool.map(build, range(2))
    assert one == two
    assert len(list(private_cache.rglob("*.safetensors"))) == 1


def test_a_damaged_file_is_named(private_cache: Path) -> None:
    warm_start(QUICK)
    path = next(private_cache.rglob("*.safetensors"))
    path.write_bytes(b"half a file")
    with pytest.raises(CheckpointError, match=f"{path.name} is not a warm start"):
        warm_start(QUICK)


def test_the_recipe_decides_the_name() -> None:
    assert QUICK.digest() == Recipe(task="think", steps=2, batch=4).digest()
    assert len({QUICK.digest(), Recipe("think").digest(), Recipe("sort").digest()}) == 3


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/grpo-sweeps")
