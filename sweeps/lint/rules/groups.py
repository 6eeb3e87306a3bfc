"""Is there anything to compare: group sizes, sampling, silent groups."""

from collections.abc import Iterator

from sweeps.lint.subject import Subject
from sweeps.lint.types import (
    AREAL_READ,
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

MANY_SILENT = 0.8
"""Share of silent groups above which a prompt set is called wrong in public advice."""
LOW_TEMPERATURE = 0.7
HIGH_TEMPERATURE = 1.2
NO_TOP_K = 1000
"""More candidates than this leave a vocabulary practically whole."""
EDGE_LOW, EDGE_HIGH = 0.02, 0.98


@rule(
    "group-of-one",
    severity="fatal",
    keys=(
        "actor.adv_norm.mean_level",
        "actor.discount",
        "actor.gae_lambda",
        "actor.kl_ctl",
        "actor.reward_norm.mean_level",
        "critic",
        "gconfig.n_samples",
    ),
    claim="A group mean over groups of one answer makes every reward 0, so nothing is learned.",
    evidence=measured(
        "the weights do not move at all, pass rate 0.30 as at the start; with a batch mean the "
        "same groups of one learn (0.98)"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}; areal-project/AReaL #801",
)
def group_of_one(subject: Subject) -> Iterator[Hit]:
    """Group mean with one answer per prompt."""
    if subject.config.gconfig.n_samples != 1:
        return
    for key, norm in subject.norms():
        dead = key == "actor.reward_norm" or _constant_over_tokens(subject)
        if norm.mean_level == "group" and dead:
            yield Hit(
                "gconfig.n_samples",
                f"{subject.show('gconfig.n_samples')} with {subject.show(f'{key}.mean_level')}: a "
                "group of one answer is its own mean, so every reward becomes exactly 0 and "
                "nothing is learned",
                f"set {subject.name('gconfig.n_samples')} to 8, or "
                f"{subject.name(f'{key}.mean_level')} to batch",
                also=(f"{key}.mean_level",),
            )


def _constant_over_tokens(subject: Subject) -> bool:
    """All tokens of an answer have the same advantage before adv_norm."""
    actor = subject.config.actor
    return (
        subject.config.critic is None
        and actor.kl_ctl == 0
        and actor.discount == 1
        and actor.gae_lambda == 1
    )


@rule(
    "greedy-group",
    severity="fatal",
    keys=("gconfig.greedy", "gconfig.n_samples", "gconfig.temperature"),
    claim="Greedy sampling gives every answer of a group the same text, so no advantage can arise.",
    evidence=follows("equal answers have equal rewards, and equal rewards have advantage 0"),
    source=f"GRPO, arXiv 2402.03300; {AREAL_READ} (accepted without a warning)",
)
def greedy_group(subject: Subject) -> Iterator[Hit]:
    """Greedy decoding, or temperature 0, with several answers per prompt."""
    gconfig = subject.config.gconfig
    key = "gconfig.greedy" if gconfig.greedy else "gconfig.temperature"
    if gconfig.n_samples == 1 or not (gconfig.greedy or gconfig.temperature <= 0):
        return
    yield Hit(
        key,
        f"{subject.show(key)} with {subject.show('gconfig.n_samples')}: all answers of a group are "
        "the same, so no reward differs from its group's mean",
        f"set {subject.name('gconfig.greedy')} to false"
        if gconfig.greedy
        else f"set {subject.name(key)} to 1.0",
        also=("gconfig.n_samples",),
    )


@rule(
    "temperature-mismatch",
    severity="likely-harmful",
    keys=("actor.temperature", "gconfig.greedy", "gconfig.temperature"),
    claim="Log-probs at another temperature than the sampler's bias every ratio and KL.",
    evidence=measured(
        "sampling at 1.5 with log-probs at 1.0: log-prob gap 0.23 before the first update, and "
        "0.01/0.00/0.00 in place of 0.97/1.00/1.00"
    ),
    source=f"{CLAIMS}; areal-project/AReaL #581; huggingface/trl #3029, #4159; own runs, step 0",
)
def temperature_mismatch(subject: Subject) -> Iterator[Hit]:
    """The trainer's temperature is not the sampler's."""
    sampler, trainer = subject.config.gconfig.temperature, subject.config.actor.temperature
    if sampler == trainer or sampler <= 0 or subject.config.gconfig.greedy:
        return
    yield Hit(
        "actor.temperature",
        f"{subject.show('actor.temperature')} with {subject.show('gconfig.temperature')}: "
        "log-probs are computed for a policy that did not sample, so ratios and KL are wrong from "
        "the first step",
        f"set {subject.name('actor.temperature')} to {sampler:g}",
        also=("gconfig.temperature",),
    )


@rule(
    "low-temperature",
    severity="worth-knowing",
    keys=("gconfig.temperature",),
    claim="A low sampling temperature leaves few groups with different rewards.",
    evidence=measured(
        "temperature 0.5: 70 % silent groups; 0.84 at temperature 1 in place of 0.94"
    ),
    source=OWN_RUNS,
)
def low_temperature(subject: Subject) -> Iterator[Hit]:
    """Sampling that explores little."""
    temperature = subject.config.gconfig.temperature
    if 0 < temperature < LOW_TEMPERATURE:
        yield Hit(
            "gconfig.temperature",
            f"{subject.show('gconfig.temperature')}: answers of a group become alike, so fewer "
            "groups carry a signal and learning is slower",
            f"try {subject.name('gconfig.temperature')} 1.0",
        )


@rule(
    "high-temperature",
    severity="worth-knowing",
    keys=("gconfig.temperature",),
    claim="A sampling temperature of 1.5 to 2 is said to make training unstable.",
    evidence=refuted("temperature 1.5 and 2: final pass rate 0.92 to 0.99, as good as 1.0"),
    source=f"{CLAIMS}; {OWN_RUNS}",
)
def high_temperature(subject: Subject) -> Iterator[Hit]:
    """Sampling that explores much."""
    if subject.config.gconfig.temperature > HIGH_TEMPERATURE:
        yield Hit(
            "gconfig.temperature",
            f"{subject.show('gconfig.temperature')}: often blamed for unstable runs; in our runs "
            "1.5 and 2 learned as well as 1.0, as long as trainer and sampler agree on it",
            "nothing to change; look elsewhere first",
        )


@rule(
    "truncated-sampling",
    severity="worth-knowing",
    keys=("gconfig.top_k", "gconfig.top_p"),
    claim="top_p or top_k cut the sampler's distribution, but not the trainer's log-probs.",
    evidence=reported("suspected in two threads; neither isolates it"),
    source="natolambert/rlhf-book #489; verl-project/uni-agent #175",
)
def truncated_sampling(subject: Subject) -> Iterator[Hit]:
    """A sampler whose distribution the trainer does not have."""
    gconfig = subject.config.gconfig
    for key, cut in (
        ("gconfig.top_p", gconfig.top_p < 1),
        ("gconfig.top_k", gconfig.top_k <= NO_TOP_K),
    ):
        if cut:
            yield Hit(
                key,
                f"{subject.show(key)}: the sampler never draws the tail that the trainer's "
                "log-probs still contain, so the two policies differ by construction",
                f"sample training answers without it; keep {subject.name(key)} for evaluation",
            )


def _silent_share(subject: Subject) -> float | None:
    """Expected share of groups whose answers are all right or all wrong."""
    rate, size = subject.pass_rate, subject.config.gconfig.n_samples
    if rate is None or size < 2 or not any(n.mean_level == "group" for _, n in subject.norms()):
        return None
    return rate**size + (1 - rate) ** size


@rule(
    "silent-groups",
    severity="worth-knowing",
    keys=("actor.adv_norm.mean_level", "actor.reward_norm.mean_level", "gconfig.n_samples"),
    claim="With right-or-wrong rewards a share p^G + (1-p)^G of the groups carries no signal.",
    evidence=measured("groups of 2 at 70 % silent and groups of 8 at 25 % learn equally well"),
    source=f"jsboige/CoursIA #10603 (log matches the formula); {OWN_RUNS}",
)
def silent_groups(subject: Subject) -> Iterator[Hit]:
    """The predicted share of groups without contrast."""
    share = _silent_share(subject)
    if share is not None and share < MANY_SILENT:
        yield Hit(
            "gconfig.n_samples",
            f"{subject.show('gconfig.n_samples')} at pass rate {subject.pass_rate:g}: "
            f"{share:.0%} of the groups will be all right or all wrong and carry no signal",
            "expected, not a fault; larger groups or prompts near one half lower it",
        )


@rule(
    "mostly-silent-groups",
    severity="likely-harmful",
    keys=("actor.adv_norm.mean_level", "actor.reward_norm.mean_level", "gconfig.n_samples"),
    claim="Where p^G + (1-p)^G exceeds 0.8, nearly every batch is empty of signal.",
    evidence=follows(
        "p^G + (1-p)^G; reported as a flat run at 70 to 77 % silent groups, and 80 % is where "
        "public advice calls the prompts wrong"
    ),
    source=f"jsboige/CoursIA #10603; {TOY}: groups of 2/4/8/16 end at 0.67/0.74/0.80/0.89",
)
def mostly_silent_groups(subject: Subject) -> Iterator[Hit]:
    """Nearly every group is predicted to be without contrast."""
    share = _silent_share(subject)
    rate = subject.pass_rate
    if share is None or rate is None or share < MANY_SILENT:
        return
    advice = "easier" if rate < 0.5 else "harder"
    needed = _group_for(rate)
    larger = f"groups of {needed}, or " if EDGE_LOW <= rate <= EDGE_HIGH else ""
    yield Hit(
        "gconfig.n_samples",
        f"{subject.show('gconfig.n_samples')} at pass rate {rate:g}: {share:.0%} of the groups "
        "will be all right or all wrong, so most of every batch teaches nothing",
        f"use {larger}{advice} prompts",
    )


def _group_for(rate: float) -> int:
    """The smallest power of two whose groups are silent in less than half of all cases."""
    size = 2
    while rate**size + (1 - rate) ** size >= 0.5:
        size *= 2
    return size


RULES = (
    group_of_one,
    greedy_group,
    mostly_silent_groups,
    temperature_mismatch,
    low_temperature,
    high_temperature,
    truncated_sampling,
    silent_groups,
)
