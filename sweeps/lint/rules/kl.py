"""What the KL penalty holds: reference, size against the reward, estimator and place."""

from collections.abc import Iterator

from sweeps.lint.subject import Subject
from sweeps.lint.types import (
    AREAL_READ,
    AREAL_RUN,
    CLAIMS,
    OWN_RUNS,
    TOY,
    Hit,
    follows,
    measured,
    refuted,
    reported,
    rule,
)

PINNED = 1.0
"""kl_ctl per unit of reward range at which k1 stalls the policy (measured; 0.1 is harmless)."""
NORMALIZED_RANGE = 2.0
"""Range of right-or-wrong rewards after a std, at pass rate one half."""
SMALL_KL = 0.01


def _range_after_scaling(subject: Subject) -> float:
    """How far the largest reward lies above the smallest where KL is added."""
    norm = subject.config.actor.reward_norm
    if norm is not None and norm.std_level is not None:
        return NORMALIZED_RANGE
    if subject.rewards is not None:
        return abs(subject.scaled(subject.rewards.high) - subject.scaled(subject.rewards.low))
    actor = subject.config.actor
    return min(abs(actor.reward_scaling), 2 * actor.reward_clip)


@rule(
    "kl-without-reference",
    severity="likely-harmful",
    keys=("actor.kl_ctl", "actor.kl_estimator", "ref"),
    claim="Without a `ref` section AReaL takes the reference's log-prob as 0, and still pays KL.",
    evidence=measured(
        "kl_ctl 0.1 of k1: 0.49/0.24/0.11 with 88 to 93 % truncated, in place of 0.97 with a "
        "reference; in AReaL the loss is -0.635 in place of -0.055"
    ),
    source=f"{CLAIMS}; {AREAL_RUN}; {AREAL_READ}: kl_ctl is 0.1 by default",
)
def kl_without_reference(subject: Subject) -> Iterator[Hit]:
    """A penalty that has nothing to compare with."""
    actor = subject.config.actor
    if subject.config.ref is not None or actor.kl_ctl == 0 or not subject.areal_semantics:
        return
    effect = (
        "a bonus for every unlikely token"
        if actor.kl_estimator == "k1"
        else "a penalty on every unlikely token"
    )
    yield Hit(
        "actor.kl_ctl",
        f"{subject.show('actor.kl_ctl')} without a `ref` section: AReaL puts 0 in the place of the "
        f"reference's log-probs and does not complain, so the KL term becomes {effect}",
        "set actor.kl_ctl to 0, or add a `ref` section",
        also=("ref", "actor.kl_estimator"),
    )


@rule(
    "kl-pins-policy",
    severity="likely-harmful",
    keys=(
        "actor.kl_ctl",
        "actor.kl_estimator",
        "actor.reward_bias",
        "actor.reward_clip",
        "actor.reward_norm.std_level",
        "actor.reward_scaling",
        "ref",
    ),
    claim="A k1 penalty as large as the reward's range pins the policy to the reference.",
    evidence=measured(
        "kl_ctl 0.1: 0.97; 1: 0.43, stalls for good; 10: 0.23, below the start; 0.1 at "
        "reward_scaling 1e-3: 0.28"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}; mlvlab/DeepVideoR1 #2",
)
def kl_pins_policy(subject: Subject) -> Iterator[Hit]:
    """kl_ctl over what a right answer is worth."""
    actor = subject.config.actor
    if subject.config.ref is None or actor.kl_estimator != "k1" or actor.kl_ctl <= 0:
        return
    worth = _range_after_scaling(subject)
    if worth == 0 or actor.kl_ctl / worth < PINNED:
        return
    small = worth < 1
    cause = f" and rewards that differ by {worth:g} after scaling" if small else ""
    yield Hit(
        "actor.kl_ctl",
        f"{subject.show('actor.kl_ctl')}{cause}: one nat of KL costs {actor.kl_ctl / worth:g} "
        "times what a right answer earns, so the policy stays at the reference while the gradient "
        "norm looks healthy",
        f"lower {subject.name('actor.kl_ctl')} to {0.05 * worth:g} or less"
        + (f", or raise {subject.name('actor.reward_scaling')}" if small else ""),
        also=("actor.reward_scaling", "actor.reward_norm.std_level"),
    )


@rule(
    "kl-negative",
    severity="likely-harmful",
    keys=("actor.kl_ctl", "extensions.kl_loss_coef"),
    claim="A negative KL weight pays the policy for leaving the reference.",
    evidence=reported(
        "sign flipped in verl: KL 1.49 in place of 1.16 in the toy, reward looks fine"
    ),
    source=f"volcengine/verl #179; {TOY}",
)
def kl_negative(subject: Subject) -> Iterator[Hit]:
    """A reward for distance."""
    for key in ("actor.kl_ctl", "extensions.kl_loss_coef"):
        if subject.value(key) < 0:
            yield Hit(
                key,
                f"{subject.show(key)}: distance from the reference is rewarded, and the reward "
                "curve does not show it",
                f"set {subject.name(key)} to 0 or more",
            )


@rule(
    "k1-in-loss",
    severity="likely-harmful",
    keys=(
        "extensions.kl_loss_coef",
        "extensions.kl_loss_estimator",
        "extensions.kl_loss_ratio_weighted",
    ),
    claim="k1 inside the loss has zero expected gradient: it adds noise and restrains nothing.",
    evidence=measured(
        "coefficient 1: KL 0.23/0.42/0.18 with k1 and 0.03/0.05/0.08 with k3; without any "
        "0.28/0.08/0.10"
    ),
    source=f"{CLAIMS}; allenai/open-instruct #534; {TOY}",
)
def k1_in_loss(subject: Subject) -> Iterator[Hit]:
    """The wrong estimator for this place."""
    extensions = subject.config.extensions
    if extensions.kl_loss_coef <= 0 or extensions.kl_loss_ratio_weighted:
        return
    if extensions.kl_loss_estimator == "k1":
        yield Hit(
            "extensions.kl_loss_estimator",
            f"{subject.show('extensions.kl_loss_estimator')} as a term of the loss: its gradient "
            "is the score function, which is zero on average, so the coefficient holds nothing",
            f"set {subject.name('extensions.kl_loss_estimator')} to k3 (verl: low_var_kl), or put "
            "k1 into the reward",
            also=("extensions.kl_loss_coef",),
        )


@rule(
    "kl-estimator-in-reward",
    severity="worth-knowing",
    keys=("actor.kl_ctl", "actor.kl_estimator", "ref"),
    claim="k2 and k3 as a per-token reward do not hold the policy, however large kl_ctl is.",
    evidence=measured(
        "kl_ctl 10: k1 stays at 0.23, k3 reaches 0.97/0.86/0.97; k3 at 100 still 0.90"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}; {TOY}; arXiv 2512.21852",
)
def kl_estimator_in_reward(subject: Subject) -> Iterator[Hit]:
    """A non-negative estimator in the reward."""
    actor = subject.config.actor
    if actor.kl_ctl > 0 and actor.kl_estimator in {"k2", "k3"} and subject.config.ref is not None:
        yield Hit(
            "actor.kl_estimator",
            f"{subject.show('actor.kl_estimator')} with {subject.show('actor.kl_ctl')}: as a "
            "reward its gradient vanishes to first order near the reference, so it lowers KL "
            "somewhat but does not grow into a leash with kl_ctl",
            f"use k1 in the reward; {actor.kl_estimator} belongs into the loss",
            also=("actor.kl_ctl",),
        )


@rule(
    "kl-by-default",
    severity="worth-knowing",
    keys=("actor.kl_ctl", "ref"),
    claim="AReaL's kl_ctl is 0.1 unless it is set.",
    evidence=measured("0.1 of k1 against rewards 0/1: 0.92 to 0.94, KL 0.12 in place of 0.16"),
    source=f"{AREAL_READ}; {OWN_RUNS}",
)
def kl_by_default(subject: Subject) -> Iterator[Hit]:
    """A penalty that nobody wrote."""
    if subject.config.ref is None or subject.gives("actor.kl_ctl"):
        return
    if subject.config.actor.kl_ctl > 0:
        yield Hit(
            "actor.kl_ctl",
            f"{subject.show('actor.kl_ctl')}: the KL penalty is on although the file does not "
            "mention it",
            f"write {subject.name('actor.kl_ctl')}: 0.0 if none is wanted",
            also=("ref",),
        )


@rule(
    "reference-unused",
    severity="worth-knowing",
    keys=("actor.kl_ctl", "extensions.kl_loss_coef", "ref"),
    claim="A `ref` section without a KL term takes memory and changes nothing.",
    evidence=follows("kl_ctl 0 multiplies the reference's only use"),
    source=AREAL_READ,
)
def reference_unused(subject: Subject) -> Iterator[Hit]:
    """A reference that nothing looks at."""
    unused = subject.config.actor.kl_ctl == 0 and subject.config.extensions.kl_loss_coef == 0
    if subject.dialect == "areal" and "ref" in subject.written and unused:
        yield Hit(
            "ref",
            f"`ref` with {subject.show('actor.kl_ctl')}: the reference decides nothing",
            "leave it out to save its memory, or keep it to watch KL",
            also=("actor.kl_ctl",),
        )


@rule(
    "kl-fills-silence",
    severity="worth-knowing",
    keys=("actor.adv_norm.std_level", "actor.kl_ctl", "actor.reward_norm.mean_level"),
    claim="In a batch without contrast adv_norm blows KL up to unit variance, whatever kl_ctl is.",
    evidence=measured(
        "AReaL, equal rewards: advantage std 0.87, 0.98, 0.99, 1.00 at kl_ctl 1e-4, 1e-3, 0.01, 0.1"
    ),
    source=f"{AREAL_RUN}; huggingface/trl #5588",
)
def kl_fills_silence(subject: Subject) -> Iterator[Hit]:
    """A KL reward in front of a batch std."""
    actor = subject.config.actor
    if actor.kl_ctl <= 0 or actor.adv_norm is None or actor.adv_norm.std_level is None:
        return
    if actor.reward_norm is not None and actor.reward_norm.mean_level == "group":
        yield Hit(
            "actor.adv_norm.std_level",
            f"{subject.show('actor.adv_norm.std_level')} behind {subject.show('actor.kl_ctl')}: "
            "once most groups agree, KL is the only difference left and is scaled up to size 1",
            "lower kl_ctl late in training, or drop silent groups",
            also=("actor.kl_ctl",),
        )


@rule(
    "small-kl",
    severity="worth-knowing",
    keys=(
        "actor.kl_ctl",
        "actor.reward_bias",
        "actor.reward_clip",
        "actor.reward_norm.std_level",
        "actor.reward_scaling",
        "ref",
    ),
    claim="A small kl_ctl is said to make KL dominate and the policy drift.",
    evidence=refuted("kl_ctl 0.001 and 0.01: 0.93 to 0.96, KL's share of the advantage 0.00"),
    source=OWN_RUNS,
)
def small_kl(subject: Subject) -> Iterator[Hit]:
    """A penalty too small to matter."""
    actor = subject.config.actor
    worth = _range_after_scaling(subject)
    if subject.config.ref is None or not subject.gives("actor.kl_ctl") or worth == 0:
        return
    if 0 < actor.kl_ctl / worth <= SMALL_KL:
        yield Hit(
            "actor.kl_ctl",
            f"{subject.show('actor.kl_ctl')}: sometimes blamed for drift; at this size it hardly "
            "acts at all. What lets KL dominate is a small reward scale",
            "nothing to change",
        )


RULES = (
    kl_without_reference,
    kl_pins_policy,
    kl_negative,
    k1_in_loss,
    kl_estimator_in_reward,
    kl_by_default,
    reference_unused,
    kl_fills_silence,
    small_kl,
)
