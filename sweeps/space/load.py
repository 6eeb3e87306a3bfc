"""The way in: a search-space file becomes a Space, or a list of every problem."""

from pathlib import Path
from typing import Any

from grpo_core.errors import ConfigError
from sweeps.documents import load_mapping
from sweeps.dotted import lay_over
from sweeps.space.axes import read_axes, read_excluder
from sweeps.space.base import read_base, read_overrides
from sweeps.space.cells import Cells, build_config, validate
from sweeps.space.choose import Choice, choose
from sweeps.space.design import read_design
from sweeps.space.file import SpaceFile, read_file, read_seeds
from sweeps.space.types import Axis, Cell, Space

ASIDE = frozenset(["name", "question", "budget", "seeds", "design", "stop", "implied", "racing"])
"""Keys of the file that decide no configuration."""


def load_space(path: Path, overrides: tuple[str, ...] = ()) -> Space:
    """The search space in `path`, with `key=value` overrides laid over its base.

    Raises:
        ConfigError: lists every problem of the file.
    """  # noqa: DOC502 - raised by what it calls
    return parse_space(load_mapping(path), source=path, overrides=overrides)


def parse_space(
    document: dict[str, Any], *, source: Path, overrides: tuple[str, ...] = ()
) -> Space:
    """The search space in a parsed file.

    Raises:
        ConfigError: lists every problem.
    """
    aside: list[str] = []
    file = read_file(document, aside)
    seeds = read_seeds(file.seeds, aside)
    design = read_design(file.design, aside)
    problems: list[str] = []
    settings = read_overrides(overrides, problems)
    axes = read_axes(file.space, problems)
    if document.get("space") == {}:
        problems.append("space: got no axis, wanted at least one")
    base = read_base(file, source, settings, problems)
    excluded = read_excluder(file.exclude, axes, file.space, problems)
    built, choice = Cells(base.settings), Choice((), 0, "")
    cells: tuple[Cell, ...] = ()
    if problems or design is None or not _is_whole(document, file):
        problems += _problems_by_itself(base.settings, axes)
    else:
        choice = choose(design, axes, excluded, settings=base.settings, problems=problems)
        cells = built.build(choice.combinations)
        problems += built.problems() or _nothing_left(choice, cells)
    problems = aside + problems
    if problems or design is None:
        raise ConfigError(_from_source(problems, source))
    config, broken = build_config(base.settings)
    return Space(
        name=file.name or source.stem,
        question=file.question.strip(),
        source=str(source),
        base=None if broken else config,
        axes=axes,
        cells=cells,
        design=design,
        left_out=choice.left_out,
        duplicates=built.duplicates,
        excluded=choice.excluded,
        seeds=seeds,
        budget=file.budget,
        stop=file.stop,
        implied=file.implied,
        racing=file.racing,
        notices=base.notices,
    )


def _nothing_left(choice: Choice, cells: tuple[Cell, ...]) -> list[str]:
    if cells or not choice.excluded:
        return []
    return [f"exclude: removes all {choice.excluded} combinations, nothing is left to run"]


def _is_whole(document: dict[str, Any], file: SpaceFile) -> bool:
    """Everything that decides a configuration could be read."""
    return document.keys() - ASIDE <= file.model_fields_set


def _problems_by_itself(settings: dict[str, Any], axes: tuple[Axis, ...]) -> list[str]:
    """What is wrong with single settings; what they do together can't be told without the rest."""
    problems = validate(settings)[1]
    for axis in axes:
        for level in axis.levels:
            problems += validate(lay_over(settings, level.overrides))[1]
    return problems


def _from_source(problems: list[str], source: Path) -> list[str]:
    """Every problem once, with the file that has it; `--set` is not in a file."""
    return [
        problem if problem.startswith("--set ") else f"{source}: {problem}"
        for problem in dict.fromkeys(problems)
    ]
