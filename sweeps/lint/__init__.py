"""`sweeps lint`: what is provably fatal, harmful or without effect in a configuration.

types     rules, evidence, hits, findings
subject   one configuration as the rules see it
settings  any file's values as a TrialConfig
places    lines of keys, comments that turn rules off
dialects  readers of AReaL, search-space, TRL and verl files
rules     the rules, by family
check     files through all rules
render    text, JSON and the list of rules
sarif     SARIF 2.1.0 for code review tools
command   the command line
"""

from sweeps.lint.check import Known, lint_file, lint_files
from sweeps.lint.rules import LINT_RULES
from sweeps.lint.types import FileReport, Finding, LintRule, Severity

__all__ = [
    "LINT_RULES",
    "FileReport",
    "Finding",
    "Known",
    "LintRule",
    "Severity",
    "lint_file",
    "lint_files",
]
