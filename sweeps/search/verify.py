"""Does a sweep's suggestion hold? The change against the base, paired on seeds that are fresh."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpo_core.errors import ConfigError
from sweeps.dotted import lookup
from sweeps.plan import Plan, plan
from sweeps.record import SweepHeader
from sweeps.results import ConfigurationResult, Results, TrialResult
from sweeps.space import parse_space

BASE, AXIS = "base", "change"
"""Name of the unchanged configuration, and of the axis."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a verification found."""

    change: str
    """Name of the changed configuration."""
    seeds: int
    """Fresh seeds on which both have ended."""
    helped: int
    """Of these, healthy with the change and better off than the base with the same seed."""
    lines: tuple[str, ...]
    """Seed by seed, in words."""

    @property
    def verified(self) -> bool:
        """It helped on every seed."""
        return self.seeds > 0 and self.helped == self.seeds

    @property
    def conclusion(self) -> str:
        """In a line."""
        if self.verified:
            return f"{self.change}: verified, {self.helped} of {self.seeds} seeds"
        if self.helped:
            return f"{self.change}: helped on {self.helped} of {self.seeds} seeds only"
        return f"{self.change}: did not help on any of {self.seeds} seeds"

    def to_json(self) -> dict[str, Any]:
        """What `sweeps verify --json` prints."""
        return asdict(self) | {"verified": self.verified, "conclusion": self.conclusion}


def plan_verification(header: SweepHeader, choice: ConfigurationResult, seeds: int) -> Plan:
    """Two cells, the base and the choice, on seeds that the sweep has not used.

    Args:
        header: The finished sweep.
        choice: The configuration in question.
        seeds: How many fresh seeds.

    Raises:
        ConfigError: the sweep's base could not run by itself, or the choice is the base.
    """
    if not header.base:
        raise ConfigError([f"sweep {header.name!r} has no base that could run by itself"])
    changed = {
        key: value for key, value in choice.swept.items() if lookup(header.base, key) != value
    }
    if not changed:
        raise ConfigError([f"{choice.name} is the base itself; name another one with --config"])
    first = max(spec.seed for spec in header.trials) + 1
    name = choice.name if choice.name != BASE else f"({BASE})"
    document = {
        "name": f"{header.name}-verify-{choice.config_hash[:6]}",
        "question": f"Does {choice.name} hold on fresh seeds?",
        "base": {key: value for key, value in header.base.items() if key != "seed"},
        "space": {AXIS: {BASE: {}, name: changed}},
        "seeds": list(range(first, first + seeds)),
        "implied": False,
        "racing": False,
    }
    return plan(parse_space(document, source=Path(header.source)))


def check(results: Results) -> Check:
    """What the two cells of a verification say, seed by seed."""
    base, change = results.configurations
    before = {trial.spec.seed: trial for trial in base.trials}
    pairs = [
        (before[trial.spec.seed], trial) for trial in change.trials if trial.spec.seed in before
    ]
    helped = [_helps(one, other) for one, other in pairs]
    lines = tuple(
        f"seed {other.spec.seed}: {BASE} {_shown(one)} -> {_shown(other)}" for one, other in pairs
    )
    return Check(change.name, len(pairs), sum(helped), lines)


def _helps(before: TrialResult, after: TrialResult) -> bool:
    """Healthy now; and the base was not, or passed less."""
    if after.end.diagnosis.outcome != "healthy" or after.end.final is None:
        return False
    was_healthy = before.end.diagnosis.outcome == "healthy"
    return not was_healthy or before.end.final is None or after.end.final > before.end.final


def _shown(trial: TrialResult) -> str:
    diagnosis, final = trial.end.diagnosis, trial.end.final
    what = diagnosis.symptom or diagnosis.outcome
    return what if final is None else f"{what} {final:.2f}"
