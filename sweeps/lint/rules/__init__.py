"""All rules, by family; LINT_RULES holds them by id, worst first.

groups         is there anything to compare
rewards        does the reward survive
normalization  what mean and spread really do
kl             what the KL penalty holds
ratio          importance ratios, clip, staleness, filters
lengths        length limits and truncation
optimizer      how far an update moves the weights
names          what cannot be read, is misspelt, or changes nothing
foreign        TRL's and verl's own traps
refused        what AReaL itself refuses
"""

from sweeps.lint.rules import (
    foreign,
    groups,
    kl,
    lengths,
    names,
    normalization,
    optimizer,
    ratio,
    refused,
    rewards,
)
from sweeps.lint.types import SEVERITIES, LintRule

FAMILIES = (
    groups,
    rewards,
    normalization,
    kl,
    ratio,
    lengths,
    optimizer,
    names,
    foreign,
    refused,
)

LINT_RULES: dict[str, LintRule] = {
    rule.id: rule
    for rule in sorted(
        (rule for family in FAMILIES for rule in family.RULES),
        key=lambda rule: (SEVERITIES.index(rule.severity), rule.id),
    )
}
"""Every rule by its id, worst first."""

__all__ = ["FAMILIES", "LINT_RULES"]
