"""Which dotted keys exist, which AReaL keys a diagnostic run carries through, and the nearest name."""

import difflib
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from grpo_core.config import TrialConfig


@dataclass(frozen=True, slots=True)
class Key:
    """One setting of a trial."""

    dotted: str
    """Its full name, e.g. `actor.kl_ctl`."""
    kind: str
    """What it takes, in words."""
    default: Any
    """AReaL's default (or ours, where AReaL has no such key)."""
    doc: str
    """What it does."""
    section: bool
    """It is a group of settings rather than one value."""


def _keys_of(model: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        dotted = f"{prefix}{name}"
        section = _section_of(field.annotation)
        default = field.get_default(call_default_factory=True)
        kind = _kind(field.annotation, field.metadata)
        yield Key(dotted, kind, default, (field.description or "").strip(), section is not None)
        if section is not None:
            yield from _keys_of(section, f"{dotted}.")


def _section_of(annotation: Any) -> type[BaseModel] | None:
    for option in typing.get_args(annotation) or (annotation,):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None


def _kind(annotation: Any, metadata: list[Any]) -> str:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *extra = typing.get_args(annotation)
        return _kind(inner, [*metadata, *extra])
    if origin is typing.Literal:
        return "one of " + ", ".join(str(value) for value in typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        parts = [_kind(option, metadata) for option in typing.get_args(annotation)]
        return " or ".join(parts)
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a section"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words.get(annotation, str(annotation)) + _bounds(metadata)


def _bounds(metadata: list[Any]) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    parts = []
    for item in metadata:
        for limit in [item, *getattr(item, "metadata", [])]:
            parts += [
                f" {sign} {getattr(limit, attribute)}"
                for attribute, sign in signs.items()
                if getattr(limit, attribute, None) is not None
            ]
    return "".join(dict.fromkeys(parts))


KEYS = {key.dotted: key for key in _keys_of(TrialConfig, "")}
"""Every setting of a trial by its dotted name."""

CARRIED_SECTIONS = frozenset(
    ["experiment_name", "trial_name", "cluster", "allocation_mode", "enable_offload", "total_train_epochs", "total_train_n_seqs", "tokenizer_path", "valid_dataset", "saver", "evaluator", "stats_logger", "perf_tracer", "memory_profiler", "recover", "sglang", "vllm", "scheduler", "launcher", "eval_gconfig", "teacher", "async_training", "workflow", "eval_workflow", "reward_fn", "agent_run_args", "max_turns", "turn_discount"]
)
"""Top-level AReaL keys that decide where and how a production run executes, not what it learns."""

_ENGINE = ["experiment_name", "trial_name", "path", "attn_impl", "use_kernels", "init_from_scratch", "is_critic", "mb_spec", "pad_to_maximum", "disable_dropout", "gradient_checkpointing", "dtype", "grad_reduce_dtype", "optimizer_dtype", "weight_update_mode", "fsdp", "archon", "megatron", "offload", "use_lora", "lora_rank", "lora_alpha", "target_modules", "peft_type", "enable_tree_training", "scheduling_spec", "backend", "_version", "admin_api_key", "log_level", "request_timeout", "setup_timeout", "scheduling_strategy", "log_agent_stats", "log_agent_stats_keys"]

CARRIED_KEYS = {
    "actor": frozenset(_ENGINE),
    "critic": frozenset([*_ENGINE, "temperature"]),
    "gconfig": frozenset(
        ["max_tokens", "stop_token_ids", "ignore_eos", "skip_special_tokens", "stop", "frequency_penalty", "lora_name", "use_beam_search", "reward_normalization"]
    ),
    "rollout": frozenset(
        ["experiment_name", "trial_name", "fileroot", "max_concurrent_rollouts", "queue_size", "consumer_batch_size", "enable_rollout_tracing", "check_trajectory_format", "tokenizer_path", "dump_to_file", "setup_timeout", "request_timeout", "request_retries", "pause_grace_period", "scheduling_spec", "backend", "scheduling_strategy", "use_lora", "lora_name", "agent", "return_routed_experts", "_version", "model", "routing_strategy", "poll_interval", "admin_api_key", "api_url", "provider_api_key", "schedule_policy"]
    ),
    "train_dataset": frozenset(
        ["split", "path", "type", "shuffle", "pin_memory", "num_workers", "num_dataset_workers", "drop_last", "max_length", "dataset_kwargs", "scheduling_spec", "setup_timeout"]
    ),
    "actor.optimizer": frozenset(
        ["initial_loss_scale", "min_loss_scale", "loss_scale_window", "hysteresis", "offload"]
    ),
}
"""Keys inside sections that we share with AReaL, which have no effect in a diagnostic run."""
CARRIED_KEYS["critic.optimizer"] = CARRIED_KEYS["actor.optimizer"]

RENAMED = {
    "actor.n_samples": "gconfig.n_samples",
    "actor.group_size": "gconfig.n_samples",
    "gconfig.group_size": "gconfig.n_samples",
    "actor.group_adv_norm": "actor.adv_norm",
    "actor.group_reward_norm": "actor.reward_norm",
    "actor.behav_imp_weight_cap": "actor.rejection_sampling.upper",
    "actor.behave_imp_weight_cap": "actor.rejection_sampling.upper",
    "actor.behave_imp_weight_mode": "actor.rejection_sampling.action",
    "actor.lr": "actor.optimizer.lr",
    "actor.beta": "actor.kl_ctl",
    "kl_coef": "actor.kl_ctl",
    "beta": "actor.kl_ctl",
    "learning_rate": "actor.optimizer.lr",
    "num_generations": "gconfig.n_samples",
    "epsilon": "actor.eps_clip",
    "epsilon_high": "actor.eps_clip_higher",
    "clip_ratio": "actor.eps_clip",
    "clip_ratio_high": "actor.eps_clip_higher",
    "temperature": "gconfig.temperature",
    "async_training": "rollout.max_head_offpolicyness",
}
"""Names that AReaL renamed, or that other trainers use, with today's AReaL name."""


def is_carried(dotted: str) -> bool:
    """The key belongs to AReaL but decides nothing in a diagnostic run."""
    first, _, rest = dotted.partition(".")
    if first in CARRIED_SECTIONS or (first == "ref" and rest):
        return True
    parts = dotted.split(".")
    return any(parts[i] in CARRIED_KEYS.get(".".join(parts[:i]), ()) for i in range(1, len(parts)))


def unknown_key(dotted: str) -> str:
    """Why a key is refused, with the nearest valid name."""
    if dotted in RENAMED:
        return f"{dotted}: not a key (any more); today's name is {RENAMED[dotted]}"
    nearest = nearest_key(dotted)
    hint = f"; did you mean {nearest}?" if nearest else "; `sweeps explain` lists all keys"
    return f"{dotted}: no such key{hint}"


def nearest_key(dotted: str) -> str | None:
    """The valid key that a misspelt one most likely means; None if nothing is near."""
    whole = difflib.get_close_matches(dotted, KEYS, n=1, cutoff=0.75)
    if whole:
        return whole[0]
    last = dotted.rpartition(".")[2]
    names = {key.rpartition(".")[2]: key for key in reversed(KEYS)}
    close = difflib.get_close_matches(last, names, n=1, cutoff=0.8)
    return names[close[0]] if close else None
