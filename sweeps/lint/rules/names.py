"""Names and values: what cannot be read, what is misspelt, what changes nothing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sweeps.keys import KEYS, RENAMED, nearest_key
from sweeps.lint.subject import Subject
from sweeps.lint.types import AREAL_READ, AREAL_RUN, CLAIMS, Hit, follows, rule


@rule(
    "invalid-value",
    severity="fatal",
    claim="A value that the trainer cannot read stops it at the start, or later.",
    evidence=follows("the kinds and choices are those of the trainer's own configuration classes"),
    source=f"{AREAL_READ}; {AREAL_RUN} (some choices are accepted and fail in the loss)",
)
def invalid_value(subject: Subject) -> Iterator[Hit]:
    """Values of the wrong kind, or outside a list of choices."""
    for item in subject.invalid:
        problem = item.problem.removeprefix(f"{item.key}: ")
        yield Hit(item.key, f"{subject.name(item.key)}: {problem}", "correct the value")


@rule(
    "misspelt-key",
    severity="worth-knowing",
    claim="A key that does not exist is refused at the start, or silently ignored.",
    evidence=follows("AReaL's OmegaConf schema and TRL's dataclass refuse unknown names"),
    source=AREAL_READ,
)
def misspelt_key(subject: Subject) -> Iterator[Hit]:
    """A key that is nearly one that exists."""
    if subject.dialect != "areal":
        return
    for key in subject.unmapped:
        if "." not in key or key in subject.written:
            continue
        near = RENAMED.get(key) or nearest_key(key)
        if near is not None and near in KEYS:
            yield Hit(
                key,
                f"{key}: no such key in AReaL's current schema; the nearest is {near}",
                f"write {near}, if that is what is meant",
            )


@rule(
    "renamed-key",
    severity="worth-knowing",
    claim="AReaL renamed the key; today's version refuses the old name.",
    evidence=follows("the old name is not in the schema"),
    source=AREAL_READ,
)
def renamed_key(subject: Subject) -> Iterator[Hit]:
    """A key of an older AReaL."""
    if subject.dialect != "areal":
        return
    for key, label in subject.labels.items():
        yield Hit(
            key,
            f"{label}: an older name of {RENAMED.get(label, key)}, and read as such here",
            f"write {RENAMED.get(label, key)}",
        )


@dataclass(frozen=True, slots=True)
class _Inert:
    """A setting that acts only while something else is on."""

    key: str
    active: Callable[[Subject], bool]
    why: str


def _without_sapo(subject: Subject) -> bool:
    return not subject.config.actor.use_sapo_loss


_NEEDS: tuple[_Inert, ...] = (
    _Inert(
        "actor.sapo_tau_pos",
        lambda s: s.config.actor.use_sapo_loss,
        "only SAPO has gates, and actor.use_sapo_loss is false",
    ),
    _Inert(
        "actor.sapo_tau_neg",
        lambda s: s.config.actor.use_sapo_loss,
        "only SAPO has gates, and actor.use_sapo_loss is false",
    ),
    _Inert("actor.eps_clip", _without_sapo, "SAPO has gates in place of a clip"),
    _Inert("actor.eps_clip_higher", _without_sapo, "SAPO has gates in place of a clip"),
    _Inert(
        "actor.c_clip",
        lambda s: _without_sapo(s) and not s.config.actor.use_cispo_loss,
        "only PPO's loss has a dual clip",
    ),
    _Inert("actor.rejection_sampling", _without_sapo, "SAPO ignores the staleness filter"),
    _Inert(
        "actor.overlong_tokens",
        lambda s: s.config.actor.overlong_reward_penalty,
        "actor.overlong_reward_penalty is false",
    ),
    _Inert(
        "actor.overlong_penalty_factor",
        lambda s: s.config.actor.overlong_reward_penalty,
        "actor.overlong_reward_penalty is false",
    ),
    _Inert(
        "actor.kl_estimator", lambda s: s.config.actor.kl_ctl != 0, "kl_ctl is 0, so no KL is paid"
    ),
    _Inert(
        "actor.prox_logp_method",
        lambda s: s.config.actor.use_decoupled_loss,
        "actor.use_decoupled_loss is false, so there is no proximal policy",
    ),
    _Inert(
        "actor.m2_threshold",
        lambda s: s.config.actor.use_decoupled_loss,
        "actor.use_decoupled_loss is false: proximal and behaviour policy are the same",
    ),
    _Inert(
        "actor.gae_lambda_kwargs",
        lambda s: isinstance(s.config.actor.gae_lambda, str),
        "actor.gae_lambda is a number, not a rule",
    ),
    _Inert(
        "actor.optimizer.min_lr_ratio",
        lambda s: s.config.actor.optimizer.lr_scheduler_type != "constant",
        "the schedule is constant",
    ),
    _Inert(
        "actor.optimizer.beta1",
        lambda s: s.config.actor.optimizer.type == "adam",
        "the optimizer is not Adam",
    ),
    _Inert(
        "actor.optimizer.beta2",
        lambda s: s.config.actor.optimizer.type == "adam",
        "the optimizer is not Adam",
    ),
    _Inert(
        "dynamic_bs",
        lambda s: s.dialect != "space" or s.config.extensions.dynamic_sampling is not None,
        "there is no dynamic sampling",
    ),
    _Inert(
        "extensions.kl_loss_estimator",
        lambda s: s.config.extensions.kl_loss_coef != 0,
        "the KL term's coefficient is 0",
    ),
    _Inert(
        "extensions.kl_loss_ratio_weighted",
        lambda s: s.config.extensions.kl_loss_coef != 0,
        "the KL term's coefficient is 0",
    ),
)

INERT_KEYS = (
    *dict.fromkeys(need.key for need in _NEEDS),
    *("actor.use_sapo_loss", "actor.use_cispo_loss", "actor.overlong_reward_penalty"),
    *("actor.kl_ctl", "actor.use_decoupled_loss", "actor.gae_lambda"),
    *("actor.optimizer.lr_scheduler_type", "actor.optimizer.type"),
    *("extensions.dynamic_sampling", "extensions.kl_loss_coef"),
)
"""The settings, and what turns them on."""


@rule(
    "inert-setting",
    severity="no-effect",
    keys=INERT_KEYS,
    claim="A setting is changed whose switch is off.",
    evidence=follows("its value is read only where the switch is on"),
    source=f"{CLAIMS}; {AREAL_READ}; SAPO: {AREAL_RUN}",
)
def inert_setting(subject: Subject) -> Iterator[Hit]:
    """A written value that differs from the default and is never looked at."""
    for need in _NEEDS:
        changed = subject.gives(need.key) and subject.value(need.key) != KEYS[need.key].default
        if changed and not need.active(subject):
            yield Hit(
                need.key,
                f"{subject.show(need.key)} does nothing: {need.why}",
                "leave it out, or turn on what it belongs to",
            )


@rule(
    "inert-norm-setting",
    severity="no-effect",
    keys=(
        "actor.adv_norm.mean_leave1out",
        "actor.adv_norm.mean_level",
        "actor.adv_norm.std_level",
        "actor.adv_norm.std_unbiased",
        "actor.reward_norm.mean_leave1out",
        "actor.reward_norm.mean_level",
        "actor.reward_norm.std_level",
        "actor.reward_norm.std_unbiased",
    ),
    claim="A detail of a mean or spread is set, but that mean or spread is off.",
    evidence=follows("without a level nothing is computed"),
    source=AREAL_RUN,
)
def inert_norm_setting(subject: Subject) -> Iterator[Hit]:
    """Details of what is not there."""
    for key, norm in subject.norms():
        if norm.mean_leave1out and norm.mean_level is None:
            yield Hit(
                f"{key}.mean_leave1out",
                f"{subject.show(f'{key}.mean_leave1out')} does nothing: there is no mean",
                f"set {subject.name(f'{key}.mean_level')} to group",
                also=(f"{key}.mean_level",),
            )
        if not norm.std_unbiased and norm.std_level is None:
            yield Hit(
                f"{key}.std_unbiased",
                f"{subject.show(f'{key}.std_unbiased')} does nothing: there is no std",
                f"leave it out, or set {subject.name(f'{key}.std_level')}",
                also=(f"{key}.std_level",),
            )


RULES = (invalid_value, inert_setting, inert_norm_setting, misspelt_key, renamed_key)
