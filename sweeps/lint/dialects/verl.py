"""verl's PPO trainer configuration in AReaL's terms (defaults and meaning as read in verl)."""

from sweeps.lint.dialects.base import Source, Translation, Values, same, translate
from sweeps.lint.subject import Subject

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
NO_STD_EPS = 1e-6
"""verl adds it to the group's spread."""

_KL = {
    "kl": "k1",
    "k1": "k1",
    "kl+": "k1",
    "k1+": "k1",
    "mse": "k2",
    "k2": "k2",
    "mse+": "k2",
    "k2+": "k2",
    "low_var_kl": "k3",
    "k3": "k3",
    "low_var_kl+": "k3",
    "k3+": "k3",
    "abs": "k2",
    "full": "k3",
}
_AGGREGATIONS = {
    "token-mean": "token-mean",
    "seq-mean-token-sum": "sequence-sum",
    "seq-mean-token-mean": "sequence-mean",
    "seq-mean-token-sum-norm": "constant",
}


_NORM = "actor.reward_norm"
_GROUP_MEAN: Values = {f"{_NORM}.mean_level": "group", f"{_NORM}.eps": NO_STD_EPS}
_BATCH_WHITENING: Values = {"actor.adv_norm.mean_level": "batch"}

_ESTIMATORS: dict[str, Values] = {
    "gae": {"critic": {}} | _BATCH_WHITENING,
    "grpo": _GROUP_MEAN | {f"{_NORM}.std_level": "group"},
    "rloo": _GROUP_MEAN | {f"{_NORM}.std_level": None, f"{_NORM}.mean_leave1out": True},
    "reinforce_plus_plus": _BATCH_WHITENING,
    "reinforce_plus_plus_baseline": _GROUP_MEAN | {f"{_NORM}.std_level": None} | _BATCH_WHITENING,
}
"""Advantage estimators that AReaL's two normalizations can express."""


def _estimator(name: str, by_std: object) -> Values:
    settings = _ESTIMATORS[name.removesuffix("_vectorized")]
    if name.startswith("grpo") and not by_std:
        return settings | {f"{_NORM}.std_level": None}
    return settings


def _updates(batch: int, mini_batch: int, epochs: int) -> Values:
    return {
        "train_dataset.batch_size": batch,
        "actor.ppo_n_minibatches": max(1, batch // mini_batch) * epochs,
    }


def _kl_reward(on: object, coefficient: float, estimator: str) -> Values:
    if not on:
        return {"actor.kl_ctl": 0.0}
    return {"actor.kl_ctl": coefficient, "actor.kl_estimator": _KL[estimator]}


def _kl_loss(on: object, coefficient: float, estimator: str) -> Values:
    if not on:
        return {"extensions.kl_loss_coef": 0.0}
    return {
        "extensions.kl_loss_coef": coefficient,
        "extensions.kl_loss_estimator": _KL[estimator],
        # verl's "+" variants take k1's value and k2's gradient, which does restrain.
        "extensions.kl_loss_ratio_weighted": estimator.endswith("+"),
    }


_LOSS_MODES = {"vanilla": "token", "gspo": "sequence"}


def _loss_mode(mode: str) -> Values:
    return {"actor.importance_sampling_level": _LOSS_MODES[mode]}


def _temperature(value: float) -> Values:
    return {"gconfig.temperature": value, "actor.temperature": value}


def _lengths(limit: int, response: int | None) -> Values:
    longest = limit if response is None else response
    return {"gconfig.max_new_tokens": longest, "actor.max_new_tokens": longest}


def _overlong(on: object, length: int, factor: float) -> Values:
    if not on:
        return {}
    return {
        "actor.overlong_reward_penalty": True,
        "actor.overlong_tokens": length,
        "actor.overlong_penalty_factor": factor,
    }


def _overlong_row(section: str) -> Translation:
    return Translation(
        (f"{section}.enable", f"{section}.len", f"{section}.penalty_factor"),
        (False, 0, 0.0),
        _overlong,
        "the penalty's limit is data.max_response_length",
        {
            "actor.overlong_tokens": f"{section}.len",
            "actor.overlong_penalty_factor": f"{section}.penalty_factor",
        },
    )


def _filter(on: object) -> Values:
    return {"extensions.dynamic_sampling": {"contrast": True}} if on else {}


def _top_k(value: int) -> Values:
    return {"gconfig.top_k": value} if value > 0 else {}


def _upper_clip(low: float, high: float) -> Values:
    return {"actor.eps_clip": low, "actor.eps_clip_higher": None if high == low else high}


def _sampling(sampled: object) -> Values:
    return {"gconfig.greedy": not sampled}


def _critic(on: object) -> Values:
    return {"critic": {}} if on else {}


VERL_FIELDS: tuple[Translation, ...] = (
    Translation(
        ("algorithm.adv_estimator", "algorithm.norm_adv_by_std_in_grpo"),
        ("gae", True),
        _estimator,
        decides=("actor.reward_norm", "actor.adv_norm", "critic"),
    ),
    Translation(("critic.enable",), (None,), _critic),
    Translation(
        ("data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size", f"{ACTOR}.ppo_epochs"),
        (1024, 256, 1),
        _updates,
        "optimizer steps per batch: train_batch_size / ppo_mini_batch_size * ppo_epochs",
    ),
    Translation(
        (f"{ACTOR}.clip_ratio_low", f"{ACTOR}.clip_ratio_high"),
        (0.2, 0.2),
        _upper_clip,
        "clip_ratio itself is not read while these two have a value, and they have by default",
        {"actor.eps_clip_higher": f"{ACTOR}.clip_ratio_high"},
    ),
    Translation((f"{ACTOR}.clip_ratio_c",), (3.0,), same("actor.c_clip")),
    Translation(
        (f"{ACTOR}.loss_agg_mode",),
        ("token-mean",),
        lambda mode: {"extensions.loss_aggregation": _AGGREGATIONS[mode]},
    ),
    Translation((f"{ACTOR}.policy_loss.loss_mode",), ("vanilla",), _loss_mode),
    Translation(
        ("algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef", "algorithm.kl_penalty"),
        (False, 0.001, "kl"),
        _kl_reward,
        "as AReaL's kl_ctl: a per-token reward",
        {
            "actor.kl_ctl": "algorithm.kl_ctrl.kl_coef",
            "actor.kl_estimator": "algorithm.kl_penalty",
        },
    ),
    Translation(
        (f"{ACTOR}.use_kl_loss", f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type"),
        (False, 0.001, "low_var_kl"),
        _kl_loss,
        "a term of the loss",
        {
            "extensions.kl_loss_coef": f"{ACTOR}.kl_loss_coef",
            "extensions.kl_loss_estimator": f"{ACTOR}.kl_loss_type",
        },
    ),
    Translation((f"{ACTOR}.optim.lr",), (1e-6,), same("actor.optimizer.lr")),
    Translation((f"{ACTOR}.optim.weight_decay",), (0.01,), same("actor.optimizer.weight_decay")),
    Translation((f"{ACTOR}.optim.min_lr_ratio",), (0.0,), same("actor.optimizer.min_lr_ratio")),
    Translation(
        (f"{ACTOR}.optim.lr_warmup_steps_ratio",),
        (0.0,),
        same("actor.optimizer.warmup_steps_proportion"),
    ),
    Translation((f"{ACTOR}.grad_clip",), (1.0,), same("actor.optimizer.gradient_clipping")),
    Translation((f"{ROLLOUT}.n",), (1,), same("gconfig.n_samples")),
    Translation((f"{ROLLOUT}.temperature",), (1.0,), _temperature),
    Translation((f"{ROLLOUT}.top_p",), (1.0,), same("gconfig.top_p")),
    Translation((f"{ROLLOUT}.top_k",), (-1,), _top_k),
    Translation((f"{ROLLOUT}.do_sample",), (True,), _sampling),
    Translation(("data.max_response_length", f"{ROLLOUT}.response_length"), (512, None), _lengths),
    Translation(("algorithm.gamma",), (1.0,), same("actor.discount")),
    Translation(("algorithm.lam",), (1.0,), same("actor.gae_lambda")),
    Translation(("algorithm.filter_groups.enable",), (False,), _filter),
    _overlong_row("reward_model.overlong_buffer"),
    _overlong_row("reward_model.reward_kwargs.overlong_buffer_cfg"),
)
"""verl's keys with a counterpart."""

_REFERENCE: Values = {"ref": {}}
"""verl loads its reference whenever a KL term is on."""

VERL_OTHER = frozenset(
    [
        "defaults",
        "hydra",
        "trainer",
        "global_profiler",
        "ray_kwargs",
        "ray_init",
        "custom_reward_function",
        "actor_rollout_ref.model",
        "actor_rollout_ref.ref",
        "actor_rollout_ref.hybrid_engine",
        "actor_rollout_ref.nccl_timeout",
        "critic",
        "reward_model",
        "reward_manager",
        "transfer_queue",
        "data.train_files",
        "data.val_files",
        "data.prompt_key",
        "data.reward_fn_key",
        "data.max_prompt_length",
        "data.val_batch_size",
        "data.shuffle",
        "data.seed",
        "data.truncation",
        "data.filter_overlong_prompts",
        "data.filter_overlong_prompts_workers",
        "data.return_raw_chat",
        "data.return_raw_input_ids",
        "data.return_full_prompt",
        "data.image_key",
        "data.video_key",
        "data.trust_remote_code",
        "data.custom_cls",
        "data.sampler",
        "data.datagen",
        "data.tokenizer",
        "data.use_shm",
        "data.validation_shuffle",
        "data.dataloader_num_workers",
        "data.return_multi_modal_inputs",
        "data.apply_chat_template_kwargs",
        "data.gen_batch_size",
        "algorithm.kl_ctrl",
        "algorithm.use_pf_ppo",
        "algorithm.pf_ppo",
        "algorithm._target_",
        "algorithm.filter_groups",
    ]
)
"""Sections and keys that no rule looks at."""

VERL_ACTOR_OTHER = frozenset(
    f"{ACTOR}.{name}"
    for name in [
        "strategy",
        "ppo_micro_batch_size",
        "ppo_micro_batch_size_per_gpu",
        "use_dynamic_bsz",
        "ppo_max_token_len_per_gpu",
        "clip_ratio",
        "use_torch_compile",
        "shuffle",
        "checkpoint",
        "optim",
        "policy_loss",
        "use_fused_kernels",
        "profiler",
        "ulysses_sequence_parallel_size",
        "entropy_from_logits_with_chunking",
        "entropy_checkpointing",
        "fsdp_config",
        "megatron",
        "use_remove_padding",
        "_target_",
        "entropy_coeff",
    ]
)
VERL_ROLLOUT_OTHER = frozenset(
    f"{ROLLOUT}.{name}"
    for name in [
        "name",
        "mode",
        "prompt_length",
        "dtype",
        "gpu_memory_utilization",
        "ignore_eos",
        "enforce_eager",
        "cudagraph_capture_sizes",
        "free_cache_engine",
        "tensor_model_parallel_size",
        "max_num_batched_tokens",
        "max_model_len",
        "max_num_seqs",
        "log_prob_micro_batch_size",
        "log_prob_micro_batch_size_per_gpu",
        "log_prob_use_dynamic_bsz",
        "log_prob_max_token_len_per_gpu",
        "disable_log_stats",
        "over_sample_rate",
        "multi_stage_wake_up",
        "engine_kwargs",
        "val_kwargs",
        "multi_turn",
        "calculate_log_probs",
        "agent",
        "update_weights_bucket_megabytes",
        "trace",
        "skip_rollout",
        "skip_dump_dir",
        "profiler",
        "enable_chunked_prefill",
        "load_format",
        "layered_summon",
        "_target_",
    ]
)

_KNOWN = VERL_OTHER | VERL_ACTOR_OTHER | VERL_ROLLOUT_OTHER
_BASE = (Translation(("actor_rollout_ref.ref",), (None,), lambda _: dict(_REFERENCE)),)


def read_verl(source: Source) -> Subject:
    """A verl configuration, or overrides of one, as a subject of the rules."""
    return translate(source, _BASE + VERL_FIELDS, "verl", _KNOWN)
