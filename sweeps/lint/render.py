"""Findings as text and as JSON; the rules as text and as the document docs/lint.md."""

import textwrap
from collections.abc import Iterable
from typing import Any

from sweeps.lint.rules import FAMILIES, LINT_RULES
from sweeps.lint.types import EVIDENCE_KINDS, SEVERITIES, FileReport, Finding, LintRule

WIDTH = 100
MOST_CELLS = 3
"""Cells named in a line; the rest is counted."""

_INTRODUCTION = """# What `sweeps lint` says

    sweeps lint config.yaml                  # AReaL, search space, TRL or verl: it finds out
    sweeps lint run.sh --rewards 0,1         # verl overrides; the task pays 0 or 1
    sweeps lint config.yaml --pass-rate 0.1  # predicts the share of silent groups
    sweeps lint *.yaml --fail-on fatal       # exit code 1 if anything fatal is left
    sweeps lint config.yaml --sarif          # for code review tools

`# lint: ignore=id[,id]` on the line of the key, or above the first key of the file, turns rules
off; so does `--ignore id`. Exit codes: 0 done, 1 the gate (`--fail-on`) was not met, 2 unreadable
input.

**Severities.** `fatal`: nothing can be learned, or the trainer refuses. `likely-harmful`: it made
runs fail. `no-effect`: the setting does nothing. `worth-knowing`: it explains what you will see.

**Evidence.** *measured here*: our own runs show it. *measured false here*: commonly said, and our
own runs contradict it; the rule says so. *public reports*: others saw it, we did not test it.
*arithmetic*: it follows from the formula. The source says where it was measured: in this trainer,
in the prototype that it grew from, in a numpy toy, or by running AReaL's own functions. Three
numbers with slashes are three seeds; the embedded policy starts at a pass rate of about 0.3. It has
61,000 parameters and answers of up to 18 tokens: it shows mechanisms, not thresholds for your
model. `tests/integration/test_lint_claims.py` runs the most telling claims again.

Without `--rewards`, rules about the reward's range assume 0 and 1, or keep silent. AReaL files are
judged as AReaL runs them, its known defects included. Generated from the rules
(`sweeps/lint/rules`).
"""


def render_report(report: FileReport) -> str:
    """A file's findings as text."""
    kind = f"{report.dialect}, {report.cells} cells" if report.cells > 1 else report.dialect
    lines = [f"{report.path} ({kind}): {counts(report)}"]
    for finding in report.findings:
        lines += _finding_lines(report, finding)
    if report.unmapped:
        lines.append(_wrapped(f"not checked, no counterpart here: {', '.join(report.unmapped)}", 2))
    lines += [_wrapped(f"note: {note}", 2) for note in report.notes]
    return "\n".join(lines)


def counts(report: FileReport) -> str:
    """How many findings of each severity, worst first."""
    numbers = {
        severity: sum(finding.severity == severity for finding in report.findings)
        for severity in SEVERITIES
    }
    parts = [f"{number} {severity}" for severity, number in numbers.items() if number]
    hidden = [f"{report.suppressed} suppressed"] if report.suppressed else []
    return ", ".join(parts + hidden) or "nothing to say"


def _finding_lines(report: FileReport, finding: Finding) -> list[str]:
    evidence = LINT_RULES[finding.rule].evidence
    lines = [
        f"{report.path}:{finding.line}: {finding.severity} [{finding.rule}]",
        _wrapped(finding.message, 4),
        _wrapped(f"fix: {finding.fix}", 4),
        _wrapped(f"{evidence.kind}: {evidence.text}", 4),
    ]
    if finding.cells is not None:
        lines.append(_wrapped(f"in {_cells(finding.cells, report.cells)}", 4))
    if finding.variants > 1:
        lines.append(_wrapped(f"and likewise for {finding.variants - 1} other values there", 4))
    return lines


def _cells(names: tuple[str, ...], total: int) -> str:
    more = f" and {len(names) - MOST_CELLS} more" if len(names) > MOST_CELLS else ""
    return f"{len(names)} of {total} cells: {'; '.join(names[:MOST_CELLS])}{more}"


def _wrapped(text: str, indent: int) -> str:
    space = " " * indent
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=space,
        subsequent_indent=space,
        break_long_words=False,
        break_on_hyphens=False,
    )


def reports_to_json(reports: Iterable[FileReport]) -> list[dict[str, Any]]:
    """All findings for programs."""
    return [
        {
            "path": str(report.path),
            "dialect": report.dialect,
            "cells": report.cells,
            "findings": [_finding_to_json(finding) for finding in report.findings],
            "suppressed": report.suppressed,
            "unmapped": list(report.unmapped),
            "notes": list(report.notes),
        }
        for report in reports
    ]


def _finding_to_json(finding: Finding) -> dict[str, Any]:
    rule = LINT_RULES[finding.rule]
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "key": finding.key,
        "line": finding.line,
        "message": finding.message,
        "fix": finding.fix,
        "cells": None if finding.cells is None else list(finding.cells),
        "variants": finding.variants,
        "evidence": {"kind": rule.evidence.kind, "text": rule.evidence.text},
        "source": rule.source,
    }


def rules_to_json() -> list[dict[str, Any]]:
    """All rules for programs."""
    return [
        {
            "id": rule.id,
            "severity": rule.severity,
            "keys": list(rule.keys),
            "claim": rule.claim,
            "evidence": {"kind": rule.evidence.kind, "text": rule.evidence.text},
            "source": rule.source,
        }
        for rule in LINT_RULES.values()
    ]


def render_rules() -> str:
    """All rules as text, worst first."""
    lines = []
    for rule in LINT_RULES.values():
        lines += [
            f"{rule.id} ({rule.severity})",
            _wrapped(rule.claim, 4),
            _wrapped(f"{rule.evidence.kind}: {rule.evidence.text}", 4),
            _wrapped(f"source: {rule.source}", 4),
        ]
    return "\n".join(lines)


def render_rules_of(key: str) -> str:
    """The rules that read a setting, or one inside a section; empty where none does."""
    found = [rule for rule in LINT_RULES.values() if any(_meets(key, own) for own in rule.keys)]
    if not found:
        return ""
    lines = [f"Lint rules that read it, of {len(LINT_RULES)} (`sweeps lint --rules` has them all):"]
    lines += [_wrapped(f"{rule.id} ({rule.severity}): {rule.claim}", 2) for rule in found]
    return "\n".join(lines)


def _meets(one: str, other: str) -> bool:
    """One of them is the other, or a section around it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def render_document() -> str:
    """The document docs/lint.md."""
    parts = [_INTRODUCTION, _table_of_counts()]
    for family in FAMILIES:
        heading = (family.__doc__ or "").splitlines()[0]
        rules = sorted(family.RULES, key=lambda rule: SEVERITIES.index(rule.severity))
        parts += [f"## {heading}", _table(rules)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _table_of_counts() -> str:
    head = f"| | {' | '.join(EVIDENCE_KINDS)} | all |"
    lines = [head, "|---" * (len(EVIDENCE_KINDS) + 2) + "|"]
    for severity in SEVERITIES:
        rules = [rule for rule in LINT_RULES.values() if rule.severity == severity]
        numbers = [sum(rule.evidence.kind == kind for rule in rules) for kind in EVIDENCE_KINDS]
        lines.append(f"| {severity} | {' | '.join(map(str, numbers))} | {len(rules)} |")
    return "\n".join(lines)


def _table(rules: Iterable[LintRule]) -> str:
    lines = ["| rule | severity | reads | what it says | evidence | source |", f"{'|---' * 6}|"]
    lines += [
        f"| `{rule.id}` | {rule.severity} | {_read_keys(rule)} | {rule.claim} | "
        f"*{rule.evidence.kind}*: "
        f"{rule.evidence.text} | {rule.source} |"
        for rule in rules
    ]
    return "\n".join(lines)


def _read_keys(rule: LintRule) -> str:
    return ", ".join(f"`{key}`" for key in rule.keys) or "any"
