"""One configuration as the rules see it: values, who wrote them, and what is known besides."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from grpo_core.config import NormConfig, TrialConfig

Dialect = Literal["areal", "space", "trl", "verl"]
DIALECTS: tuple[Dialect, ...] = ("areal", "space", "trl", "verl")
TRAINERS: dict[Dialect, str] = {
    "areal": "AReaL",
    "space": "this project",
    "trl": "TRL",
    "verl": "verl",
}
"""Whose defaults fill what a file leaves out."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """What the task's reward can be, before bias and scaling."""

    values: tuple[float, ...]
    """All values, in ascending order; the two ends if `graded`."""
    graded: bool
    """Everything between the ends is possible too."""

    @property
    def low(self) -> float:
        """The smallest reward."""
        return self.values[0]

    @property
    def high(self) -> float:
        """The largest reward."""
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class InvalidValue:
    """A setting that the trainer cannot read."""

    key: str
    """The setting, under AReaL's name."""
    problem: str
    """What was given and what was wanted."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A configuration in AReaL's terms, with the names and lines of the file it comes from."""

    config: TrialConfig
    """All values; a number outside our bounds is kept as it is written."""
    dialect: Dialect
    """Whose vocabulary the file uses."""
    written: frozenset[str] = frozenset()
    """Settings that the file gives, under AReaL's names."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """AReaL's name -> the file's own name, where they differ."""
    originals: Mapping[str, Any] = field(default_factory=dict)
    """AReaL's name -> the value under the file's own name, or that trainer's default."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """AReaL's name -> line, from 1."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the file that a trial does not have, under the file's names."""
    rewards: Rewards | None = None
    """What the task can pay; None if nobody said."""
    pass_rate: float | None = None
    """Share of answers that are right before training; None if nobody said."""
    invalid: tuple[InvalidValue, ...] = ()
    """Settings that could not be read; the config holds defaults in their place."""
    unknown: frozenset[str] = frozenset()
    """Settings that the file gives, but whose value is not known; the config holds defaults."""
    unmapped: tuple[str, ...] = ()
    """Keys of the file without a counterpart here, under the file's names."""
    cell: str | None = None
    """Name of the cell of a search space."""

    def knows(self, *keys: str) -> bool:
        """The values of these settings are known."""
        return not any(
            key == other or key.startswith(f"{other}.") for key in keys for other in self.unknown
        )

    @property
    def trainer(self) -> str:
        """Whose defaults apply."""
        return TRAINERS[self.dialect]

    @property
    def tiny(self) -> bool:
        """It trains the embedded policy: scales of production models do not apply."""
        return self.dialect == "space" and self.config.policy == "tiny"

    @property
    def areal_semantics(self) -> bool:
        """AReaL's own code will run it, defects included."""
        return self.dialect == "areal" or self.config.areal_compat

    def value(self, key: str) -> Any:  # noqa: ANN401 - whatever the setting holds
        """The value of a setting; None inside a section that is off."""
        place: Any = self.config
        for part in key.split("."):
            place = None if place is None else getattr(place, part)
        return place

    def name(self, key: str) -> str:
        """How the file calls a setting."""
        return self.labels.get(key, key)

    def show(self, key: str) -> str:
        """A setting with its value, and whose default it is where the file does not give it."""
        value = self.value(key)
        original = self.originals.get(key, value)
        default = "" if self.gives(key) else f" ({self.trainer}'s default)"
        same = original == value and isinstance(original, bool) == isinstance(value, bool)
        translated = "" if same else f" (for AReaL {key}={_text(value)})"
        return f"{self.name(key)}={_text(original)}{default}{translated}"

    def gives(self, key: str) -> bool:
        """The file gives the setting, or something inside it."""
        return any(other == key or other.startswith(f"{key}.") for other in self.written)

    def line(self, *keys: str) -> int:
        """Line of the first of these settings that is written, else of a section around it."""
        for key in keys:
            if key in self.lines:
                return self.lines[key]
        for key in keys:
            inside = [line for other, line in self.lines.items() if other.startswith(f"{key}.")]
            if inside:
                return min(inside)
        return self._around(keys[0]) if keys else 1

    def _around(self, key: str) -> int:
        section = key
        while "." in section:
            section = section.rpartition(".")[0]
            near = [line for other, line in self.lines.items() if other.startswith(f"{section}.")]
            if section in self.lines or near:
                return self.lines.get(section, min(near, default=1))
        return 1

    def norms(self) -> list[tuple[str, NormConfig]]:
        """The normalizations that are on, with their key."""
        named = [
            ("actor.reward_norm", self.config.actor.reward_norm),
            ("actor.adv_norm", self.config.actor.adv_norm),
        ]
        return [(key, norm) for key, norm in named if norm is not None]

    def scaled(self, reward: float) -> float:
        """A reward after bias, scaling and clip."""
        actor = self.config.actor
        value = (reward + actor.reward_bias) * actor.reward_scaling
        return max(-actor.reward_clip, min(actor.reward_clip, value))

    @property
    def reward_spread(self) -> float:
        """Largest minus smallest reward before scaling; 1 if nobody said (wrong 0, right 1)."""
        return 1.0 if self.rewards is None else self.rewards.high - self.rewards.low

    @property
    def clip_upper(self) -> float:
        """How far the ratio may rise above 1 before the clip acts."""
        actor = self.config.actor
        return actor.eps_clip if actor.eps_clip_higher is None else actor.eps_clip_higher

    @property
    def staleness(self) -> int:
        """Policy versions between sampler and trainer."""
        return self.config.rollout.max_head_offpolicyness

    @property
    def ratio_is_one(self) -> bool:
        """One update per batch, and its denominator is the policy itself."""
        actor = self.config.actor
        if actor.ppo_n_minibatches != 1 or actor.use_sapo_loss:
            return False
        if actor.use_decoupled_loss:
            return actor.prox_logp_method in {"recompute", "metrics", "reuse_train_logp"}
        return self.staleness == 0 or actor.recompute_logprob


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
