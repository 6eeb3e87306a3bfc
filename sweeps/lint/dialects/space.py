"""A search space: every cell as a subject of the rules."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweeps.lint.settings import leaves
from sweeps.lint.subject import Rewards, Subject
from sweeps.space import parse_space
from sweeps.space.types import Cell, Space


def read_space(document: dict[str, Any], path: Path, lines: Mapping[str, int]) -> Iterator[Subject]:
    """One subject per cell.

    Args:
        document: The parsed file.
        path: Where it is.
        lines: Dotted key of the file -> line.

    Raises:
        ConfigError: the file is no valid search space.
    """  # noqa: DOC502 - raised by what it calls
    space = parse_space(document, source=path)
    base = _base_lines(document, lines)
    for cell in space.cells:
        yield _subject(space, cell, base, lines)


def _subject(
    space: Space, cell: Cell, base: Mapping[str, int], lines: Mapping[str, int]
) -> Subject:
    places = dict(base)
    for axis, level in cell.levels.items():
        for key in leaves(level.overrides):
            choices = (
                f"space.{axis}.{level.name}.{key}",
                f"space.{axis}.{level.name}",
                f"space.{axis}",
            )
            places[key] = next((lines[name] for name in choices if name in lines), 1)
    task = cell.config.task
    ends = tuple(sorted({task.reward_wrong, task.reward_right}))
    single = len(space.cells) == 1
    return Subject(
        config=cell.config,
        dialect="space",
        written=frozenset(places),
        lines=places,
        rewards=None
        if task.reward_fn is not None
        else Rewards(ends, graded=task.verifier == "graded"),
        cell=None if single else _name(cell),
    )


def _name(cell: Cell) -> str:
    return ", ".join(f"{axis}={level.name}" for axis, level in cell.levels.items())


def _base_lines(document: dict[str, Any], lines: Mapping[str, int]) -> dict[str, int]:
    """Lines of what all cells share."""
    places: dict[str, int] = {}
    for section in ("base", "set"):
        inside = document.get(section)
        if isinstance(inside, dict):
            places |= {key: lines.get(f"{section}.{key}", 1) for key in leaves(inside)}
    if isinstance(document.get("task"), dict):
        places |= {f"task.{key}": lines[f"task.{key}"] for key in leaves(document["task"])}
    return places
