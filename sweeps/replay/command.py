"""`sweeps replay`: a search space evaluated on recorded rollouts."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_core.errors import ConfigError
from sweeps.space import Space, load_space

if TYPE_CHECKING:
    from sweeps.replay.recording import Recording


def replay_command(  # noqa: PLR0913 - one parameter per documented option
    rollouts: Annotated[
        Path,
        typer.Argument(help="Recorded rollouts: .safetensors, .jsonl, .npz, or a folder of ours."),
    ],
    space: Annotated[Path, typer.Option(help="A search-space file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Lay a value over the base; repeatable."),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Write a heat map (PNG).")] = None,
    *,
    move: Annotated[
        float,
        typer.Option(min=0.0, help="Assume a policy move of this many nats per token (std)."),
    ] = 0.0,
    groups: Annotated[
        int | None, typer.Option(min=1, help="Take only the first groups of the batch.")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Most cells in the table.")] = 60,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes [default: one per core, at most 8].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Which cells of a space are dead, exploding or the same, on recorded rollouts; no training.

    Raises:
        ConfigError: lists every problem of both files.
    """  # noqa: DOC502 - raised by what it calls
    from sweeps.replay.outcome import replay_space

    recording, loaded = _load(rollouts, space, tuple(overrides or ()), groups)
    workers = processes or min(os.cpu_count() or 1, 8)
    outcome = replay_space(loaded, recording, move=move, processes=workers)
    if figure is not None:
        from sweeps.replay.figure import draw_outcome

        draw_outcome(outcome, figure)
        print(f"heat map {figure}", file=sys.stderr)
    if as_json:
        print(json.dumps(outcome.to_json(), indent=1, allow_nan=False))
        return
    from rich.console import Console

    from sweeps.replay.table import print_outcome

    console = Console()
    print_outcome(outcome, console if console.is_terminal else Console(width=160), most_rows=rows)


def _load(
    rollouts: Path, file: Path, overrides: tuple[str, ...], groups: int | None
) -> tuple["Recording", Space]:
    """Both inputs.

    Raises:
        ConfigError: lists every problem of both.
    """
    from sweeps.replay.foreign import load_recording
    from sweeps.replay.recording import first_groups

    problems: list[str] = []
    recording = space = None
    try:
        recording = load_recording(rollouts)
    except ConfigError as error:
        problems += error.problems
    try:
        space = load_space(file, overrides)
    except ConfigError as error:
        problems += error.problems
    if recording is None or space is None:
        raise ConfigError(problems)
    return recording if groups is None else first_groups(recording, groups), space
