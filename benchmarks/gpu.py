"""A real model on a GPU: tokens per second, trials per hour, beside TRL's GRPOTrainer.

Run by hand or by `make bench-gpu`: python benchmarks/gpu.py --model MODEL [--steps N]
Both trainers get the same model, prompts, group size, answer length and number of updates, in a
process of their own. The row of TRL is left out where it is not installed; it is no dependency.
"""

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from grpo_core.config import TrialConfig
from grpo_core.memory import estimate_memory
from grpo_core.models import find_model, measure_shape
from grpo_core.policy.gguf import converted
from grpo_core.tasks import load_task
from grpo_core.trainer import Trainer

TASK = {
    "name": "reasoning_gym:chain_sum",
    "options": ["min_terms=2", "max_terms=2", "min_digits=1", "max_digits=1"],
    "template": "{expression} =",
    "examples": 3,
}
WARM_UP = 2
"""Steps before the clock starts."""


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--only", choices=["ours", "trl"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU here: nothing was measured (--device cpu measures the CPU)")
    if args.only is not None:
        print(json.dumps({"ours": _ours, "trl": _trl}[args.only](args)))
        return
    rows = {"ours": _in_process("ours")}
    if importlib.util.find_spec("trl") is not None:
        rows["TRL GRPOTrainer"] = _in_process("trl")
    _print_table(args, rows)


def _in_process(which: str) -> dict[str, Any]:
    """One trainer in a fresh process, so that neither inherits the other's memory."""
    command = [sys.executable, __file__, *sys.argv[1:], "--only", which]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def _config(args: argparse.Namespace) -> TrialConfig:
    return TrialConfig.model_validate(
        {
            "policy": f"hf:{args.model}",
            "total_train_steps": args.steps + WARM_UP,
            "task": TASK,
            "train_dataset": {"batch_size": args.prompts},
            # Every answer has the full length, so that both trainers generate the same amount.
            "gconfig": {
                "n_samples": args.samples,
                "max_new_tokens": args.tokens,
                "min_new_tokens": args.tokens,
            },
            "evaluation": {"prompts": 8, "every": 0},
            "actor": {
                "kl_ctl": 0.0,
                "dtype": args.dtype,
                "use_lora": args.lora,
                "ppo_n_minibatches": 1,
                "reward_norm": {"mean_level": "group", "std_level": "group"},
                "optimizer": {"lr": 1e-6},
            },
        }
    )


def _ours(args: argparse.Namespace) -> dict[str, Any]:
    begun = time.monotonic()
    config = _config(args)
    trainer = Trainer(config, device=args.device)
    started = time.monotonic() - begun
    seconds, utilisation = [], []
    for step in range(args.steps + WARM_UP):
        begun = time.monotonic()
        trainer.step()
        _wait(args.device)
        if step >= WARM_UP:
            seconds.append(time.monotonic() - begun)
            utilisation.append(_utilisation())
    return _row(args, started, seconds, utilisation)


def _trl(args: argparse.Namespace) -> dict[str, Any]:
    from datasets import Dataset  # noqa: PLC0415 - optional
    from transformers import TrainerCallback  # noqa: PLC0415 - optional
    from trl import GRPOConfig, GRPOTrainer  # noqa: PLC0415 - optional

    begun = time.monotonic()
    config = _config(args)
    task = load_task(config.task.name, config.task)
    prompts = task.training_prompts(np.random.default_rng(0), args.prompts)
    count = args.prompts * (args.steps + WARM_UP)
    texts = [{"prompt": prompts[i % len(prompts)].text} for i in range(count)]
    times: list[float] = []
    utilisation: list[float | None] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Notes when a step ends."""

        def on_step_end(self, *_args: object, **_kwargs: object) -> None:
            _wait(args.device)
            times.append(time.monotonic())
            utilisation.append(_utilisation())

    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        max_steps=args.steps + WARM_UP,
        per_device_train_batch_size=args.prompts * args.samples,
        num_generations=args.samples,
        max_completion_length=args.tokens,
        generation_kwargs={"min_new_tokens": args.tokens},
        learning_rate=1e-6,
        beta=0.0,
        bf16=args.dtype == "bfloat16",
        use_cpu=args.device == "cpu",
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=str(_folder(args.model)),
        reward_funcs=lambda completions, **_: [float(len(c) % 2) for c in completions],
        args=settings,
        train_dataset=Dataset.from_list(texts),
        callbacks=[Clock()],
    )
    started = time.monotonic() - begun
    trainer.train()
    seconds = [after - before for before, after in pairwise(times)]
    return _row(args, started, seconds[WARM_UP - 1 :], utilisation[WARM_UP:])


def _folder(model: str) -> Path:
    files = find_model(model)
    return files.folder if files.gguf is None else converted(files.folder / files.gguf)


def _row(
    args: argparse.Namespace,
    started: float,
    seconds: list[float],
    utilisation: list[float | None],
) -> dict[str, Any]:
    known = [value for value in utilisation if value is not None]
    peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else None
    return {
        "start": started,
        "step": float(np.median(seconds)),
        "utilisation": float(np.mean(known)) if known else None,
        "peak": peak,
    }


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _utilisation() -> float | None:
    """How busy the GPU was in the last moments, percent; None where nobody can say."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[0]) if done.returncode == 0 and done.stdout.split() else None


def _print_table(args: argparse.Namespace, rows: dict[str, dict[str, Any]]) -> None:
    answers = args.prompts * args.samples
    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"{args.model} on {where}, {args.dtype}, {'LoRA' if args.lora else 'full'}: ", end="")
    print(f"{args.prompts} prompts x {args.samples} answers x {args.tokens} tokens")
    heads = ("start s", "s/step", "tokens/s", "trials/h of 40", "GPU %", "peak GB")
    print(f"{'trainer':18}" + "".join(f"{head:>16}" for head in heads))
    for name, row in rows.items():
        busy = "-" if row["utilisation"] is None else f"{row['utilisation']:.0f}"
        peak = "-" if row["peak"] is None else f"{row['peak'] / 1e9:.1f}"
        cells = (
            f"{row['start']:.1f}",
            f"{row['step']:.3f}",
            f"{answers * args.tokens / row['step']:.0f}",
            f"{3600 / (row['start'] + 40 * row['step']):.1f}",
            busy,
            peak,
        )
        print(f"{name:18}" + "".join(f"{cell:>16}" for cell in cells))
    shape = measure_shape(_folder(args.model))
    estimate = estimate_memory(shape, _config(args), prompt_tokens=32)
    print(f"memory estimated for ours: {estimate.render()}")


if __name__ == "__main__":
    main()
