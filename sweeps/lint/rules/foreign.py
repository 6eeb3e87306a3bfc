"""What TRL's and verl's keys mean there, where it differs from what their names suggest."""

from collections.abc import Iterator

from sweeps.lint.subject import Subject
from sweeps.lint.types import Hit, follows, reported, rule

_ACTOR = "actor_rollout_ref.actor"
TRL_READ = "TRL 1.16.0, read"
VERL_READ = "volcengine/verl, generated trainer configuration, read"


@rule(
    "trl-beta-in-loss",
    severity="worth-knowing",
    keys=("extensions.kl_loss_coef",),
    claim="TRL's beta is a k3 term in the loss; AReaL's kl_ctl is k1 in the reward.",
    evidence=reported("not convertible one to one; the two defaults are 0 and 0.1"),
    source=TRL_READ,
)
def trl_beta_in_loss(subject: Subject) -> Iterator[Hit]:
    """A KL term that has no exact counterpart."""
    if subject.dialect == "trl" and subject.config.extensions.kl_loss_coef > 0:
        yield Hit(
            "extensions.kl_loss_coef",
            f"{subject.show('extensions.kl_loss_coef')}: k3 inside the loss, multiplied by the "
            "ratio unless use_bias_correction_kl is false; the same number as AReaL's kl_ctl is a "
            "different leash",
            "choose kl_ctl by sweeping it, not by copying beta",
        )


@rule(
    "trl-truncated-in-baseline",
    severity="worth-knowing",
    keys=("extensions.truncated_answers",),
    claim="mask_truncated_completions drops answers from the loss, but not from the group's mean.",
    evidence=follows("the mean is taken before the mask"),
    source=TRL_READ,
)
def trl_truncated_in_baseline(subject: Subject) -> Iterator[Hit]:
    """Masked answers that still move their group."""
    if subject.dialect == "trl" and subject.config.extensions.truncated_answers == "mask":
        yield Hit(
            "extensions.truncated_answers",
            f"{subject.name('extensions.truncated_answers')}=true: truncated answers still lower "
            "their group's mean and so raise the advantage of the others; AReaL's mask zeroes "
            "their normalized reward and trains on them",
            "raise max_completion_length until few answers are cut",
        )


@rule(
    "verl-clip-ratio-shadowed",
    severity="no-effect",
    claim="verl reads clip_ratio_low and clip_ratio_high, both 0.2, before clip_ratio.",
    evidence=follows("both have a default, so clip_ratio is never reached"),
    source=VERL_READ,
)
def verl_clip_ratio_shadowed(subject: Subject) -> Iterator[Hit]:
    """A clip range that is not used."""
    given = subject.other.get(f"{_ACTOR}.clip_ratio")
    split = [f"{_ACTOR}.clip_ratio_low", f"{_ACTOR}.clip_ratio_high"]
    if subject.dialect != "verl" or given is None:
        return
    missing = [name for name in split if name not in subject.other]
    if missing and given != 0.2:
        yield Hit(
            f"theirs.{_ACTOR}.clip_ratio",
            f"{_ACTOR}.clip_ratio={given}: {' and '.join(missing)} have the default 0.2 and are "
            "read in its place",
            f"set {split[0]} and {split[1]}",
        )


@rule(
    "verl-kl-switched-off",
    severity="no-effect",
    claim="A KL coefficient in verl does nothing until its switch is on.",
    evidence=follows("use_kl_in_reward and use_kl_loss are false by default"),
    source=f"{VERL_READ}; THUDM/slime #397 (the same in another trainer)",
)
def verl_kl_switched_off(subject: Subject) -> Iterator[Hit]:
    """A coefficient without its switch."""
    if subject.dialect != "verl":
        return
    for switch, coefficients in (
        ("algorithm.use_kl_in_reward", ("algorithm.kl_ctrl.kl_coef", "algorithm.kl_penalty")),
        (f"{_ACTOR}.use_kl_loss", (f"{_ACTOR}.kl_loss_coef", f"{_ACTOR}.kl_loss_type")),
    ):
        # A coefficient written as 0 beside the switch is how recipes say "no KL".
        given = [name for name in coefficients if subject.other.get(name)]
        written_off = subject.other.get(switch) is False
        if not given or subject.other.get(switch) or written_off:
            continue
        yield Hit(
            f"theirs.{given[0]}",
            f"{given[0]}={subject.other[given[0]]} with {switch}=false (verl's default): this "
            "setting is not read",
            f"set {switch} to true, or leave it out",
        )


RULES = (
    verl_clip_ratio_shadowed,
    verl_kl_switched_off,
    trl_beta_in_loss,
    trl_truncated_in_baseline,
)
