"""What AReaL refuses at the start, or fails on later: the trainer's own rules, in words."""

from collections.abc import Iterator

from grpo_core.rules import CONFIG_RULES, Rule
from sweeps.lint.subject import Subject
from sweeps.lint.types import AREAL_RUN, Check, Hit, LintRule, follows

_ELSEWHERE = frozenset(
    ["filter-binary-kl", "filter-without-decoupling", "m2-threshold", "reference", "greedy-group"]
)
"""Rules that AReaL does not have, or that have a rule of their own here."""
_OURS = frozenset(["turns"])
"""Rules about our own tasks."""

_CLAIMS = {
    "group-size": "Group-level normalization needs groups of at least one row.",
    "sapo-decoupled": "SAPO has no proximal policy, so it excludes the decoupled loss.",
    "sapo-temperatures": "SAPO divides by its gate temperatures.",
    "cispo-bound": "CISPO needs its upper bound, eps_clip_higher.",
    "cispo-level": "CISPO weighs tokens, so it excludes sequence-level ratios.",
    "one-loss": "A run has one policy loss.",
    "filter-bounds": "A filter's lower bound has to lie below its upper bound.",
    "filter-ratio": "A ratio filter's bounds have to lie on both sides of 1.",
    "filter-divergence": "A divergence filter's upper bound has to be above 0.",
    "filter-clamp": "Only an importance weight can be clamped.",
    "overlong-lengths": "The overlong penalty needs its length and its factor.",
    "dual-clip": "The dual clip has to lie above 1.",
    "turns": "Turn-level estimation needs a task with turns.",
    "lambda-argument": "A per-answer rule for lambda needs its argument.",
    "reference-in-loss": "A KL term in the loss needs a reference.",
    "token-limits": "The shortest answer cannot be longer than the longest.",
    "dynamic-sampling-bounds": "Dynamic sampling needs a gap between its bounds.",
}
_KEYS: dict[str, tuple[str, ...]] = {
    "cispo-bound": ("actor.eps_clip_higher", "actor.use_cispo_loss"),
    "cispo-level": ("actor.importance_sampling_level", "actor.use_cispo_loss"),
    "dual-clip": ("actor.c_clip",),
    "dynamic-sampling-bounds": (
        "extensions.dynamic_sampling.above",
        "extensions.dynamic_sampling.at_most",
        "extensions.dynamic_sampling.below",
    ),
    "filter-bounds": ("actor.rejection_sampling.lower", "actor.rejection_sampling.upper"),
    "filter-clamp": ("actor.rejection_sampling.action", "actor.rejection_sampling.metric"),
    "filter-divergence": ("actor.rejection_sampling.metric", "actor.rejection_sampling.upper"),
    "filter-ratio": (
        "actor.rejection_sampling.lower",
        "actor.rejection_sampling.metric",
        "actor.rejection_sampling.upper",
    ),
    "group-size": (
        "actor.adv_norm.group_size",
        "actor.adv_norm.mean_level",
        "actor.adv_norm.std_level",
        "actor.reward_norm.group_size",
        "actor.reward_norm.mean_level",
        "actor.reward_norm.std_level",
        "gconfig.n_samples",
    ),
    "lambda-argument": ("actor.gae_lambda", "actor.gae_lambda_kwargs.value"),
    "one-loss": ("actor.use_cispo_loss", "actor.use_sapo_loss", "extensions.vespo"),
    "overlong-lengths": (
        "actor.overlong_penalty_factor",
        "actor.overlong_reward_penalty",
        "actor.overlong_tokens",
    ),
    "reference-in-loss": ("extensions.kl_loss_coef", "ref"),
    "sapo-decoupled": ("actor.use_decoupled_loss", "actor.use_sapo_loss"),
    "sapo-temperatures": ("actor.sapo_tau_neg", "actor.sapo_tau_pos", "actor.use_sapo_loss"),
    "token-limits": ("gconfig.max_new_tokens", "gconfig.min_new_tokens"),
    "turns": ("actor.gae_timestep_unit", "task.name"),
}
"""What each rule reads."""
_OUTCOME = {
    "refused": "AReaL refuses to start",
    "fails later": "AReaL starts and fails at the first batch",
    "accepted": "AReaL accepts it",
}


def _lint_rule(rule: Rule) -> LintRule:
    return LintRule(
        id=rule.id,
        severity="fatal",
        keys=_KEYS[rule.id],
        claim=_CLAIMS[rule.id],
        evidence=follows(f"{_OUTCOME[rule.areal]}; so does our trainer"),
        source=AREAL_RUN,
        check=_check(rule),
    )


def _check(rule: Rule) -> Check:
    def check(subject: Subject) -> Iterator[Hit]:
        message = rule.check(subject.config)
        if message is None or (rule.id in _OURS and subject.dialect != "space"):
            return
        what, _, fix = message.rpartition("; ")
        key = message.partition("=")[0].partition(" ")[0].rstrip(":")
        yield Hit(key, what, fix, also=_mentioned(message))

    return check


def _mentioned(message: str) -> tuple[str, ...]:
    words = (word.strip(",;:()").partition("=")[0] for word in message.split())
    return tuple(dict.fromkeys(word for word in words if word.startswith(("actor.", "gconfig."))))


RULES = tuple(_lint_rule(rule) for rule in CONFIG_RULES if rule.id not in _ELSEWHERE)
