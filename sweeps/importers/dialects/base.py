"""What a dialect is: the metric keys of one framework, as data."""

import functools
import re
from dataclasses import dataclass, field

_PLACEHOLDERS = {"n": r"\d+", "any": r".+?"}
_NOT_TRAINING = re.compile(r"(^|[-_.])(eval|evaluation|val|valid|validation|test|critic)([-_.]|$)")
"""Scopes below which a metric is not the trainer's own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a framework's log and the signal that it holds."""

    key: str
    """The key; `{name}` stands for a part without slash, `{any}` for any, `{n}` for a number."""
    signal: str
    """Canonical name; `{name}` is filled in. Names under `aux.` only serve to derive others."""
    note: str = ""
    """Where the meaning differs, or since which version the key is there."""
    only: str = ""
    """Regular expression that the `{name}` must match."""
    several: bool = False
    """Where several keys fit at once, their mean counts (several data sets of an evaluation)."""


@dataclass(frozen=True, slots=True)
class Match:
    """How a key of a log fits a dialect."""

    signal: str
    """Canonical name."""
    entry: Entry
    """The row of the table."""
    rank: tuple[int, int]
    """Place in the table, then parts of the prefix: smaller wins."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one framework names its metrics."""

    name: str
    """As `--format` takes it."""
    title: str
    """As people write it."""
    source: str
    """Where the names were read."""
    how: str
    """How to make the framework write such a log."""
    entries: tuple[Entry, ...]
    """Its keys, the better of two for one signal first."""
    stated: tuple[Entry, ...] = ()
    """Keys whose value is a setting: the signal is AReaL's dotted name."""
    null_is_nan: bool = False
    """Its logger writes NaN as null."""
    caveats: tuple[str, ...] = field(default=())
    """What every reader of its logs should know."""


@functools.cache
def match(dialect: Dialect, key: str) -> Match | None:
    """How `key` fits the dialect; None where it does not."""
    return _match(dialect.entries, key)


@functools.cache
def match_stated(dialect: Dialect, key: str) -> Match | None:
    """The setting that `key` states; None where it states none."""
    return _match(dialect.stated, key)


def _match(entries: tuple[Entry, ...], key: str) -> Match | None:
    found = None
    for place, entry in enumerate(entries):
        hit = _pattern(entry.key).fullmatch(key)
        if hit is None or not _fits(entry, hit):
            continue
        prefix = hit.group("prefix")
        names = {"name": hit.groupdict().get("name") or ""}
        rank = (place, prefix.count("/"))
        if found is None or rank < found.rank:
            found = Match(entry.signal.format(**names), entry, rank)
    return found


def _fits(entry: Entry, hit: re.Match[str]) -> bool:
    prefix = hit.group("prefix")
    if any(_NOT_TRAINING.search(part) for part in prefix.split("/") if part):
        return False
    return not entry.only or re.search(entry.only, hit.group("name"), re.IGNORECASE) is not None


@functools.cache
def _pattern(key: str) -> re.Pattern[str]:
    """The key with placeholders, below any scope (`train/`, an experiment's name)."""
    parts = re.split(r"\{(\w+)\}", key)
    text = ""
    for index, part in enumerate(parts):
        if index % 2 == 0:
            # MLflow takes no @; verl writes `_at_` there.
            text += re.escape(part).replace("@", "(?:@|_at_)")
        elif part == "name":
            text += r"(?P<name>[^/]+)"
        else:
            text += _PLACEHOLDERS[part]
    return re.compile(rf"(?P<prefix>(?:[^/]+/)*){text}")
