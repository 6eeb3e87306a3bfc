"""The names under which the project knows a run's signals, and what nobody can tell without one."""

import difflib
from dataclasses import dataclass, fields

from grpo_core.metrics import STAGES, StageSignal, StepMetrics

COMPONENT = "component."
"""Prefix of the mean of one reward function: `component.accuracy_reward`."""
AUXILIARY = "aux."
"""Prefix of numbers that only serve to derive a signal."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One series that a log can hold."""

    meaning: str
    """What it is, with its unit."""
    without: str = ""
    """What cannot be told where it is lacking; empty where little is lost."""


SIGNALS: dict[str, Signal] = {
    "reward_mean": Signal(
        "mean raw reward over answers", "whether the run learns at all, unless there is a pass rate"
    ),
    "reward_std": Signal("standard deviation of the reward over all answers"),
    "reward_min": Signal("smallest reward of the batch"),
    "reward_max": Signal("largest reward of the batch"),
    "pass_rate": Signal(
        "share of training answers that pass a strict check",
        "whether the reward still stands for the task (reward hacking)",
    ),
    "eval_pass_rate": Signal(
        "held-out accuracy, score or reward",
        "whether what was learnt holds outside the training prompts",
    ),
    "length_mean": Signal("generated tokens per answer", "length collapse and explosion"),
    "length_max": Signal("longest answer of the batch, tokens"),
    "truncated": Signal(
        "share of answers cut at the length limit", "whether answers are cut before they can score"
    ),
    "entropy": Signal("mean entropy, nats per token", "entropy collapse and explosion"),
    "kl_reference": Signal(
        "KL to the reference, nats per token", "drift from, or pinning to, the reference"
    ),
    "kl_share": Signal("share of the KL term in the variance of the returns"),
    "clip_fraction": Signal("share of tokens whose ratio is clipped", "how hard the clip works"),
    "clip_low": Signal("share of tokens clipped below"),
    "clip_high": Signal("share of tokens clipped above"),
    "dual_clip_fraction": Signal("share of tokens caught by the dual clip"),
    "ratio_mean": Signal("mean importance ratio"),
    "ratio_max": Signal("largest importance ratio", "unstable importance weights"),
    "ratio_min": Signal("smallest importance ratio"),
    "log_ratio_abs": Signal("mean absolute log importance ratio, nats"),
    "logprob_gap": Signal(
        "mean absolute difference of the sampler's and the trainer's log-probs, nats",
        "a sampler that is not the policy that is trained",
    ),
    "effective_samples": Signal("effective sample size of the weights, as a share"),
    "advantage_mean": Signal("mean advantage over tokens"),
    "advantage_std": Signal("standard deviation of the advantage over tokens"),
    "advantage_min": Signal("smallest advantage"),
    "advantage_max": Signal("largest advantage", "exploding advantages"),
    "loss": Signal("policy loss", "a loss that explodes or is not a number"),
    "value_loss": Signal("loss of the value function"),
    "value_explained": Signal(
        "share of the returns' variance that the value function explains", "a critic that diverges"
    ),
    "grad_norm": Signal("gradient norm before clipping", "dead and exploding updates"),
    "update_norm": Signal("L2 norm of a step's change of the weights"),
    "learning_rate": Signal("learning rate"),
    "staleness": Signal("policy versions between sampling and training", "stale rollouts"),
    "raw.silent": Signal(
        "share of groups whose rewards are all equal",
        "whether groups are silent: a hard task and a dead signal look alike",
    ),
    "raw.gain": Signal("mean standard deviation of the reward within groups"),
    "accepted_groups": Signal("share of the groups that dynamic sampling accepted"),
    "seconds": Signal("wall-clock time of a step"),
}
"""Every signal that an importer can yield; stage signals and components come on top."""

STAGE_SIGNALS = frozenset(f"{stage}.{part}" for stage in STAGES for part in StageSignal.__slots__)
"""What our own trainer measures behind every stage of the reward pipeline."""

OWN_SIGNALS = frozenset(field.name for field in fields(StepMetrics)) - {
    "step",
    "stages",
    "nonfinite",
}
"""What only our own trainer measures, besides SIGNALS."""


def is_signal(name: str) -> bool:
    """The project has a signal of this name."""
    ours = name in SIGNALS or name in STAGE_SIGNALS or name in OWN_SIGNALS
    return ours or name.startswith(COMPONENT)


def nearest(name: str, names: list[str]) -> str:
    """` (nearest: ...)`, or nothing where no name is near."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" (nearest: {close[0]})" if close else ""


def lacking(found: frozenset[str]) -> dict[str, str]:
    """Signals that matter and are not in `found`, each with what cannot be told without it."""
    return {
        name: signal.without
        for name, signal in SIGNALS.items()
        if signal.without and name not in found
    }
