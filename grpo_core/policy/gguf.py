"""GGUF files become ordinary checkpoints, once, in the cache.

Loading a GGUF file takes half a minute, loading what it became a third of a second. The folder's
name is a hash of the file; it appears in one piece or not at all, whichever process makes it.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from grpo_core.errors import ConfigError
from grpo_core.policy.warm_start import cache_folder

CONVERSION_VERSION = 1
"""Raised whenever code below changes what comes out."""


def converted(file: Path, notify: Callable[[str], None] = lambda _: None) -> Path:
    """The folder that holds the model of a GGUF file in the format of transformers.

    Raises:
        ConfigError: the file cannot be read.
    """  # noqa: DOC502 - raised by what it calls
    folder = cache_folder() / "models" / f"{file.stem}-{_digest(file)}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            notify(f"{file.name}: unpacked once, then cached in {folder}")
            partial = folder.with_name(f".{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                _convert(file, partial)
                partial.replace(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    digest.update(f"/{CONVERSION_VERSION}".encode())
    return digest.hexdigest()[:16]


def _convert(file: Path, folder: Path) -> None:
    """Unpack the weights to float32.

    Raises:
        ConfigError: transformers cannot read the file.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - after the above

    place: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **place)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **place)
    # transformers and gguf raise a dozen kinds of errors on damaged files.
    except Exception as error:
        raise ConfigError(
            [f"policy: {file} cannot be loaded: {type(error).__name__}: {error}"]
        ) from error
    packed = [n for n, p in model.named_parameters() if p.dtype != torch.float32]
    if packed:
        raise ConfigError([f"policy: {file}: {packed[0]} stays packed and cannot be trained"])
    # The weights are plain numbers now; what is left of their packing would forbid saving them.
    model.config.__dict__.pop("quantization_config", None)
    for name in ("hf_quantizer", "is_quantized", "quantization_method"):
        model.__dict__.pop(name, None)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
