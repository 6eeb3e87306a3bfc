"""What a configuration does to the rewards at a stage, in words with the user's own numbers.

A detector proves from the curves at which stage a signal is lost; this says which setting did it.
"""

from collections.abc import Callable

from grpo_core.config import NormConfig, TrialConfig


def explain_stage(stage: str, config: TrialConfig) -> str | None:
    """What `config` does at `stage`; None where nothing special can be said.

    What the user's own function pays (`task.reward_fn`) is not known beforehand.
    """
    explain = _EXPLANATIONS.get(stage)
    unknown = config.task.reward_fn is not None and stage in _BY_RANGE
    return None if explain is None or unknown else explain(config)


def reward_range(config: TrialConfig) -> tuple[float, float]:
    """Smallest and largest raw reward that the task can give."""
    ends = (config.task.reward_wrong, config.task.reward_right)
    return min(ends), max(ends)


def scaled_range(config: TrialConfig) -> tuple[float, float]:
    """The same after bias and scaling."""
    actor = config.actor
    ends = [(reward + actor.reward_bias) * actor.reward_scaling for reward in reward_range(config)]
    return min(ends), max(ends)


def _penalty(config: TrialConfig) -> str | None:
    actor = config.actor
    if not actor.overlong_reward_penalty or actor.overlong_penalty_factor is None:
        return None
    low, high = reward_range(config)
    start = actor.max_new_tokens - (actor.overlong_tokens or 0)
    direction = "takes up to" if actor.overlong_penalty_factor > 0 else "adds up to"
    return (
        f"actor.overlong_penalty_factor={actor.overlong_penalty_factor:g} {direction} "
        f"{abs(actor.overlong_penalty_factor):g} for length, from token {start} on "
        f"(actor.max_new_tokens={actor.max_new_tokens}, actor.overlong_tokens="
        f"{actor.overlong_tokens}), while right and wrong differ by {high - low:g}"
    )


def _scaled(config: TrialConfig) -> str | None:
    actor = config.actor
    low, high = reward_range(config)
    if actor.reward_scaling == 0:
        return (
            f"actor.reward_scaling=0 makes every reward of this task, which lie in "
            f"[{low:g}, {high:g}], 0"
        )
    scaled_low, scaled_high = scaled_range(config)
    return (
        f"(reward + {actor.reward_bias:g}) * actor.reward_scaling={actor.reward_scaling:g} puts "
        f"rewards of [{low:g}, {high:g}] into [{scaled_low:g}, {scaled_high:g}]"
    )


def _clipped(config: TrialConfig) -> str | None:
    clip = config.actor.reward_clip
    low, high = scaled_range(config)
    if low >= clip or high <= -clip:
        value = clip if low >= clip else -clip
        return (
            f"actor.reward_clip={clip:g} maps every scaled reward of this task, which lie in "
            f"[{low:g}, {high:g}], to {value:g}"
        )
    return (
        f"actor.reward_clip={clip:g} cuts scaled rewards (without penalty in [{low:g}, {high:g}]) "
        f"to [{-clip:g}, {clip:g}]"
    )


def _normalized(config: TrialConfig) -> str | None:
    norm, size = config.actor.reward_norm, config.gconfig.n_samples
    if norm is None:
        return None
    if size == 1 and norm.mean_level == "group":
        return (
            "actor.reward_norm.mean_level=group over groups of one (gconfig.n_samples=1) subtracts "
            "every reward from itself"
        )
    return f"actor.reward_norm takes {_levels(norm)} over groups of {size}"


def _truncation(config: TrialConfig) -> str | None:
    if not config.actor.mask_no_eos_with_zero:
        return None
    low, _ = scaled_range(config)
    better = f", which is better than a wrong answer's {low:g}" if low < 0 else ""
    return f"actor.mask_no_eos_with_zero=true gives cut answers 0{better}"


def _returns(config: TrialConfig) -> str | None:
    actor = config.actor
    if actor.kl_ctl == 0:
        if actor.discount < 1 or actor.gae_lambda != 1.0:
            return (
                f"actor.discount={actor.discount:g} and actor.gae_lambda={actor.gae_lambda} shrink "
                "the reward of long answers"
            )
        return None
    low, high = scaled_range(config)
    return (
        f"actor.kl_ctl={actor.kl_ctl:g} per nat ({actor.kl_estimator}) is paid on every token, "
        f"while right and wrong differ by {high - low:g} per answer after scaling"
    )


def _advantage(config: TrialConfig) -> str | None:
    norm = config.actor.adv_norm
    return None if norm is None else f"actor.adv_norm takes {_levels(norm)} over trained tokens"


def _levels(norm: NormConfig) -> str:
    mean = "no mean" if norm.mean_level is None else f"the {norm.mean_level} mean"
    spread = "no std" if norm.std_level is None else f"the {norm.std_level} std"
    return f"{mean} and {spread}"


_BY_RANGE = frozenset(["penalty", "scaled", "clipped", "truncation", "returns"])
"""Stages that are explained by the range of the task's rewards."""
_EXPLANATIONS: dict[str, Callable[[TrialConfig], str | None]] = {
    "penalty": _penalty,
    "scaled": _scaled,
    "clipped": _clipped,
    "normalized": _normalized,
    "truncation": _truncation,
    "returns": _returns,
    "advantage": _advantage,
}
