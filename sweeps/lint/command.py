"""`sweeps lint`: parse, call, print, exit code."""

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from grpo_core.errors import ConfigError
from sweeps.lint.check import Known, lint_files
from sweeps.lint.render import (
    render_report,
    render_rules,
    reports_to_json,
    rules_to_json,
)
from sweeps.lint.rules import LINT_RULES
from sweeps.lint.sarif import reports_to_sarif
from sweeps.lint.subject import Dialect, Rewards
from sweeps.lint.types import FileReport, Severity, at_least

GATE_NOT_MET = 1


def lint_command(  # noqa: PLR0913 - one parameter per documented option
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="AReaL YAML, search spaces, TRL or verl arguments (YAML, JSON, k=v)."),
    ] = None,
    *,
    rewards: Annotated[
        str | None,
        typer.Option(help="What the task pays: its values, `0,1`, or a graded range, `0..10`."),
    ] = None,
    pass_rate: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of right answers before training."),
    ] = None,
    dialect: Annotated[
        Dialect | None, typer.Option(help="Whose files they are [default: found out].")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Turn a rule off; repeatable.")
    ] = None,
    fail_on: Annotated[
        Severity | None, typer.Option(help="Exit with 1 if a finding is this bad or worse.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")] = False,
    rules: Annotated[bool, typer.Option("--rules", help="List all rules with evidence.")] = False,
) -> None:
    """Settings that are provably fatal, harmful or without effect; nothing is run."""
    if rules:
        typer.echo(json.dumps(rules_to_json(), indent=1) if as_json else render_rules())
        return
    known = Known(
        rewards=None if rewards is None else _rewards(rewards),
        pass_rate=pass_rate,
        dialect=dialect,
        ignored=_ignored(ignore or []),
    )
    reports, problems = lint_files(_given(files), known)
    _print(reports, problems, as_json=as_json, sarif=sarif)
    _conclude(reports, problems, fail_on)


def _given(files: list[Path] | None) -> list[Path]:
    """The files to judge.

    Raises:
        ConfigError: none is given.
    """
    if not files:
        raise ConfigError(["lint: no file given; wanted at least one (or --rules)"])
    return files


def _conclude(reports: list[FileReport], problems: list[str], fail_on: Severity | None) -> None:
    """End with the exit code that the findings ask for.

    Raises:
        ConfigError: a file could not be read; the others have been reported.
        Exit: with 1, where the gate is not met.
    """
    if problems:
        raise ConfigError(problems)
    if fail_on is not None and _fails(reports, fail_on):
        raise typer.Exit(GATE_NOT_MET)


def _fails(reports: list[FileReport], threshold: Severity) -> bool:
    return any(
        at_least(finding.severity, threshold) for report in reports for finding in report.findings
    )


def _print(reports: list[FileReport], problems: list[str], *, as_json: bool, sarif: bool) -> None:
    if sarif:
        typer.echo(json.dumps(reports_to_sarif(reports, problems, _version()), indent=1))
    elif as_json:
        typer.echo(json.dumps(reports_to_json(reports), indent=1))
    elif reports:
        typer.echo("\n\n".join(map(render_report, reports)))


def _rewards(text: str) -> Rewards:
    """What a task pays, from `0,1` or `0..10`.

    Raises:
        ConfigError: it is neither.
    """
    graded = ".." in text
    try:
        values = sorted(float(part) for part in text.split(".." if graded else ","))
    except ValueError:
        values = []
    if len(values) < 2 or (graded and len(values) != 2):
        raise ConfigError([f"--rewards {text}: wanted values such as 0,1 or a range such as 0..10"])
    return Rewards(tuple(values), graded=graded)


def _ignored(names: list[str]) -> frozenset[str]:
    """Rules to turn off.

    Raises:
        ConfigError: one of them does not exist.
    """
    asked = [name.strip() for text in names for name in text.split(",")]
    unknown = [name for name in asked if name not in LINT_RULES]
    if unknown:
        raise ConfigError(
            [f"--ignore {name}: no such rule; --rules lists them" for name in unknown]
        )
    return frozenset(asked)


def _version() -> str:
    try:
        return version("grpo-sweeps")
    except PackageNotFoundError:
        return "0"
