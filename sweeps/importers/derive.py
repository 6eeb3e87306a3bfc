"""Signals that a framework does not log but whose numbers it does."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweeps.importers.dialects import STRICT
from sweeps.importers.signals import COMPONENT
from sweeps.trace import Numbers, Series

STD = "aux.component_std."
PHASE = "aux.seconds."
TWO_VALUED = 0.05
"""Largest relative spread at which a reward's mean and spread count as those of two values."""
NO_REFERENCE = -0.05
"""Nats: below this the mean KL estimate is no KL, but the log-prob of a missing reference."""


@dataclass(slots=True)
class Derivation:
    """Signals found in a log, those derived from them, and remarks."""

    series: dict[str, Series]
    """Everything so far, the auxiliary series included."""
    settings: Mapping[str, Any]
    """Settings in AReaL's terms."""
    derived: dict[str, str] = field(default_factory=dict)
    """Derived signal -> what from."""
    notes: list[str] = field(default_factory=list)
    """What the reader should know."""

    def add(self, name: str, series: Series, source: str) -> None:
        """Keep a derived signal."""
        self.series[name] = series
        self.derived[name] = source

    def lacks(self, name: str, *needed: str) -> bool:
        """`name` is wanted and everything that it takes is there."""
        return name not in self.series and all(part in self.series for part in needed)


def derive(found: Derivation) -> None:
    """Add every signal that follows exactly from what is there."""
    for rule in RULES:
        rule(found)


def _kl_from_rewards(found: Derivation) -> None:
    if not found.lacks("kl_reference", "aux.kl_reward"):
        return
    coefficient = found.settings.get("actor.kl_ctl")
    rewards = found.series["aux.kl_reward"]
    if not isinstance(coefficient, int | float):
        if np.any(rewards.values):
            found.notes.append(
                "the KL to the reference is kl_rewards / -actor.kl_ctl, and the log does not say "
                "actor.kl_ctl: give it with --set actor.kl_ctl=..."
            )
        return
    if coefficient == 0:
        return
    values = rewards.values / -float(coefficient)
    finite = values[np.isfinite(values)]
    if len(finite) and np.mean(finite) < NO_REFERENCE:
        found.notes.append(
            f"kl_rewards / -actor.kl_ctl averages {np.mean(finite):.2g} nats, which is no KL: "
            "without a reference model AReaL takes its log-probs as 0"
        )
        return
    source = f"kl_rewards / -actor.kl_ctl, actor.kl_ctl = {coefficient:g}"
    found.add("kl_reference", Series(rewards.steps, values), source)


def _length_from_total(found: Derivation) -> None:
    if found.lacks("length_mean", "aux.total_length", "aux.prompt_length"):
        length = _together(found, np.subtract, "aux.total_length", "aux.prompt_length")
        found.add("length_mean", length, "seq_len - prompt_len")
    elif found.lacks("length_mean", "aux.total_length"):
        found.add("length_mean", found.series["aux.total_length"], "seq_len, the prompt included")
        found.notes.append("no prompt_len in the log: length_mean includes the prompt")


def _longest_from_total(found: Derivation) -> None:
    needed = ("aux.total_length_max", "aux.prompt_length_min", "aux.prompt_length_max")
    if not found.lacks("length_max", *needed):
        return
    shortest, longest = found.series[needed[1]], found.series[needed[2]]
    if np.array_equal(shortest.values, longest.values):
        length = _together(found, np.subtract, needed[0], needed[2])
        found.add("length_max", length, "seq_len/max - prompt_len, which is one and the same")


def _seconds_from_phases(found: Derivation) -> None:
    phases = [name for name in found.series if name.startswith(PHASE)]
    if "seconds" in found.series or f"{PHASE}train_step" not in phases:
        return
    steps = found.series[f"{PHASE}train_step"].steps
    total = np.zeros(len(steps))
    for name in phases:
        one = found.series[name]
        at = np.searchsorted(one.steps, steps).clip(max=len(one) - 1)
        total += np.where(one.steps[at] == steps, one.values[at], 0.0)
    names = ", ".join(name.removeprefix(PHASE) for name in phases)
    found.add("seconds", Series(steps, total), f"the sum of timeperf/ {names}")


def _spread_from_component(found: Derivation) -> None:
    names = _components(found)
    if "reward_std" in found.series or len(names) != 1 or "reward_mean" not in found.series:
        return
    name = names[0]
    if f"{STD}{name}" not in found.series:
        return
    difference = _together(found, np.subtract, "reward_mean", f"{COMPONENT}{name}").values
    if _largest(difference) <= 1e-3 * _largest(found.series["reward_mean"].values):
        source = f"rewards/{name}/std, the only reward function"
        found.add("reward_std", found.series[f"{STD}{name}"], source)


def _pass_rate_from_component(found: Derivation) -> None:
    if "pass_rate" in found.series:
        return
    for name in _components(found):
        if re.search(STRICT, name, re.IGNORECASE) and "format" not in name.lower():
            mean = found.series[f"{COMPONENT}{name}"]
            top = _top_of_two(found, name)
            if top is not None:
                values = mean.values if np.isclose(top, 1.0, rtol=TWO_VALUED) else mean.values / top
                text = f"rewards/{name}/mean: its spread is that of a reward of 0 or {top:.3g}"
                found.add("pass_rate", Series(mean.steps, values), text)
                return


def _top_of_two(found: Derivation, name: str) -> float | None:
    """What a reward of 0 or `top` pays, from its mean m and spread s: top = (s^2 + m^2) / m."""
    mean = found.series[f"{COMPONENT}{name}"]
    if f"{STD}{name}" not in found.series:
        return None
    spread = found.series[f"{STD}{name}"]
    steps = np.intersect1d(mean.steps, spread.steps)
    m = mean.values[np.isin(mean.steps, steps)]
    s = spread.values[np.isin(spread.steps, steps)]
    usable = np.isfinite(m) & np.isfinite(s) & (m > 0) & (s > 0)
    if np.count_nonzero(usable) < 3:
        return None
    tops = (s[usable] ** 2 + m[usable] ** 2) / m[usable]
    low, middle, high = np.quantile(tops, [0.1, 0.5, 0.9])
    return float(middle) if high - low <= 2 * TWO_VALUED * middle else None


def _pass_rate_from_counts(found: Derivation) -> None:
    needed = ("aux.correct", "aux.incorrect", "reward_mean", "reward_min", "reward_max")
    if not found.lacks("pass_rate", *needed):
        return
    correct, incorrect, mean, least, most = (found.series[name] for name in needed)
    if len({len(one) for one in (correct, incorrect, mean, least, most)}) != 1:
        return
    share = correct.values / (correct.values + incorrect.values)
    expected = least.values + share * (most.values - least.values)
    tolerance = 0.01 * _largest(most.values - least.values)
    if tolerance and _largest(expected - mean.values) <= tolerance:
        text = "correct_n_seqs / all; the rewards have two values, so above 0 means right"
        found.add("pass_rate", Series(correct.steps, share), text)


RULES: tuple[Callable[[Derivation], None], ...] = (
    _kl_from_rewards,
    _length_from_total,
    _longest_from_total,
    _seconds_from_phases,
    _spread_from_component,
    _pass_rate_from_component,
    _pass_rate_from_counts,
)


def _components(found: Derivation) -> list[str]:
    return [name.removeprefix(COMPONENT) for name in found.series if name.startswith(COMPONENT)]


def _largest(values: Numbers) -> float:
    """The largest absolute finite value; 0 where there is none."""
    return float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))


def _together(
    found: Derivation, combine: Callable[[Numbers, Numbers], Numbers], left: str, right: str
) -> Series:
    one, other = found.series[left], found.series[right]
    steps = np.intersect1d(one.steps, other.steps)
    return Series(
        steps,
        combine(one.values[np.isin(one.steps, steps)], other.values[np.isin(other.steps, steps)]),
    )
