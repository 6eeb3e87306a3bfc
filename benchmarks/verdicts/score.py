"""How often the verdict on a trial with a known cause is right, how soon, and how sure it was.

Run: python benchmarks/verdicts/score.py DIR [--half tuning|test] [--details]
DIR is what injections.py wrote. Prints Markdown tables: accuracy with Wilson intervals, confusion,
detection delay and steps saved by an early stop, reliability of the stated confidence.
"""

import argparse
import itertools
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import binomtest

from grpo_core.metrics import StepMetrics
from sweeps.alarm import CRITICAL, Alarm, Mode
from sweeps.findings import Diagnosis
from sweeps.trace import Judge, Trace, trace_of
from sweeps.verdict import diagnose

CHECK_EVERY = 5
"""Steps between two looks of the early stop, as `sweeps run` has it."""


@dataclass(frozen=True)
class Judged:
    """One trial with its label, its verdict and when it would have been stopped."""

    name: str
    injection: str
    expected: tuple[str, ...]
    steps: int
    verdict: Diagnosis
    stopped: dict[str, tuple[int, str] | None]

    @property
    def healthy(self) -> bool:
        """Nothing was injected."""
        return not self.expected

    @property
    def said(self) -> str:
        """The verdict in a word."""
        return self.verdict.symptom or self.verdict.outcome

    @property
    def right(self) -> bool:
        """The first verdict is one of the right ones."""
        if self.healthy:
            return self.verdict.outcome == "healthy"
        return self.verdict.symptom in self.expected


def load(folder: Path, half: str | None) -> list[Judged]:
    """Judge every trial of `folder` that has been run."""
    labels = json.loads((folder / "labels.json").read_text())
    judged = []
    for name, label in labels.items():
        path = folder / f"{name}.jsonl"
        if (half is None or label["half"] == half) and path.exists():
            trace = _trace(path)
            judged.append(
                Judged(
                    name=name,
                    injection=label["injection"],
                    expected=tuple(label["expected"]),
                    steps=len(trace),
                    verdict=diagnose(trace),
                    stopped={mode: _stop(trace, mode) for mode in ("safe", "aggressive")},
                )
            )
    return judged


def _trace(path: Path) -> Trace:
    steps = [StepMetrics.from_json(json.loads(line)) for line in path.read_text().splitlines()]
    facts = json.loads(path.with_suffix(".judge.json").read_text())
    judge = Judge(facts["initial"], facts["prompts"], steps[-1].eval_pass_rate, facts["prompts"])
    return trace_of(steps, judge)


def _stop(trace: Trace, mode: Mode) -> tuple[int, str] | None:
    """Step at which the alarm stops the trial, and why."""
    alarm = Alarm(mode)
    for count in range(CHECK_EVERY, len(trace), CHECK_EVERY):
        diagnosis = alarm.check(trace.until(count - 1))
        if diagnosis is not None and diagnosis.symptom is not None:
            return count, diagnosis.symptom
    return None


def share(hits: int, total: int) -> str:
    """A share with its Wilson interval."""
    if total == 0:
        return "none"
    low, high = binomtest(hits, total).proportion_ci(method="wilson")
    return f"{hits} of {total} = {hits / total:.0%} [{low:.0%}, {high:.0%}]"


def tables(judged: list[Judged]) -> str:
    """Everything, as Markdown."""
    sick = [one for one in judged if not one.healthy]
    well = [one for one in judged if one.healthy]
    alarms = [one for one in well if one.verdict.outcome == "unhealthy"]
    critical = [one for one in alarms if one.verdict.symptom in CRITICAL]
    unsure = [one for one in judged if one.verdict.outcome == "inconclusive"]
    lines = [
        "| | |",
        "| --- | --- |",
        f"| first verdict right, faulty trials | {share(sum(o.right for o in sick), len(sick))} |",
        f"| first verdict right, all trials | {share(sum(o.right for o in judged), len(judged))} |",
        f"| healthy trials called unhealthy | {share(len(alarms), len(well))} |",
        f"| with a critical symptom | {share(len(critical), len(well))} |",
        (
            f"| faulty trials called healthy | "
            f"{share(sum(o.verdict.outcome == 'healthy' for o in sick), len(sick))} |"
        ),
        f"| inconclusive | {share(len(unsure), len(judged))} |",
        "",
        "| injection | right | verdicts | median onset |",
        "| --- | --- | --- | --- |",
    ]
    by_injection: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        by_injection[one.injection].append(one)
    for name, trials in by_injection.items():
        said = Counter(one.said for one in trials)
        onsets = sorted(o.verdict.onset for o in trials if o.verdict.onset is not None)
        lines.append(
            f"| {name} | {sum(o.right for o in trials)} of {len(trials)} | "
            f"{', '.join(f'{word} {count}' for word, count in said.most_common())} | "
            f"{onsets[len(onsets) // 2] if onsets else ''} |"
        )
    return "\n".join([*lines, "", *_stopping(sick, well), "", *_reliability(judged)])


def _stopping(sick: list[Judged], well: list[Judged]) -> list[str]:
    lines = [
        (
            "| early stop | faulty trials stopped | steps saved on faulty trials | median step | "
            "healthy trials stopped |"
        ),
        "| --- | --- | --- | --- | --- |",
    ]
    for mode in ("safe", "aggressive"):
        stops = [(one, one.stopped[mode]) for one in sick]
        saved = sum(one.steps - stop[0] for one, stop in stops if stop is not None)
        total = sum(one.steps for one in sick)
        at = sorted(stop[0] for _, stop in stops if stop is not None)
        wrong = sum(one.stopped[mode] is not None for one in well)
        lines.append(
            f"| {mode} | {share(len(at), len(sick))} | {saved / max(total, 1):.0%} | "
            f"{at[len(at) // 2] if at else ''} | {share(wrong, len(well))} |"
        )
    return lines


def _reliability(judged: list[Judged]) -> list[str]:
    lines = ["| stated confidence | verdicts | right |", "| --- | --- | --- |"]
    groups: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        if one.verdict.outcome != "inconclusive":
            groups[_band(one.verdict.confidence)].append(one)
    for band, trials in sorted(groups.items()):
        stated = sum(o.verdict.confidence for o in trials) / len(trials)
        lines.append(
            f"| {band} (mean {stated:.2f}) | {len(trials)} | "
            f"{share(sum(o.right for o in trials), len(trials))} |"
        )
    return lines


def _band(confidence: float) -> str:
    edges = (0.0, 0.65, 0.75, 0.82, 0.9, 0.96, 1.01)
    for low, high in itertools.pairwise(edges):
        if low <= confidence < high:
            return f"{low:.2f} to {min(high, 1.0):.2f}"
    return "1.00"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", choices=["tuning", "test"])
    parser.add_argument("--details", action="store_true", help="every wrong verdict in full")
    arguments = parser.parse_args()
    judged = load(arguments.folder, arguments.half)
    print(tables(judged))
    if arguments.details:
        for one in judged:
            if not one.right or (one.healthy and one.stopped["safe"] is not None):
                print(f"\n{one.name}: {one.said} {one.verdict.secondary}; stop {one.stopped}")
                print(f"  {one.verdict.message}")


if __name__ == "__main__":
    main()
