"""What the linter says: rules, their evidence, hits in one configuration, findings in a file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sweeps.lint.subject import Subject

Severity = Literal["fatal", "likely-harmful", "no-effect", "worth-knowing"]
SEVERITIES: tuple[Severity, ...] = ("fatal", "likely-harmful", "no-effect", "worth-knowing")
"""From worst to mildest."""

EvidenceKind = Literal["measured here", "measured false here", "public reports", "arithmetic"]
EVIDENCE_KINDS: tuple[EvidenceKind, ...] = (
    "measured here",
    "measured false here",
    "public reports",
    "arithmetic",
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a rule is believed."""

    kind: EvidenceKind
    """Whether our own runs show it, contradict it, or others say so, or it follows."""
    text: str
    """The numbers, in a sentence."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One place of a configuration that a rule speaks about."""

    key: str
    """The setting, under AReaL's name."""
    message: str
    """Key and value, what happens and why."""
    fix: str
    """What to set instead."""
    also: tuple[str, ...] = ()
    """Other settings that take part, under AReaL's names."""


Check = Callable[[Subject], Iterator[Hit]]


@dataclass(frozen=True, slots=True)
class LintRule:
    """One thing worth saying about a configuration."""

    id: str
    """Stable name, for suppression and code review tools."""
    severity: Severity
    """How bad it is."""
    keys: tuple[str, ...]
    """The settings whose values it reads, under AReaL's names; empty where any may be meant, or
    none of ours. `policy` and `areal_compat` are left out: they only say who runs the file."""
    claim: str
    """What the rule says, in one sentence without numbers of a configuration."""
    evidence: Evidence
    """Whether our own measurement supports it."""
    source: str
    """Issue, paper or measurement that it comes from."""
    check: Check
    """Yields the places that it concerns."""


def rule(
    name: str,
    *,
    severity: Severity,
    keys: tuple[str, ...] = (),
    claim: str,
    evidence: Evidence,
    source: str,
) -> Callable[[Check], LintRule]:
    """Make a rule of the decorated function."""

    def make(check: Check) -> LintRule:
        return LintRule(name, severity, keys, claim, evidence, source, check)

    return make


def measured(text: str) -> Evidence:
    """Evidence from our own runs that supports the claim."""
    return Evidence("measured here", text)


def refuted(text: str) -> Evidence:
    """Evidence from our own runs against what is commonly said."""
    return Evidence("measured false here", text)


def reported(text: str) -> Evidence:
    """Evidence from other people's reports."""
    return Evidence("public reports", text)


def follows(text: str) -> Evidence:
    """Evidence from arithmetic alone."""
    return Evidence("arithmetic", text)


OWN_RUNS = "own prototype of the embedded trainer, 12 x 8 answers, 40 steps, 3 seeds"
CLAIMS = "this trainer, tests/integration/test_lint_claims.py"
"""A test runs the claim again: the flagged configuration against the one put right."""
AREAL_RUN = "AReaL cbff54d64, observed by running its functions"
AREAL_READ = "AReaL cbff54d64, read"
TOY = "own numpy toy, 16 x 8 answers, 150 steps, 3 seeds"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's message at a place of a file."""

    rule: str
    """Id of the rule."""
    severity: Severity
    """The rule's severity."""
    key: str
    """The setting, under the name that the file uses."""
    line: int
    """Line of the setting, from 1; where it is not written, of the nearest thing that is."""
    message: str
    """What happens and why."""
    fix: str
    """What to set instead."""
    cells: tuple[str, ...] | None
    """Cells of a search space that have it, if not all; None elsewhere."""
    variants: int
    """Different values in those cells; the message shows the first."""


@dataclass(frozen=True, slots=True)
class FileReport:
    """Everything that is said about one file."""

    path: Path
    """The file."""
    dialect: str
    """Whose vocabulary it uses."""
    cells: int
    """Configurations in it."""
    findings: tuple[Finding, ...]
    """Worst first, then by line."""
    suppressed: int
    """Findings that a comment or an option turned off."""
    unmapped: tuple[str, ...]
    """Keys of the file that no rule can see, because they have no counterpart here."""
    notes: tuple[str, ...]
    """What the reader should know about how the file was read."""


def at_least(severity: Severity, threshold: Severity) -> bool:
    """`severity` is as bad as `threshold`, or worse."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(threshold)
