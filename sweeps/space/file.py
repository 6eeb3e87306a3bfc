"""The top level of a search-space file, as written.

name: kl                      # defaults to the file's name
question: How strong may ...  # shown in every report
policy: tiny                  # or set in base
task: think
base: {actor: {kl_ctl: 0.1}}  # inline, or the path of an AReaL YAML file
set: {actor.adv_norm: null}   # dotted keys laid over the base
space:
  actor.kl_ctl: [0.0, 0.1]    # an axis over one key
  algorithm:                  # a linked axis: named levels that set several keys
    grpo: {actor.reward_norm.std_level: group}
    drgrpo: {actor.reward_norm.std_level: null}
exclude: [{algorithm: drgrpo, actor.kl_ctl: 0.1}]
design: grid                  # one-factor, pairwise, or {kind: random, cells: 20, seed: 0}; tpe
seeds: 3                      # 1, 2, 3; or a list
budget: {steps: 40, trials: 100, hours: 2}
stop: safe                    # end a trial early at a critical diagnosis: off, safe, aggressive
implied: false                # train also what is proven dead or proven to repeat another cell
racing: false                 # give every cell all of its seeds, also what is certainly broken
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from grpo_core.config import Section
from sweeps.keys import keys_of
from sweeps.space.problems import describe_problems, shown
from sweeps.space.types import Budget

DEFAULT_SEEDS = 2
MOST_SEEDS = 1000
"""Seeds of one configuration; beyond it somebody wrote a seed where a count was wanted."""


class SpaceFile(Section):
    """The top level of a search-space file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")] | None = None
    """Name of the sweep: letters, digits, `_`, `.`, `-`."""
    question: str = ""
    """What the sweep is to answer, in words."""
    policy: str | None = None
    """A name from POLICIES."""
    task: str | dict[str, Any] | None = None
    """A name from TASKS, or the `task` section."""
    base: str | dict[str, Any] = Field(default_factory=dict)
    """The configuration that the axes vary: inline, or the path of an AReaL YAML file."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys laid over the base."""
    space: dict[str, Any]
    """The axes."""
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    """Combinations of levels that are not wanted."""
    design: Any = "grid"
    """How cells are chosen: `grid`, `one-factor`, `pairwise`, `random`, `tpe`."""
    seeds: Any = DEFAULT_SEEDS
    """How many seeds (1, 2, ...), or which."""
    budget: Budget = Budget()
    """What the sweep may cost."""
    stop: Annotated[
        Literal["off", "safe", "aggressive"],
        BeforeValidator(lambda value: "off" if value is False else value),  # YAML's `off`
    ] = "safe"
    """End a trial early at a critical diagnosis that two looks in a row agree on."""
    implied: bool = True
    """Do not train cells that are proven dead or proven to repeat another; false trains all."""
    racing: bool = True
    """Drop a cell's further seeds once it is certainly broken or cannot win any more."""


FILE_KEYS = {key.dotted: key for key in keys_of(SpaceFile)}
"""Every key of a search-space file."""


def read_file(document: dict[str, Any], problems: list[str]) -> SpaceFile:
    """What can be read of the top level; a key with a problem counts as left out."""
    try:
        return SpaceFile.model_validate(document, strict=True)
    except ValidationError as error:
        problems += describe_problems(error, document, FILE_KEYS, what="search space")
        broken = {item["loc"][0] for item in error.errors()}
    kept = {key: value for key, value in document.items() if key not in broken}
    return SpaceFile.model_validate({"space": {}} | kept, strict=True)


def read_seeds(seeds: object, problems: list[str]) -> tuple[int, ...]:
    """1, 2, ... for a number; a list as it is."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= MOST_SEEDS:
            problems.append(f"seeds: got {seeds}, wanted 1 to {MOST_SEEDS} (or a list of seeds)")
            return ()
        return tuple(range(1, seeds + 1))
    if isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds):
        if not seeds:
            problems.append("seeds: got an empty list, wanted at least one seed")
        if len(set(seeds)) < len(seeds):
            problems.append(f"seeds: got {seeds}, wanted every seed once")
        return tuple(seeds)
    problems.append(
        f"seeds: got {shown(seeds)}, wanted a number of seeds, or a list of whole numbers >= 0"
    )
    return ()
