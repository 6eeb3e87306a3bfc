"""The verdicts of rldoctor and rlprobe on logs.

Runs in a virtual environment that has both, started by foreign.py:
python foreign_rivals.py --out FILE FOLDER... where each FOLDER is named after its dialect and
holds JSONL logs, or is `native`. rlprobe reads no logs: for TRL its own callback's table of names
is used, for the others `FIELDS`, which gives it every quantity that it knows and the dialect has.
"""

import argparse
import json
import math
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from foreign_keys import KEYS
from rl_doctor import Severity, diagnose, load_run
from rlprobe.doctor import diagnose as diagnose_recording
from rlprobe.doctor.engine import diagnose_view
from rlprobe.doctor.runview import RunView
from rlprobe.schemas import RunManifest, StepRecord

FIELDS = {
    "reward": "reward_mean",
    "reward_min": "reward_min",
    "reward_max": "reward_max",
    "entropy": "entropy_mean",
    "kl": "kl_mean",
    "clip": "clip_fraction",
    "ratio_mean": "ratio_mean",
    "advantage_mean": "adv_mean",
    "value_loss": "value_loss",
    "explained_variance": "value_explained_variance",
    "loss": "loss",
    "learning_rate": "lr",
    "grad_norm": "grad_norm",
    "length": "completion_len_mean",
    "length_max": "completion_len_max",
    "truncated": "truncation_rate",
    "step_time": "step_time_s",
}
"""Our name of a quantity -> rlprobe's."""
Verdict = dict[str, Any]


def main() -> None:
    """Judge every log of every folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("folders", type=Path, nargs="+")
    wanted = parser.parse_args()
    verdicts: dict[str, dict[str, Verdict]] = {"rldoctor": {}, "rlprobe": {}}
    for folder in wanted.folders:
        for path in sorted(folder.iterdir()):
            if path.suffix == ".jsonl":
                verdicts["rldoctor"][str(path)] = of_rldoctor(path)
                if folder.name != "native":
                    verdicts["rlprobe"][str(path)] = of_rlprobe(path, folder.name)
            elif path.is_dir():
                verdicts["rlprobe"][str(path)] = told(diagnose_recording(path))
    wanted.out.write_text(json.dumps(verdicts))


def of_rldoctor(path: Path) -> Verdict:
    """Its problems, worst first; an alarm from WARNING on."""
    problems = diagnose(load_run(str(path))).problems
    names = [problem.detector for problem in problems]
    worst = problems[0].severity if problems else Severity.OK
    return {
        "named": names,
        "alarm": bool(worst >= Severity.WARNING),
        "critical": bool(worst >= Severity.CRITICAL),
    }


def of_rlprobe(path: Path, dialect: str) -> Verdict:
    """Its findings on the records of a log."""
    fields = trl_fields() if dialect == "trl" else table_fields(dialect)
    steps = [StepRecord(step=step, **fields(metrics)) for step, metrics in records(path)]
    manifest = RunManifest(run_id=path.stem, created_at="", algorithm="grpo")
    return told(diagnose_view(RunView(manifest, steps)))


def told(findings: list[Any]) -> Verdict:
    """Its findings, worst first; an alarm from `warn` on."""
    names = list(dict.fromkeys(finding.signature_id for finding in findings))
    ranks = {finding.severity for finding in findings}
    return {
        "named": names,
        "alarm": bool(ranks & {"warn", "critical"}),
        "critical": "critical" in ranks,
    }


def records(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Steps and their metrics."""
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if "step" in record:
            yield record["step"], record.get("data", record)


def trl_fields() -> Callable[[dict[str, float]], dict[str, Any]]:
    """The package's own mapping of TRL's logs; transformers is wanted for a base class only."""
    stub = types.ModuleType("transformers")
    stub.TrainerCallback = object  # type: ignore[attr-defined]
    sys.modules.setdefault("transformers", stub)
    from rlprobe.integrations.trl import _map_logs  # noqa: PLC0415 - needs the stub

    return lambda metrics: _map_logs({k: v for k, v in metrics.items() if k != "step"})


def table_fields(dialect: str) -> Callable[[dict[str, float]], dict[str, Any]]:
    """Fields of a record by `FIELDS`; NaN is left out, as its own mapping does."""

    def fields(metrics: dict[str, float]) -> dict[str, Any]:
        found = {
            FIELDS[quantity]: metrics[keys[0]]
            for quantity, keys in KEYS[dialect].items()
            if quantity in FIELDS and keys[0] in metrics and not math.isnan(metrics[keys[0]])
        }
        prompt = KEYS[dialect].get("prompt_length")
        if prompt is not None and "completion_len_mean" in found:
            found["completion_len_mean"] -= metrics[prompt[0]]
        return found

    return fields


if __name__ == "__main__":
    main()
