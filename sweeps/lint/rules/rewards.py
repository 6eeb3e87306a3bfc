"""Does the reward survive: scaling, clip, weights, discount."""

from collections.abc import Iterator

from sweeps.lint.subject import Subject
from sweeps.lint.types import (
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

SMALL_SCALING = 0.01
KEPT_RANGE = 0.5
"""Share of a graded reward's range that the clip has to leave."""
UNEVEN_WEIGHTS = 3.0
FIRST_TOKEN_SHARE = 0.1
"""Share of the reward that has to reach the first token of the longest answer."""


@rule(
    "scaling-zero",
    severity="fatal",
    keys=("actor.reward_scaling",),
    claim="reward_scaling 0 makes every reward 0.",
    evidence=measured("the weights do not move at all, pass rate 0.30 as at the start"),
    source=f"{CLAIMS}; {OWN_RUNS}",
)
def scaling_zero(subject: Subject) -> Iterator[Hit]:
    """A factor of 0."""
    if subject.config.actor.reward_scaling == 0:
        yield Hit(
            "actor.reward_scaling",
            f"{subject.show('actor.reward_scaling')}: every reward is multiplied by 0, so nothing "
            "is learned",
            f"set {subject.name('actor.reward_scaling')} to 1.0",
        )


@rule(
    "scaling-negative",
    severity="likely-harmful",
    keys=("actor.reward_scaling",),
    claim="A negative reward_scaling rewards what the task punishes.",
    evidence=measured("0.01 in place of 0.96"),
    source=f"{CLAIMS}; huggingface/trl #2771 (a reward with the wrong sign)",
)
def scaling_negative(subject: Subject) -> Iterator[Hit]:
    """A factor below 0."""
    if subject.config.actor.reward_scaling < 0:
        yield Hit(
            "actor.reward_scaling",
            f"{subject.show('actor.reward_scaling')}: the order of the rewards is turned around, "
            "so wrong answers are taught",
            f"make {subject.name('actor.reward_scaling')} positive",
        )


@rule(
    "clip-flattens-rewards",
    severity="fatal",
    keys=("actor.reward_bias", "actor.reward_clip", "actor.reward_scaling"),
    claim="A clip below every reward maps all of them to the same value.",
    evidence=measured("rewards 5 and 10 at clip 1: the weights do not move, 0.30 in place of 0.96"),
    source=f"{CLAIMS}; {OWN_RUNS}; Algorineko/AgenticArXiv-RL #76",
)
def clip_flattens_rewards(subject: Subject) -> Iterator[Hit]:
    """All rewards of the task end at the same bound, or the clip is 0."""
    actor = subject.config.actor
    if actor.reward_scaling == 0:
        return
    if actor.reward_clip == 0:
        yield Hit(
            "actor.reward_clip",
            f"{subject.show('actor.reward_clip')}: every reward is clipped to 0, so nothing is "
            "learned",
            f"set {subject.name('actor.reward_clip')} above the scaled rewards, e.g. to 20",
        )
        return
    rewards = subject.rewards
    if rewards is None or rewards.low == rewards.high:
        return
    if subject.scaled(rewards.low) == subject.scaled(rewards.high):
        low, high = _before_clip(subject)
        yield Hit(
            "actor.reward_clip",
            f"{subject.show('actor.reward_clip')}: after bias and scaling the rewards lie in "
            f"[{low:g}, {high:g}], and the clip maps all of them to "
            f"{subject.scaled(rewards.high):g}: nothing is left to learn from",
            f"set {subject.name('actor.reward_clip')} above {max(abs(low), abs(high)):g}, or "
            "centre the rewards with actor.reward_bias",
            also=("actor.reward_scaling", "actor.reward_bias"),
        )


def _before_clip(subject: Subject) -> tuple[float, float]:
    actor, rewards = subject.config.actor, subject.rewards
    if rewards is None:
        return 0.0, 0.0
    ends = [(end + actor.reward_bias) * actor.reward_scaling for end in (rewards.low, rewards.high)]
    return min(ends), max(ends)


@rule(
    "clip-cuts-graded-rewards",
    severity="likely-harmful",
    keys=("actor.reward_bias", "actor.reward_clip", "actor.reward_scaling"),
    claim="A clip inside the range of a graded reward makes partly right as good as right.",
    evidence=measured("graded rewards 0 to 10 at clip 0.5: 0.45/0.28/0.43 in place of 0.95"),
    source=f"{CLAIMS}; {OWN_RUNS}",
)
def clip_cuts_graded_rewards(subject: Subject) -> Iterator[Hit]:
    """The clip removes most of what tells graded answers apart."""
    rewards = subject.rewards
    graded = rewards is not None and (rewards.graded or len(rewards.values) > 2)
    low, high = _before_clip(subject)
    if rewards is None or not graded or high == low:
        return
    left = abs(subject.scaled(rewards.high) - subject.scaled(rewards.low)) / (high - low)
    if 0 < left < KEPT_RANGE:
        yield Hit(
            "actor.reward_clip",
            f"{subject.show('actor.reward_clip')}: rewards between {low:g} and {high:g} after "
            f"scaling keep {left:.0%} of their range, so answers of different worth get the same "
            "reward",
            f"set {subject.name('actor.reward_clip')} above {max(abs(low), abs(high)):g}",
            also=("actor.reward_scaling", "actor.reward_bias"),
        )


@rule(
    "small-reward-scale",
    severity="worth-knowing",
    keys=("actor.kl_ctl", "actor.optimizer.type", "actor.reward_clip", "actor.reward_scaling"),
    claim="A small reward_scaling or reward_clip is said to make the run plateau.",
    evidence=refuted(
        "Adam is blind to the scale: scaling 1e-3 ends at 0.91 to 0.96 with and without std, clip "
        "0.01 with rewards 0/1 at 0.93 to 0.95"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}; {TOY}",
)
def small_reward_scale(subject: Subject) -> Iterator[Hit]:
    """Small rewards under Adam and without a KL penalty."""
    actor = subject.config.actor
    if actor.optimizer.type != "adam" or actor.kl_ctl != 0:
        return
    for key in ("actor.reward_scaling", "actor.reward_clip"):
        if 0 < abs(subject.value(key)) <= SMALL_SCALING and subject.gives(key):
            yield Hit(
                key,
                f"{subject.show(key)}: said to cause a plateau; under Adam and with kl_ctl 0 it "
                "changed nothing in our runs, as long as different rewards stay different",
                "nothing to change; under SGD or with a KL penalty it does matter",
            )


@rule(
    "sgd-small-signal",
    severity="likely-harmful",
    keys=(
        "actor.adv_norm.std_level",
        "actor.optimizer.type",
        "actor.reward_clip",
        "actor.reward_norm.std_level",
        "actor.reward_scaling",
    ),
    claim="Under SGD a small reward scale without std normalization is a small step.",
    evidence=measured(
        "SGD 0.1, no std: scaling 1e-3 ends at 0.31, as at the start; scaling 1 at 0.95/0.81/0.55"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}; huggingface/trl #6024",
)
def sgd_small_signal(subject: Subject) -> Iterator[Hit]:
    """Small rewards under an optimizer that is not blind to scale."""
    actor = subject.config.actor
    if actor.optimizer.type != "sgd" or any(n.std_level is not None for _, n in subject.norms()):
        return
    for key in ("actor.reward_scaling", "actor.reward_clip"):
        if 0 < abs(subject.value(key)) <= SMALL_SCALING:
            yield Hit(
                key,
                f"{subject.show(key)} with {subject.show('actor.optimizer.type')} and no std: "
                "SGD's step is proportional to the advantage, so the policy hardly moves",
                f"set {subject.name(key)} to 1 or more, add a std level, or use adam",
                also=("actor.optimizer.type",),
            )


@rule(
    "bias-without-effect",
    severity="no-effect",
    keys=(
        "actor.mask_no_eos_with_zero",
        "actor.overlong_reward_penalty",
        "actor.reward_bias",
        "actor.reward_clip",
        "actor.reward_norm.mean_level",
        "actor.reward_scaling",
    ),
    claim="A reward bias cancels where a mean is subtracted before anything else looks at it.",
    evidence=measured("runs with and without a bias are the same, step by step"),
    source=f"{CLAIMS}; {TOY}; follows from r + b - mean(r + b)",
)
def bias_without_effect(subject: Subject) -> Iterator[Hit]:
    """A bias that the mean takes out again."""
    actor = subject.config.actor
    norm = actor.reward_norm
    reach = 0.0
    if subject.rewards is not None:
        reach = max(abs(subject.rewards.low), abs(subject.rewards.high))
    clipped = (abs(actor.reward_bias) + reach) * abs(actor.reward_scaling) > actor.reward_clip
    if actor.reward_bias == 0 or norm is None or norm.mean_level is None or clipped:
        return
    if actor.mask_no_eos_with_zero or actor.overlong_reward_penalty or subject.rewards is None:
        return
    yield Hit(
        "actor.reward_bias",
        f"{subject.show('actor.reward_bias')}: reward_norm subtracts a mean right after it, and "
        "the clip is not reached, so the bias cancels exactly",
        f"leave {subject.name('actor.reward_bias')} at 0",
        also=("actor.reward_norm.mean_level",),
    )


@rule(
    "uneven-reward-weights",
    severity="worth-knowing",
    keys=("extensions.multi_objective_aggregation", "extensions.reward_weights"),
    claim="A reward component with a much larger weight takes the whole normalized signal.",
    evidence=measured(
        "toy with an easy component of 3 times the task's reward: success 0.006 while the total "
        "reward rises"
    ),
    source=f"huggingface/open-r1 #255; NVIDIA-NeMo/RL #2681; {TOY}",
)
def uneven_reward_weights(subject: Subject) -> Iterator[Hit]:
    """Components with very different weights, summed and then normalized."""
    extensions = subject.config.extensions
    weights = [abs(weight) for weight in extensions.reward_weights or () if weight]
    if len(weights) < 2 or extensions.multi_objective_aggregation != "sum_then_normalize":
        return
    if max(weights) >= UNEVEN_WEIGHTS * min(weights):
        yield Hit(
            "extensions.reward_weights",
            f"{subject.show('extensions.reward_weights')}: the sum is normalized, so the heaviest "
            "component can hide the others",
            f"set {subject.name('extensions.multi_objective_aggregation')} to normalize_then_sum, "
            "and watch every component by itself",
        )


@rule(
    "reward-discounted-away",
    severity="likely-harmful",
    keys=(
        "actor.discount",
        "actor.gae_lambda",
        "actor.gae_timestep_unit",
        "critic",
        "gconfig.max_new_tokens",
    ),
    claim="Without a critic, discount or lambda below 1 takes the reward from long answers.",
    evidence=measured(
        "lambda 0.5: 0.46/0.68/0.81 in place of 0.96 to 0.99, and answers shrink from 12 to 6 "
        "tokens"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}",
)
def reward_discounted_away(subject: Subject) -> Iterator[Hit]:
    """The reward of the last token does not reach the first one."""
    actor, longest = subject.config.actor, subject.config.gconfig.max_new_tokens
    if subject.config.critic is not None or not isinstance(actor.gae_lambda, float | int):
        return
    rate = actor.discount * actor.gae_lambda
    if actor.gae_timestep_unit == "turn" or rate >= 1 or rate**longest >= FIRST_TOKEN_SHARE:
        return
    key = "actor.gae_lambda" if actor.gae_lambda < actor.discount else "actor.discount"
    yield Hit(
        key,
        f"{subject.show(key)} without a critic: the reward shrinks by {rate:g} per token on its "
        f"way back, so of {longest} tokens only the last {_horizon(rate)} see a tenth of it; long "
        "answers are not paid for",
        f"set {subject.name(key)} to 1.0, or add a critic",
        also=("gconfig.max_new_tokens",),
    )


def _horizon(rate: float) -> int:
    """Tokens over which a discounted reward stays above its tenth."""
    tokens = 0
    while rate > 0 and rate ** (tokens + 1) >= FIRST_TOKEN_SHARE:
        tokens += 1
    return tokens + 1


@rule(
    "penalty-is-scaled",
    severity="worth-knowing",
    keys=("actor.overlong_penalty_factor", "actor.overlong_reward_penalty", "actor.reward_scaling"),
    claim="reward_scaling and reward_clip act on the overlong penalty too, which comes first.",
    evidence=follows("order: penalty, bias, scaling, clip, normalization"),
    source=AREAL_RUN,
)
def penalty_is_scaled(subject: Subject) -> Iterator[Hit]:
    """A penalty that will not have the size that its factor says."""
    actor = subject.config.actor
    if actor.overlong_reward_penalty and actor.reward_scaling not in {0, 1}:
        yield Hit(
            "actor.overlong_penalty_factor",
            f"{subject.show('actor.reward_scaling')} multiplies the overlong penalty as well: it "
            "is subtracted from the raw reward, before bias and scaling",
            f"choose {subject.name('actor.overlong_penalty_factor')} in raw reward units",
            also=("actor.reward_scaling",),
        )


@rule(
    "std-amplifies-shaping",
    severity="worth-knowing",
    keys=("actor.overlong_reward_penalty", "actor.reward_norm.std_level"),
    claim="Group std gives length shaping in all-wrong groups the weight of a right answer.",
    evidence=reported(
        "verl-recipe #125: held-out 0.715 to 0.04-0.10 in 40 steps, length 1; our toy repeats the "
        "order: group std 0.60, no std 0.77"
    ),
    source=f"verl-project/verl-recipe #125; {TOY}",
)
def std_amplifies_shaping(subject: Subject) -> Iterator[Hit]:
    """A length penalty under a group std."""
    actor = subject.config.actor
    norm = actor.reward_norm
    if norm is None or norm.std_level != "group" or not actor.overlong_reward_penalty:
        return
    yield Hit(
        "actor.reward_norm.std_level",
        f"{subject.show('actor.reward_norm.std_level')} with "
        f"{subject.show('actor.overlong_reward_penalty')}: in a group without a right answer the "
        "spread is only the penalty's, and dividing by it makes a few tokens of length count as "
        "much as being right",
        "drop groups without a right answer (dynamic sampling), or set "
        f"{subject.name('actor.reward_norm.std_level')} to null",
        also=("actor.overlong_reward_penalty",),
    )


RULES = (
    scaling_zero,
    clip_flattens_rewards,
    scaling_negative,
    clip_cuts_graded_rewards,
    sgd_small_signal,
    reward_discounted_away,
    bias_without_effect,
    small_reward_scale,
    uneven_reward_weights,
    penalty_is_scaled,
    std_amplifies_shaping,
)
