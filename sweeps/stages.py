"""Which settings act at which stage of the reward pipeline."""

STAGE_SETTINGS = {
    "raw": "the task's own reward (verifier, prompts, gconfig)",
    "penalty": "actor.overlong_reward_penalty and its actor.overlong_* keys",
    "scaled": "actor.reward_scaling or actor.reward_bias",
    "clipped": "actor.reward_clip",
    "normalized": "actor.reward_norm",
    "truncation": "actor.mask_no_eos_with_zero",
    "returns": "actor.kl_ctl (relative to the reward's scale), actor.discount or actor.gae_lambda",
    "advantage": "actor.adv_norm",
}
"""Which settings act at a stage."""
