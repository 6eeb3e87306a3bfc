"""StepMetrics: what one training step reports."""

import math
from dataclasses import dataclass, fields
from typing import Any

Scalar = float | int | str | None
"""What a field of StepMetrics holds, `stages` apart."""

STAGES = (
    "raw",
    "penalty",
    "scaled",
    "clipped",
    "normalized",
    "truncation",
    "returns",
    "advantage",
)
"""The stages a reward passes on its way to the loss, in order."""


@dataclass(frozen=True, slots=True)
class StageSignal:
    """What is left of the reward signal behind one stage of the pipeline."""

    gain: float
    """Mean within-group standard deviation of the per-answer value, in that stage's own units."""
    fidelity: float | None
    """Signed R^2 of within-group differences against the strict check: 1 = only the task, 0 =
    something else; None where the check itself shows no contrast."""
    silent: float
    """Share of groups without contrast, relative to the batch's largest magnitude."""
    extreme: float
    """Largest absolute value."""


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One training batch: sampled, rewarded, turned into advantages, learned from."""

    step: int
    """Number of the batch, from 0."""
    reward_mean: float
    """Raw reward over answers, before any setting of the pipeline."""
    reward_std: float
    """Standard deviation of the raw reward over answers (n - 1)."""
    reward_distinct: int
    """Different raw reward values in the batch."""
    pass_rate: float
    """Share of sampled answers that pass the task's strict check."""
    eval_pass_rate: float | None
    """The judge: strict pass rate on held-out prompts after this step; None between evaluations."""
    eval_truncated: float | None
    """Share of the judge's answers cut at the length limit."""
    length_mean: float
    """Generated tokens per answer."""
    truncated: float
    """Share of answers without an end-of-sequence token."""
    entropy: float
    """Mean entropy of the sampling distribution, nats per token."""
    entropy_max: float
    """Entropy of the uniform distribution over the vocabulary, nats."""
    kl_reference: float | None
    """k3 estimate of KL(policy, reference), nats per token; None on steps that did not look."""
    kl_share: float
    """Share of the KL term in the variance of the returns."""
    token_fidelity: float | None
    """Signed R^2 over tokens of the final advantage against the answer's strict check."""
    stages: dict[str, StageSignal]
    """The reward signal behind every stage, by name, in the order of STAGES."""
    advantage_std: float
    """Standard deviation of the final advantage over trained tokens."""
    advantage_max: float
    """Largest absolute final advantage."""
    normalized_bound: float | None
    """(G - 1) / sqrt(G): no unbiased group-normalized reward can exceed it; None where it does not
    apply."""
    group_mean_max: float | None
    """Largest absolute group mean of the group-centred rewards (0 but for rounding); None where the
    rewards are not group-centred."""
    clip_fraction: float
    """Share of trained tokens whose ratio is clipped against their advantage."""
    dual_clip_fraction: float
    """Share of trained tokens caught by `c_clip`."""
    filtered_fraction: float
    """Share of trained tokens dropped by M2PO or rejection sampling."""
    ratio_max: float
    """Largest importance ratio in the loss."""
    ratio_min: float
    """Smallest importance ratio in the loss."""
    log_ratio_abs: float
    """Mean absolute log importance ratio, nats."""
    effective_samples: float
    """Effective sample size of the importance weights over trained tokens, as a share of them."""
    logprob_gap: float
    """Mean absolute difference between sampler's and trainer's log-probs before the first update of
    the batch, nats."""
    loss: float
    """Mean policy loss over the minibatches."""
    loss_std: float
    """Standard deviation of the token losses."""
    grad_norm: float
    """Largest global gradient norm of the minibatches, before clipping."""
    grad_cosine: float | None
    """Mean cosine between the gradients of consecutive minibatches; None with one minibatch."""
    update_norm: float
    """L2 norm of the change of all weights in this step."""
    learning_rate: float
    """Learning rate of the last minibatch."""
    staleness: float
    """Mean policy versions between sampling and training."""
    tokens: int
    """Trained tokens in the batch."""
    accepted_groups: float = 1.0
    """Share of the sampled groups that dynamic sampling accepted."""
    value_loss: float | None = None
    """Mean loss of the value function over its minibatches; None without a critic."""
    grad_snr: float | None = None
    """Signal-to-noise ratio |E g|^2 / tr Var(g) of the minibatch gradients, unbiased in both parts
    (negative: noise hides the signal); the weights move between them. None with one minibatch, and
    where the gradients are equal."""
    nonfinite: str | None = None
    """The first tensor that held NaN or inf; the trial ends with this step."""

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold; NaN and inf become strings."""
        stages = {
            stage: {part.name: _plain(getattr(signal, part.name)) for part in fields(signal)}
            for stage, signal in self.stages.items()
        }
        names = [item.name for item in fields(self) if item.name != "stages"]
        return {name: _plain(getattr(self, name)) for name in names} | {"stages": stages}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "StepMetrics":
        """The inverse of `to_json`."""
        values = {name: _number(value) for name, value in record.items() if name != "stages"}
        stages = {
            name: StageSignal(**{key: _number(value) for key, value in stage.items()})
            for name, stage in record["stages"].items()
        }
        return cls(**values, stages=stages)

    def scalars(self) -> dict[str, float]:
        """Every number under a slash-separated name, as trackers want them."""
        record: dict[str, float] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "stages":
                for stage, signal in value.items():
                    for part in fields(signal):
                        number = getattr(signal, part.name)
                        if number is not None:
                            record[f"signal/{stage}_{part.name}"] = float(number)
            elif field.name != "step" and isinstance(value, int | float):
                record[TRACKED_NAMES.get(field.name, f"train/{field.name}")] = float(value)
        return record


TRACKED_NAMES = {
    "eval_pass_rate": "eval/pass_rate",
    "eval_truncated": "eval/truncated",
    "reward_mean": "reward/mean",
    "reward_std": "reward/std",
    "reward_distinct": "reward/distinct",
    "pass_rate": "reward/pass_rate",
    "kl_share": "kl/share",
    "kl_reference": "kl/reference",
    "ratio_max": "ratio/max",
    "ratio_min": "ratio/min",
    "log_ratio_abs": "ratio/log_abs",
    "effective_samples": "ratio/effective_samples",
    "clip_fraction": "ratio/clip_fraction",
    "logprob_gap": "ratio/logprob_gap",
}
"""Tracker names of the fields that belong to a chart group of their own."""

_NONFINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def _plain(value: Scalar) -> Scalar:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Scalar) -> Any:  # noqa: ANN401 - the field's own type, which JSON does not keep
    return _NONFINITE.get(value, value) if isinstance(value, str) else value
