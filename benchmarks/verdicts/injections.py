"""Trials of our own trainer whose fault is known, because it was put there.

Each injection is a configuration, or a fault that no configuration can express (a verifier that
pays by chance, a sampler that is never updated), with the symptoms that would be a right answer,
written down before any verdict on it was seen. Healthy variants are among them. One half, by
injection, is for tuning, the other for testing.

Run: python benchmarks/verdicts/injections.py --out DIR [--seeds N] [--only NAME ...]
Writes DIR/<name>-s<seed>.jsonl (one StepMetrics per line) and DIR/labels.json; a trial that is
there already is not run again.
"""

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import grpo_core.trainer as trainer_module
from grpo_core.config import TaskConfig, TrialConfig
from grpo_core.metrics import StepMetrics
from grpo_core.pipeline import Experience, PipelineResult
from grpo_core.profiles import PROFILES
from grpo_core.rollout import RolloutBatch
from grpo_core.tasks import Answer, Prompt, Task
from grpo_core.trainer import Trainer
from sweeps.dotted import nest

STEPS = 60
Wrap = Callable[[Trainer], None]


@dataclass(frozen=True)
class Injection:
    """One cause, and what a right verdict on it says."""

    name: str
    half: str
    """tuning or test."""
    expected: tuple[str, ...]
    """Symptoms that are right, the best first; empty for a healthy variant."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Dotted settings over the base."""
    fault: Wrap | None = None
    """Applied to the trainer before the first step."""
    source: str = ""
    """Mode or case of the public reports."""


@dataclass(frozen=True)
class FaultyTask:
    """A task whose verifier or prompts are broken; the strict check stays right."""

    inner: Task
    pays: Callable[[Task, Prompt, Answer], float] | None = None
    prompts: int | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the task has
        return getattr(self.inner, name)

    def training_prompts(self, rng: np.random.Generator, count: int) -> list[Prompt]:
        """The task's own, or again and again the same few."""
        if self.prompts is None:
            return self.inner.training_prompts(rng, count)
        few = self.inner.training_prompts(np.random.default_rng(5), self.prompts)
        return [few[int(index)] for index in rng.integers(0, self.prompts, count)]

    def reward(self, prompt: Prompt, answer: Answer, config: TaskConfig) -> float:
        """What the broken verifier pays."""
        if self.pays is None:
            return self.inner.reward(prompt, answer, config)
        return self.pays(self.inner, prompt, answer)


def _verifier(pays: Callable[[Task, Prompt, Answer], float]) -> Wrap:
    def apply(trainer: Trainer) -> None:
        trainer.task = FaultyTask(trainer.task, pays=pays)

    return apply


def _by_chance(trainer: Trainer) -> None:
    """Every answer is paid by a coin; the same coins in the same order for the same seed."""
    coins = np.random.default_rng(trainer.config.seed)

    def pays(task: Task, prompt: Prompt, answer: Answer) -> float:
        del task, prompt, answer
        return float(coins.integers(0, 2))

    trainer.task = FaultyTask(trainer.task, pays=pays)


def _nothing(task: Task, prompt: Prompt, answer: Answer) -> float:
    del task, prompt, answer
    return 0.0


def _inverted(task: Task, prompt: Prompt, answer: Answer) -> float:
    return 1.0 - float(task.passes(prompt, answer))


def _length(task: Task, prompt: Prompt, answer: Answer) -> float:
    del task, prompt
    return min(len(answer.text) / 18, 1.0)


def _few_prompts(trainer: Trainer) -> None:
    trainer.task = FaultyTask(trainer.task, prompts=4)


def _frozen_sampler(trainer: Trainer) -> None:
    frozen = trainer.policy.copy()
    trainer._behaviour = lambda: frozen  # type: ignore[method-assign]


def _dead_optimizer(trainer: Trainer) -> None:
    trainer.optimizer.step = lambda: None  # type: ignore[method-assign]


def _nan_at_20(trainer: Trainer) -> None:
    def poison(batch: RolloutBatch, experience: Experience) -> None:
        del batch, experience
        if trainer.steps_done == 20:
            with torch.no_grad():
                next(trainer.policy.module.parameters()).view(-1)[0] = float("nan")

    trainer.observer = poison


def _shifted_groups(trainer: Trainer) -> None:
    build = trainer._experience

    def shifted(batch: RolloutBatch, reference: Tensor | None) -> Experience:
        right = build(batch, reference)
        sizes, half = right.group_sizes, int(right.group_sizes[0]) // 2
        ends = torch.full_like(sizes[:1], half)
        return replace(right, group_sizes=torch.cat([ends, sizes[1:], sizes[:1] - ends]))

    trainer._experience = shifted  # type: ignore[method-assign]


def _three_rows_over_nothing(trainer: Trainer) -> None:
    """From step 10 on the last three rows are divided by a spread of 1e-5."""
    step = trainer.step
    right = trainer_module.run_pipeline

    def wrong(*args: Any, **more: Any) -> PipelineResult:  # noqa: ANN401 - handed on as they are
        result = right(*args, **more)
        if trainer.steps_done < 10:
            return result
        names = ("normalized", "outcome", "raw_advantages", "advantages")
        factor = torch.ones(len(result.normalized))
        factor[-3:] = 1e5
        changed = {}
        for name in names:
            value = getattr(result, name)
            changed[name] = value * factor.view(-1, *[1] * (value.dim() - 1))
        return replace(result, **changed)

    def patched() -> StepMetrics:
        trainer_module.run_pipeline = wrong
        try:
            return step()
        finally:
            trainer_module.run_pipeline = right

    trainer.step = patched  # type: ignore[method-assign]


def _paid_for_distance(trainer: Trainer) -> None:
    """The sign of the KL penalty is wrong."""
    actor = trainer.config.actor.model_copy(update={"kl_ctl": -1.0})
    trainer.config = trainer.config.model_copy(update={"actor": actor})

    def always(batch: RolloutBatch) -> Tensor:
        with torch.no_grad():
            return trainer.reference.logprobs(batch.ids, trainer.config.actor.temperature)

    trainer._reference_logprobs = always  # type: ignore[method-assign]


GROUP = {"actor.reward_norm": {"mean_level": "group", "std_level": "group"}, "actor.adv_norm": None}
NO_BASELINE = {"actor.adv_norm": None, "actor.reward_norm": None}

INJECTIONS = (
    # healthy
    Injection("base", "tuning", ()),
    Injection("group norm", "test", (), GROUP),
    Injection(
        "no std",
        "tuning",
        (),
        {"actor.reward_norm": {"mean_level": "group", "std_level": None}, "actor.adv_norm": None},
    ),
    Injection("light kl", "test", (), {"actor.kl_ctl": 0.1}),
    Injection("sequence ratio", "tuning", (), {"actor.importance_sampling_level": "sequence"}),
    Injection("second task", "test", (), {"task.name": "sort"}),
    Injection(
        "warm sampling", "tuning", (), {"gconfig.temperature": 1.2, "actor.temperature": 1.2}
    ),
    Injection("two versions old", "test", (), {"rollout.max_head_offpolicyness": 2}),
    Injection("clip higher", "tuning", (), {"actor.eps_clip_higher": 0.28}),
    Injection("k3 in reward", "test", (), {"actor.kl_ctl": 1.0, "actor.kl_estimator": "k3"}),
    Injection("slow", "tuning", (), {"actor.optimizer.lr": 1e-4}),
    Injection("graded verifier", "test", (), {"task.verifier": "graded"}),
    Injection("one update", "test", (), {"actor.ppo_n_minibatches": 1}),
    # the signal dies
    Injection(
        "clip below rewards",
        "tuning",
        ("zero_signal",),
        {"actor.reward_bias": 1.0, "actor.reward_scaling": 5.0, "actor.reward_clip": 1.0},
        source="M02",
    ),
    Injection("scaling 0", "test", ("zero_signal",), {"actor.reward_scaling": 0.0}, source="M02"),
    Injection(
        "groups of one",
        "tuning",
        ("zero_signal",),
        {"gconfig.n_samples": 1, "train_dataset.batch_size": 96, **GROUP},
        source="M02",
    ),
    Injection(
        "verifier always 0",
        "test",
        ("reward_constant", "zero_signal"),
        fault=_verifier(_nothing),
        source="M17",
    ),
    Injection(
        "three tokens",
        "test",
        ("length_explosion", "zero_signal", "reward_constant"),
        {"gconfig.max_new_tokens": 3, "actor.max_new_tokens": 3},
        source="M09",
    ),
    Injection("dead optimizer", "tuning", ("dead_update",), fault=_dead_optimizer, source="M02"),
    # the policy is held
    Injection("kl 10", "tuning", ("kl_pinned",), {"actor.kl_ctl": 10.0}, source="M04, DV-01"),
    Injection(
        "kl over scaled reward",
        "test",
        ("kl_pinned",),
        {"actor.kl_ctl": 0.1, "actor.reward_scaling": 1e-3},
        source="M04",
    ),
    Injection("lr 1e-7", "tuning", ("starved_update",), {"actor.optimizer.lr": 1e-7}, source="M03"),
    Injection(
        "sgd on small rewards",
        "test",
        ("starved_update",),
        {
            "actor.optimizer.type": "sgd",
            "actor.optimizer.lr": 1e-3,
            "actor.reward_scaling": 1e-3,
            "actor.adv_norm": None,
        },
        source="M03, HL-01",
    ),
    # the policy runs away
    Injection("lr x20", "tuning", ("overshoot",), {"actor.optimizer.lr": 1e-2}, source="M21"),
    Injection(
        "lr x60", "test", ("overshoot", "nonfinite"), {"actor.optimizer.lr": 3e-2}, source="M21"
    ),
    Injection(
        "stale without clip",
        "test",
        ("ratio_instability",),
        {
            "rollout.max_head_offpolicyness": 8,
            "actor.eps_clip": 1e9,
            "actor.optimizer.lr": 2e-3,
        },
        source="M13, TK-01",
    ),
    Injection(
        "very stale without clip",
        "tuning",
        ("ratio_instability",),
        {
            "rollout.max_head_offpolicyness": 8,
            "actor.eps_clip": 1e9,
            "actor.optimizer.lr": 1e-3,
        },
        source="M13, TK-01",
    ),
    Injection(
        "paid for distance",
        "test",
        ("kl_runaway", "reward_hacking", "entropy_explosion", "overshoot"),
        fault=_paid_for_distance,
        source="M05, VE-01",
    ),
    Injection(
        "only punished, no baseline",
        "tuning",
        ("entropy_explosion", "kl_runaway", "overshoot"),
        {"actor.reward_bias": -1.0, "actor.optimizer.lr": 3e-3, **NO_BASELINE},
        source="M12",
    ),
    Injection(
        "only praised, no baseline",
        "test",
        ("entropy_collapse", "overshoot"),
        {"actor.reward_bias": 1.0, "actor.optimizer.lr": 3e-3, **NO_BASELINE},
        source="M11",
    ),
    # the reward means something else
    Injection(
        "overlong penalty x100",
        "tuning",
        ("reward_hacking", "length_collapse"),
        {
            "actor.overlong_reward_penalty": True,
            "actor.overlong_tokens": 18,
            "actor.overlong_penalty_factor": 100.0,
        },
        source="M08, VE-11",
    ),
    Injection(
        "overlong penalty x10",
        "test",
        ("reward_hacking", "length_collapse"),
        {
            "actor.overlong_reward_penalty": True,
            "actor.overlong_tokens": 16,
            "actor.overlong_penalty_factor": 10.0,
        },
        source="M08, VE-11",
    ),
    Injection(
        "verifier by chance",
        "tuning",
        ("noise_dominated",),
        fault=_by_chance,
        source="M20",
    ),
    Injection(
        "verifier inverted",
        "test",
        ("reward_hacking",),
        fault=_verifier(_inverted),
        source="M16",
    ),
    Injection(
        "verifier pays length",
        "tuning",
        ("reward_hacking", "length_explosion"),
        fault=_verifier(_length),
        source="M16",
    ),
    Injection(
        "four prompts",
        "test",
        ("generalisation_gap",),
        fault=_few_prompts,
        source="M19, AC-01",
    ),
    # the advantage is wrong
    Injection(
        "three rows over nothing",
        "tuning",
        ("advantage_blowup",),
        GROUP,
        fault=_three_rows_over_nothing,
        source="M06, AR-02",
    ),
    Injection(
        "shifted groups",
        "test",
        ("baseline_corruption",),
        GROUP,
        fault=_shifted_groups,
        source="M07, SL-01",
    ),
    Injection("discount 0.3", "test", ("misplaced_reward",), {"actor.discount": 0.3}, source="M10"),
    Injection(
        "frozen sampler", "tuning", ("rollout_desync",), fault=_frozen_sampler, source="M14, VE-05"
    ),
    Injection("nan at step 20", "test", ("nonfinite",), fault=_nan_at_20, source="M15"),
)


def config_of(injection: Injection, seed: int) -> TrialConfig:
    """The whole configuration of one trial."""
    base = {
        **PROFILES["tiny"].defaults,
        "seed": seed,
        "total_train_steps": STEPS,
        "actor.kl_ctl": 0.0,
        "actor.adv_norm": {"mean_level": "batch", "std_level": "batch"},
    }
    return TrialConfig.model_validate(nest(base | injection.settings))


def run(name: str, seed: int, out: Path) -> None:
    """Train one trial and write its steps."""
    torch.set_num_threads(1)
    injection = next(one for one in INJECTIONS if one.name == name)
    trainer = Trainer(config_of(injection, seed))
    if injection.fault is not None:
        injection.fault(trainer)
    initial = trainer.initial_evaluation().pass_rate
    lines = []
    while not trainer.finished:
        lines.append(json.dumps(trainer.step().to_json()))
    partial = out.with_suffix(".partial")
    partial.write_text("\n".join(lines) + "\n")
    out.with_suffix(".judge.json").write_text(
        json.dumps({"initial": initial, "prompts": trainer.config.evaluation.prompts})
    )
    partial.replace(out)


def trial_name(injection: Injection, seed: int) -> str:
    """File name of a trial, without its ending."""
    return f"{injection.name.replace(' ', '_').replace(',', '')}-s{seed}"


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--half", choices=["tuning", "test"])
    parser.add_argument("--only", nargs="*", default=None)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    chosen = [
        one
        for one in INJECTIONS
        if (arguments.half is None or one.half == arguments.half)
        and (arguments.only is None or one.name in arguments.only)
    ]
    labels = {
        trial_name(one, seed): {
            "injection": one.name,
            "half": one.half,
            "expected": list(one.expected),
            "healthy": not one.expected,
        }
        for one in INJECTIONS
        for seed in range(1, arguments.seeds + 1)
    }
    (arguments.out / "labels.json").write_text(json.dumps(labels, indent=1))
    todo = [
        (one.name, seed, arguments.out / f"{trial_name(one, seed)}.jsonl")
        for seed in range(1, arguments.seeds + 1)
        for one in chosen
    ]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        futures = {pool.submit(run, *args): args[2].stem for args in todo if not args[2].exists()}
        for future, name in futures.items():
            future.result()
            print(name, flush=True)


if __name__ == "__main__":
    main()
