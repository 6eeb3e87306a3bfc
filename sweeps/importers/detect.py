"""Whose log it is, judged by its keys."""

from collections.abc import Iterable
from dataclasses import dataclass

from sweeps.importers.dialects import DIALECTS, Dialect, match

COMMON_WORDS = frozenset(
    ["loss", "reward", "kl", "entropy", "grad_norm", "learning_rate", "value_loss"]
)
"""Keys that every trainer might use: half as telling."""
MIXED = 3
"""Keys of a second dialect from which a log counts as mixed."""


@dataclass(frozen=True, slots=True)
class Detected:
    """The dialect of a log and what it was told by."""

    dialect: Dialect
    """Whose keys they are."""
    decided: str
    """In words."""
    others: tuple[str, ...] = ()
    """What other dialects the log holds keys of, in words."""


def detect(keys: Iterable[str]) -> Detected | None:
    """The dialect that knows most of `keys`; None where none knows any."""
    listed = list(keys)
    known = {
        dialect.name: {key: weight for key in listed if (weight := _weight(dialect, key))}
        for dialect in DIALECTS.values()
    }
    scores = {name: sum(weights.values()) for name, weights in known.items()}
    name = max(scores, key=lambda one: scores[one])
    if not scores[name]:
        return None
    telling = sorted(known[name], key=lambda key: (-known[name][key], listed.index(key)))[:3]
    return Detected(
        dialect=DIALECTS[name],
        decided=f"{len(known[name])} of its keys, such as {', '.join(telling)}",
        others=tuple(_others(known, name)),
    )


def _others(known: dict[str, dict[str, float]], name: str) -> list[str]:
    words = []
    taken = set(known[name])
    for other, weights in known.items():
        foreign = [key for key, weight in weights.items() if key not in taken and weight >= 1]
        if other != name and len(foreign) >= MIXED:
            words.append(
                f"{len(foreign)} keys of {DIALECTS[other].title} ({', '.join(foreign[:3])}, ...)"
            )
    return words


def _weight(dialect: Dialect, key: str) -> float:
    found = match(dialect, key)
    if found is None:
        return 0.0
    word = found.entry.key.removeprefix("train/")
    weight = 0.5 if word in COMMON_WORDS else 1.0
    return weight / 2 if "/" not in found.entry.key and found.rank[1] else weight
