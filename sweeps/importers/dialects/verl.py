"""verl's metric keys.

Read in verl: verl/trainer/ppo/metric_utils.py (commit 01bd7e8: `compute_data_metrics`,
`compute_throughout_metrics`, `process_validation_metrics`), ray_trainer.py (`val-core`, `val-aux`),
rollout_corr_helper.py (20c30bf), workers/actor/dp_actor.py (03b0081), utils/tracking.py (047621b:
FileLogger, MLflow's `_at_`) and utils/logger (the console's `step:N - key:value` lines).
"""

from sweeps.importers.dialects.base import Dialect, Entry

_MISMATCH = "of the sampler's correction weights, as applied"

VERL = Dialect(
    name="verl",
    title="verl",
    source="verl, `trainer/ppo/metric_utils.py`, `ray_trainer.py`, `rollout_corr_helper.py`, "
    "`workers/actor/dp_actor.py`, `utils/tracking.py`",
    how='`trainer.logger: ["console","file"]` (`VERL_FILE_LOGGER_PATH` names the file), '
    "`tensorboard`, `mlflow`, or the console's own lines",
    entries=(
        Entry("critic/score/mean", "reward_mean", "before a KL term in the reward"),
        Entry("critic/rewards/mean", "reward_mean", "after a KL term in the reward"),
        Entry("critic/score/min", "reward_min"),
        Entry("critic/score/max", "reward_max"),
        Entry("critic/rewards/min", "reward_min", "after a KL term in the reward"),
        Entry("critic/rewards/max", "reward_max", "after a KL term in the reward"),
        Entry("val-core/{any}/acc/mean@{n}", "eval_pass_rate", several=True),
        Entry("val-core/{any}/reward/mean@{n}", "eval_pass_rate", several=True),
        Entry("val-aux/{any}/acc/mean@{n}", "eval_pass_rate", several=True),
        Entry("val-core/{any}/mean@{n}", "eval_pass_rate", several=True),
        Entry("val/test_score/{any}", "eval_pass_rate", "older versions", several=True),
        Entry("response_length/mean", "length_mean"),
        Entry("response_length/max", "length_max"),
        Entry("response_length/clip_ratio", "truncated"),
        Entry("actor/entropy", "entropy"),
        Entry("actor/entropy_loss", "entropy", "older versions"),
        Entry(
            "actor/kl_loss",
            "kl_reference",
            "kl_loss_type's estimate; newer versions sum it over the mini-batches of a step",
        ),
        Entry("actor/reward_kl_penalty", "kl_reference", "kl_penalty's estimate"),
        Entry("actor/pg_clipfrac", "clip_fraction"),
        Entry("actor/pg_clipfrac_lower", "dual_clip_fraction", "the dual clip, not the lower one"),
        Entry("rollout_corr/rollout_is_mean", "ratio_mean", _MISMATCH),
        Entry("rollout_corr/rollout_is_max", "ratio_max", _MISMATCH),
        Entry("rollout_corr/rollout_is_min", "ratio_min", _MISMATCH),
        Entry("rollout_corr/rollout_is_eff_sample_size", "effective_samples", _MISMATCH),
        Entry("mismatch/rollout_is_mean", "ratio_mean", "older versions"),
        Entry("mismatch/rollout_is_max", "ratio_max", "older versions"),
        Entry("mismatch/rollout_is_min", "ratio_min", "older versions"),
        Entry("mismatch/rollout_is_eff_sample_size", "effective_samples", "older versions"),
        Entry(
            "rollout_corr/log_ppl_abs_diff",
            "logprob_gap",
            "per answer, so differences of tokens cancel: a lower bound",
        ),
        Entry(
            "training/rollout_probs_diff_mean",
            "logprob_gap",
            "of probabilities, never more than that of log-probs: a lower bound",
        ),
        Entry("critic/advantages/mean", "advantage_mean"),
        Entry("critic/advantages/min", "advantage_min"),
        Entry("critic/advantages/max", "advantage_max"),
        Entry("actor/pg_loss", "loss"),
        Entry("actor/loss", "loss"),
        Entry("critic/vf_loss", "value_loss"),
        Entry("critic/vf_explained_var", "value_explained"),
        Entry("actor/grad_norm", "grad_norm"),
        Entry("actor/lr", "learning_rate"),
        Entry("perf/time_per_step", "seconds"),
        Entry("timing_s/step", "seconds"),
    ),
    stated=(Entry("actor/reward_kl_penalty_coeff", "actor.kl_ctl"),),
    null_is_nan=True,
    caveats=(
        (
            "verl logs no share of silent groups; a dump of the samples (trainer.rollout_data_dir) "
            "gives it."
        ),
        "Its file logger (orjson) writes NaN and infinity as null; null is read as NaN.",
        "Several data sets of a validation count as their mean.",
    ),
)
