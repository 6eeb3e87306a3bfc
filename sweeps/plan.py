"""A search space becomes trials with content-derived ids."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from sweeps.dotted import lookup
from sweeps.space import Axis, Cell, Space

NUMERICS_VERSION = 1
"""Raised whenever the trainer's numbers change: equal ids then always mean equal curves."""


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One configuration with one seed."""

    id: str
    """12 hex characters over the whole configuration, the seed and NUMERICS_VERSION."""
    config_hash: str
    """12 hex characters over the configuration without its seed."""
    name: str
    """The levels that set it apart, for people: `kl_ctl=10 · s1`."""
    configuration: str
    """The name without the seed."""
    seed: int
    """Seed of every random stream of the trial."""
    levels: dict[str, str]
    """Axis name -> level name."""
    swept: dict[str, Any]
    """Dotted key -> value: the settings that the space touches, with this trial's values."""
    config: dict[str, Any]
    """The whole TrialConfig as JSON."""

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**record)


def digest(content: object, length: int) -> str:
    """`length` hex characters of a hash over JSON-like content, independent of key order."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep would run."""

    space: Space
    """The search space."""
    trials: tuple[TrialSpec, ...]
    """Every trial in running order: seed 1 of every configuration first; none for a search."""
    not_run: tuple[str, ...]
    """Ids of trials beyond `budget.trials`."""

    @property
    def content(self) -> str:
        """Hash over what would run: equal content may be resumed."""
        space = self.space
        content: dict[str, Any] = {
            "trials": [trial.id for trial in self.trials],
            "budget": space.budget.model_dump(),
        }
        if space.design.searches:
            candidates = [trial_of(space, cell, space.seeds[0]).config_hash for cell in space.cells]
            content |= {"design": space.design.model_dump(), "seeds": space.seeds}
            content["candidates"] = candidates
        return digest(content, 16)

    @property
    def counts(self) -> str:
        """How much would run and what is left out, in a line."""
        space = self.space
        if space.design.searches:
            cells = most_cells(space)
            return (
                f"{cells} configurations x {len(space.seeds)} seeds = at most "
                f"{cells * len(space.seeds)} trials"
            )
        left = set(self.not_run)
        steps = sum(t.config["total_train_steps"] for t in self.trials if t.id not in left)
        text = (
            f"{len(space.cells)} configurations x {len(space.seeds)} seeds = "
            f"{len(self.trials)} trials, {steps} steps"
        )
        left_out = [
            (space.excluded, "combinations excluded"),
            (space.duplicates, "combinations equal to another"),
            (len(self.not_run), "trials beyond budget.trials"),
        ]
        extra = [f"{count} {what}" for count, what in left_out if count]
        return f"{text} ({', '.join(extra)})" if extra else text

    def to_json(self) -> dict[str, Any]:
        """What `sweeps plan --json` prints."""
        space = self.space
        return {
            "sweep": space.name,
            "question": space.question,
            "content": self.content,
            "design": space.design.model_dump(exclude_none=True),
            "left_out": space.left_out,
            "racing": space.racing,
            "configurations": most_cells(space),
            "excluded": space.excluded,
            "duplicates": space.duplicates,
            "seeds": list(space.seeds),
            "notices": list(space.notices),
            "trials": [trial.to_json() for trial in self.trials],
            "not_run": list(self.not_run),
        }


def most_cells(space: Space) -> int:
    """Configurations that are run at most."""
    if not space.design.searches or space.design.cells is None:
        return len(space.cells)
    within = space.budget.trials
    affordable = len(space.cells) if within is None else within // len(space.seeds)
    return min(space.design.cells, len(space.cells), affordable)


def plan(space: Space) -> Plan:
    """Expand a search space into trials."""
    if space.design.searches:
        return Plan(space, (), ())
    trials = tuple(trial_of(space, cell, seed) for seed in space.seeds for cell in space.cells)
    limit = space.budget.trials
    return Plan(space, trials, () if limit is None else tuple(trial.id for trial in trials[limit:]))


def trial_of(space: Space, cell: Cell, seed: int) -> TrialSpec:
    """The trial of a cell with a seed."""
    settings = cell.config.model_copy(update={"seed": seed}).model_dump()
    config = json.loads(json.dumps(settings))  # as it will be read back: lists, not tuples
    without_seed = {key: value for key, value in config.items() if key != "seed"}
    configuration = configuration_name(space.axes, cell)
    swept_keys = sorted({key for axis in space.axes for key in axis.keys})
    return TrialSpec(
        id=digest({"config": config, "numerics": NUMERICS_VERSION}, 12),
        config_hash=digest({"config": without_seed, "numerics": NUMERICS_VERSION}, 12),
        name=f"{configuration} · s{seed}",
        configuration=configuration,
        seed=seed,
        levels={axis: level.name for axis, level in cell.levels.items()},
        swept={key: lookup(config, key) for key in swept_keys},
        config=config,
    )


def configuration_name(axes: tuple[Axis, ...], cell: Cell) -> str:
    """The levels of a cell, for people: `grpo kl_ctl=0.1`."""
    labels = _short_names([axis.name for axis in axes])
    parts = [
        cell.levels[axis.name].name
        if axis.linked
        else f"{labels[axis.name]}={cell.levels[axis.name].name}"
        for axis in axes
    ]
    return " ".join(parts)


def _short_names(names: list[str]) -> dict[str, str]:
    """For each dotted key its shortest ending that no other shares; norms keep their section."""
    short = {}
    for name in names:
        parts = name.split(".")
        least = 2 if "norm" in name and len(parts) > 2 else 1
        endings = [".".join(parts[-length:]) for length in range(least, len(parts) + 1)]
        others = [other for other in names if other != name]
        short[name] = next(
            (e for e in endings if not any(o == e or o.endswith("." + e) for o in others)), name
        )
    return short
