"""Files through all rules: findings with lines, grouped over cells, without what is suppressed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_core.errors import ConfigError
from grpo_core.profiles import SCALE_KEYS
from sweeps.carried import CARRIED_SECTIONS
from sweeps.lint.dialects.detect import Document, read_document
from sweeps.lint.places import Suppressions, read_suppressions
from sweeps.lint.rules import LINT_RULES
from sweeps.lint.rules.names import invalid_value
from sweeps.lint.subject import Dialect, Rewards, Subject
from sweeps.lint.types import SEVERITIES, FileReport, Finding, Hit, LintRule


@dataclass(frozen=True, slots=True)
class Known:
    """What the user tells about the task, and how the files are to be read."""

    rewards: Rewards | None = None
    """What the task can pay."""
    pass_rate: float | None = None
    """Share of right answers before training."""
    dialect: Dialect | None = None
    """Whose files they are; None finds out."""
    ignored: frozenset[str] = frozenset()
    """Rules that are turned off."""


def lint_files(paths: Iterable[Path], known: Known) -> tuple[list[FileReport], list[str]]:
    """What is said about every file that can be read, and what is wrong with the others.

    Args:
        paths: The files.
        known: What the user tells.

    Returns:
        Reports in the order of the files; one line per problem.
    """
    reports: list[FileReport] = []
    problems: list[str] = []
    for path in paths:
        try:
            reports.append(lint_file(path, known))
        except ConfigError as error:
            problems += error.problems
    return reports, problems


def lint_file(path: Path, known: Known) -> FileReport:
    """What is said about one file.

    Raises:
        ConfigError: lists every reason why it cannot be read.
    """  # noqa: DOC502 - raised by what it calls
    document = read_document(path, known.dialect)
    suppressions = read_suppressions(document.text)
    subjects = [_informed(subject, known) for subject in document.subjects]
    findings, suppressed = _collect(subjects, suppressions, known.ignored)
    return FileReport(
        path=path,
        dialect=document.dialect,
        cells=len(subjects),
        findings=tuple(sorted(findings, key=_order)),
        suppressed=suppressed,
        unmapped=tuple(dict.fromkeys(key for subject in subjects for key in subject.unmapped)),
        notes=(*_notes(document), *_unknown_suppressions(suppressions)),
    )


def _informed(subject: Subject, known: Known) -> Subject:
    return replace(
        subject,
        rewards=known.rewards if subject.rewards is None else subject.rewards,
        pass_rate=known.pass_rate,
    )


def _order(finding: Finding) -> tuple[int, int, str]:
    return SEVERITIES.index(finding.severity), finding.line, finding.rule


def _hits(subject: Subject) -> Iterator[tuple[LintRule, Hit]]:
    for rule in LINT_RULES.values():
        for hit in rule.check(subject):
            # What cannot be read is said once; nothing is concluded from the default in its place.
            if rule is invalid_value or subject.knows(hit.key, *hit.also):
                yield rule, hit


def _collect(
    subjects: list[Subject], suppressions: Suppressions, ignored: frozenset[str]
) -> tuple[list[Finding], int]:
    """Findings, each with the cells that have it, and how many are turned off.

    Cells with other values at the same place share a finding; it shows the first of them.
    """
    found: dict[tuple[str, int], Finding] = {}
    cells: dict[tuple[str, int], dict[str, None]] = {}
    messages: dict[tuple[str, int], set[str]] = {}
    hidden = set()
    for subject in subjects:
        for rule, hit in _hits(subject):
            line = subject.line(hit.key, *hit.also)
            place = rule.id, line
            if rule.id in ignored or suppressions.hides(rule.id, _lines(subject, hit, line)):
                hidden.add(place)
                continue
            if subject.cell is None:
                place = f"{rule.id} {hit.message}", line
            found.setdefault(place, _finding(rule, subject, hit, line))
            cells.setdefault(place, {})[subject.cell or ""] = None
            messages.setdefault(place, set()).add(hit.message)
    everywhere = len(subjects)
    findings = [
        replace(
            finding,
            cells=None if len(cells[place]) == everywhere else tuple(cells[place]),
            variants=len(messages[place]),
        )
        for place, finding in found.items()
    ]
    return findings, len(hidden)


def _finding(rule: LintRule, subject: Subject, hit: Hit, line: int) -> Finding:
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        key=subject.name(hit.key).removeprefix("theirs."),
        line=line,
        message=hit.message,
        fix=hit.fix,
        cells=None,
        variants=1,
    )


def _lines(subject: Subject, hit: Hit, line: int) -> set[int]:
    """Lines on which a comment may turn the finding off."""
    return {line} | {subject.lines[key] for key in (hit.key, *hit.also) if key in subject.lines}


def _unknown_suppressions(suppressions: Suppressions) -> list[str]:
    return [
        f"`lint: ignore={name}` names no rule and turns nothing off; `--rules` lists them"
        for name in sorted(suppressions.names - LINT_RULES.keys())
    ]


def _notes(document: Document) -> tuple[str, ...]:
    if document.dialect == "space":
        return ()
    if document.dialect == "areal":
        return ("judged as AReaL runs it, its known defects included", *_diagnostic(document))
    return (f"read in AReaL's terms; defaults are {document.subjects[0].trainer}'s",)


def _diagnostic(document: Document) -> list[str]:
    """Which settings of an AReaL file decide nothing in a diagnostic run."""
    [subject] = document.subjects
    scale = [key for key in SCALE_KEYS if key in subject.written]
    sections = dict.fromkeys(key.partition(".")[0] for key in subject.other)
    carried = [section for section in sections if section in CARRIED_SECTIONS]
    notes = []
    if scale:
        notes.append(f"a diagnostic run replaces {', '.join(scale)} by its own scale")
    if carried:
        notes.append(f"a diagnostic run does not look at what runs where ({', '.join(carried)})")
    return notes
