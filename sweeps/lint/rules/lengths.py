"""Length limits: overlong penalty, truncation, budgets."""

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
    rule,
)

LARGE_FACTOR = 20.0
"""Penalty per unit of reward range; 10 on a short tail still learns, 100 does not."""
WHOLE_ANSWER = 0.9


def _tail_start(subject: Subject) -> int:
    """Length at which the overlong penalty begins."""
    actor = subject.config.actor
    return actor.max_new_tokens - (actor.overlong_tokens or 0)


def _penalized(subject: Subject) -> bool:
    actor = subject.config.actor
    return (
        actor.overlong_reward_penalty
        and actor.overlong_tokens is not None
        and actor.overlong_tokens > 0
        and actor.overlong_penalty_factor is not None
    )


@rule(
    "overlong-out-of-reach",
    severity="no-effect",
    keys=(
        "actor.max_new_tokens",
        "actor.overlong_penalty_factor",
        "actor.overlong_reward_penalty",
        "actor.overlong_tokens",
        "gconfig.max_new_tokens",
    ),
    claim="An overlong penalty that begins beyond the longest possible answer never acts.",
    evidence=follows(
        "AReaL's DAPO example: gconfig.max_tokens 2048 bounds prompt and answer, the tail starts "
        "at 4096 - 512"
    ),
    source=AREAL_READ,
)
def overlong_out_of_reach(subject: Subject) -> Iterator[Hit]:
    """No answer can be that long."""
    if not _penalized(subject):
        return
    start = _tail_start(subject)
    limits = {"gconfig.max_new_tokens": subject.config.gconfig.max_new_tokens}
    total = subject.other.get("gconfig.max_tokens") if subject.dialect == "areal" else None
    if isinstance(total, int):
        limits["gconfig.max_tokens"] = total
    key = min(limits, key=lambda name: limits[name])
    if start >= limits[key]:
        yield Hit(
            "actor.overlong_tokens",
            f"the penalized tail starts at {start} tokens ({subject.show('actor.max_new_tokens')} "
            f"minus {subject.show('actor.overlong_tokens')}), but answers end at "
            f"{key}={limits[key]}: the penalty never acts",
            f"set {subject.name('actor.max_new_tokens')} to {limits[key]}",
            also=("actor.max_new_tokens", key),
        )


@rule(
    "overlong-beyond-limit",
    severity="likely-harmful",
    keys=(
        "actor.max_new_tokens",
        "actor.overlong_penalty_factor",
        "actor.overlong_reward_penalty",
        "actor.overlong_tokens",
        "gconfig.max_new_tokens",
    ),
    claim="Answers longer than actor.max_new_tokens are penalized without bound in AReaL.",
    evidence=measured("AReaL: -3 at factor 1, tail 4, limit 10, length 18"),
    source=f"{AREAL_RUN}; {AREAL_READ}: the two limits are never compared",
)
def overlong_beyond_limit(subject: Subject) -> Iterator[Hit]:
    """The sampler may go on beyond the penalty's limit."""
    longest = subject.config.gconfig.max_new_tokens
    limit = subject.config.actor.max_new_tokens
    total = subject.other.get("gconfig.max_tokens")
    if isinstance(total, int):
        longest = min(longest, total)
    if not _penalized(subject) or limit >= longest:
        return
    grows = " and grows without bound in AReaL" if subject.areal_semantics else ""
    yield Hit(
        "actor.max_new_tokens",
        f"{subject.show('actor.max_new_tokens')} with {subject.show('gconfig.max_new_tokens')}: "
        f"the overlong penalty is full at {limit} tokens{grows}, while answers may have {longest}",
        f"set {subject.name('actor.max_new_tokens')} to ${{gconfig.max_new_tokens}}",
        also=("gconfig.max_new_tokens", "actor.overlong_reward_penalty"),
    )


@rule(
    "overlong-limits-differ",
    severity="worth-knowing",
    keys=(
        "actor.max_new_tokens",
        "actor.overlong_penalty_factor",
        "actor.overlong_reward_penalty",
        "actor.overlong_tokens",
        "gconfig.max_new_tokens",
    ),
    claim="An overlong tail that ends beyond the longest answer never reaches its full penalty.",
    evidence=follows("the sampler stops inside the tail"),
    source=AREAL_READ,
)
def overlong_limits_differ(subject: Subject) -> Iterator[Hit]:
    """Only part of the tail can be reached."""
    if not _penalized(subject):
        return
    longest = subject.config.gconfig.max_new_tokens
    if _tail_start(subject) < longest < subject.config.actor.max_new_tokens:
        yield Hit(
            "actor.max_new_tokens",
            f"{subject.show('actor.max_new_tokens')} with {subject.show('gconfig.max_new_tokens')}:"
            " answers are cut inside the penalized tail, so the full penalty is never paid",
            f"set {subject.name('actor.max_new_tokens')} to {longest}",
            also=("gconfig.max_new_tokens",),
        )


@rule(
    "overlong-sign",
    severity="likely-harmful",
    keys=("actor.overlong_penalty_factor", "actor.overlong_reward_penalty"),
    claim="A negative overlong_penalty_factor pays for length.",
    evidence=measured(
        "every answer truncated, pinned at the limit, on every seed; the pass rate looks fine"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}",
)
def overlong_sign(subject: Subject) -> Iterator[Hit]:
    """A bonus where a penalty was meant."""
    factor = subject.config.actor.overlong_penalty_factor
    if subject.config.actor.overlong_reward_penalty and factor is not None and factor < 0:
        yield Hit(
            "actor.overlong_penalty_factor",
            f"{subject.show('actor.overlong_penalty_factor')}: answers near the limit are paid "
            "for, so the policy stops ending them while the reward rises",
            f"set {subject.name('actor.overlong_penalty_factor')} to {-factor:g}",
        )


@rule(
    "overlong-drowns-task",
    severity="likely-harmful",
    keys=(
        "actor.overlong_penalty_factor",
        "actor.overlong_reward_penalty",
        "actor.overlong_tokens",
    ),
    claim="A penalty far above the task's reward teaches silence, whatever the answer is worth.",
    evidence=measured(
        "factor 100 on all tokens: answers of length 1 and pass rate 0.00; factor 10 on the last "
        "4 tokens: 0.92"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}",
)
def overlong_drowns_task(subject: Subject) -> Iterator[Hit]:
    """The factor against what a right answer earns."""
    factor = subject.config.actor.overlong_penalty_factor
    if not _penalized(subject) or factor is None or subject.reward_spread == 0:
        return
    if factor >= LARGE_FACTOR * subject.reward_spread:
        yield Hit(
            "actor.overlong_penalty_factor",
            f"{subject.show('actor.overlong_penalty_factor')}: an answer at the limit loses "
            f"{factor / subject.reward_spread:g} times what a right one earns, so length is all "
            "that is learned",
            f"set {subject.name('actor.overlong_penalty_factor')} to {subject.reward_spread:g}",
            also=("actor.overlong_tokens",),
        )


@rule(
    "overlong-on-all-lengths",
    severity="worth-knowing",
    keys=(
        "actor.max_new_tokens",
        "actor.overlong_penalty_factor",
        "actor.overlong_reward_penalty",
        "actor.overlong_tokens",
    ),
    claim="A penalized tail as long as the limit punishes every token, also of short answers.",
    evidence=measured("factor 1 on all 18 tokens: 0.84 to 0.91, answers of 8.4 in place of 10.7"),
    source=OWN_RUNS,
)
def overlong_on_all_lengths(subject: Subject) -> Iterator[Hit]:
    """The tail is the whole answer."""
    actor = subject.config.actor
    tail = actor.overlong_tokens or 0
    if not _penalized(subject) or tail < WHOLE_ANSWER * actor.max_new_tokens:
        return
    yield Hit(
        "actor.overlong_tokens",
        f"{subject.show('actor.overlong_tokens')} with {subject.show('actor.max_new_tokens')}: the "
        "penalty is a price per token from the first one on, which favours short answers over "
        "careful ones",
        f"set {subject.name('actor.overlong_tokens')} to a quarter of the limit, "
        f"{actor.max_new_tokens // 4}",
        also=("actor.max_new_tokens",),
    )


@rule(
    "mask-pays-for-truncation",
    severity="likely-harmful",
    keys=(
        "actor.mask_no_eos_with_zero",
        "actor.reward_bias",
        "actor.reward_clip",
        "actor.reward_norm.mean_level",
        "actor.reward_scaling",
    ),
    claim="With negative rewards for wrong answers, mask_no_eos_with_zero pays for being cut off.",
    evidence=measured(
        "rewards -1/1, 8 tokens: 0.53/0.18/0.19 with the mask, nearly all truncated; "
        "0.91/0.87/0.77 without it; with rewards 0/1 and the mask 0.95/0.97/0.84"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}",
)
def mask_pays_for_truncation(subject: Subject) -> Iterator[Hit]:
    """Zero is more than a wrong answer gets."""
    actor = subject.config.actor
    if not actor.mask_no_eos_with_zero or _centred(subject):
        return
    wrong = subject.scaled(0.0 if subject.rewards is None else subject.rewards.low)
    if wrong < 0:
        yield Hit(
            "actor.mask_no_eos_with_zero",
            f"{subject.show('actor.mask_no_eos_with_zero')}: a wrong answer gets {wrong:g} after "
            "bias and scaling, a truncated one 0, so never ending beats being wrong",
            "make the wrong reward 0 (reward_bias 0), or turn the mask off",
            also=("actor.reward_bias", "actor.reward_scaling"),
        )


def _centred(subject: Subject) -> bool:
    norm = subject.config.actor.reward_norm
    return norm is not None and norm.mean_level is not None


@rule(
    "mask-after-centring",
    severity="worth-knowing",
    keys=("actor.mask_no_eos_with_zero", "actor.reward_norm.mean_level"),
    claim="Behind a centred reward_norm, mask_no_eos_with_zero makes truncated answers average.",
    evidence=measured(
        "harmless at 9 % truncated (0.93 to 0.96); in the toy, where nearly all are truncated, "
        "0.32 with the mask and 0.43 without"
    ),
    source=f"areal-project/AReaL #1351; {OWN_RUNS}; {TOY}",
)
def mask_after_centring(subject: Subject) -> Iterator[Hit]:
    """Zero after the mean has been taken."""
    actor = subject.config.actor
    if actor.mask_no_eos_with_zero and _centred(subject):
        yield Hit(
            "actor.mask_no_eos_with_zero",
            f"{subject.show('actor.mask_no_eos_with_zero')} behind "
            f"{subject.show('actor.reward_norm.mean_level')}: the zero is set after the mean is "
            "taken, so a truncated answer counts as an average one and is no longer punished",
            "fine while few answers are truncated; else raise gconfig.max_new_tokens",
            also=("actor.reward_norm.mean_level",),
        )


@rule(
    "mask-by-width",
    severity="worth-knowing",
    keys=("actor.mask_no_eos_with_zero",),
    claim="AReaL takes the longest row of a batch for truncated, whether or not it ended.",
    evidence=measured(
        "AReaL: 168 truncated rows flagged, 252 missed, 25 finished ones flagged; with that test "
        "0.96/0.80/0.73, with a true one 0.93 to 0.96"
    ),
    source=f"{AREAL_RUN}; {OWN_RUNS}",
)
def mask_by_width(subject: Subject) -> Iterator[Hit]:
    """The mask in AReaL."""
    if subject.config.actor.mask_no_eos_with_zero and subject.areal_semantics:
        yield Hit(
            "actor.mask_no_eos_with_zero",
            f"{subject.show('actor.mask_no_eos_with_zero')}: AReaL compares each row with the "
            "padded width of its batch; the longest finished answer loses its reward, and cut ones "
            "with a shorter prompt keep it",
            "watch it once truncation is rare; the mask then hits only finished answers",
        )


@rule(
    "mask-off",
    severity="worth-knowing",
    keys=("actor.mask_no_eos_with_zero",),
    claim="mask_no_eos_with_zero false is said to cause reward spikes after the end of answers.",
    evidence=refuted(
        "no token behind the end can carry a reward; mask on and off end alike at 9 % truncated "
        "(0.93 to 0.96) and at 53 % (0.94 to 0.97)"
    ),
    source=OWN_RUNS,
)
def mask_off(subject: Subject) -> Iterator[Hit]:
    """The mask is off, together with a penalty on truncation: somebody thinks about length."""
    actor = subject.config.actor
    if subject.gives("actor.mask_no_eos_with_zero") and not actor.mask_no_eos_with_zero:
        yield Hit(
            "actor.mask_no_eos_with_zero",
            f"{subject.show('actor.mask_no_eos_with_zero')}: blamed for reward spikes after the "
            "end; the reward sits on the last generated token, and mask on or off ended alike",
            "nothing to change; a verifier that pays for cut answers is what matters",
        )


RULES = (
    overlong_beyond_limit,
    overlong_sign,
    overlong_drowns_task,
    mask_pays_for_truncation,
    overlong_out_of_reach,
    overlong_limits_differ,
    overlong_on_all_lengths,
    mask_after_centring,
    mask_by_width,
    mask_off,
)
