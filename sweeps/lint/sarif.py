"""Findings as SARIF 2.1.0, for code review tools."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from sweeps.lint.rules import LINT_RULES
from sweeps.lint.types import FileReport, Finding, LintRule, Severity

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

_LEVELS: dict[Severity, Literal["error", "warning", "note"]] = {
    "fatal": "error",
    "likely-harmful": "warning",
    "no-effect": "note",
    "worth-knowing": "note",
}


def reports_to_sarif(
    reports: Sequence[FileReport], problems: Sequence[str], version: str
) -> dict[str, Any]:
    """A SARIF log with one run.

    Args:
        reports: What was said about the files that could be read.
        problems: What was wrong with the others.
        version: This program's version.
    """
    index = {name: number for number, name in enumerate(LINT_RULES)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "sweeps lint",
                        "version": version,
                        "rules": [_rule(rule) for rule in LINT_RULES.values()],
                    }
                },
                "invocations": [_invocation(problems)],
                "results": [
                    _result(report.path, finding, index[finding.rule])
                    for report in reports
                    for finding in report.findings
                ],
            }
        ],
    }


def _invocation(problems: Sequence[str]) -> dict[str, Any]:
    return {
        "executionSuccessful": not problems,
        "toolExecutionNotifications": [
            {"level": "error", "message": {"text": problem}} for problem in problems
        ],
    }


def _rule(rule: LintRule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.claim},
        "fullDescription": {
            "text": f"{rule.claim} {rule.evidence.kind}: {rule.evidence.text}. "
            f"Source: {rule.source}."
        },
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"severity": rule.severity, "evidence": rule.evidence.kind},
    }


def _result(path: Path, finding: Finding, index: int) -> dict[str, Any]:
    cells = "" if finding.cells is None else f" (cells: {'; '.join(finding.cells)})"
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. Fix: {finding.fix}{cells}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(path)},
                    "region": {"startLine": finding.line},
                }
            }
        ],
    }


def _uri(path: Path) -> str:
    """Relative to where the tool runs, as review tools want it; absolute paths as file URIs."""
    return path.as_uri() if path.is_absolute() else path.as_posix()
