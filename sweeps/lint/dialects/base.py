"""What a reader makes of a file: settings in AReaL's terms, with the file's own names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.lint.settings import build_settings
from sweeps.lint.subject import Dialect, InvalidValue, Subject

Values = dict[str, Any]
"""Dotted AReaL key -> value."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file's keys as they stand there."""

    values: Mapping[str, Any]
    """Dotted key -> value, interpolations resolved where they can be."""
    lines: Mapping[str, int]
    """Dotted key -> line, from 1."""
    unresolved: tuple[str, ...] = ()
    """Keys whose `${...}` has no value in the file."""


@dataclass(frozen=True, slots=True)
class Translation:
    """How some settings of another trainer read in AReaL's terms."""

    names: tuple[str, ...]
    """The other trainer's keys, the leading one first."""
    defaults: tuple[Any, ...]
    """Its defaults, in that order."""
    convert: Callable[..., Values]
    """Their values, in that order, as AReaL settings; KeyError for a choice that has none."""
    note: str = ""
    """Where the meaning differs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """AReaL key -> which of `names` decides it, where it is not the leading one."""
    decides: tuple[str, ...] = ()
    """AReaL sections that are not known when the value has no counterpart."""


@dataclass(frozen=True, slots=True)
class Translated:
    """Another trainer's file in AReaL's terms."""

    settings: Values = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    labels: dict[str, str] = field(default_factory=dict)
    originals: Values = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    invalid: list[InvalidValue] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    foreign: list[str] = field(default_factory=list)


def same(key: str) -> Callable[[Any], Values]:
    """The value means the same under AReaL's `key`."""

    def convert(value: Any) -> Values:  # noqa: ANN401 - whatever stands in the file
        return {key: value}

    return convert


def translate(
    source: Source, table: tuple[Translation, ...], dialect: Dialect, known: frozenset[str]
) -> Subject:
    """A file of another trainer as a subject of the rules.

    Args:
        source: The file's keys.
        table: What they mean.
        dialect: Whose they are.
        known: Keys of that trainer that decide nothing the rules look at.
    """
    result = Translated()
    for row in table:
        _apply(row, source, result)
    settings = build_settings(result.settings)
    mapped = {name for row in table for name in row.names}
    keys = [*source.values, *source.unresolved]
    unmapped = [
        key
        for key in keys
        if not _is_known(key, known | mapped) or (key in source.unresolved and key in mapped)
    ]
    return Subject(
        config=settings.config,
        dialect=dialect,
        written=frozenset(result.written),
        labels=result.labels,
        originals=result.originals,
        lines=result.lines | {f"theirs.{key}": line for key, line in source.lines.items()},
        other=dict(source.values),
        invalid=(*result.invalid, *settings.invalid),
        unknown=frozenset(result.unread | {item.key for item in settings.invalid}),
        unmapped=tuple(dict.fromkeys(unmapped + result.foreign)),
    )


def _is_known(key: str, known: frozenset[str]) -> bool:
    parts = key.split(".")
    return any(".".join(parts[:length]) in known for length in range(1, len(parts) + 1))


def _apply(row: Translation, source: Source, result: Translated) -> None:
    given = [name for name in row.names if name in source.values]
    settings = _converted(row, source, result)
    for key, value in settings.items():
        name = row.labels.get(key, given[0] if given else row.names[0])
        result.settings[key] = value
        result.labels[key] = name
        result.originals[key] = source.values.get(name, row.defaults[row.names.index(name)])
        if given:
            result.written.add(key)
            result.lines[key] = source.lines.get(name, source.lines.get(given[0], 1))
    if any(name in source.unresolved for name in row.names):
        result.unread.update(settings)


def _converted(row: Translation, source: Source, result: Translated) -> Values:
    """A row's settings; the other trainer's defaults where its values cannot be read."""
    values = [
        source.values.get(name, default)
        for name, default in zip(row.names, row.defaults, strict=True)
    ]
    try:
        return row.convert(*values)
    except KeyError:
        problem = None
    except (TypeError, ValueError, ZeroDivisionError, AttributeError):
        problem = "not a value that it takes"
    given = [name for name in row.names if name in source.values]
    settings = row.convert(*row.defaults)
    result.unread.update(settings, row.decides)
    if problem is None:
        result.foreign.extend(given)
    else:
        shown = ", ".join(f"{name}={source.values[name]!r}" for name in given)
        key = next(iter(settings), given[0])
        result.invalid.append(InvalidValue(key, f"{shown}: {problem}"))
    return settings
