"""`sweeps diagnose`: parse, call, print, exit code."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
import yaml

from grpo_core.errors import ConfigError
from sweeps.importers.run import Options
from sweeps.importers.signals import SIGNALS, is_signal, nearest
from sweeps.keys import KEYS, unknown_key

if TYPE_CHECKING:
    from sweeps.diagnose.judge import Judged, Refused
    from sweeps.diagnose.watch import Pace

GATE_NOT_MET = 1
WIDE = 180
"""Columns where the output is no terminal."""
Gate = Literal["unhealthy", "inconclusive", "never"]
Mode = Literal["safe", "aggressive"]
Format = Literal["areal", "trl", "verl", "sweeps", "plain"]


def diagnose_command(  # noqa: PLR0913 - one parameter per documented option
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Logs, folders of logs, runs:/ID or experiments:/NAME of MLflow."),
    ] = None,
    *,
    dialect: Annotated[
        Format | None, typer.Option("--format", help="Whose log it is [default: found out].")
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="SIGNAL=KEY", help="Read a signal from a key; repeatable."),
    ] = None,
    stated: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting that the log does not state; repeatable."
        ),
    ] = None,
    fail_on: Annotated[Gate, typer.Option(help="Exit with 1 if a run is this bad.")] = "never",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also list the keys that nobody knows.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow a growing log; exit with 1 once it is sick.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.05, help="Seconds between two looks (--watch).")
    ] = 30.0,
    until_idle: Annotated[
        float | None, typer.Option(min=0, help="End after so many seconds without growth.")
    ] = None,
    alarm: Annotated[
        Mode, typer.Option(help="aggressive also counts a run that stands still.")
    ] = "safe",
) -> None:
    """What happened in a training log, and why: AReaL, TRL, verl, TensorBoard, MLflow, CSV, ours.

    Raises:
        ConfigError: a log could not be read, or an option is no good.
    """
    options = Options(dialect, _mapped(mapped or []), _stated(stated or []))
    if not paths:
        raise ConfigError(["diagnose: no log given; wanted at least one path"])
    from sweeps.diagnose.judge import judge_all
    from sweeps.diagnose.watch import Pace
    from sweeps.importers import find_logs

    if watch:
        pace = Pace(interval, until_idle)
        _watch(paths, options, pace, alarm, as_json=as_json, fail_on=fail_on)
        return
    results, others = judge_all(find_logs(paths), options)
    _print(results, as_json=as_json, verbose=verbose)
    if others and not as_json:
        typer.echo(f"{len(others)} other files hold no log", err=True)
    _conclude(results, fail_on)


def _watch(
    paths: list[str], options: Options, pace: "Pace", alarm: Mode, *, as_json: bool, fail_on: Gate
) -> None:
    """Follow one log.

    Raises:
        ConfigError: several are given.
        Exit: with 1, once it is sick, or where the gate is not met at its end.
    """
    if len(paths) > 1:
        raise ConfigError([f"--watch follows one log, got {len(paths)}"])
    from sweeps.diagnose.render import verdict_words
    from sweeps.diagnose.watch import Watch

    def tell(judged: "Judged") -> None:
        step = int(judged.run.trace.steps[-1])
        line = f"step {step}: {verdict_words(judged.diagnosis)}: {judged.diagnosis.message}"
        typer.echo(json.dumps(judged.to_json()) if as_json else line)

    def warn(problem: str) -> None:
        typer.echo(problem, err=True)

    ended = Watch(paths[0], options, alarm, tell=tell, warn=warn).follow(pace)
    if not as_json:
        typer.echo(f"ended: {ended.reason}")
    if ended.alarm or (ended.last is not None and _fails(ended.last, fail_on)):
        raise typer.Exit(GATE_NOT_MET)


def _print(results: "list[Judged | Refused]", *, as_json: bool, verbose: bool) -> None:
    if as_json:
        records = [result.to_json() for result in results]
        typer.echo(json.dumps(records, indent=1, allow_nan=False))
        return
    from rich.console import Console

    from sweeps.diagnose.judge import Judged
    from sweeps.diagnose.render import print_table, render_verdict

    if len(results) == 1:
        if isinstance(results[0], Judged):
            typer.echo(render_verdict(results[0], verbose=verbose))
        return
    console = Console()
    print_table(results, console if console.is_terminal else Console(width=WIDE))


def _conclude(results: "list[Judged | Refused]", fail_on: Gate) -> None:
    """End with the exit code that the verdicts ask for.

    Raises:
        ConfigError: a log could not be read; the others have been judged.
        Exit: with 1, where the gate is not met.
    """
    from sweeps.diagnose.judge import Judged, Refused

    problems = [result.error for result in results if isinstance(result, Refused)]
    if problems or not results:
        raise ConfigError(problems or ["diagnose: no log found"])
    if any(_fails(result, fail_on) for result in results if isinstance(result, Judged)):
        raise typer.Exit(GATE_NOT_MET)


def _fails(judged: "Judged", fail_on: Gate) -> bool:
    bad = {"never": (), "unhealthy": ("unhealthy",), "inconclusive": ("unhealthy", "inconclusive")}
    return judged.diagnosis.outcome in bad[fail_on]


def _mapped(pairs: list[str]) -> dict[str, str]:
    """Signals that the user reads from keys of their own.

    Raises:
        ConfigError: a pair is none, or its signal does not exist.
    """
    problems, mapped = [], {}
    for pair in pairs:
        signal, sign, key = pair.partition("=")
        if not sign or not key:
            problems.append(f"--map {pair}: wanted SIGNAL=KEY")
        elif not is_signal(signal):
            problems.append(f"--map {pair}: no such signal{nearest(signal, list(SIGNALS))}")
        mapped[signal] = key
    if problems:
        raise ConfigError(problems)
    return mapped


def _stated(pairs: list[str]) -> dict[str, Any]:
    """Settings that the user knows.

    Raises:
        ConfigError: a pair is none, its key does not exist, or its value is no YAML.
    """
    problems, stated = [], {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign:
            problems.append(f"--set {pair}: wanted KEY=VALUE")
        elif key not in KEYS:
            problems.append(f"--set {unknown_key(key)}")
        try:
            stated[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            problems.append(f"--set {pair}: the value is no YAML")
    if problems:
        raise ConfigError(problems)
    return stated
