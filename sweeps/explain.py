"""What a setting does: from its definition, the differences table and the verdicts' stages."""

import json

from grpo_core.differences import differences_of
from grpo_core.errors import ConfigError
from grpo_core.profiles import PROFILES, SCALE_KEYS
from sweeps.carried import CARRIED_SECTIONS
from sweeps.keys import KEYS, OURS, Key, is_carried, unknown_key
from sweeps.stages import STAGE_SETTINGS


def explain(name: str) -> str:
    """Everything known about a dotted key, or about all keys of a section.

    Raises:
        ConfigError: there is no such key.
    """
    if name not in KEYS:
        if is_carried(name) or name in CARRIED_SECTIONS:
            return (
                f"{name}: an AReaL key without effect in a diagnostic run; it is carried through."
            )
        raise ConfigError([unknown_key(name)])
    key = KEYS[name]
    lines = [f"{name}: {key.doc}", "", f"takes     {key.kind}"]
    if not key.section:
        lines.append(f"default   {_value(key.default)}{_origin(name)}")
    lines += [f"scale     {note}" for note in _scale(name)]
    lines += [f"verdicts  a signal lost at stage {stage!r} points here" for stage in _stages(name)]
    for difference in differences_of(name):
        lines += [
            "",
            f"Differs from AReaL ({difference.key}; `areal_compat: true` gives AReaL's way):",
        ]
        lines += [f"  AReaL   {difference.areal}", f"  here    {difference.ours}"]
        lines += [f"  why     {difference.reason} ({difference.source})"]
    inside = [other for other in KEYS.values() if other.dotted.startswith(f"{name}.")]
    if inside:
        lines += ["", "Settings inside:"]
        lines += [f"  {other.dotted}  ({_short(other)})  {other.doc}" for other in inside]
    return "\n".join(lines)


def list_keys() -> str:
    """Every setting with the first sentence on it."""
    width = max(len(key.dotted) for key in KEYS.values() if not key.section)
    return "\n".join(
        f"{key.dotted:{width}}  {key.doc.splitlines()[0]}"
        for key in KEYS.values()
        if not key.section
    )


def _short(key: Key) -> str:
    return key.kind if key.section else f"default {_value(key.default)}"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _origin(name: str) -> str:
    ours = name.split(".", maxsplit=1)[0] in OURS
    return " (ours; AReaL has no such key)" if ours else " (AReaL's)"


def _scale(name: str) -> list[str]:
    notes = []
    for policy, profile in PROFILES.items():
        if name in profile.defaults:
            replaced = ", also in place of a production file's value" if name in SCALE_KEYS else ""
            notes.append(f"policy {policy} starts from {_value(profile.defaults[name])}{replaced}")
    return notes


def _stages(name: str) -> list[str]:
    return [
        stage
        for stage, settings in STAGE_SETTINGS.items()
        if any(
            name == word or name.startswith(f"{word}.")
            for word in settings.replace(",", " ").split()
        )
        or (stage == "penalty" and name.startswith("actor.overlong_"))
    ]
