"""Dotted settings of any file as a TrialConfig, value by value, so that one bad value hides none.

A number outside our bounds stays as it is written: other trainers accept it, and rules speak about
it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from grpo_core.config import TrialConfig
from sweeps.dotted import nest
from sweeps.keys import KEYS
from sweeps.lint.subject import InvalidValue
from sweeps.space.problems import describe_problems

BOUNDS = frozenset(
    [
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "finite_number",
    ]
)
"""Pydantic's names for a value of the right kind that is out of range."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration read as far as it can be."""

    config: TrialConfig
    """Defaults where a value could not be read."""
    invalid: tuple[InvalidValue, ...]
    """What could not be read."""


def leaves(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every single value under its dotted key; an empty section is a value."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= leaves(value, f"{dotted}.")
        else:
            flat[dotted] = value
    return flat


def build_settings(flat: Mapping[str, Any]) -> Settings:
    """The configuration of dotted keys that a trial has; others are refused by assertion.

    Args:
        flat: Dotted key of KEYS -> value.
    """
    good: dict[str, Any] = {}
    beyond: dict[str, Any] = {}
    invalid = []
    for key, value in flat.items():
        problem = _problem(key, value)
        if problem is None:
            good[key] = value
        elif problem == "":
            beyond[key] = value
        else:
            invalid.append(InvalidValue(key, problem))
    sections: dict[str, Any] = {
        section: {}
        for key in flat
        for section in _nullable_sections(key)
        if section not in flat or flat[section] is not None
    }
    config = TrialConfig.model_validate_json(json.dumps(nest(sections | good)))
    for key, value in beyond.items():
        config = _with_value(config, key.split("."), value)
    return Settings(config, tuple(invalid))


def _problem(key: str, value: object) -> str | None:
    """None: fine; empty: right kind, out of range; else what is wrong."""
    document = nest({key: value})
    try:
        TrialConfig.model_validate_json(json.dumps(document))
    except ValidationError as error:
        if {item["type"] for item in error.errors()} <= BOUNDS and isinstance(value, int | float):
            return ""
        return describe_problems(error, document)[0]
    return None


def _nullable_sections(key: str) -> list[str]:
    parts = key.split(".")
    above = [".".join(parts[:length]) for length in range(1, len(parts))]
    return [section for section in above if section in KEYS and KEYS[section].nullable]


def _with_value(model: Any, path: list[str], value: object) -> Any:  # noqa: ANN401 - any section
    """A copy with one value replaced, unchecked."""
    first, *rest = path
    inner: BaseModel = getattr(model, first)
    return model.model_copy(update={first: _with_value(inner, rest, value) if rest else value})
