"""The results of a sweep: verdicts and intervals by configuration, and the recommendation."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sweeps.findings import Diagnosis
from sweeps.plan import TrialSpec
from sweeps.record import SweepRecord, TrialEnd
from sweeps.statistics import Interval, seed_intervals
from sweeps.verdict import ConfigurationVerdict, conclude


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial that has ended."""

    spec: TrialSpec
    """What was run."""
    end: TrialEnd
    """How it ended."""


@dataclass(frozen=True, slots=True)
class Implication:
    """What stands in for trials of a configuration that were not run."""

    trials: int
    """How many."""
    proof: str
    """Why their result follows."""
    of: str | None
    """Hash of the configuration that they repeat; None where the policy never learns."""
    name: str | None
    """Name of that configuration."""


@dataclass(frozen=True, slots=True)
class ConfigurationResult:
    """All seeds of one configuration."""

    name: str
    """Its levels, for people."""
    config_hash: str
    """12 hex characters."""
    levels: dict[str, str]
    """Axis name -> level name."""
    config: dict[str, Any]
    """The whole configuration, with the first seed."""
    swept: dict[str, Any]
    """Dotted key -> value of the swept settings."""
    verdict: ConfigurationVerdict
    """What its seeds say together."""
    final: Interval | None
    """The judge's pass rate after training, over the seeds that ran; None if none got that far."""
    trials: tuple[TrialResult, ...]
    """Its trials that have ended, by seed."""
    implied: Implication | None = None
    """Set where some of them were not run."""
    dropped: str | None = None
    """After which seeds it got no further ones, and why; None where it got all."""


@dataclass(frozen=True, slots=True)
class Results:
    """A sweep's outcome."""

    sweep: str
    """Name of the sweep."""
    question: str
    """What it was to answer."""
    configurations: tuple[ConfigurationResult, ...]
    """In plan order."""
    recommended: ConfigurationResult | None
    """The best configuration that is healthy on every seed."""
    reason: str
    """Why it, and not the runner-up; or why none."""
    not_run: tuple[TrialSpec, ...]
    """Planned trials that have not ended; without those of cells that were dropped."""
    failed: tuple[TrialResult, ...]
    """Trials that raised."""

    def to_json(self) -> dict[str, Any]:
        """The documented shape of `sweeps results --json`."""
        return {
            "sweep": self.sweep,
            "configurations": [_configuration_json(c) for c in self.configurations],
            "recommended": None if self.recommended is None else self.recommended.config_hash,
            "reason": self.reason,
            "not_run": [spec.id for spec in self.not_run],
        }


def load_results(record: SweepRecord) -> Results:
    """Read and judge everything that a sweep has recorded so far."""
    header = record.header()
    dropped = header.dropped
    ends = {spec.id: record.end(spec.id) for spec in header.trials}
    configurations: dict[str, list[TrialSpec]] = {}
    for spec in header.trials:
        configurations.setdefault(spec.config_hash, []).append(spec)
    planned = {
        config: [TrialResult(spec, end) for spec in specs if (end := ends[spec.id])]
        for config, specs in configurations.items()
    }
    judged = [
        (specs[0], trials, conclude([trial.end.diagnosis for trial in trials]))
        for specs, trials in zip(configurations.values(), planned.values(), strict=True)
    ]
    intervals = _intervals(judged)
    results = tuple(
        ConfigurationResult(
            name=spec.configuration,
            config_hash=spec.config_hash,
            levels=spec.levels,
            config=spec.config,
            swept=spec.swept,
            verdict=verdict,
            final=intervals[i],
            trials=tuple(trials),
            implied=_implication(trials, configurations),
            dropped=_why_dropped(configurations[spec.config_hash], dropped),
        )
        for i, (spec, trials, verdict) in enumerate(judged)
    )
    seeds = {config: len(specs) for config, specs in configurations.items()}
    recommended, reason = recommend(results, seeds)
    return Results(
        sweep=header.name,
        question=header.question,
        configurations=results,
        recommended=recommended,
        reason=reason,
        not_run=tuple(
            spec for spec in header.trials if ends[spec.id] is None and spec.id not in dropped
        ),
        failed=tuple(t for trials in planned.values() for t in trials if t.end.status == "failed"),
    )


def _why_dropped(specs: list[TrialSpec], dropped: dict[str, str]) -> str | None:
    return next((dropped[spec.id] for spec in specs if spec.id in dropped), None)


def _implication(
    trials: list[TrialResult], configurations: dict[str, list[TrialSpec]]
) -> Implication | None:
    ends = [trial.end for trial in trials if trial.end.implied]
    if not ends:
        return None
    proof, of = ends[0].proof or "", ends[0].of
    name = None if of is None else configurations[of][0].configuration
    return Implication(len(ends), proof, of, name)


def recommend(
    configurations: tuple[ConfigurationResult, ...], seeds: dict[str, int]
) -> tuple[ConfigurationResult | None, str]:
    """The configuration with the highest lower end among those healthy on every planned seed.

    Equal lower ends fall to the one that paid least KL per pass gained. A lead within the noise
    between seeds is said to be a tie. A configuration that was not run on every seed stands behind
    the one that it repeats.
    """
    healthy = [
        c
        for c in configurations
        if c.final is not None
        and c.implied is None
        and c.verdict.outcome == "healthy"
        and c.verdict.healthy == seeds[c.config_hash]
    ]
    if not healthy:
        return None, "no configuration is healthy on every seed"
    ranked = sorted(healthy, key=lambda c: (-_low(c), _kl_per_pass(c), c.name))
    return ranked[0], _reason(ranked[0], ranked[1:])


def _reason(best: ConfigurationResult, others: list[ConfigurationResult]) -> str:
    seeds = best.verdict.seeds
    own = f"{best.name}: healthy on {seeds} of {seeds} seeds, final pass rate {_shown(best)}"
    if not others:
        return f"{own}; no other configuration is healthy on every seed"
    tied = [c for c in others if c.final is not None and c.final.high >= _mean(best)]
    if not tied:
        return f"{own}; the runner-up, {others[0].name}, has {_shown(others[0])}"
    rivals = ", ".join(f"{c.name} {_shown(c)}" for c in tied)
    return (
        f"{own}. Its lower end is the highest, but the lead is within the noise between seeds: a "
        f"tie with {rivals}{_price(best, others[0])}"
    )


def _price(best: ConfigurationResult, runner_up: ConfigurationResult) -> str:
    own, other = _kl_per_pass(best), _kl_per_pass(runner_up)
    if not np.isfinite([own, other]).all():
        return ""
    return f". KL paid per pass gained: {own:.2f} nats/token (runner-up {other:.2f})"


def _shown(configuration: ConfigurationResult) -> str:
    interval = configuration.final
    if interval is None:
        return "none"
    return f"{interval.mean:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _low(configuration: ConfigurationResult) -> float:
    return -1.0 if configuration.final is None else configuration.final.low


def _mean(configuration: ConfigurationResult) -> float:
    return -1.0 if configuration.final is None else configuration.final.mean


def _kl_per_pass(configuration: ConfigurationResult) -> float:
    """KL to the reference at the end, per unit of pass rate gained, mean over seeds."""
    paid = [
        trial.end.kl_reference / max(trial.end.final - trial.end.initial, 0.01)
        for trial in configuration.trials
        if trial.end.kl_reference is not None
        and trial.end.final is not None
        and trial.end.initial is not None
    ]
    return float(np.mean(paid)) if paid else float("inf")


def _intervals(
    judged: list[tuple[TrialSpec, list[TrialResult], ConfigurationVerdict]],
) -> list[Interval | None]:
    """Intervals with the spread between seeds pooled within each class of outcome."""
    intervals: list[Interval | None] = [None] * len(judged)
    finals = [[t.end.final for t in trials if t.end.final is not None] for _, trials, _ in judged]
    for outcome in {verdict.outcome for _, _, verdict in judged}:
        members = [i for i, (_, _, v) in enumerate(judged) if v.outcome == outcome and finals[i]]
        if not members:
            continue
        prompts = judged[members[0]][0].config["evaluation"]["prompts"]
        pooled = seed_intervals([finals[i] for i in members], trials_per_value=prompts)
        for i, interval in zip(members, pooled, strict=True):
            intervals[i] = interval
    return intervals


def _configuration_json(result: ConfigurationResult) -> dict[str, Any]:
    final = result.final
    verdict = result.verdict
    return {
        "config": result.name,
        "swept": result.swept,
        "hash": result.config_hash,
        "verdict": {
            "outcome": verdict.outcome,
            "healthy": verdict.healthy,
            "seeds": verdict.seeds,
            "symptom": verdict.symptom,
            "stage": verdict.stage,
            "onset": verdict.onset,
        },
        "final": None
        if final is None
        else {"mean": final.mean, "low": final.low, "high": final.high},
        "implied": None if result.implied is None else asdict(result.implied),
        "dropped": result.dropped,
        "trials": [_trial_json(trial) for trial in result.trials],
    }


def _trial_json(trial: TrialResult) -> dict[str, Any]:
    diagnosis: Diagnosis = trial.end.diagnosis
    return {
        "id": trial.spec.id,
        "seed": trial.spec.seed,
        "status": trial.end.status,
        "outcome": diagnosis.outcome,
        "state": diagnosis.state,
        "symptom": diagnosis.symptom,
        "stage": diagnosis.stage,
        "onset": diagnosis.onset,
        "final": trial.end.final,
        "message": diagnosis.message,
        "error": trial.end.error,
    }
