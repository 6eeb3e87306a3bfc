"""Which settings a lint rule looks at while it runs: a configuration that remembers who asked."""

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import Any

from pydantic import BaseModel
from typing_extensions import override

from sweeps.keys import KEYS
from sweeps.lint.subject import Subject
from sweeps.lint.types import LintRule

EVERY_RULE = frozenset({"policy", "areal_compat"})
"""Read to know whose defaults and defects apply; no rule is about them for that alone."""


class WatchedSubject(Subject):
    """A subject that notes the settings that a rule asks for, or speaks about."""

    @override
    def value(self, key: str) -> Any:
        _SEEN.add(key)
        return super().value(key)

    @override
    def gives(self, key: str) -> bool:
        _SEEN.add(key)
        return super().gives(key)


_SEEN: set[str] = set()
"""What the rule that runs has asked for."""


def keys_looked_at(rule: LintRule, watched: Iterable[Subject]) -> set[str]:
    """The settings that a rule reads or reports in any of these watched configurations."""
    _SEEN.clear()
    for subject in watched:
        for hit in rule.check(subject):
            _SEEN.update((hit.key, *hit.also))
    # A section is read on the way to what is inside it.
    inner = {key for key in _SEEN if any(other.startswith(f"{key}.") for other in _SEEN)}
    return {key for key in _SEEN & KEYS.keys() if key not in inner} - EVERY_RULE


def watch(subject: Subject) -> Subject:
    """The same subject, which notes what is read."""
    values = {item.name: getattr(subject, item.name) for item in fields(Subject)}
    return WatchedSubject(**values | {"config": _section(subject.config, "")})


def _section(section: BaseModel, prefix: str) -> BaseModel:
    """A copy of a section that notes every read."""
    values: dict[str, Any] = {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        inside = isinstance(value, BaseModel)
        values[name] = _section(value, f"{prefix}{name}.") if inside else value
    return _watching(type(section), prefix).model_construct(**values)


@cache
def _watching(section: type[BaseModel], prefix: str) -> type[BaseModel]:
    """A subclass of a section's class whose instances note every read."""
    names = frozenset(section.model_fields)

    class Watched(section):  # type: ignore[valid-type, misc]
        @override
        def __getattribute__(self, name: str) -> object:
            if name in names:
                _SEEN.add(f"{prefix}{name}")
            return super().__getattribute__(name)

    return Watched
