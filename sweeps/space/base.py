"""The configuration that the axes vary: profile, file, the space's own keys, overrides."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_core.errors import ConfigError
from grpo_core.names import POLICY_NAMES, TASK_NAMES
from grpo_core.profiles import PROFILES, SCALE_KEYS, Profile
from sweeps.documents import load_mapping, parse_mapping
from sweeps.dotted import flatten, lay_over
from sweeps.keys import KEYS, is_carried, unknown_key
from sweeps.space.file import SpaceFile
from sweeps.space.problems import shown

DEFAULT_POLICY = "tiny"


@dataclass(frozen=True, slots=True)
class Base:
    """What the axes vary."""

    settings: dict[str, Any]
    """Dotted key -> value, with interpolations and carried keys."""
    notices: tuple[str, ...]
    """What the user should know."""


def read_base(file: SpaceFile, source: Path, settings: dict[str, Any], problems: list[str]) -> Base:
    """The base, on top of the policy's profile and below `set` and `settings` (`--set`)."""
    written, where = _written(file, source, problems)
    chosen, laid_over = _chosen(file), flatten(file.set)
    above = lay_over(laid_over, settings)
    policy = above.get("policy", chosen.get("policy", written.get("policy", DEFAULT_POLICY)))
    profile = _profile(policy, problems)
    notices = []
    if isinstance(file.base, str):
        notices += _scale_notices(written, profile)
        replaced = [key for key in SCALE_KEYS if key in profile.defaults]
        written = {key: value for key, value in written.items() if key not in replaced}
    layers = {where: written, "task": chosen, "set": laid_over, "--set": settings}
    problems += _foreign_keys(layers)
    carried = sorted(key for key in written if key not in KEYS and is_carried(key))
    if carried:
        notices.append(f"carried through, no effect in a diagnostic run: {', '.join(carried)}")
    merged = dict(profile.defaults)
    # Carried values stay until interpolations are resolved: others may refer to them.
    for layer in (written, chosen, above):
        merged = lay_over(merged, layer)
    # Said here too: where something else is broken, configurations are never built.
    task = merged.get("task.name")
    if isinstance(task, str) and "${" not in task and task not in TASK_NAMES:
        problems.append(unknown_task(task))
    return Base(merged, tuple(notices))


def unknown_task(name: str) -> str:
    """Why a task's name is refused."""
    return f"task.name: got {name!r}, wanted one of {', '.join(TASK_NAMES)}"


def read_overrides(overrides: tuple[str, ...], problems: list[str]) -> dict[str, Any]:
    """The `key=value` texts of `--set`, each value as YAML."""
    settings: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            problems.append(f"--set {override}: wanted key=value")
            continue
        try:
            value = parse_mapping(f"value: {text}", f"--set {key.strip()}")
        except ConfigError as error:
            problems += error.problems
            continue
        if list(value) != ["value"]:
            problems.append(f"--set {override}: wanted one value")
        settings = lay_over(settings, flatten({key.strip(): value["value"]}))
    return settings


def _written(file: SpaceFile, source: Path, problems: list[str]) -> tuple[dict[str, Any], str]:
    """The base as written, flat, and where that was."""
    if isinstance(file.base, dict):
        return flatten(file.base), "base"
    path = source.parent / file.base
    try:
        return flatten(load_mapping(path)), f"base file {path}"
    except ConfigError as error:
        problems += [f"base: {problem}" for problem in error.problems]
        return {}, "base"


def _foreign_keys(layers: dict[str, dict[str, Any]]) -> list[str]:
    found = []
    for where, layer in layers.items():
        found += [
            f"{where}: {unknown_key(key)}"
            for key in layer
            if key not in KEYS and not is_carried(key)
        ]
        if "seed" in layer and not where.startswith("base file"):
            found.append(f"{where}: seed: every trial has its own; list them under `seeds`")
    return found


def _chosen(file: SpaceFile) -> dict[str, Any]:
    """What the file's own `policy`, `task` and `budget` keys say."""
    chosen: dict[str, Any] = {} if file.policy is None else {"policy": file.policy}
    if isinstance(file.task, str):
        chosen["task.name"] = file.task
    elif file.task is not None:
        chosen |= flatten({"task": file.task})
    if file.budget.steps is not None:
        chosen["total_train_steps"] = file.budget.steps
    return chosen


def _profile(policy: object, problems: list[str]) -> Profile:
    if isinstance(policy, str) and policy in PROFILES:
        return PROFILES[policy]
    problems.append(f"policy: got {shown(policy)}, wanted one of {', '.join(POLICY_NAMES)}")
    return PROFILES[DEFAULT_POLICY]


def _scale_notices(flat: dict[str, Any], profile: Profile) -> list[str]:
    replaced = [key for key in SCALE_KEYS if key in flat and key in profile.defaults]
    changes = [f"{key} {shown(flat[key])} -> {profile.defaults[key]}" for key in replaced]
    return [f"set to the diagnostic model's scale: {', '.join(changes)}"] if changes else []
