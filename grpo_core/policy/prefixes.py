"""Rows that begin alike are read once: which beginnings to share.

The answers of one prompt repeat it; with few-shot examples all prompts begin alike too. Reading a
shared beginning once, and what follows it row by row, gives the same log-probs from far fewer
positions.
"""

from dataclasses import dataclass
from itertools import pairwise

SMALLEST_GAIN = 0.25
"""Share of the positions that has to be saved, or rows are read as they are."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Beginnings, and which row has which."""

    prefixes: tuple[tuple[int, ...], ...]
    """Token ids of each beginning."""
    prefix_of: tuple[int, ...]
    """Number of each row's beginning."""


def share_prefixes(rows: list[list[int]]) -> Sharing | None:
    """The beginnings to share; None where too little would be saved.

    Sorted rows are cut wherever two neighbours have less than `depth` tokens in common; of all
    depths the one with the fewest positions to read is taken. A beginning always leaves a row at
    least one token.
    """
    order = sorted(range(len(rows)), key=lambda i: rows[i])
    common = [_common(rows[a], rows[b]) for a, b in pairwise(order)]
    whole = sum(map(len, rows))
    best, fewest = None, (1.0 - SMALLEST_GAIN) * whole
    for depth in sorted(set(common) - {0}):
        clusters = _cut(order, common, depth)
        lengths = [_length(rows, cluster) for cluster in clusters]
        saved = sum(
            length * (len(cluster) - 1) for cluster, length in zip(clusters, lengths, strict=True)
        )
        if whole - saved < fewest:
            best, fewest = (clusters, lengths), float(whole - saved)
    if best is None:
        return None
    prefix_of = [0] * len(rows)
    for number, cluster in enumerate(best[0]):
        for row in cluster:
            prefix_of[row] = number
    prefixes = tuple(
        tuple(rows[cluster[0]][:length]) for cluster, length in zip(*best, strict=True)
    )
    return Sharing(prefixes, tuple(prefix_of))


def _common(one: list[int], other: list[int]) -> int:
    """Tokens that two rows begin with alike, at most all but the last."""
    most = min(len(one), len(other)) - 1
    return next((i for i in range(most) if one[i] != other[i]), most)


def _cut(order: list[int], common: list[int], depth: int) -> list[list[int]]:
    clusters = [[order[0]]]
    for row, shared in zip(order[1:], common, strict=True):
        if shared >= depth:
            clusters[-1].append(row)
        else:
            clusters.append([row])
    return clusters


def _length(rows: list[list[int]], cluster: list[int]) -> int:
    """Length of a cluster's beginning: sorted, its ends differ most."""
    return _common(rows[cluster[0]], rows[cluster[-1]])
