"""Settings under their full, dotted names: `actor.kl_ctl`."""

import copy
from collections.abc import Mapping
from typing import Any

from sweeps.keys import KEYS, is_carried


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as dotted keys; a whole nullable section stays one value.

    `{actor: {kl_ctl: 0}}` and `{actor.kl_ctl: 0}` give the same; `{actor.adv_norm: {...}}` replaces
    that section as a whole. Keys in it that are only carried through stand beside it.
    """
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        dotted = f"{prefix}{key}"
        known = KEYS.get(dotted)
        if not isinstance(value, dict):
            flat = lay_over(flat, {dotted: value})
        elif known is not None and known.nullable:
            own, carried = _without_carried(dotted, value)
            flat = lay_over(flat, {dotted: own}) | carried
        else:
            flat = lay_over(flat, flatten(value, f"{dotted}."))
    return flat


def _without_carried(prefix: str, section: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A section's own settings, nested, and the dotted keys that are only carried through."""
    own: dict[str, Any] = {}
    carried: dict[str, Any] = {}
    for key, value in section.items():
        dotted = f"{prefix}.{key}"
        if is_carried(dotted):
            carried[dotted] = value
        elif isinstance(value, dict):
            own[key], inside = _without_carried(dotted, value)
            carried |= inside
        else:
            own[key] = value
    return own, carried


def lay_over(flat: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`overrides` on top of `flat`: each replaces its key and everything below it."""
    merged = dict(flat)
    for key, value in overrides.items():
        below = [other for other in merged if other == key or other.startswith(f"{key}.")]
        for other in below:
            del merged[other]
        merged[key] = value
    return merged


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested sections; a later key lays over an earlier one."""
    nested: dict[str, Any] = {}
    for dotted, value in flat.items():
        *sections, last = dotted.split(".")
        place = nested
        for section in sections:
            if not isinstance(place.get(section), dict):
                place[section] = {}
            place = place[section]
        place[last] = copy.deepcopy(value)
    return nested


def lookup(config: Mapping[str, Any], dotted: str) -> object:
    """The value of a dotted key; None inside a section that is null or absent."""
    value: object = config
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def contains(config: Mapping[str, Any], dotted: str) -> bool:
    """The key is written in a nested configuration, whatever its value."""
    *sections, last = dotted.split(".")
    place: object = config
    for section in sections:
        place = place.get(section) if isinstance(place, Mapping) else None
    return isinstance(place, Mapping) and last in place
