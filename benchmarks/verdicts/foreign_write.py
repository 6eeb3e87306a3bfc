"""Writes the logs of two other packages' simulators in the dialects of TRL, verl and AReaL.

Runs in a virtual environment that has rldoctor and rlprobe, started by foreign.py:
python foreign_write.py --out DIR --seeds N. Writes DIR/SIMULATOR/DIALECT/RUN.jsonl, in `native` the
simulator's own form, and DIR/runs.json, a list of what was injected where.
"""

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from foreign_keys import KEYS, KL_CTL, PROMPT_TOKENS
from rl_doctor.simulate import SCENARIOS, simulate
from rlprobe.storage import RunReader
from rlprobe.testing.synth import PATHOLOGIES, generate_run

LENGTHS = (150, 300, 450)
"""Steps of a run; seeds take turns."""
ONSETS = (0.4, 0.5, 0.6)
"""Share of a run after which rlprobe injects; changes with every third seed."""
HEALTHY_TIMES = 3
"""Healthy runs per seed, for an interval of the false-alarm rate that says something."""
SPREAD = 2.2
"""Extremes of a batch in standard deviations, as rlprobe sets those of the reward."""
DIGITS = 6
"""Significant digits in a log."""
Steps = list[dict[str, float]]


@dataclass(frozen=True)
class Run:
    """One run, before it is written."""

    simulator: str
    label: str
    seed: int
    steps: int
    onset: int
    """First step with the fault (steps count from 1); 1 where it is there from the start."""

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.label}-{self.seed:02}"


def main() -> None:
    """Write every log."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    wanted = parser.parse_args()
    runs = []
    for run in plan(wanted.seeds):
        folder = wanted.out / run.simulator
        (folder / "native").mkdir(parents=True, exist_ok=True)
        steps, settings = SIMULATORS[run.simulator](run, folder / "native")
        for dialect in KEYS:
            write(folder / dialect / f"{run.name}.jsonl", dialect, steps, settings)
        runs.append(asdict(run) | {"name": run.name})
    (wanted.out / "runs.json").write_text(json.dumps(runs, indent=1))


def plan(seeds: int) -> Iterator[Run]:
    """Every run, the healthy ones several times."""
    faults = [("rldoctor", label) for label in SCENARIOS]
    faults += [("rlprobe", label) for label in ("healthy", "healthy_ppo", *PATHOLOGIES)]
    for simulator, label in faults:
        times = HEALTHY_TIMES if label.startswith("healthy") else 1
        for seed in range(seeds * times):
            steps = LENGTHS[seed % len(LENGTHS)]
            share = ONSETS[seed // len(LENGTHS) % len(ONSETS)]
            onset = int(steps * share) + 1 if simulator == "rlprobe" else 1
            yield Run(simulator, label, seed, steps, onset)


def from_rldoctor(run: Run, native: Path) -> tuple[Steps, dict[str, object]]:
    """A run of rldoctor's simulator: quantities per step, and the settings that it states."""
    records, config = simulate(run.label, n_steps=run.steps, seed=run.seed)
    lines = [{"config": config}, *records]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (native / f"{run.name}.jsonl").write_text(text)
    steps = [
        {quantity: record[key] for key, quantity in RLDOCTOR.items() if key in record}
        for record in records
    ]
    kept = ("algorithm", "num_generations", "beta", "epsilon", "epsilon_high", "learning_rate")
    return steps, {name: config[name] for name in kept} | {
        "max_completion_length": config["max_response_length"]
    }


def from_rlprobe(run: Run, native: Path) -> tuple[Steps, dict[str, object]]:
    """A run of rlprobe's simulator: quantities per step, and the settings that it states."""
    share = (run.onset - 1) / run.steps
    algorithm = "ppo" if run.label in {"healthy_ppo", "value_divergence"} else "grpo"
    folder = generate_run(
        native / run.name,
        None if run.label.startswith("healthy") else run.label,
        n_steps=run.steps,
        onset_frac=share,
        seed=run.seed,
        algorithm=algorithm,
    )
    steps = []
    for record in RunReader(folder).steps():
        fields = record.model_dump()
        step = {new: fields[old] for old, new in RLPROBE.items() if fields[old] is not None}
        step |= {f"component.{name}": value for name, value in record.reward_components.items()}
        if record.nan_count:
            # No dialect counts NaN gradients; in all of them the norm of one is NaN.
            step["grad_norm"] = math.nan
        reach = SPREAD * fields["adv_std"]
        step["advantage_min"], step["advantage_max"] = (
            fields["adv_mean"] - reach,
            fields["adv_mean"] + reach,
        )
        steps.append(step)
    stated = {"algorithm": algorithm, "num_generations": 8, "learning_rate": 1e-6}
    return steps, stated | {"max_completion_length": 1024}


def write(path: Path, dialect: str, steps: Steps, settings: dict[str, object]) -> None:
    """One log in one dialect; TRL's begins with its settings, AReaL's has its file beside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, object]] = [{"config": settings}] if dialect == "trl" else []
    if dialect == "areal+config":
        (path.parent / "config.yaml").write_text(f"actor:\n  kl_ctl: {KL_CTL}\n")
    for number, step in enumerate(steps, start=1):
        metrics = {
            key: rounded(step_value(step, quantity, dialect))
            for quantity, keys in KEYS[dialect].items()
            for key in keys
            if source(quantity) in step
        }
        nested = {"data": metrics} if dialect == "verl" else metrics
        lines.append({"step": number} | nested)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def source(quantity: str) -> str:
    """The simulator's quantity behind one of a dialect's."""
    return {"kl_reward": "kl", "prompt_length": "length"}.get(quantity, quantity)


def step_value(step: dict[str, float], quantity: str, dialect: str) -> float:
    """The number that the dialect logs."""
    value = step[source(quantity)]
    if quantity == "kl_reward":
        return -KL_CTL * value
    if quantity == "prompt_length":
        return float(PROMPT_TOKENS)
    if quantity == "length" and dialect.startswith("areal"):
        return value + PROMPT_TOKENS
    return value


def rounded(value: float) -> float:
    """As logs print numbers."""
    return float(f"{value:.{DIGITS}g}")


RLDOCTOR = {
    "reward": "reward",
    "reward_std": "group_std",
    "frac_reward_zero_std": "silent",
    "entropy": "entropy",
    "kl": "kl",
    "clip_ratio/low_mean": "clip_low",
    "clip_ratio/high_mean": "clip_high",
    "clip_ratio/region_mean": "clip",
    "grad_norm": "grad_norm",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "truncated",
    "learning_rate": "learning_rate",
    "step_time": "step_time",
    "perf/throughput": "throughput",
    "rewards/correctness/mean": "component.correctness",
    "rewards/format/mean": "component.format",
    "eval/accuracy": "held_out",
}
"""Keys of rldoctor's simulator; `reward_std` is TRL's key, so it means what it means there."""
RLPROBE = {
    "reward_mean": "reward",
    "reward_min": "reward_min",
    "reward_max": "reward_max",
    "group_reward_std_mean": "group_std",
    "zero_variance_group_frac": "silent",
    "entropy_mean": "entropy",
    "kl_mean": "kl",
    "clip_fraction": "clip",
    "ratio_mean": "ratio_mean",
    "adv_mean": "advantage_mean",
    "loss": "loss",
    "lr": "learning_rate",
    "grad_norm": "grad_norm",
    "value_loss": "value_loss",
    "value_explained_variance": "explained_variance",
    "completion_len_mean": "length",
    "completion_len_max": "length_max",
    "truncation_rate": "truncated",
    "step_time_s": "step_time",
}
"""Fields of rlprobe's StepRecord."""
SIMULATORS = {"rldoctor": from_rldoctor, "rlprobe": from_rlprobe}

if __name__ == "__main__":
    main()
