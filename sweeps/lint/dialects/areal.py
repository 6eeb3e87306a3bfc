"""An AReaL configuration as a subject of the rules."""

from sweeps.keys import KEYS, OURS, RENAMED, is_carried
from sweeps.lint.dialects.base import Source, Values
from sweeps.lint.settings import build_settings
from sweeps.lint.subject import InvalidValue, Subject

OPEN_CHOICES = frozenset(
    [
        "actor.optimizer.type",
        "actor.optimizer.lr_scheduler_type",
        "critic.optimizer.type",
        "critic.optimizer.lr_scheduler_type",
        "actor.gae_lambda",
    ]
)
"""Settings for which AReaL takes values that a trial does not have."""


def read_areal(source: Source) -> Subject:
    """The settings of an AReaL file, with AReaL's defaults for the rest."""
    settings: Values = {"ref": None, "areal_compat": True}
    written: set[str] = set()
    labels: dict[str, str] = {}
    unmapped = [key for key in source.unresolved if not is_carried(key)]
    for key, value in source.values.items():
        target = _target(key)
        if key in _OLD_FILTER:
            settings |= _old_filter(key, value)
            written.add("actor.rejection_sampling")
            labels["actor.rejection_sampling"] = key
            continue
        if key.partition(".")[0] == "ref":
            settings["ref"] = {} if value is not None or key != "ref" else None
            written.add("ref")
        elif target in KEYS and target.partition(".")[0] not in OURS:
            settings[target] = value
            written.add(target)
            labels[target] = key
        elif not is_carried(key):
            unmapped.append(key)
    lines = {target: source.lines.get(label, 1) for target, label in labels.items()}
    lines |= {_target(key): line for key, line in source.lines.items() if _target(key) not in lines}
    read = build_settings(settings)
    invalid, foreign = _split_invalid(read.invalid)
    unknown = {item.key for item in read.invalid} | {_target(key) for key in source.unresolved}
    return Subject(
        config=read.config,
        dialect="areal",
        written=frozenset(written),
        labels={target: label for target, label in labels.items() if target != label},
        lines=lines,
        other=dict(source.values),
        invalid=invalid,
        unknown=frozenset(unknown),
        unmapped=tuple(unmapped + foreign),
    )


_OLD_FILTER = frozenset(
    [
        "actor.behav_imp_weight_cap",
        "actor.behave_imp_weight_cap",
        "actor.behave_imp_weight_mode",
    ]
)
"""What `actor.rejection_sampling` was called; its modes have no exact counterpart."""


def _old_filter(key: str, value: object) -> Values:
    if key.endswith("_mode"):
        return {"actor.rejection_sampling": None} if value in {"disabled", "none"} else {}
    return {} if value is None else {"actor.rejection_sampling.upper": value}


def _target(key: str) -> str:
    """Today's name of a key that AReaL renamed."""
    new = RENAMED.get(key, key)
    return key if "." not in key or KEYS.get(new) is None or KEYS[new].section else new


def _split_invalid(
    invalid: tuple[InvalidValue, ...],
) -> tuple[tuple[InvalidValue, ...], list[str]]:
    """What AReaL would refuse, and the keys of what only a trial does not have."""
    refused = tuple(item for item in invalid if item.key not in OPEN_CHOICES)
    return refused, [item.key for item in invalid if item.key in OPEN_CHOICES]
