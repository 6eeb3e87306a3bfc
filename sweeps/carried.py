"""AReaL keys that decide where and how a production run executes, not what it learns."""

CARRIED_SECTIONS = frozenset(
    [
        "experiment_name",
        "trial_name",
        "cluster",
        "allocation_mode",
        "enable_offload",
        "total_train_epochs",
        "total_train_n_seqs",
        "tokenizer_path",
        "valid_dataset",
        "saver",
        "evaluator",
        "stats_logger",
        "perf_tracer",
        "memory_profiler",
        "recover",
        "sglang",
        "vllm",
        "scheduler",
        "launcher",
        "eval_gconfig",
        "teacher",
        "async_training",
        "workflow",
        "eval_workflow",
        "reward_fn",
        "agent_run_args",
        "max_turns",
        "turn_discount",
    ]
)
"""Top-level keys without effect in a diagnostic run."""

_ENGINE = [
    "experiment_name",
    "trial_name",
    "attn_impl",
    "use_kernels",
    "init_from_scratch",
    "is_critic",
    "mb_spec",
    "pad_to_maximum",
    "disable_dropout",
    "grad_reduce_dtype",
    "optimizer_dtype",
    "weight_update_mode",
    "fsdp",
    "archon",
    "megatron",
    "offload",
    "peft_type",
    "enable_tree_training",
    "scheduling_spec",
    "backend",
    "_version",
    "admin_api_key",
    "log_level",
    "request_timeout",
    "setup_timeout",
    "scheduling_strategy",
    "log_agent_stats",
    "log_agent_stats_keys",
]

_MODEL = [
    "path",
    "gradient_checkpointing",
    "dtype",
    "use_lora",
    "lora_rank",
    "lora_alpha",
    "target_modules",
]
"""What a critic of its own would be; ours starts from the policy."""

CARRIED_KEYS = {
    "actor": frozenset(_ENGINE),
    "critic": frozenset([*_ENGINE, *_MODEL, "temperature"]),
    "gconfig": frozenset(
        [
            "max_tokens",
            "ignore_eos",
            "skip_special_tokens",
            "frequency_penalty",
            "lora_name",
            "use_beam_search",
            "reward_normalization",
        ]
    ),
    "rollout": frozenset(
        [
            "experiment_name",
            "trial_name",
            "fileroot",
            "max_concurrent_rollouts",
            "queue_size",
            "consumer_batch_size",
            "enable_rollout_tracing",
            "check_trajectory_format",
            "tokenizer_path",
            "dump_to_file",
            "setup_timeout",
            "request_timeout",
            "request_retries",
            "pause_grace_period",
            "scheduling_spec",
            "backend",
            "scheduling_strategy",
            "use_lora",
            "lora_name",
            "agent",
            "return_routed_experts",
            "_version",
            "model",
            "routing_strategy",
            "poll_interval",
            "admin_api_key",
            "api_url",
            "provider_api_key",
            "schedule_policy",
        ]
    ),
    "train_dataset": frozenset(
        [
            "split",
            "path",
            "type",
            "shuffle",
            "pin_memory",
            "num_workers",
            "num_dataset_workers",
            "drop_last",
            "max_length",
            "dataset_kwargs",
            "scheduling_spec",
            "setup_timeout",
        ]
    ),
    "actor.optimizer": frozenset(
        ["initial_loss_scale", "min_loss_scale", "loss_scale_window", "hysteresis", "offload"]
    ),
}
"""Keys inside sections that we share with AReaL, which have no effect in a diagnostic run."""
CARRIED_KEYS["critic.optimizer"] = CARRIED_KEYS["actor.optimizer"]
