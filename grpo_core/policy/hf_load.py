"""Loading a real model: files become a policy, or a list of what is wrong with them."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from grpo_core.config import ActorConfig, TrialConfig
from grpo_core.errors import ConfigError
from grpo_core.models import find_model
from grpo_core.names import model_of
from grpo_core.policy.gguf import converted
from grpo_core.policy.hf import HfPolicy, Text, shape_logits, store_frozen
from grpo_core.randomness import torch_stream

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LONGEST_UNKNOWN = 1 << 20
"""Context of a model that names no limit, in tokens."""
HEAD_TOLERANCE = 1e-3
"""Largest difference between our logits and the model's own, relative to their size."""


def load_hf(config: TrialConfig, notify: Callable[[str], None]) -> HfPolicy:
    """The model that `policy` or `actor.path` names.

    Raises:
        ConfigError: it cannot be found or used.
    """
    name = model_of(config.policy, config.actor.path)
    if not name:
        raise ConfigError(["policy=hf: names no model; set actor.path, or policy to hf:MODEL"])
    files = find_model(name)
    folder = files.folder if files.gguf is None else converted(files.folder / files.gguf, notify)
    if config.actor.dtype == "bfloat16" and not computes_bfloat16():
        notify("actor.dtype=bfloat16 is emulated where this CPU computes, up to 100 times slower")
    text, model = load_folder(folder, name)
    return build_policy(model, text, config.actor, config.seed)


def computes_bfloat16() -> bool:
    """A GPU will compute, or this CPU has instructions for bfloat16."""
    native: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001 - nothing public
    return torch.cuda.is_available() or native


def load_folder(folder: Path, name: str) -> tuple[Text, nn.Module]:
    """The tokenizer and the model in a folder, in float32, checked against each other.

    Raises:
        ConfigError: they cannot be loaded or do not fit.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - after the above
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    # transformers raises a dozen kinds of errors on damaged files.
    except Exception as error:
        raise ConfigError(
            [f"policy: {name} cannot be loaded: {type(error).__name__}: {error}"]
        ) from error
    text = Text(tokenizer, end_tokens(tokenizer, model.generation_config), _longest(model))
    problems = [*_lacking(report), *_misfits(text, model)]
    if problems:
        raise ConfigError([f"policy: {name}: {problem}" for problem in problems])
    model.eval()
    return text, model


def build_policy(model: nn.Module, text: Text, actor: ActorConfig, seed: int) -> HfPolicy:
    """A model as `actor` wants it: precision, adapters, checkpointing.

    Raises:
        ConfigError: `actor.target_modules` fits no layer.
    """  # noqa: DOC502 - raised by what it calls
    if actor.gradient_checkpointing:
        _checkpoint_layers(model)
    module = _with_adapters(model, actor, seed) if actor.use_lora else model
    dtype = DTYPES[actor.dtype]
    store_frozen(module, dtype)
    return HfPolicy(module, text, dtype=dtype)


def end_tokens(tokenizer: Any, generation: Any) -> tuple[int, ...]:  # noqa: ANN401 - transformers
    """Every token that ends an answer: the tokenizer's, and those of generation_config.json."""
    listed = getattr(generation, "eos_token_id", None)
    several = listed if isinstance(listed, list) else [listed]
    ends = [tokenizer.eos_token_id, *several]
    return tuple(dict.fromkeys(int(token) for token in ends if token is not None))


def _longest(model: Any) -> int:  # noqa: ANN401 - a model of transformers
    named = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return LONGEST_UNKNOWN if named is None else int(named)


def _lacking(report: dict[str, Any]) -> list[str]:
    """Weights that the files lack; transformers would draw them at random."""
    problems = []
    for key, what in (
        ("missing_keys", "lacks weights"),
        ("mismatched_keys", "has misshapen weights"),
    ):
        names = sorted(str(name) for name in report.get(key, ()))
        if names:
            problems.append(f"{what} ({len(names)}, first: {names[0]})")
    return problems


def _misfits(text: Text, model: Any) -> list[str]:  # noqa: ANN401 - a model of transformers
    """Where tokenizer, weights and our own arithmetic do not fit together."""
    problems = []
    rows = model.get_input_embeddings().weight.shape[0]
    size = len(text.tokenizer)
    if not text.ends:
        problems.append(
            "neither the tokenizer nor generation_config.json names an end-of-sequence token; "
            "without one no answer ends (set eos_token in tokenizer_config.json)"
        )
    if size > rows:
        problems.append(
            f"the tokenizer has {size} tokens and the model only {rows}; they don't belong together"
        )
    beyond = [token for token in text.ends if token >= rows]
    if beyond:
        problems.append(f"end-of-sequence token {beyond[0]} is beyond the model's {rows} tokens")
    if not problems and not _same_logits(model):
        problems.append(
            f"{type(model).__name__} does something to its logits that is not supported here"
        )
    return problems


@torch.no_grad()
def _same_logits(model: Any) -> bool:  # noqa: ANN401 - a model of transformers
    """Output layer on hidden states gives what the model's own forward pass gives."""
    ids = torch.arange(4)[None]
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    ours = shape_logits(model.get_output_embeddings()(hidden), model.config)
    own = model(input_ids=ids, use_cache=False).logits
    scale = own.abs().max().clamp(min=1e-6)
    return bool((ours - own).abs().max() <= HEAD_TOLERANCE * scale)


def _checkpoint_layers(model: Any) -> None:  # noqa: ANN401 - a model of transformers
    """Recompute each layer in the backward pass.

    transformers does so only in layers that are in training mode; what is inside them (dropout)
    stays out of it.
    """
    model.activation_checkpointing_enable({"use_reentrant": False})
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.training = True


def _with_adapters(model: nn.Module, actor: ActorConfig, seed: int) -> nn.Module:
    """The model with fresh adapters, whose first matrix is drawn from the seed.

    Raises:
        ConfigError: no layer is called like `actor.target_modules`.
    """
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - optional

    settings = LoraConfig(
        r=actor.lora_rank,
        lora_alpha=actor.lora_alpha,
        target_modules=list(actor.target_modules) or "all-linear",
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    training = {name for name, module in model.named_modules() if module.training}
    try:
        with warnings.catch_warnings():
            # peft asks transformers by a name that the next major release drops.
            warnings.simplefilter("ignore", FutureWarning)
            adapted: nn.Module = get_peft_model(model, settings)
    except ValueError as error:
        raise ConfigError(
            [f"actor.target_modules={list(actor.target_modules)}: {error}"]
        ) from error
    adapted.eval()
    for name, module in model.named_modules():
        module.training = name in training
    noise = torch_stream(seed, "adapters")
    for name, parameter in adapted.named_parameters():
        if "lora_A" in name:
            bound = parameter.shape[1] ** -0.5
            drawn = torch.rand(parameter.shape, generator=noise) * 2.0 - 1.0
            parameter.data.copy_(drawn * bound)
    return adapted
