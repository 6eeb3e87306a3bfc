"""Every rule speaks about the configuration it is made for, not about the one that is put right.

The rows are written by hand from what each rule claims; where a rule computes a number, the number
is derived beside the row.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from grpo_core.profiles import PROFILES
from sweeps.keys import KEYS
from sweeps.lint import LINT_RULES
from sweeps.lint.dialects.areal import read_areal
from sweeps.lint.dialects.base import Source
from sweeps.lint.dialects.trl import read_trl
from sweeps.lint.dialects.verl import read_verl
from sweeps.lint.rules import FAMILIES
from sweeps.lint.settings import build_settings
from sweeps.lint.subject import Rewards, Subject
from sweeps.lint.types import EVIDENCE_KINDS, SEVERITIES, Hit, LintRule
from tests.lint_reads import keys_looked_at, watch

Flat = dict[str, Any]

HEALTHY: Flat = {
    "rollout.max_head_offpolicyness": 2,
    "gconfig.n_samples": 8,
    "gconfig.max_new_tokens": 1024,
    "gconfig.temperature": 1.0,
    "actor.path": "some/model",
    "actor.optimizer.type": "adam",
    "actor.optimizer.lr": 1.7e-5,
    "actor.eps_clip": 0.2,
    "actor.kl_ctl": 0.0,
    "actor.ppo_n_minibatches": 4,
    "actor.use_decoupled_loss": True,
    "actor.rejection_sampling.upper": 5.0,
    "actor.reward_norm.mean_level": "group",
    "actor.reward_norm.std_level": "group",
    "actor.reward_norm.group_size": 8,
    "actor.adv_norm.mean_level": "batch",
    "actor.adv_norm.std_level": "batch",
    "actor.max_new_tokens": 1024,
    "train_dataset.batch_size": 256,
}
TINY: Flat = {
    **PROFILES["tiny"].defaults,
    "actor.kl_ctl": 0.0,
    "actor.adv_norm.mean_level": "batch",
}
OVERLONG: Flat = {
    "actor.overlong_reward_penalty": True,
    "actor.overlong_tokens": 256,
    "actor.overlong_penalty_factor": 1.0,
}
ZERO_ONE = Rewards((0.0, 1.0), graded=False)
ACTOR = "actor_rollout_ref.actor"


def lay(base: Flat, changes: Flat) -> Flat:
    """`base` with changes; None for a whole section removes it."""
    flat = dict(base)
    for key, value in changes.items():
        if value is None:
            flat = {k: v for k, v in flat.items() if k != key and not k.startswith(f"{key}.")}
        flat[key] = value
    return flat


def areal(changes: Flat, **known: object) -> Subject:
    return with_known(read_areal(Source(lay(HEALTHY, changes), {})), known)


def only(flat: Flat, **known: object) -> Subject:
    """An AReaL file with nothing but these keys."""
    return with_known(read_areal(Source(flat, {})), known)


def tiny(changes: Flat, **known: object) -> Subject:
    settings = build_settings(lay(TINY, changes))
    assert settings.invalid == ()
    written = frozenset(lay(TINY, changes))
    return with_known(Subject(settings.config, "space", written=written), known)


def trl(fields: Flat) -> Subject:
    return read_trl(Source(fields, {}))


def verl(fields: Flat) -> Subject:
    return read_verl(Source(fields, {}))


def with_known(subject: Subject, known: dict[str, object]) -> Subject:
    changed: Any = known
    return replace(subject, **changed)


def hits(rule: str, subject: Subject) -> list[Hit]:
    return list(LINT_RULES[rule].check(subject))


@dataclass(frozen=True)
class Row:
    """A rule, a configuration that it speaks about, and one that it leaves alone."""

    rule: str
    bad: Subject
    good: Subject
    says: tuple[str, ...] = field(default=())


RN = {"actor.reward_norm.mean_level": "group", "actor.adv_norm": None}

ROWS = [
    # groups
    Row("group-of-one", areal({"gconfig.n_samples": 1}), areal({}), ("gconfig.n_samples=1",)),
    Row(
        "group-of-one",
        tiny({"gconfig.n_samples": 1, "actor.adv_norm.mean_level": "group"}),
        tiny({"gconfig.n_samples": 1}),
    ),
    Row("group-of-one", verl({"algorithm.adv_estimator": "grpo"}), verl({}), ("rollout.n=1",)),
    Row("greedy-group", areal({"gconfig.greedy": True}), areal({}), ("n_samples=8",)),
    Row("greedy-group", areal({"gconfig.temperature": 0.0}), areal({}), ("temperature=0.0",)),
    Row(
        "temperature-mismatch",
        areal({"gconfig.temperature": 0.6}),
        areal({"gconfig.temperature": 0.6, "actor.temperature": 0.6}),
        ("actor.temperature=1.0 (AReaL's default)",),
    ),
    Row("low-temperature", areal({"gconfig.temperature": 0.5}), areal({})),
    Row("high-temperature", areal({"gconfig.temperature": 1.5}), areal({})),
    Row("truncated-sampling", areal({"gconfig.top_p": 0.95}), areal({}), ("top_p=0.95",)),
    Row("truncated-sampling", areal({"gconfig.top_k": 20}), areal({}), ("top_k=20",)),
    # 0.3^8 + 0.7^8 = 0.0000656 + 0.0576 = 6 %
    Row("silent-groups", areal({}, pass_rate=0.3), areal({}), ("6%",)),
    # 0.02^8 + 0.98^8 = 0.851; at G = 32, 0.98^32 = 0.524; at 64, 0.274
    Row("mostly-silent-groups", areal({}, pass_rate=0.02), areal({}), ("85%",)),
    # rewards
    Row("scaling-zero", areal({"actor.reward_scaling": 0.0}), areal({})),
    Row("scaling-negative", areal({"actor.reward_scaling": -1.0}), areal({})),
    Row("clip-flattens-rewards", areal({"actor.reward_clip": 0.0}), areal({})),
    Row(
        "clip-flattens-rewards",
        tiny({"actor.reward_clip": 1.0}, rewards=Rewards((5.0, 10.0), graded=False)),
        tiny({"actor.reward_clip": 1.0}, rewards=ZERO_ONE),
        ("[5, 10]", "maps all of them to 1"),
    ),
    # (0 - 0.5) * 10 = -5 and (1 - 0.5) * 10 = 5: inside 20
    Row(
        "clip-flattens-rewards",
        areal({"actor.reward_scaling": 100.0}, rewards=Rewards((5.0, 10.0), graded=False)),
        areal({"actor.reward_scaling": 10.0, "actor.reward_bias": -0.5}, rewards=ZERO_ONE),
        ("[500, 1000]", "to 20"),
    ),
    # a range of 10 of which the clip leaves 0.5: 5 %
    Row(
        "clip-cuts-graded-rewards",
        areal({"actor.reward_clip": 0.5}, rewards=Rewards((0.0, 10.0), graded=True)),
        areal({"actor.reward_clip": 0.5}, rewards=Rewards((0.0, 10.0), graded=False)),
        ("5%",),
    ),
    Row(
        "small-reward-scale",
        areal({"actor.reward_scaling": 1e-3}),
        areal({"actor.reward_scaling": 1e-3, "actor.kl_ctl": 0.1, "ref": {}}),
    ),
    Row(
        "sgd-small-signal",
        tiny(
            {
                **RN,
                "actor.reward_norm.std_level": None,
                "actor.optimizer.type": "sgd",
                "actor.reward_scaling": 1e-3,
            }
        ),
        tiny({"actor.optimizer.type": "sgd", "actor.reward_scaling": 1e-3}),
    ),
    Row(
        "bias-without-effect",
        areal({"actor.reward_bias": -0.5}, rewards=ZERO_ONE),
        areal({"actor.reward_bias": -0.5, "actor.reward_norm": None}, rewards=ZERO_ONE),
    ),
    Row(
        "uneven-reward-weights",
        trl({"reward_weights": [1.0, 5.0]}),
        trl({"reward_weights": [1, 1]}),
    ),
    # 0.99^1024 = e^-10.3 = 3e-5, and 0.99^229 = 0.1001
    Row(
        "reward-discounted-away",
        areal({"actor.discount": 0.99}),
        areal({"actor.discount": 0.9999}),
        ("last 230 ",),
    ),
    Row(
        "reward-discounted-away",
        areal({"actor.gae_lambda": 0.95}),
        areal({"actor.gae_lambda": 0.95, "critic.eps_clip": 0.5}),
    ),
    Row("penalty-is-scaled", areal({**OVERLONG, "actor.reward_scaling": 10.0}), areal(OVERLONG)),
    Row("std-amplifies-shaping", areal(OVERLONG), areal({})),
    # normalization
    Row(
        "group-size-ignored",
        areal({"actor.reward_norm.group_size": 5}),
        areal({}),
        # 256 * 8 = 2048 = 409 * 5 + 3
        ("last 3 of 2048 rows",),
    ),
    Row(
        "leave-one-out-cancels",
        areal({"actor.reward_norm.mean_leave1out": True}),
        areal({"actor.reward_norm.mean_leave1out": True, "actor.reward_norm.std_level": None}),
    ),
    Row(
        "leave-one-out-of-tokens",
        areal({"actor.adv_norm.mean_leave1out": True}),
        tiny({"actor.adv_norm.mean_leave1out": True}),
    ),
    Row("group-mean-of-tokens", areal({"actor.adv_norm.mean_level": "group"}), areal({})),
    Row("std-without-mean", areal({"actor.reward_norm.mean_level": None}), areal({})),
    Row("group-std-about-batch-mean", areal({"actor.reward_norm.mean_level": "batch"}), areal({})),
    Row("batch-mean-of-rewards", areal({"actor.reward_norm.mean_level": "batch"}), areal({})),
    Row("no-baseline", areal({"actor.reward_norm": None, "actor.adv_norm": None}), areal({})),
    Row(
        "std-comes-back",
        areal({"actor.reward_norm.std_level": None}),
        areal({"actor.reward_norm.std_level": None, "actor.adv_norm": None}),
    ),
    Row("biased-std", areal({"actor.reward_norm.std_unbiased": False}), areal({})),
    # kl
    Row(
        "kl-without-reference",
        only({"actor.path": "m"}),
        only({"actor.path": "m", "ref.path": "m"}),
        ("actor.kl_ctl=0.1 (AReaL's default)", "bonus for every unlikely token"),
    ),
    # 0.1 / 1e-3 = 100 times what a right answer earns
    Row(
        "kl-pins-policy",
        tiny({"actor.kl_ctl": 0.1, "actor.reward_scaling": 1e-3}),
        tiny({"actor.kl_ctl": 0.1}),
        ("costs 100 times",),
    ),
    # the std makes the range 2 whatever the scaling: 10 / 2 = 5
    Row(
        "kl-pins-policy",
        areal({"ref": {}, "actor.kl_ctl": 10.0}),
        areal({"ref": {}, "actor.kl_ctl": 10.0, "actor.kl_estimator": "k3"}),
        ("costs 5 times",),
    ),
    Row(
        "kl-pins-policy",
        tiny({"actor.kl_ctl": 1.0}, rewards=ZERO_ONE),
        tiny({"actor.kl_ctl": 1.0, "actor.reward_scaling": 10.0}, rewards=ZERO_ONE),
    ),
    Row("kl-negative", areal({"ref": {}, "actor.kl_ctl": -0.1}), areal({"ref": {}})),
    Row(
        "k1-in-loss",
        verl({f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_type": "kl"}),
        verl({f"{ACTOR}.use_kl_loss": True}),
        ("kl_loss_type",),
    ),
    Row(
        "kl-estimator-in-reward",
        areal({"ref": {}, "actor.kl_ctl": 0.1, "actor.kl_estimator": "k3"}),
        areal({"ref": {}, "actor.kl_ctl": 0.1}),
    ),
    Row("kl-by-default", only({"ref.path": "m"}), areal({"ref": {}})),
    Row("reference-unused", areal({"ref.path": "m"}), areal({})),
    Row("kl-fills-silence", areal({"ref": {}, "actor.kl_ctl": 0.1}), areal({"ref": {}})),
    Row(
        "small-kl",
        areal({"ref": {}, "actor.kl_ctl": 0.001}),
        areal({"ref": {}, "actor.kl_ctl": 0.1}),
    ),
    # ratio
    Row("clip-range-zero", areal({"actor.eps_clip": 0.0}), areal({})),
    Row("clip-range-negative", areal({"actor.eps_clip": -0.2}), areal({"actor.eps_clip": 0.0})),
    Row(
        "stale-without-clip",
        tiny({"rollout.max_head_offpolicyness": 8, "actor.eps_clip": 1e9}),
        tiny({"rollout.max_head_offpolicyness": 1, "actor.eps_clip": 1e9}),
    ),
    Row(
        "many-updates-without-clip",
        areal({"actor.ppo_n_minibatches": 8, "actor.eps_clip": 0.2, "actor.eps_clip_higher": 10.0}),
        areal({"actor.ppo_n_minibatches": 8}),
        ("eps_clip_higher",),
    ),
    Row("clip-inert", areal({"actor.ppo_n_minibatches": 1}), areal({})),
    Row("clip-inert", trl({"epsilon": 0.2}), trl({"epsilon": 0.2, "num_iterations": 2})),
    Row(
        "ratio-setting-inert",
        areal({"actor.ppo_n_minibatches": 1, "actor.c_clip": 3.0}),
        areal(
            {
                "actor.ppo_n_minibatches": 1,
                "actor.c_clip": 3.0,
                "actor.prox_logp_method": "loglinear",
            }
        ),
    ),
    Row(
        "ratio-setting-inert",
        tiny({"actor.ppo_n_minibatches": 1, "actor.importance_sampling_level": "sequence"}),
        tiny(
            {
                "actor.ppo_n_minibatches": 1,
                "actor.importance_sampling_level": "sequence",
                "rollout.max_head_offpolicyness": 2,
            }
        ),
    ),
    Row(
        "decoupled-uncorrected",
        areal({"actor.rejection_sampling": None}),
        areal({}),
    ),
    Row(
        "decoupled-uncorrected-mild",
        areal({"actor.rejection_sampling": None, "rollout.max_head_offpolicyness": 1}),
        areal({"actor.rejection_sampling": None}),
    ),
    Row(
        "stale-coupled",
        areal({"actor.use_decoupled_loss": False, "rollout.max_head_offpolicyness": 16}),
        areal({"rollout.max_head_offpolicyness": 16}),
        ("max_head_offpolicyness=16",),
    ),
    Row(
        "stale-high-lr",
        tiny({"actor.optimizer.lr": 2e-3, "rollout.max_head_offpolicyness": 4}),
        tiny({"rollout.max_head_offpolicyness": 4}),
    ),
    Row(
        "filter-drops-everything",
        areal({"actor.rejection_sampling.lower": 1.5}),
        areal({"actor.rejection_sampling.lower": 0.5}),
    ),
    Row(
        "filter-drops-everything",
        areal({"actor.rejection_sampling.metric": "kl_k1", "actor.rejection_sampling.upper": -0.1}),
        areal({"actor.rejection_sampling.metric": "kl_k1", "actor.rejection_sampling.upper": 0.1}),
    ),
    Row("filter-inert", areal({"actor.use_decoupled_loss": False}), areal({})),
    Row("m2-threshold-negative", areal({"actor.m2_threshold": -1.0}), areal({})),
    Row(
        "no-clip-with-train-logp", areal({"actor.prox_logp_method": "reuse_train_logp"}), areal({})
    ),
    Row(
        "cispo-cap-below-one",
        trl({"loss_type": "cispo"}),
        trl({"loss_type": "cispo", "epsilon_high": 5.0}),
        # TRL's cap falls back to epsilon
        ("capped at 0.2",),
    ),
    Row(
        "token-clip-on-sequences",
        areal({"actor.importance_sampling_level": "sequence"}),
        areal({"actor.importance_sampling_level": "sequence", "actor.eps_clip": 3e-4}),
    ),
    Row("sequence-clip-on-tokens", areal({"actor.eps_clip": 3e-4}), areal({})),
    Row(
        "sequence-level-without-std",
        tiny(
            {
                **RN,
                "actor.reward_norm.std_level": None,
                "actor.importance_sampling_level": "sequence",
            }
        ),
        tiny({"actor.importance_sampling_level": "sequence"}),
    ),
    Row(
        "sequence-level-token-mean",
        trl({"importance_sampling_level": "sequence"}),
        trl({"importance_sampling_level": "sequence", "loss_type": "grpo"}),
    ),
    # lengths
    Row(
        "overlong-out-of-reach",
        # AReaL's own DAPO shape: the tail starts at 4096 - 512 = 3584, and 2048 tokens are all
        areal(
            {
                **OVERLONG,
                "actor.max_new_tokens": 4096,
                "actor.overlong_tokens": 512,
                "gconfig.max_new_tokens": 4096,
                "gconfig.max_tokens": 2048,
            }
        ),
        areal(OVERLONG),
        ("3584", "gconfig.max_tokens=2048"),
    ),
    Row(
        "overlong-beyond-limit",
        areal({**OVERLONG, "gconfig.max_new_tokens": 2048}),
        areal(OVERLONG),
        ("actor.max_new_tokens=1024", "2048"),
    ),
    Row(
        "overlong-limits-differ",
        areal({**OVERLONG, "actor.max_new_tokens": 1100}),
        areal(OVERLONG),
    ),
    Row(
        "overlong-sign", areal({**OVERLONG, "actor.overlong_penalty_factor": -1.0}), areal(OVERLONG)
    ),
    Row(
        "overlong-drowns-task",
        areal({**OVERLONG, "actor.overlong_penalty_factor": 100.0}),
        areal(
            {**OVERLONG, "actor.overlong_penalty_factor": 100.0},
            rewards=Rewards((0.0, 100.0), graded=False),
        ),
        ("loses 100 times",),
    ),
    Row(
        "overlong-on-all-lengths",
        areal({**OVERLONG, "actor.overlong_tokens": 1024}),
        areal(OVERLONG),
    ),
    Row(
        "mask-pays-for-truncation",
        # (0 - 0.5) * 10 = -5 for a wrong answer, 0 for a cut one
        areal(
            {
                "actor.mask_no_eos_with_zero": True,
                "actor.reward_bias": -0.5,
                "actor.reward_scaling": 10.0,
                "actor.reward_norm": None,
            }
        ),
        areal({"actor.mask_no_eos_with_zero": True, "actor.reward_norm": None}),
        ("gets -5",),
    ),
    Row("mask-after-centring", areal({"actor.mask_no_eos_with_zero": True}), areal({})),
    Row(
        "mask-by-width",
        areal({"actor.mask_no_eos_with_zero": True}),
        tiny({"actor.mask_no_eos_with_zero": True}),
    ),
    Row("mask-off", areal({"actor.mask_no_eos_with_zero": False}), areal({})),
    # optimizer
    Row(
        "lr-collapses-tiny", tiny({"actor.optimizer.lr": 1e-2}), areal({"actor.optimizer.lr": 1e-2})
    ),
    Row("lr-edge-tiny", tiny({"actor.optimizer.lr": 2e-3}), tiny({"actor.optimizer.lr": 1e-2})),
    Row("lr-slow-tiny", tiny({"actor.optimizer.lr": 1e-5}), tiny({})),
    Row("lr-above-known", only({"actor.path": "m"}), areal({}), ("lr=0.001 (AReaL's default)",)),
    Row(
        "lr-above-known",
        areal({"actor.optimizer.lr": 1e-3}),
        areal({"actor.optimizer.lr": 1e-3, "actor.use_lora": True}),
    ),
    Row("lr-below-known", areal({"actor.optimizer.lr": 1e-9}), areal({})),
    Row("no-warmup", areal({"actor.optimizer.warmup_steps_proportion": 0.0}), areal({})),
    Row("no-gradient-clipping", areal({"actor.optimizer.gradient_clipping": 0.0}), areal({})),
    Row("large-adam-eps", areal({"actor.optimizer.eps": 1e-5}), areal({})),
    Row(
        "more-minibatches-than-rows",
        areal({"train_dataset.batch_size": 1, "actor.ppo_n_minibatches": 16}),
        areal({"train_dataset.batch_size": 2, "actor.ppo_n_minibatches": 16}),
        ("only 8 answers",),
    ),
    # names
    Row("invalid-value", areal({"actor.kl_estimator": "k4"}), areal({}), ("'k4'", "k1, k2, k3")),
    Row("invalid-value", areal({"actor.reward_norm.mean_level": "none"}), areal({}), ("'none'",)),
    Row("invalid-value", areal({"gconfig.n_samples": "many"}), areal({"gconfig.n_samples": "8"})),
    Row(
        "invalid-value",
        areal({"actor.importance_sampling_level": "group"}),
        areal({"actor.optimizer.type": "adam_bf16", "actor.optimizer.lr_scheduler_type": "wsd"}),
    ),
    Row("misspelt-key", areal({"actor.kl_ctrl": 0.1}), areal({}), ("nearest is actor.kl_ctl",)),
    Row("renamed-key", areal({"actor.behave_imp_weight_cap": 5.0}), areal({})),
    Row("inert-setting", areal({"actor.sapo_tau_pos": 2.0}), areal({"actor.sapo_tau_pos": 1.0})),
    Row("inert-setting", areal({"actor.overlong_tokens": 256}), areal(OVERLONG)),
    Row(
        "inert-setting",
        areal({"actor.kl_estimator": "k3"}),
        areal({"actor.kl_estimator": "k3", "actor.kl_ctl": 0.1, "ref": {}}),
    ),
    Row(
        "inert-setting",
        areal(
            {
                "actor.use_decoupled_loss": False,
                "actor.rejection_sampling": None,
                "actor.m2_threshold": 0.04,
            }
        ),
        areal({"actor.m2_threshold": 0.04}),
    ),
    Row(
        "inert-norm-setting",
        areal({"actor.reward_norm.mean_level": None, "actor.reward_norm.mean_leave1out": True}),
        areal({"actor.reward_norm.mean_leave1out": True}),
    ),
    # foreign
    Row("trl-beta-in-loss", trl({"beta": 0.04}), trl({})),
    Row("trl-truncated-in-baseline", trl({"mask_truncated_completions": True}), trl({})),
    Row(
        "verl-clip-ratio-shadowed",
        verl({f"{ACTOR}.clip_ratio": 0.3}),
        verl(
            {
                f"{ACTOR}.clip_ratio": 0.3,
                f"{ACTOR}.clip_ratio_low": 0.3,
                f"{ACTOR}.clip_ratio_high": 0.3,
            }
        ),
    ),
    Row(
        "verl-kl-switched-off",
        verl({f"{ACTOR}.kl_loss_coef": 0.01}),
        verl({f"{ACTOR}.kl_loss_coef": 0.01, f"{ACTOR}.use_kl_loss": True}),
    ),
    # refused
    Row("dual-clip", areal({"actor.c_clip": 0.5}), areal({"actor.c_clip": 3.0}), ("c_clip=0.5",)),
    Row("sapo-decoupled", areal({"actor.use_sapo_loss": True}), areal({})),
    Row(
        "sapo-temperatures",
        areal({"actor.use_sapo_loss": True, "actor.sapo_tau_pos": 0.0}),
        areal({"actor.use_sapo_loss": True}),
    ),
    Row("cispo-bound", areal({"actor.use_cispo_loss": True}), areal({})),
    Row(
        "cispo-level",
        areal({"actor.use_cispo_loss": True, "actor.importance_sampling_level": "sequence"}),
        areal({"actor.use_cispo_loss": True}),
    ),
    Row(
        "one-loss",
        areal({"actor.use_cispo_loss": True, "actor.use_sapo_loss": True}),
        areal({"actor.use_cispo_loss": True}),
    ),
    Row("filter-bounds", areal({"actor.rejection_sampling.lower": 6.0}), areal({})),
    Row("filter-ratio", areal({"actor.rejection_sampling.upper": 0.9}), areal({})),
    Row(
        "filter-divergence",
        areal({"actor.rejection_sampling.metric": "kl_k2", "actor.rejection_sampling.upper": 0.0}),
        areal({"actor.rejection_sampling.metric": "kl_k2"}),
    ),
    Row(
        "filter-clamp",
        areal(
            {"actor.rejection_sampling.metric": "kl_k2", "actor.rejection_sampling.action": "clamp"}
        ),
        areal({"actor.rejection_sampling.action": "clamp"}),
    ),
    Row("overlong-lengths", areal({"actor.overlong_reward_penalty": True}), areal(OVERLONG)),
    Row("group-size", areal({"actor.reward_norm.group_size": 0}), areal({})),
    Row(
        "lambda-argument",
        areal({"actor.gae_lambda": "areal.trainer.ppo.lambda_fn.constant_gae_lambda"}),
        areal(
            {
                "actor.gae_lambda": "areal.trainer.ppo.lambda_fn.constant_gae_lambda",
                "actor.gae_lambda_kwargs.value": 1.0,
            }
        ),
    ),
    Row("token-limits", areal({"gconfig.min_new_tokens": 2000}), areal({})),
    Row(
        "turns",
        tiny({"actor.gae_timestep_unit": "turn"}),
        areal({"actor.gae_timestep_unit": "turn"}),
    ),
    Row(
        "reference-in-loss",
        tiny({"extensions.kl_loss_coef": 0.1, "ref": None}),
        tiny({"extensions.kl_loss_coef": 0.1}),
    ),
    Row(
        "dynamic-sampling-bounds",
        tiny({"extensions.dynamic_sampling.above": 1.0}),
        tiny({"extensions.dynamic_sampling.above": 0.0}),
    ),
    Row("inert-setting", tiny({"dynamic_bs": True}), areal({"dynamic_bs": True})),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_rule_speaks_about_the_fault_and_not_about_its_fix(row: Row) -> None:
    found = hits(row.rule, row.bad)
    assert len(found) == 1
    assert all(text in found[0].message + found[0].fix for text in row.says), found[0].message
    assert found[0].fix
    assert hits(row.rule, row.good) == []


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} == set(LINT_RULES)


def test_the_registry_holds_every_rule_of_every_family_once() -> None:
    defined = [
        value.id
        for family in FAMILIES
        for value in vars(family).values()
        if isinstance(value, LintRule)
    ]
    listed = [rule.id for family in FAMILIES for rule in family.RULES]
    assert len(listed) == len(set(listed)) == len(LINT_RULES)
    assert set(defined) <= set(listed)


@pytest.mark.parametrize("rule", LINT_RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_says_what_it_rests_on(rule: LintRule) -> None:
    assert rule.severity in SEVERITIES
    assert rule.evidence.kind in EVIDENCE_KINDS
    assert rule.claim.endswith(".")
    assert rule.source
    assert rule.evidence.text
    assert rule.id == rule.id.lower()
    assert "_" not in rule.id


LEAVES = [key.dotted for key in KEYS.values() if not key.section]


@pytest.fixture(scope="module")
def watched() -> list[Subject]:
    """Every configuration of ROWS, and each setting switched, all noting what is read."""
    switched = [
        only({"gconfig.n_samples": 8, key: value}, rewards=ZERO_ONE, pass_rate=0.5)
        for key in LEAVES
        for value in (0, True)
    ]
    rows = [subject for row in ROWS for subject in (row.bad, row.good)]
    return [watch(subject) for subject in rows + switched]


ABOUT_ANY = {"invalid-value", "misspelt-key", "renamed-key"}
"""Rules about whatever a file holds; they declare no setting."""


@pytest.mark.parametrize("rule", LINT_RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_reads_the_settings_that_it_declares(rule: LintRule, watched: list[Subject]) -> None:
    if rule.id in ABOUT_ANY:
        assert rule.keys == ()
        return
    assert len(set(rule.keys)) == len(rule.keys)
    assert keys_looked_at(rule, watched) == set(rule.keys)


def test_folklore_that_was_measured_false_is_never_more_than_worth_knowing() -> None:
    refuted = [r for r in LINT_RULES.values() if r.evidence.kind == "measured false here"]
    assert refuted
    assert {rule.severity for rule in refuted} == {"worth-knowing"}


def test_the_needed_group_size_halves_the_silent_groups() -> None:
    [hit] = hits("mostly-silent-groups", areal({}, pass_rate=0.02))
    # 0.98^32 = 0.524 is still above one half, 0.98^64 = 0.274 is not
    assert "groups of 64" in hit.fix


@pytest.mark.parametrize("value", [-1, 0, 1e9, float("nan"), "word", None, True, [], {}], ids=repr)
def test_no_value_of_a_setting_makes_a_rule_fail(value: object) -> None:
    for key in LEAVES:
        subject = only({"gconfig.n_samples": 8, key: value}, rewards=ZERO_ONE, pass_rate=0.5)
        for rule in LINT_RULES.values():
            list(rule.check(subject))
