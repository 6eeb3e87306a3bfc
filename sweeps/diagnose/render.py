"""Verdicts on logs as text."""

import textwrap
from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from sweeps.diagnose.judge import Judged, Refused
from sweeps.findings import Diagnosis
from sweeps.importers import DIALECTS

WIDTH = 100
GUIDE = "docs/verdicts.md"
"""Explains every symptom, its look-alikes and its fix."""


def print_table(results: Iterable[Judged | Refused], console: Console) -> None:
    """A row per log."""
    listed = list(results)
    names = _short([_named(result) for result in listed])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("log", "dialect", "steps", "verdict", "symptom", "onset", "sure", "message"):
        table.add_column(heading, overflow="fold", justify="left")
    for name, result in zip(names, listed, strict=True):
        table.add_row(*_row(name, result))
    console.print(table)


def render_verdict(judged: Judged, *, verbose: bool = False) -> str:
    """Everything about one log."""
    run, diagnosis = judged.run, judged.diagnosis
    steps = run.trace.steps
    span = f", {int(steps[0])} to {int(steps[-1])}" if len(steps) else ""
    lines = [
        f"{run.name or run.path}: {verdict_words(diagnosis)}",
        *_paragraph(diagnosis.message),
        *_paragraph(_evidence(diagnosis)),
        *_paragraph(_seen_besides(diagnosis)),
        *_paragraph(_where_to_read(diagnosis)),
        "",
        f"read as {_title(run.dialect)} ({run.decided}): {len(run.trace)} steps{span}",
        *_listing("found", {name: f"{source}" for name, source in run.found.items()}),
        *_listing("lacking, and what cannot be told without it", run.lacking),
    ]
    if run.trace.settings:
        stated = {name: str(value) for name, value in run.trace.settings.items()}
        lines += _listing("settings that are known", stated)
    lines += [line for note in run.notes for line in _paragraph(f"note: {note}")]
    if run.unknown:
        keys = ", ".join(run.unknown) if verbose else "--verbose lists them"
        lines += _paragraph(f"{len(run.unknown)} other keys: {keys}")
    return "\n".join(lines)


def verdict_words(diagnosis: Diagnosis) -> str:
    """The verdict in a few words."""
    words: list[str] = [diagnosis.outcome]
    if diagnosis.symptom is not None:
        words.append(f": {diagnosis.symptom}")
    elif diagnosis.state is not None:
        words.append(f", {diagnosis.state}")
    if diagnosis.onset is not None:
        words.append(f" from step {diagnosis.onset}")
    if diagnosis.stage is not None:
        words.append(f", at stage {diagnosis.stage}")
    if diagnosis.outcome != "inconclusive":
        words.append(f" (confidence {diagnosis.confidence:.2f})")
    return "".join(words)


def _row(name: str, result: Judged | Refused) -> tuple[str, ...]:
    if isinstance(result, Refused):
        message = result.error.removeprefix(f"{result.path}:").removeprefix(" ")
        return name, "", "", "error", "", "", "", message
    diagnosis = result.diagnosis
    words = diagnosis.outcome + (f", {diagnosis.state}" if diagnosis.state else "")
    return (
        name,
        result.run.dialect,
        str(len(result.run.trace)),
        words,
        diagnosis.symptom or "",
        "" if diagnosis.onset is None else str(diagnosis.onset),
        "" if diagnosis.outcome == "inconclusive" else f"{diagnosis.confidence:.2f}",
        diagnosis.message,
    )


def _named(result: Judged | Refused) -> str:
    return result.path if isinstance(result, Refused) else result.run.name or result.path


def _short(paths: list[str]) -> list[str]:
    """The paths without the folders that they share."""
    parts = [Path(path).parts for path in paths]
    shared = 0
    while len(parts) > 1 and all(
        len(one) > shared + 1 and one[shared] == parts[0][shared] for one in parts
    ):
        shared += 1
    return [str(Path(*one[shared:])) for one in parts]


def _evidence(diagnosis: Diagnosis) -> str:
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in diagnosis.evidence.items())
    return f"evidence: {numbers}" if numbers else ""


def _seen_besides(diagnosis: Diagnosis) -> str:
    return f"also seen: {', '.join(diagnosis.secondary)}" if diagnosis.secondary else ""


def _where_to_read(diagnosis: Diagnosis) -> str:
    anchor = f"#{diagnosis.symptom}" if diagnosis.symptom else ""
    return f"what it means, what looks alike and what helps: {GUIDE}{anchor}"


def _title(name: str) -> str:
    return DIALECTS[name].title


def _listing(heading: str, items: dict[str, str]) -> list[str]:
    if not items:
        return []
    lines = [f"{heading}:"]
    for name, text in items.items():
        lines += textwrap.wrap(
            f"{name}: {text}",
            WIDTH,
            initial_indent="  ",
            subsequent_indent="      ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
