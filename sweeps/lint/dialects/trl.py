"""TRL's GRPOConfig in AReaL's terms (TRL 1.16.0: defaults from the dataclass, meaning as read)."""

from sweeps.lint.dialects.base import Source, Translation, Values, same, translate
from sweeps.lint.subject import Subject

EPS = 1e-4
"""TRL adds it to the group's spread; AReaL adds 1e-5."""

_AGGREGATIONS = {
    "grpo": "sequence-mean",
    "dr_grpo": "constant",
    "dapo": "token-mean",
    "bnpo": "token-mean",
    "cispo": "token-mean",
    "sapo": "sequence-mean",
    "luspo": "sequence-sum",
    "vespo": "token-mean",
}


def _loss(loss_type: str, epsilon: float, epsilon_high: float | None) -> Values:
    settings: Values = {"extensions.loss_aggregation": _AGGREGATIONS[loss_type]}
    if loss_type == "cispo":
        cap = epsilon if epsilon_high is None else epsilon_high
        return settings | {
            "actor.use_cispo_loss": True,
            "actor.eps_clip": 1.0,
            "actor.eps_clip_higher": cap - 1,
        }
    if loss_type == "sapo":
        settings["actor.use_sapo_loss"] = True
    if loss_type == "vespo":
        settings["extensions.vespo"] = {}
    return settings


def _clip(loss_type: str, epsilon: float, epsilon_high: float | None) -> Values:
    if loss_type == "cispo":
        return {}
    return {"actor.eps_clip": epsilon} | (
        {} if epsilon_high is None else {"actor.eps_clip_higher": epsilon_high}
    )


def _scale(scale_rewards: object) -> Values:
    word = str(scale_rewards).lower()
    level = {"true": "group", "group": "group", "batch": "batch", "false": None, "none": None}[word]
    norm = "actor.reward_norm"
    settings: Values = {f"{norm}.mean_level": "group", f"{norm}.std_level": level}
    return settings | {f"{norm}.eps": EPS}


def _updates(iterations: int, per_generation: int | None, accumulation: int) -> Values:
    steps = accumulation if per_generation is None else per_generation
    return {"actor.ppo_n_minibatches": max(1, steps // accumulation) * iterations}


def _beta(beta: float) -> Values:
    reference: Values = {"ref": {} if beta else None}
    return {"extensions.kl_loss_coef": beta, "actor.kl_ctl": 0.0} | reference


def _optim(name: str) -> Values:
    return {"actor.optimizer.type": "sgd" if name == "sgd" else "adam"}


def _schedule(name: str) -> Values:
    return {
        "actor.optimizer.lr_scheduler_type": {"linear": "linear", "cosine": "cosine"}.get(
            str(name), "constant"
        )
    }


def _warmup(steps: float, ratio: float | None, max_steps: int) -> Values:
    if ratio is not None:
        return {"actor.optimizer.warmup_steps_proportion": ratio}
    share = steps if steps < 1 else (min(1.0, steps / max_steps) if max_steps > 0 else 0.01)
    return {"actor.optimizer.warmup_steps_proportion": share}


def _truncated(mask: object) -> Values:
    return {"extensions.truncated_answers": "mask" if mask else "keep"}


def _temperature(value: float) -> Values:
    return {"gconfig.temperature": value, "actor.temperature": value}


def _correction(on: object, use_vllm: object, mode: str, *bounds: float | None) -> Values:
    if not (on and use_vllm):
        return {}
    level, _, action = mode.partition("_")
    upper, lower = bounds
    key = "extensions.sampler_correction"
    return {
        f"{key}.level": level,
        f"{key}.action": action,
        f"{key}.upper": upper,
        f"{key}.lower": lower,
    }


def _length(value: int) -> Values:
    return {"gconfig.max_new_tokens": value, "actor.max_new_tokens": value}


def _top_k(value: int | None) -> Values:
    return {"gconfig.top_k": value} if value is not None and value > 0 else {}


def _weights(value: list[float] | None) -> Values:
    return {} if value is None else {"extensions.reward_weights": value}


TRL_FIELDS: tuple[Translation, ...] = (
    Translation(
        ("loss_type", "epsilon", "epsilon_high"),
        ("dapo", 0.2, None),
        _loss,
        "cispo caps the weight at epsilon_high itself, AReaL at 1 + eps_clip_higher",
        decides=("actor.use_cispo_loss", "actor.use_sapo_loss", "actor.eps_clip"),
    ),
    Translation(
        ("epsilon", "loss_type", "epsilon_high"),
        (0.2, "dapo", None),
        lambda e, kind, high: _clip(kind, e, high),
        "",
        {"actor.eps_clip_higher": "epsilon_high"},
    ),
    Translation(
        ("scale_rewards",),
        ("group",),
        _scale,
        "the mean is always the group's; batch: spread about the batch mean, not the group means",
    ),
    Translation(
        ("beta",),
        (0.0,),
        _beta,
        "k3 in the loss, times the ratio by default; AReaL's kl_ctl is k1 in the reward",
    ),
    Translation(("use_bias_correction_kl",), (True,), same("extensions.kl_loss_ratio_weighted")),
    Translation(
        ("num_iterations", "steps_per_generation", "gradient_accumulation_steps"),
        (1, None, 1),
        _updates,
        "optimizer steps per batch; AReaL's default is 4, TRL's 1",
    ),
    Translation(("delta",), (None,), same("extensions.ratio_cap"), "acts as a dual clip"),
    Translation(
        ("importance_sampling_level",), ("token",), same("actor.importance_sampling_level")
    ),
    Translation(("sapo_temperature_pos",), (1.0,), same("actor.sapo_tau_pos")),
    Translation(("sapo_temperature_neg",), (1.05,), same("actor.sapo_tau_neg")),
    Translation(
        ("mask_truncated_completions",),
        (False,),
        _truncated,
        "out of the loss but in the group's mean; AReaL zeroes their normalized reward",
    ),
    Translation(
        (
            "vllm_importance_sampling_correction",
            "use_vllm",
            "vllm_importance_sampling_mode",
            "vllm_importance_sampling_clip_max",
            "vllm_importance_sampling_clip_min",
        ),
        (True, False, "sequence_mask", 3.0, None),
        _correction,
    ),
    Translation(
        ("off_policy_mask_threshold",), (None,), same("extensions.off_policy_mask_threshold")
    ),
    Translation(
        ("multi_objective_aggregation",),
        ("sum_then_normalize",),
        same("extensions.multi_objective_aggregation"),
    ),
    Translation(("reward_weights",), (None,), _weights),
    Translation(("num_generations",), (8,), same("gconfig.n_samples")),
    Translation(("max_completion_length",), (512,), _length),
    Translation(("temperature",), (1.0,), _temperature),
    Translation(("top_p",), (1.0,), same("gconfig.top_p")),
    Translation(("top_k",), (0,), _top_k),
    Translation(("learning_rate",), (1e-6,), same("actor.optimizer.lr")),
    Translation(("weight_decay",), (0.0,), same("actor.optimizer.weight_decay")),
    Translation(("adam_beta1",), (0.9,), same("actor.optimizer.beta1")),
    Translation(("adam_beta2",), (0.999,), same("actor.optimizer.beta2")),
    Translation(("adam_epsilon",), (1e-8,), same("actor.optimizer.eps")),
    Translation(("max_grad_norm",), (1.0,), same("actor.optimizer.gradient_clipping")),
    Translation(("optim",), ("adamw_torch_fused",), _optim),
    Translation(("lr_scheduler_type",), ("linear",), _schedule),
    Translation(("warmup_steps", "warmup_ratio", "max_steps"), (0, None, -1), _warmup),
    Translation(("seed",), (42,), same("seed")),
)
"""TRL's fields with a counterpart."""

TRL_OTHER = frozenset(
    [
        "output_dir",
        "overwrite_output_dir",
        "do_train",
        "do_eval",
        "do_predict",
        "run_name",
        "report_to",
        "logging_dir",
        "logging_steps",
        "logging_strategy",
        "logging_first_step",
        "log_completions",
        "num_completions_to_print",
        "log_unique_prompts",
        "save_steps",
        "save_strategy",
        "save_total_limit",
        "save_only_model",
        "eval_strategy",
        "eval_steps",
        "eval_on_start",
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "num_train_epochs",
        "bf16",
        "fp16",
        "tf32",
        "bf16_full_eval",
        "gradient_checkpointing",
        "gradient_checkpointing_kwargs",
        "generation_batch_size",
        "generation_kwargs",
        "chat_template_kwargs",
        "max_prompt_length",
        "model_init_kwargs",
        "disable_dropout",
        "cast_lm_head_to_fp32",
        "remove_unused_columns",
        "shuffle_dataset",
        "dataloader_num_workers",
        "dataloader_drop_last",
        "dataloader_pin_memory",
        "data_seed",
        "ddp_timeout",
        "deepspeed",
        "fsdp",
        "fsdp_config",
        "push_to_hub",
        "hub_model_id",
        "hub_strategy",
        "hub_token",
        "hub_private_repo",
        "use_liger_kernel",
        "use_liger_loss",
        "torch_compile",
        "torch_empty_cache_steps",
        "ds3_gather_for_generation",
        "vllm_mode",
        "vllm_server_base_url",
        "vllm_server_host",
        "vllm_server_port",
        "vllm_server_timeout",
        "vllm_gpu_memory_utilization",
        "vllm_tensor_parallel_size",
        "vllm_guided_decoding_regex",
        "vllm_max_model_length",
        "vllm_enable_sleep_mode",
        "vllm_model_impl",
        "use_transformers_paged",
        "sync_ref_model",
        "ref_model_mixup_alpha",
        "ref_model_sync_steps",
        "min_p",
        "repetition_penalty",
        "cache_implementation",
        "vespo_k_pos",
        "vespo_lambda_pos",
        "vespo_k_neg",
        "vespo_lambda_neg",
        "top_entropy_quantile",
        "entropy_coef",
        "use_adaptive_entropy",
        "entropy_target",
        "model_name_or_path",
        "model_revision",
        "dtype",
        "torch_dtype",
        "attn_implementation",
        "trust_remote_code",
        "use_peft",
        "lora_r",
        "lora_alpha",
        "lora_dropout",
        "lora_target_modules",
        "lora_task_type",
        "load_in_4bit",
        "load_in_8bit",
        "dataset_name",
        "dataset_config",
        "dataset_train_split",
        "dataset_test_split",
        "dataset_streaming",
        "dataset_prompt_column",
        "system_prompt",
        "reward_funcs",
        "reward_model_name_or_path",
        "callbacks",
        "benchmarks",
        "wandb_project",
        "wandb_entity",
        "average_tokens_across_devices",
        "resume_from_checkpoint",
        "max_tool_calling_iterations",
    ]
)
"""Fields of TRL's dataclasses that no rule looks at."""


def read_trl(source: Source) -> Subject:
    """A file of GRPOConfig fields as a subject of the rules."""
    return translate(source, TRL_FIELDS, "trl", TRL_OTHER)


TRL_NAMES: frozenset[str] = TRL_OTHER | {name for row in TRL_FIELDS for name in row.names}
"""By these a file is recognised."""
