"""What mean and spread really do: levels, leave-one-out, group sizes."""

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


@rule(
    "group-size-ignored",
    severity="no-effect",
    keys=(
        "actor.adv_norm.group_size",
        "actor.adv_norm.mean_level",
        "actor.adv_norm.std_level",
        "actor.reward_norm.group_size",
        "actor.reward_norm.mean_level",
        "actor.reward_norm.std_level",
        "gconfig.n_samples",
        "train_dataset.batch_size",
    ),
    claim="group_size of a norm is only read where a batch comes without group boundaries.",
    evidence=follows(
        "AReaL's trainer always hands the boundaries over; where they are missing, rows after the "
        "last whole block are divided by eps: rewards 1, 2, 3 at group_size 2 give 300 000"
    ),
    source=f"{AREAL_READ}; areal-project/AReaL #1673",
)
def group_size_ignored(subject: Subject) -> Iterator[Hit]:
    """A written group size that is not the number of answers per prompt."""
    samples = subject.config.gconfig.n_samples
    for key, norm in subject.norms():
        grouped = "group" in {norm.mean_level, norm.std_level}
        if not grouped or not subject.gives(f"{key}.group_size") or norm.group_size == samples:
            continue
        yield Hit(
            f"{key}.group_size",
            f"{subject.show(f'{key}.group_size')} with {subject.show('gconfig.n_samples')}: the "
            "groups are the answers of a prompt whatever stands here; a trainer without group "
            f"metadata would mix prompts{_remainder(subject, norm.group_size)}",
            f"set {subject.name(f'{key}.group_size')} to ${{gconfig.n_samples}}",
            also=("gconfig.n_samples",),
        )


def _remainder(subject: Subject, size: int) -> str:
    rows = subject.config.train_dataset.batch_size * subject.config.gconfig.n_samples
    left = rows % size if size > 0 and subject.gives("train_dataset.batch_size") else 0
    return f", and divide the last {left} of {rows} rows by eps (advantages of 1e5)" if left else ""


@rule(
    "leave-one-out-cancels",
    severity="no-effect",
    keys=(
        "actor.adv_norm.mean_leave1out",
        "actor.adv_norm.mean_level",
        "actor.adv_norm.std_level",
        "actor.reward_norm.mean_leave1out",
        "actor.reward_norm.mean_level",
        "actor.reward_norm.std_level",
    ),
    claim="Leave-one-out with a std is plain normalization: the factor n/(n-1) is in both.",
    evidence=follows(
        "x - mean of the others = n/(n-1) (x - mean), and the spread is taken about the same means"
    ),
    source=f"{CLAIMS}; {AREAL_RUN}; checked against our normalization in a test",
)
def leave_one_out_cancels(subject: Subject) -> Iterator[Hit]:
    """Leave-one-out together with a std."""
    for key, norm in subject.norms():
        if not norm.mean_leave1out or norm.mean_level is None or norm.std_level is None:
            continue
        if key == "actor.adv_norm" and subject.areal_semantics:
            continue
        yield Hit(
            f"{key}.mean_leave1out",
            f"{subject.show(f'{key}.mean_leave1out')} with {subject.show(f'{key}.std_level')}: "
            "leaving the answer out stretches deviation and spread by the same factor, so the "
            "result is that of the plain mean",
            f"set {subject.name(f'{key}.std_level')} to null for RLOO, or "
            f"{subject.name(f'{key}.mean_leave1out')} to false",
            also=(f"{key}.std_level",),
        )


@rule(
    "leave-one-out-of-tokens",
    severity="no-effect",
    keys=("actor.adv_norm.mean_leave1out", "actor.adv_norm.mean_level"),
    claim="AReaL's adv_norm leaves out one token, not one answer: RLOO is not what comes out.",
    evidence=measured("RLOO on adv_norm ends as the plain group mean does, at 0.93 to 0.95"),
    source=f"{AREAL_RUN}; {OWN_RUNS}",
)
def leave_one_out_of_tokens(subject: Subject) -> Iterator[Hit]:
    """Leave-one-out on advantages, in AReaL."""
    norm = subject.config.actor.adv_norm
    if norm is None or not norm.mean_leave1out or norm.mean_level is None:
        return
    if subject.areal_semantics:
        yield Hit(
            "actor.adv_norm.mean_leave1out",
            f"{subject.show('actor.adv_norm.mean_leave1out')}: adv_norm works on tokens and leaves "
            "out one of them, while the answer's other tokens with the same reward stay in; the "
            "result is the plain mean up to 1/tokens",
            "put mean_leave1out into actor.reward_norm with std_level null: there it leaves out "
            "an answer",
        )


@rule(
    "group-mean-of-tokens",
    severity="worth-knowing",
    keys=("actor.adv_norm.mean_level",),
    claim="adv_norm at group level averages over tokens, so long answers move the baseline more.",
    evidence=measured(
        "rewards 1 (9 tokens) and 0 (1 token) become +0.1 and -0.9; all nine level combinations "
        "learn all the same (0.91 to 0.98)"
    ),
    source=f"{AREAL_RUN}; {OWN_RUNS}",
)
def group_mean_of_tokens(subject: Subject) -> Iterator[Hit]:
    """Group level on advantages."""
    norm = subject.config.actor.adv_norm
    if norm is not None and norm.mean_level == "group":
        yield Hit(
            "actor.adv_norm.mean_level",
            f"{subject.show('actor.adv_norm.mean_level')}: the mean runs over the group's tokens, "
            "not its answers, so this is not the GRPO of the paper when lengths differ",
            "use actor.reward_norm for the group mean, as AReaL's example files do",
        )


@rule(
    "std-without-mean",
    severity="worth-knowing",
    keys=(
        "actor.adv_norm.mean_level",
        "actor.reward_norm.mean_level",
        "actor.reward_norm.std_level",
    ),
    claim="A std without a mean divides by the root mean square about 0 and centres nothing.",
    evidence=measured("rewards 5 and 10 with std and no mean: 0.81 to 0.86, slower than 0.94"),
    source=f"{AREAL_RUN}; {OWN_RUNS}",
)
def std_without_mean(subject: Subject) -> Iterator[Hit]:
    """A spread about 0."""
    for key, norm in subject.norms():
        if norm.mean_level is None and norm.std_level is not None:
            yield Hit(
                f"{key}.std_level",
                f"{subject.show(f'{key}.std_level')} with {subject.show(f'{key}.mean_level')}: the "
                "spread is taken about 0, so rewards that are all positive stay all positive",
                f"set {subject.name(f'{key}.mean_level')} to group or batch",
                also=(f"{key}.mean_level",),
            )


@rule(
    "group-std-about-batch-mean",
    severity="worth-knowing",
    keys=(
        "actor.adv_norm.mean_level",
        "actor.adv_norm.std_level",
        "actor.reward_norm.mean_level",
        "actor.reward_norm.std_level",
    ),
    claim="mean_level batch with std_level group measures each group's distance from the batch.",
    evidence=measured(
        "constant groups become exactly +1 or -1 with the biased std; it learns all the same (0.95)"
    ),
    source=f"{AREAL_RUN}; {OWN_RUNS}",
)
def group_std_about_batch_mean(subject: Subject) -> Iterator[Hit]:
    """A group's spread about a mean that is not its own."""
    for key, norm in subject.norms():
        if norm.mean_level == "batch" and norm.std_level == "group":
            yield Hit(
                f"{key}.std_level",
                f"{subject.show(f'{key}.std_level')} with {subject.show(f'{key}.mean_level')}: the "
                "spread is taken about the batch mean, so a group without contrast still gets a "
                "signal of size 1: for being an easy or a hard prompt",
                f"set {subject.name(f'{key}.mean_level')} to group",
                also=(f"{key}.mean_level",),
            )


@rule(
    "batch-mean-of-rewards",
    severity="worth-knowing",
    keys=("actor.reward_norm.mean_level", "gconfig.n_samples"),
    claim="A batch mean teaches which prompts are easy, the more so the more they differ.",
    evidence=measured(
        "no difference between the nine level combinations (0.91 to 0.98); in the toy 0.76, 0.76, "
        "0.52 in place of 0.80 at"
        "offsets 0, 1, 5 between prompts"
    ),
    source=f"THUDM/slime #1414; {OWN_RUNS}; {TOY}",
)
def batch_mean_of_rewards(subject: Subject) -> Iterator[Hit]:
    """Rewards centred over prompts of different difficulty."""
    norm = subject.config.actor.reward_norm
    if norm is not None and norm.mean_level == "batch" and subject.config.gconfig.n_samples > 1:
        yield Hit(
            "actor.reward_norm.mean_level",
            f"{subject.show('actor.reward_norm.mean_level')}: every answer to an easy prompt looks "
            "good and every answer to a hard one bad; harmless while prompts are alike",
            f"set {subject.name('actor.reward_norm.mean_level')} to group",
        )


@rule(
    "no-baseline",
    severity="worth-knowing",
    keys=(
        "actor.adv_norm.mean_level",
        "actor.reward_norm.mean_level",
        "actor.reward_scaling",
        "critic",
    ),
    claim="Without a mean and without a critic, rewards that are all positive teach slowly.",
    evidence=measured("rewards 0 and 1: 0.94 to 0.96; rewards 5 and 10: 0.83 to 0.94, slower"),
    source=f"{OWN_RUNS}; {TOY}",
)
def no_baseline(subject: Subject) -> Iterator[Hit]:
    """Nothing is subtracted from the rewards."""
    if subject.config.critic is not None or subject.config.actor.reward_scaling == 0:
        return
    if any(norm.mean_level is not None for _, norm in subject.norms()):
        return
    yield Hit(
        "actor.reward_norm",
        "neither actor.reward_norm nor actor.adv_norm subtracts a mean, and there is no critic: "
        "every answer with a positive reward is pushed up, right or wrong",
        "set actor.reward_norm to {mean_level: group, std_level: group}",
        also=("actor.adv_norm",),
    )


@rule(
    "std-comes-back",
    severity="worth-knowing",
    keys=(
        "actor.adv_norm.std_level",
        "actor.reward_norm.mean_level",
        "actor.reward_norm.std_level",
    ),
    claim="A std in adv_norm puts back the scaling that std_level null took out (Dr.GRPO).",
    evidence=measured(
        "group/none with and without a batch adv_norm behind it: 0.93 to 0.96 and 0.91 to 0.97"
    ),
    source=f"{OWN_RUNS}; {AREAL_RUN}; axon-rl/gem #113",
)
def std_comes_back(subject: Subject) -> Iterator[Hit]:
    """No std on rewards, but one on advantages."""
    reward, advantage = subject.config.actor.reward_norm, subject.config.actor.adv_norm
    if reward is None or advantage is None or not subject.gives("actor.reward_norm.std_level"):
        return
    if (
        reward.mean_level == "group"
        and reward.std_level is None
        and advantage.std_level is not None
    ):
        yield Hit(
            "actor.adv_norm.std_level",
            f"{subject.show('actor.adv_norm.std_level')} behind "
            f"{subject.show('actor.reward_norm.std_level')}: Dr.GRPO and RLOO leave the std out on "
            "purpose, and adv_norm divides by one again",
            "set actor.adv_norm to null for the paper's Dr.GRPO or RLOO",
            also=("actor.reward_norm.std_level",),
        )


@rule(
    "biased-std",
    severity="worth-knowing",
    keys=(
        "actor.adv_norm.std_level",
        "actor.adv_norm.std_unbiased",
        "actor.reward_norm.std_level",
        "actor.reward_norm.std_unbiased",
    ),
    claim="std_unbiased false is said to make rewards noisy and the loss explode.",
    evidence=refuted("a factor of 0.935 in groups of 8: 0.95 to 0.96, as with the unbiased std"),
    source=f"{CLAIMS}; {OWN_RUNS}",
)
def biased_std(subject: Subject) -> Iterator[Hit]:
    """The other denominator."""
    for key, norm in subject.norms():
        given = subject.gives(f"{key}.std_unbiased")
        if given and not norm.std_unbiased and norm.std_level is not None:
            yield Hit(
                f"{key}.std_unbiased",
                f"{subject.show(f'{key}.std_unbiased')}: blamed for noisy runs; it scales "
                "advantages by sqrt((n-1)/n) and changed nothing in our runs",
                "nothing to change",
            )


RULES = (
    group_size_ignored,
    leave_one_out_cancels,
    leave_one_out_of_tokens,
    group_mean_of_tokens,
    std_without_mean,
    group_std_about_batch_mean,
    batch_mean_of_rewards,
    no_baseline,
    std_comes_back,
    biased_std,
)
