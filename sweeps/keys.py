"""Which dotted keys exist, which are carried through, and the nearest valid name."""

import difflib
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from grpo_core.config import TrialConfig
from sweeps.carried import CARRIED_KEYS, CARRIED_SECTIONS


@dataclass(frozen=True, slots=True)
class Key:
    """One setting of a trial."""

    dotted: str
    """Its full name, e.g. `actor.kl_ctl`."""
    kind: str
    """What it takes, in words."""
    default: Any
    """AReaL's default (or ours, where AReaL has no such key)."""
    doc: str
    """What it does."""
    section: bool
    """It is a group of settings rather than one value."""

    @property
    def nullable(self) -> bool:
        """It may be switched off as a whole."""
        return "null" in self.kind.split(" or ")


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """Every setting of a model and of the sections inside it."""
    for name, field in model.model_fields.items():
        dotted = f"{prefix}{name}"
        section = _section_of(field.annotation)
        yield Key(
            dotted=dotted,
            kind=_kind(field.annotation, field.metadata),
            default=field.get_default(call_default_factory=True),
            doc=(field.description or "").strip(),
            section=section is not None,
        )
        if section is not None:
            yield from keys_of(section, f"{dotted}.")


def _section_of(annotation: object) -> type[BaseModel] | None:
    for option in typing.get_args(annotation) or (annotation,):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None


def _kind(annotation: Any, metadata: list[Any]) -> str:  # noqa: ANN401 - a type, in any spelling
    """What a field takes, in words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kind(arguments[0], [*metadata, *arguments[1:]])
    if origin is typing.Literal:
        return "one of " + ", ".join(str(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_kind(option, metadata) for option in arguments)
    if origin in (list, tuple):
        return "a list"
    return _plain_kind(origin or annotation) + _bounds(metadata)


def _plain_kind(annotation: Any) -> str:  # noqa: ANN401 - a type, in any spelling
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a section"
    return _WORDS.get(annotation, str(annotation))


_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a mapping",
    types.NoneType: "null",
}


def _bounds(metadata: list[Any]) -> str:
    parts = []
    for item in metadata:
        for limit in [item, *getattr(item, "metadata", [])]:
            parts += [
                f" {sign} {getattr(limit, attribute)}"
                for attribute, sign in _SIGNS.items()
                if getattr(limit, attribute, None) is not None
            ]
    return "".join(dict.fromkeys(parts))


_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


KEYS = {key.dotted: key for key in keys_of(TrialConfig)}
"""Every setting of a trial by its dotted name."""

OURS = ("task", "evaluation", "extensions", "policy", "areal_compat")
"""Top-level keys that AReaL does not have."""

RENAMED = {
    "actor.n_samples": "gconfig.n_samples",
    "actor.group_size": "gconfig.n_samples",
    "gconfig.group_size": "gconfig.n_samples",
    "actor.group_adv_norm": "actor.adv_norm",
    "actor.group_reward_norm": "actor.reward_norm",
    "actor.behav_imp_weight_cap": "actor.rejection_sampling.upper",
    "actor.behave_imp_weight_cap": "actor.rejection_sampling.upper",
    "actor.behave_imp_weight_mode": "actor.rejection_sampling.action",
    "actor.lr": "actor.optimizer.lr",
    "actor.optimizer.learning_rate": "actor.optimizer.lr",
    "actor.beta": "actor.kl_ctl",
    "kl_coef": "actor.kl_ctl",
    "beta": "actor.kl_ctl",
    "learning_rate": "actor.optimizer.lr",
    "num_generations": "gconfig.n_samples",
    "epsilon": "actor.eps_clip",
    "epsilon_high": "actor.eps_clip_higher",
    "clip_ratio": "actor.eps_clip",
    "clip_ratio_high": "actor.eps_clip_higher",
    "temperature": "gconfig.temperature",
    "budget.steps": "total_train_steps",
}
"""Names that AReaL renamed, or that other trainers use, with today's AReaL name."""


def is_carried(dotted: str) -> bool:
    """The key belongs to AReaL but decides nothing in a diagnostic run."""
    first, _, rest = dotted.partition(".")
    if first in CARRIED_SECTIONS or (first == "ref" and rest):
        return True
    parts = dotted.split(".")
    return any(parts[i] in CARRIED_KEYS.get(".".join(parts[:i]), ()) for i in range(1, len(parts)))


def unknown_key(dotted: str) -> str:
    """Why a key is refused, with the nearest valid name."""
    if dotted in RENAMED:
        return f"{dotted}: not a key (any more); use {RENAMED[dotted]}"
    nearest = nearest_key(dotted)
    hint = f"; did you mean {nearest}?" if nearest else "; `sweeps explain` lists all keys"
    return f"{dotted}: no such key{hint}"


def nearest_key(dotted: str) -> str | None:
    """The valid key that a misspelt one most likely means; None if nothing is near."""
    section, _, last = dotted.rpartition(".")
    if section in KEYS:
        # A shared beginning says nothing about the name behind it.
        names = {key.removeprefix(f"{section}."): key for key in KEYS if _parent(key) == section}
        inside = difflib.get_close_matches(last, names, n=1, cutoff=0.65)
        if inside:
            return names[inside[0]]
    else:
        whole = difflib.get_close_matches(dotted, KEYS, n=1, cutoff=0.75)
        if whole:
            return whole[0]
    names = {key.rpartition(".")[2]: key for key in reversed(KEYS)}
    close = difflib.get_close_matches(last, names, n=1, cutoff=0.8)
    return names[close[0]] if close else None


def _parent(dotted: str) -> str:
    return dotted.rpartition(".")[0]
