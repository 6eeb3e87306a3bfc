"""Our own trials as TRL logs, and everybody's verdicts on them."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foreign_judge import WELL_WORDS, Verdict, judge_log, our_verdict, rival_verdict
from foreign_keys import TRL
from foreign_tables import share, table

from grpo_core.metrics import StepMetrics
from sweeps.trace import trace_of
from sweeps.verdict import diagnose


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of ours, with its label."""

    name: str
    expected: tuple[str, ...]
    """Symptoms that are right."""
    healthy: bool


def load_trials(folder: Path, half: str | None) -> list[Trial]:
    """The trials of a folder whose steps are there; with `half`, those of `tuning` or `test`."""
    labels = json.loads((folder / "labels.json").read_text())
    return [
        Trial(name, tuple(label["expected"]), label["healthy"])
        for name, label in labels.items()
        if half in {None, label.get("half")} and (folder / f"{name}.jsonl").exists()
    ]


def load_steps(path: Path) -> list[StepMetrics]:
    """The recorded steps of a trial (`sweeps.record.SweepRecord.steps`)."""
    lines = path.read_text().splitlines()
    return [StepMetrics.from_json(json.loads(line)) for line in lines]


def write_trl(steps: list[StepMetrics], path: Path) -> None:
    """A trial as the log that TRL would have written of it."""
    text = "".join(json.dumps(trl_record(step)) + "\n" for step in steps)
    path.write_text(json.dumps({"config": {"algorithm": "grpo"}}) + "\n" + text)


def trl_record(step: StepMetrics) -> dict[str, float]:
    """One line of it: only what TRL logs; the judge's pass rate is the held-out score."""
    raw = step.stages.get("raw")
    quantities: dict[str, float | None] = {
        "loss": step.loss,
        "grad_norm": step.grad_norm,
        "learning_rate": step.learning_rate,
        "reward": step.reward_mean,
        "group_std": None if raw is None else raw.gain,
        "silent": None if raw is None else raw.silent,
        "component.task": step.reward_mean,
        "component_std.task": step.reward_std,
        "held_out": step.eval_pass_rate,
        "entropy": step.entropy,
        "kl": step.kl_reference,
        "clip": step.clip_fraction,
        "length": step.length_mean,
        "truncated": step.truncated,
        "logprob_gap": step.logprob_gap,
    }
    known = {name: value for name, value in quantities.items() if value is not None}
    return {"step": step.step + 1} | {TRL[name][0]: float(v) for name, v in known.items()}


def score_trials(
    trials: list[Trial], folder: Path, out: Path, judge_rivals: Callable[[list[Path]], dict]
) -> str:
    """Everybody's scores on labelled trials of `folder`, as Markdown."""
    logs = out / "trials" / "trl"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True, exist_ok=True)
    said: dict[str, dict[str, Verdict]] = {"ours, own signals": {}, "ours, TRL log": {}}
    said |= {"textbook, TRL log": {}, "rldoctor, TRL log": {}, "rlprobe, TRL log": {}}
    for trial in trials:
        steps = load_steps(folder / f"{trial.name}.jsonl")
        path = logs / f"{trial.name}.jsonl"
        write_trl(steps, path)
        judged = judge_log(path)
        said["ours, own signals"][trial.name] = our_verdict(diagnose(trace_of(steps)))
        said["ours, TRL log"][trial.name] = judged.ours
        said["textbook, TRL log"][trial.name] = judged.naive
    told = judge_rivals([logs])
    for rival, verdicts in told.items():
        for path, verdict in verdicts.items():
            said[f"{rival}, TRL log"][Path(path).stem] = rival_verdict(rival, verdict)
    parts = [_scores(trials, said)]
    parts += [f"**{who}**\n\n{_confusion(trials, one)}" for who, one in said.items()]
    return "\n\n".join(parts)


def _right(trial: Trial, verdict: Verdict) -> bool:
    if trial.healthy:
        return not verdict.alarm and any(word in WELL_WORDS for word in verdict.means)
    return verdict.alarm and any(word in trial.expected for word in verdict.means)


def _named(trial: Trial, verdict: Verdict) -> bool:
    said = (*verdict.means, *verdict.named)
    return verdict.alarm and any(word in trial.expected for word in said)


def _scores(trials: list[Trial], said: dict[str, dict[str, Verdict]]) -> str:
    rows = []
    for who, verdicts in said.items():
        judged = [(trial, verdicts[trial.name]) for trial in trials]
        sick = [(trial, verdict) for trial, verdict in judged if not trial.healthy]
        well = [verdict for trial, verdict in judged if trial.healthy]
        rows.append(
            (
                who,
                share(_right(trial, verdict) for trial, verdict in judged),
                share(_right(trial, verdict) for trial, verdict in sick),
                share(_named(trial, verdict) for trial, verdict in sick),
                share(verdict.alarm for _, verdict in sick),
                share(verdict.alarm for verdict in well),
                share(verdict.alarm and verdict.critical for verdict in well),
            )
        )
    heading = (
        "judge",
        "first verdict right",
        "of faults",
        "faults named at all",
        "faults alarmed",
        "healthy alarmed",
        "critical",
    )
    return table(heading, rows)


def _confusion(trials: list[Trial], verdicts: dict[str, Verdict]) -> str:
    rows = []
    groups = dict.fromkeys(trial.name.rsplit("-s", 1)[0] for trial in trials)
    for group in groups:
        chosen = [trial for trial in trials if trial.name.rsplit("-s", 1)[0] == group]
        words = Counter((verdicts[t.name].word, _right(t, verdicts[t.name])) for t in chosen)
        said = ", ".join(
            f"{word}{'*' if right else ''} {count}" for (word, right), count in words.most_common()
        )
        rows.append((group, said))
    return table(("injection", "verdicts (* right)"), rows)
