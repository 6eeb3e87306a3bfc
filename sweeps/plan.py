"""A search space becomes trials with content-derived ids."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Self

NUMERICS_VERSION = 1
"""Raised whenever the trainer's numbers change: equal ids then always mean equal curves."""


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One configuration with one seed."""

    id: str
    """12 hex characters over the whole configuration, the seed and NUMERICS_VERSION."""
    config_hash: str
    """8 hex characters over the configuration without its seed."""
    name: str
    """The levels that set it apart, for people: `kl_ctl=10 · s1`."""
    configuration: str
    """The name without the seed."""
    seed: int
    """Seed of every random stream of the trial."""
    levels: dict[str, str]
    """Axis name -> level name."""
    swept: dict[str, Any]
    """Dotted key -> value: the settings that the space touches, with this trial's values."""
    config: dict[str, Any]
    """The whole TrialConfig as JSON."""

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**record)


def digest(content: Any, length: int) -> str:
    """`length` hex characters of a hash over JSON-like content, independent of key order."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]
