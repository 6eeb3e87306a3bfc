"""What a search space is, once it has been read."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from grpo_core.config import Count, Section, TrialConfig
from sweeps.keys import KEYS
from sweeps.space.design import Design


class Budget(Section):
    """What a sweep may cost."""

    steps: Count | None = None
    """Training batches per trial."""
    trials: Count | None = None
    """Most trials; the rest is listed as not run."""
    hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Most wall-clock hours; trials that have not ended by then are listed as not run."""


@dataclass(frozen=True, slots=True)
class Level:
    """One choice of an axis."""

    name: str
    """How people call it."""
    overrides: dict[str, Any]
    """Dotted key -> value."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob, or several that move together."""

    name: str
    """A dotted key, or the name of a linked axis."""
    levels: tuple[Level, ...]
    """Its choices."""

    @property
    def linked(self) -> bool:
        """Its levels are named and set several keys."""
        return self.name not in KEYS

    @property
    def keys(self) -> frozenset[str]:
        """Every dotted key that a level sets."""
        return frozenset(key for level in self.levels for key in level.overrides)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of levels with its validated configuration."""

    levels: dict[str, Level]
    """Axis name -> level."""
    config: TrialConfig
    """The configuration; its seed is set per trial."""


@dataclass(frozen=True, slots=True)
class Space:
    """A validated search space."""

    name: str
    """Name of the sweep."""
    question: str
    """What it is to answer."""
    source: str
    """Path of the file."""
    base: TrialConfig | None
    """The configuration that the axes vary; None where only its cells are valid."""
    axes: tuple[Axis, ...]
    """The knobs."""
    cells: tuple[Cell, ...]
    """What the design takes, in grid order, without duplicates; of a search its candidates."""
    design: Design
    """How they were chosen."""
    left_out: str
    """What the design leaves out, in words; empty for a grid."""
    duplicates: int
    """Combinations left out because an earlier one gives the same configuration."""
    excluded: int
    """Combinations left out by `exclude`."""
    seeds: tuple[int, ...]
    """Seeds of every cell."""
    budget: Budget
    """What the sweep may cost."""
    stop: Literal["off", "safe", "aggressive"]
    """When a trial is ended early."""
    implied: bool
    """Cells that are proven dead or proven to repeat another are not trained."""
    racing: bool
    """Cells that are certainly broken, or cannot win any more, get no further seeds."""
    notices: tuple[str, ...]
    """What the user should know: carried sections, keys that the profile replaces."""
