"""What follows from configurations alone: cells that never learn, and cells that repeat another.

A proof holds for every batch, so nothing is sampled and torch is not loaded.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from grpo_core.config import TrialConfig
from sweeps.replay.dead import DeadProof, prove_dead
from sweeps.replay.inert import IN_TRAINING, canonical, plain_value, proofs


@dataclass(frozen=True, slots=True)
class Repeats:
    """A configuration that would train the same policy as an earlier one, bit for bit."""

    of: int
    """Place of the earlier one in the sequence that was asked about."""
    text: str
    """The proof in words."""


def prove(configs: Iterable[TrialConfig]) -> dict[int, DeadProof | Repeats]:
    """The configurations whose result follows without a trial, by their place.

    A dead one is never given as the repetition of another, nor another as a repetition of it.
    Seeds are left out of account. A configuration that contributes an interim evaluation of its
    own counts as different.
    """
    found: dict[int, DeadProof | Repeats] = {}
    first: dict[TrialConfig, tuple[int, TrialConfig]] = {}
    for i, config in enumerate(configs):
        dead = prove_dead(config)
        if dead is not None:
            found[i] = dead
            continue
        plain = canonical(config, IN_TRAINING).model_copy(update={"seed": 0})
        of, other = first.setdefault(plain, (i, config))
        if of != i:
            found[i] = Repeats(of, _explain(other, config))
    return found


def _explain(one: TrialConfig, other: TrialConfig) -> str:
    """The settings in which two configurations with one canonical form differ, with the proofs."""
    inert = [proofs(config, IN_TRAINING) for config in (one, other)]
    lines: dict[str, list[str]] = {}
    for key in sorted(inert[0].keys() | inert[1].keys()):
        values = [plain_value(config, key) for config in (one, other)]
        if values[0] != values[1]:
            why = inert[1].get(key) or inert[0][key]
            lines.setdefault(why, []).append(f"{key} ({values[0]} or {values[1]})")
    if not lines:
        return "the same configuration"
    return "; ".join(f"{', '.join(keys)} decides nothing: {why}" for why, keys in lines.items())
