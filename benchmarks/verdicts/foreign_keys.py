"""Which quantity each dialect logs, and under which key: data, for the writer and for the labels.

Keys of TRL, verl's file logger and AReaL's stats. A quantity that a framework does not log is left
out: verl and AReaL log no share of silent groups and no reward components, AReaL no KL to the
reference (only `kl_rewards`, its product with kl_ctl; `areal+config` has a config.yaml with kl_ctl
beside the logs, as AReaL's own log folder has). verl's `pg_clipfrac_lower` is the dual clip, not
the lower one, and is left out.
"""

PROMPT_TOKENS = 90
"""AReaL logs whole sequences; the simulators have answers only."""
KL_CTL = 0.001
"""Coefficient of the KL term in AReaL's logs."""

TRL = {
    "loss": ("loss",),
    "grad_norm": ("grad_norm",),
    "learning_rate": ("learning_rate",),
    "reward": ("reward",),
    "group_std": ("reward_std",),
    "silent": ("frac_reward_zero_std",),
    "component.correctness": ("rewards/correctness/mean",),
    "component.format": ("rewards/format/mean",),
    "component.task": ("rewards/task_reward/mean",),
    "component_std.task": ("rewards/task_reward/std",),
    "held_out": ("eval_rewards/accuracy_reward/mean",),
    "entropy": ("entropy",),
    "kl": ("kl",),
    "clip": ("clip_ratio/region_mean",),
    "clip_low": ("clip_ratio/low_mean",),
    "clip_high": ("clip_ratio/high_mean",),
    "length": ("completions/mean_length",),
    "length_max": ("completions/max_length",),
    "truncated": ("completions/clipped_ratio",),
    "logprob_gap": ("sampling/sampling_logp_difference/mean",),
    "step_time": ("step_time",),
}
VERL = {
    "loss": ("actor/pg_loss",),
    "grad_norm": ("actor/grad_norm",),
    "learning_rate": ("actor/lr",),
    "reward": ("critic/score/mean", "critic/rewards/mean"),
    "reward_min": ("critic/score/min", "critic/rewards/min"),
    "reward_max": ("critic/score/max", "critic/rewards/max"),
    "advantage_mean": ("critic/advantages/mean",),
    "advantage_min": ("critic/advantages/min",),
    "advantage_max": ("critic/advantages/max",),
    "value_loss": ("critic/vf_loss",),
    "explained_variance": ("critic/vf_explained_var",),
    "held_out": ("val-core/gsm8k/acc/mean@1",),
    "entropy": ("actor/entropy",),
    "kl": ("actor/kl_loss",),
    "clip": ("actor/pg_clipfrac",),
    "length": ("response_length/mean",),
    "length_max": ("response_length/max",),
    "truncated": ("response_length/clip_ratio",),
    "step_time": ("perf/time_per_step",),
    "throughput": ("perf/throughput",),
}
AREAL = {
    "loss": ("ppo_actor/update/actor_loss/avg",),
    "grad_norm": ("ppo_actor/update/grad_norm",),
    "learning_rate": ("ppo_actor/update/lr",),
    "reward": ("rollout/reward", "ppo_actor/task_reward/avg"),
    "reward_min": ("ppo_actor/task_reward/min",),
    "reward_max": ("ppo_actor/task_reward/max",),
    "advantage_mean": ("ppo_actor/advantages/avg",),
    "advantage_min": ("ppo_actor/advantages/min",),
    "advantage_max": ("ppo_actor/advantages/max",),
    "value_loss": ("ppo_critic/update/critic_loss/avg",),
    "held_out": ("eval-rollout/reward",),
    "entropy": ("ppo_actor/update/entropy/avg",),
    "kl_reward": ("ppo_actor/kl_rewards/avg",),
    "clip": ("ppo_actor/update/clip_ratio/avg",),
    "ratio_mean": ("ppo_actor/update/importance_weight/avg",),
    "length": ("ppo_actor/seq_len/avg",),
    "prompt_length": ("ppo_actor/prompt_len/avg",),
    "truncated": ("ppo_actor/no_eos_ratios/avg",),
    "step_time": ("timeperf/train_step",),
}
KEYS = {"trl": TRL, "verl": VERL, "areal": AREAL, "areal+config": AREAL}
"""Dialect -> quantity -> the keys that carry it."""
SHOWS = {name: frozenset(keys) for name, keys in KEYS.items()} | {
    "areal+config": frozenset(AREAL) | {"kl"}
}
"""Quantities that can be read off a log of each dialect."""
