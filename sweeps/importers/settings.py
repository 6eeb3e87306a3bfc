"""Settings that a log states, in AReaL's terms."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from grpo_core.errors import ConfigError
from sweeps.documents import load_mapping
from sweeps.importers.values import flatten
from sweeps.keys import KEYS
from sweeps.lint.dialects.base import Translation
from sweeps.lint.dialects.trl import TRL_FIELDS
from sweeps.lint.dialects.verl import VERL_FIELDS

AREAL_CONFIG = "config.yaml"
"""What AReaL saves beside its logs."""
_TRANSLATIONS: dict[str, tuple[Translation, ...]] = {"trl": TRL_FIELDS, "verl": VERL_FIELDS}


def in_areal_terms(stated: Mapping[str, object], dialect: str) -> dict[str, Any]:
    """Settings under AReaL's names; what has no counterpart there is left out."""
    table = _TRANSLATIONS.get(dialect)
    if table is None:
        return {key: value for key, value in stated.items() if key in KEYS}
    found: dict[str, Any] = {}
    for row in table:
        if any(name in stated for name in row.names):
            found |= _converted(row, stated)
    return found


def beside(path: Path) -> tuple[dict[str, object], str]:
    """The settings in AReaL's `config.yaml` beside a log, and where they stand."""
    config = path.parent / AREAL_CONFIG
    if not config.is_file():
        return {}, ""
    try:
        nested = load_mapping(config)
    except ConfigError:
        return {}, ""
    return {key.replace("/", "."): value for key, value in flatten(nested)}, str(config)


def _converted(row: Translation, stated: Mapping[str, object]) -> dict[str, Any]:
    convert: Callable[..., dict[str, Any]] = row.convert
    values = [
        stated.get(name, default) for name, default in zip(row.names, row.defaults, strict=True)
    ]
    try:
        return convert(*values)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError):
        return {}
