"""One run as AReaL, TRL and verl would log it, for tests of the importers."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KL_CTL = 0.05
PROMPT = 90.0
EVERY = 10
"""Steps between two evaluations."""

Run = dict[str, NDArray[np.float64]]
Row = dict[str, Any]


def healthy_run(steps: int = 60, seed: int = 0) -> Run:
    """The series of a run that learns: its reward is 0 or 1, its groups fall silent late."""
    rng = np.random.default_rng(seed)
    rate = 0.2 + 0.7 / (1 + np.exp(-8 * (np.arange(steps) / steps - 0.35)))
    reward = rng.binomial(128, rate) / 128
    return {
        "reward": reward,
        "std": np.sqrt(reward * (1 - reward)),
        "silent": 0.2 + 0.3 * rate,
        "entropy": np.linspace(0.6, 0.3, steps),
        "kl": np.linspace(0.0005, 0.03, steps),
        "clipped": np.linspace(0.002, 0.01, steps),
        "length": np.linspace(230.0, 300.0, steps),
        "cut": np.full(steps, 0.02),
        "loss": 0.01 * rng.standard_normal(steps),
        "norm": 0.3 + 0.05 * rng.random(steps),
        "seconds": 20 + rng.random(steps),
    }


def trl_rows(run: Run) -> list[Row]:
    """TRL's log history, first step 1."""
    return [
        {
            "step": step,
            "loss": row["loss"],
            "grad_norm": row["norm"],
            "learning_rate": 1e-6,
            "reward": row["reward"],
            "reward_std": 0.8 * row["std"],
            "frac_reward_zero_std": row["silent"],
            "rewards/accuracy_reward/mean": row["reward"],
            "rewards/accuracy_reward/std": row["std"],
            "entropy": row["entropy"],
            "kl": row["kl"],
            "completions/mean_length": row["length"],
            "completions/clipped_ratio": row["cut"],
            "clip_ratio/region_mean": row["clipped"],
            "step_time": row["seconds"],
        }
        | ({"eval_reward": row["reward"]} if step % EVERY == 0 else {})
        for step, row in _rows(run)
    ]


def verl_rows(run: Run) -> list[Row]:
    """verl's file logger."""
    return [
        {
            "step": step,
            "data": {
                "actor/pg_loss": row["loss"],
                "actor/grad_norm": row["norm"],
                "actor/lr": 1e-6,
                "actor/entropy": row["entropy"],
                "actor/kl_loss": row["kl"],
                "actor/pg_clipfrac": row["clipped"],
                "critic/score/mean": row["reward"],
                "critic/score/min": 0.0,
                "critic/score/max": 1.0,
                "critic/rewards/mean": row["reward"],
                "response_length/mean": row["length"],
                "response_length/clip_ratio": row["cut"],
                "perf/time_per_step": row["seconds"],
            }
            | ({"val-core/gsm8k/acc/mean@1": row["reward"]} if step % EVERY == 0 else {}),
        }
        for step, row in _rows(run)
    ]


def areal_rows(run: Run) -> list[Row]:
    """AReaL's statistics, as a tracker's history has them."""
    return [
        {
            "step": step,
            "rollout/reward": row["reward"],
            "ppo_actor/task_reward/avg": row["reward"],
            "ppo_actor/task_reward/min": 0.0,
            "ppo_actor/task_reward/max": 1.0,
            "ppo_actor/correct_n_seqs": 128 * row["reward"],
            "ppo_actor/incorrect_n_seqs": 128 * (1 - row["reward"]),
            "ppo_actor/kl_rewards/avg": -KL_CTL * row["kl"],
            "ppo_actor/no_eos_ratios/avg": row["cut"],
            "ppo_actor/seq_len/avg": row["length"] + PROMPT,
            "ppo_actor/prompt_len/avg": PROMPT,
            "ppo_actor/eps_clip": 0.2,
            "ppo_actor/update/entropy/avg": row["entropy"],
            "ppo_actor/update/clip_ratio/avg": row["clipped"],
            "ppo_actor/update/actor_loss/avg": row["loss"],
            "ppo_actor/update/grad_norm": row["norm"],
            "ppo_actor/update/lr": 1e-6,
            "timeperf/rollout": row["seconds"] - 5,
            "timeperf/train_step": 5.0,
        }
        | ({"eval-rollout/reward": row["reward"]} if step % EVERY == 0 else {})
        for step, row in _rows(run)
    ]


ROWS: dict[str, Callable[[Run], list[Row]]] = {
    "trl": trl_rows,
    "verl": verl_rows,
    "areal": areal_rows,
}
"""How each framework logs a run."""


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """A JSON object per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _rows(run: Run) -> list[tuple[int, dict[str, float]]]:
    count = len(run["reward"])
    return [
        (at + 1, {name: float(values[at]) for name, values in run.items()}) for at in range(count)
    ]
