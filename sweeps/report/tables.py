"""The comparison table by configuration, for terminals and as Markdown."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sweeps.results import ConfigurationResult, Results

STYLES = {"healthy": "green", "unhealthy": "red", "edge": "yellow", "inconclusive": "yellow"}
MOST_NAMES = 10
"""Names that one line lists."""
COLUMNS = ("configuration", "verdict", "final pass rate", "symptom", "stage", "onset")


def comparison_rows(results: Results) -> list[tuple[str, ...]]:
    """One row per configuration: the cells of COLUMNS."""
    return [_row(configuration) for configuration in results.configurations]


def render_table(results: Results) -> Table:
    """The comparison table for a terminal."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=results.sweep, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, overflow="fold", no_wrap=column in ("symptom", "stage", "onset"))
    for configuration in results.configurations:
        # As Text, a name in square brackets is no markup.
        name, verdict, *others = map(Text, _row(configuration))
        style = STYLES[configuration.verdict.outcome]
        verdict.stylize(style if configuration.implied is None else f"dim {style}")
        if results.recommended is configuration:
            name.append(" ←")
            name.stylize("bold")
        table.add_row(name, verdict, *others)
    return table


def render_markdown(results: Results) -> str:
    """The same as Markdown, with the recommendation, and why each sick configuration is sick."""
    lines = [f"# {results.sweep}", ""]
    if results.question:
        lines += [results.question, ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += [
        "| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in comparison_rows(results)
    ]
    lines += ["", f"**Recommended**: {results.reason}.", ""]
    reasons = [_why(configuration) for configuration in results.configurations]
    lines += [f"- {reason}" for reason in reasons if reason]
    implied = describe_implied(results)
    if implied:
        lines += ["", "Implied, not run:", "", *[f"- {line}" for line in implied]]
    dropped = describe_dropped(results)
    if dropped:
        lines += ["", "Dropped:", "", *[f"- {line}" for line in dropped]]
    if results.not_run:
        lines += ["", f"Not run: {', '.join(spec.name for spec in results.not_run)}."]
    if results.failed:
        failures = [f"{trial.spec.name}: {trial.end.error}" for trial in results.failed]
        lines += ["", "Failed trials:", "", *[f"- {failure}" for failure in failures]]
    return "\n".join(lines) + "\n"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _row(configuration: ConfigurationResult) -> tuple[str, ...]:
    verdict, final = configuration.verdict, configuration.final
    sick = verdict.outcome == "unhealthy"
    count = verdict.seeds - verdict.healthy if sick else verdict.healthy
    return (
        configuration.name,
        f"{verdict.outcome} {count} of {verdict.seeds}{_mark(configuration)}"
        if verdict.seeds
        else "not run",
        _unmeasured(configuration)
        if final is None
        else f"{final.mean:.2f} [{final.low:.2f}, {final.high:.2f}]",
        verdict.symptom or "",
        verdict.stage or "",
        "" if verdict.onset is None else str(verdict.onset),
    )


def describe_implied(results: Results) -> list[str]:
    """Which configurations were not run, a line for each proof."""
    names: dict[str, list[str]] = {}
    for configuration in results.configurations:
        implied = configuration.implied
        if implied is not None:
            equal = "" if implied.name is None else f"equal to {implied.name}: "
            names.setdefault(f"{equal}{implied.proof}", []).append(configuration.name)
    return [f"{_some(members)}: {proof}" for proof, members in names.items()]


def describe_dropped(results: Results) -> list[str]:
    """Which configurations did not get all of their seeds, and why."""
    return [f"{c.name}: dropped {c.dropped}" for c in results.configurations if c.dropped]


def _some(names: list[str]) -> str:
    left = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {left} more" if left > 0 else "")


def _mark(configuration: ConfigurationResult) -> str:
    """Tells a verdict that was not measured, or rests on fewer seeds than planned."""
    dropped = ", dropped" if configuration.dropped else ""
    implied = configuration.implied
    if implied is None:
        return dropped
    every = implied.trials == len(configuration.trials)
    return (", implied" if every else f", {implied.trials} implied") + dropped


def _unmeasured(configuration: ConfigurationResult) -> str:
    implied = configuration.implied
    if implied is None:
        return ""
    return "not run" if implied.name is None else f"= {implied.name}"


def _why(configuration: ConfigurationResult) -> str:
    """The message of the first seed that shows the configuration's symptom."""
    for trial in configuration.trials:
        diagnosis = trial.end.diagnosis
        if diagnosis.symptom == configuration.verdict.symptom and diagnosis.symptom:
            return f"**{configuration.name}** ({diagnosis.symptom}): {diagnosis.message}."
    return ""
