"""TRL's metric keys (GRPOTrainer).

Read in TRL's docs/source/grpo_trainer.md, "Logged metrics" (commit 010dd23), in its grpo_trainer.py
(`_metrics[mode][...]`), and in published trainer_state.json files; `completion_length` and
`clip_ratio` are those of older versions.
"""

from sweeps.importers.dialects.base import Dialect, Entry

STRICT = r"accura|correct|exact_?match|pass_?rate|solve"
"""Names of reward functions that check the answer."""

TRL = Dialect(
    name="trl",
    title="TRL",
    source="TRL, `docs/source/grpo_trainer.md` (Logged metrics) and `trl/trainer/grpo_trainer.py`",
    how="`trainer_state.json` of any checkpoint, `report_to: tensorboard`, `mlflow` or `wandb`, a "
    "callback that writes each log as a JSON line, or the printed lines",
    entries=(
        Entry("reward", "reward_mean", "after the weights of the reward functions"),
        Entry("rewards/{name}/mean", "component.{name}"),
        Entry("rewards/{name}", "component.{name}", "older versions"),
        Entry("rewards/{name}/std", "aux.component_std.{name}", "over all answers"),
        Entry("reward_std", "raw.gain", "mean of the groups' own; the batch's with scale_rewards"),
        Entry("frac_reward_zero_std", "raw.silent"),
        Entry("eval_rewards/{name}/mean", "eval_pass_rate", "a check", only=STRICT),
        Entry("eval/rewards/{name}/mean", "eval_pass_rate", "a check", only=STRICT),
        Entry("eval_reward", "eval_pass_rate", "the whole reward"),
        Entry("eval/reward", "eval_pass_rate", "the whole reward"),
        Entry("completions/mean_length", "length_mean"),
        Entry("completion_length", "length_mean", "older versions"),
        Entry("completions/max_length", "length_max"),
        Entry("completions/clipped_ratio", "truncated"),
        Entry("entropy", "entropy"),
        Entry("kl", "kl_reference", "k3; only with beta > 0"),
        Entry("clip_ratio/region_mean", "clip_fraction"),
        Entry("clip_ratio", "clip_fraction", "older versions"),
        Entry("clip_ratio/low_mean", "clip_low"),
        Entry("clip_ratio/high_mean", "clip_high"),
        Entry("sampling/sampling_logp_difference/mean", "logprob_gap", "vLLM only"),
        Entry("sampling/importance_sampling_ratio/mean", "ratio_mean", "trainer to vLLM, capped"),
        Entry("sampling/importance_sampling_ratio/max", "ratio_max", "trainer to vLLM, capped"),
        Entry("sampling/importance_sampling_ratio/min", "ratio_min", "trainer to vLLM, capped"),
        Entry("loss", "loss"),
        Entry("grad_norm", "grad_norm"),
        Entry("learning_rate", "learning_rate"),
        Entry("step_time", "seconds"),
    ),
    caveats=(
        "With logging_steps > 1 each value is a mean over that many steps.",
        (
            "reward_std is the mean spread within groups, so it is raw.gain here; reward_std is "
            "taken from rewards/NAME/std where there is one reward function."
        ),
        "frac_reward_zero_std counts constant groups of the weighted sum of all reward functions.",
    ),
)
