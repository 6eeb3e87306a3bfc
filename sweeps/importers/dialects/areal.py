"""AReaL's stats keys.

Read in AReaL 1.0.4: areal/trainer/ppo/actor.py (`_ppo_update`, `grpo_loss_fn`,
`_log_version_staleness_stats`), trainer/ppo/critic.py, trainer/rl_trainer.py (`record_timing`),
workflow/rlvr.py and infra/workflow_context.py (`rollout`, `eval-rollout`), utils/stats_tracker.py
(`/avg`, `/min`, `/max`), utils/stats_logger.py (trackers and console), utils/printing.py; and in
areal/trainer/ppo/stats.py of main, commit 1bb83b0 (`train_infer`). The scope of the actor is left
out of the keys: older examples used `grpo_actor/`.
"""

from sweeps.importers.dialects.base import Dialect, Entry

PHASES = (
    "rollout",
    "critic_values",
    "ref_logp",
    "teacher_logp",
    "recompute_logp",
    "compute_advantage",
    "compute_advantages",
    "train_step",
    "critic_train_step",
    "update_weights",
)
"""Timed phases of a step that follow each other."""

AREAL = Dialect(
    name="areal",
    title="AReaL",
    source="AReaL 1.0.4, `areal/trainer/ppo/actor.py`, `critic.py`, `rl_trainer.py`, "
    "`areal/utils/stats_logger.py`; `ppo/stats.py` of main",
    how="the console log (`trainer.log`, or `tee`), `stats_logger.tensorboard.path`, or the "
    "history that wandb, swanlab or trackio exports (CSV or JSONL). Beside `config.yaml` of the "
    "run the KL to the reference can be derived",
    entries=(
        Entry("task_reward/avg", "reward_mean", "raw reward, after the overlong penalty"),
        Entry("rollout/reward", "reward_mean", "of the rollouts as they arrived"),
        Entry("task_reward/min", "reward_min"),
        Entry("task_reward/max", "reward_max"),
        Entry("eval-rollout/reward", "eval_pass_rate", "the evaluation's mean reward"),
        Entry("correct_n_seqs", "aux.correct", "answers with a reward above 0"),
        Entry("incorrect_n_seqs", "aux.incorrect", "the others"),
        Entry("seq_len/avg", "aux.total_length", "prompt and answer"),
        Entry("seq_len/max", "aux.total_length_max", "prompt and answer"),
        Entry("prompt_len/avg", "aux.prompt_length"),
        Entry("prompt_len/min", "aux.prompt_length_min"),
        Entry("prompt_len/max", "aux.prompt_length_max"),
        Entry(
            "no_eos_ratios/avg",
            "truncated",
            "as long as the padded batch: the longest answer always counts, a cut one after a "
            "short prompt does not",
        ),
        Entry("update/entropy/avg", "entropy"),
        Entry("kl_rewards/avg", "aux.kl_reward", "-kl_ctl times the KL"),
        Entry("update/clip_ratio/avg", "clip_fraction"),
        Entry("update/dual_clip_ratio/avg", "dual_clip_fraction"),
        Entry("update/importance_weight/avg", "ratio_mean", "to the proximal policy"),
        Entry("update/importance_weight/max", "ratio_max", "to the proximal policy"),
        Entry("update/importance_weight/min", "ratio_min", "to the proximal policy"),
        Entry("train_infer/logp_abs_diff/avg", "logprob_gap", "main, after 1.0.4"),
        Entry("advantages/avg", "advantage_mean"),
        Entry("advantages/min", "advantage_min"),
        Entry("advantages/max", "advantage_max"),
        Entry("update/actor_loss/avg", "loss"),
        Entry("ppo_critic/update/critic_loss/avg", "value_loss"),
        Entry("update/grad_norm", "grad_norm"),
        Entry("update/lr", "learning_rate"),
        Entry("version_stats/sample_staleness_theta_avg", "staleness"),
        *(Entry(f"timeperf/{phase}", f"aux.seconds.{phase}") for phase in PHASES),
    ),
    stated=(
        Entry("ppo_actor/eps_clip", "actor.eps_clip"),
        Entry("ppo_actor/c_clip", "actor.c_clip"),
    ),
    caveats=(
        (
            "approx_kl is the log-ratio to the proximal policy, not the KL to the reference; that "
            "is derived from kl_rewards where actor.kl_ctl is known (config.yaml beside the log, "
            "or --set actor.kl_ctl=...)."
        ),
        "final_reward is averaged over tokens, so it is not the reward of an answer.",
        "The console counts steps from 1, the trackers from 0.",
    ),
)
