"""Cases computed by hand, written in the golden format: `python tests/golden/write_hand.py DIR`.

Every expected number is a formula of the case's own inputs, worked out on paper beside it.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ROOT_HALF = math.sqrt(0.5)


@dataclass(frozen=True, slots=True)
class HandCase:
    """One case: settings, inputs, and the outputs that were worked out."""

    id: str
    kind: str
    config: Mapping[str, Any]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    note: str


def floats(*values: object) -> Array:
    """One array of float32; a single nested list is the array itself."""
    return np.array(values[0] if len(values) == 1 else values, dtype=np.float32)


def integers(*values: object) -> Array:
    """One array of int64."""
    return np.array(values[0] if len(values) == 1 else values, dtype=np.int64)


def flags(*values: object) -> Array:
    """One array of bool, from ones and zeros."""
    return np.array(values, dtype=bool)


def norm(mean: str | None, std: str | None, **more: object) -> dict[str, Any]:
    """Settings of a normalization."""
    base = {"mean_level": mean, "std_level": std, "mean_leave1out": False, "std_unbiased": True}
    return {"norm": base | {"eps": 0.0, "group_size": 2} | more}


NORMALIZATION = (
    HandCase(
        "hand-norm-grpo",
        "normalization",
        norm("group", "group", eps=0.5),
        {"x": floats(1.0, 0.0, 5.0, 5.0), "group_sizes": integers(2, 2)},
        {"normalized": floats(1.0, -1.0, 0.0, 0.0) / np.float32(2 * ROOT_HALF + 1)},
        "group (1, 0): +-1/2 over unbiased spread sqrt(1/2) plus 1/2; group (5, 5): no deviation",
    ),
    HandCase(
        "hand-norm-rloo",
        "normalization",
        norm("group", None, mean_leave1out=True),
        {"x": floats(1.0, 0.0, 0.0, 3.0), "group_sizes": integers([4])},
        {"normalized": floats(0.0, -4 / 3, -4 / 3, 8 / 3)},
        "means of the others: 1, 4/3, 4/3, 1/3",
    ),
    HandCase(
        "hand-norm-tokens",
        "normalization",
        norm("batch", "batch", std_unbiased=False, eps=1.0),
        {"x": floats([[1.0, 3.0], [9.0, 5.0]]), "mask": floats([[1.0, 1.0], [0.0, 1.0]])},
        {"normalized": floats([[-2.0, 0.0], [0.0, 2.0]]) / np.float32(1 + math.sqrt(8 / 3))},
        "active 1, 3, 5: mean 3, spread sqrt(8/3), plus eps 1",
    ),
    HandCase(
        "hand-norm-remainder",
        "normalization",
        norm("group", "group", eps=0.5),
        {"x": floats(1.0, 0.0, 2.0)},
        {"normalized": floats(0.5 / (ROOT_HALF + 0.5), -0.5 / (ROOT_HALF + 0.5), 4.0)},
        "the third row has no group: mean 0, spread 0, so 2 / eps",
    ),
)

SHAPING = (
    HandCase(
        "hand-kl-k3",
        "kl_estimator",
        {"kl_estimator": "k3", "clamp": True},
        {"logp": floats([[0.0, -4.0]]), "logp_base": floats([[-1.0, 0.0]])},
        {"kl": floats([[math.exp(-1.0), 10.0]])},
        "d = 1: exp(-1) - 1 + 1; d = -4: exp(4) - 1 - 4 = 49.6, clamped",
    ),
    HandCase(
        "hand-overlong",
        "overlong_penalty",
        {"overlong_tokens": 2, "overlong_penalty_factor": 3.0, "max_new_tokens": 3},
        {
            "rewards": floats(1.0, 1.0, 1.0),
            "loss_mask": integers([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]),
        },
        {"rewards_out": floats(1.0, -0.5, -3.5)},
        "lengths 1, 2, 4 exceed 1 by 0, 1, 3 of a tail of 2: penalties 0, 3/2, 9/2",
    ),
    HandCase(
        "hand-shaping",
        "reward_shaping",
        {"actor": {"reward_bias": -0.5, "reward_scaling": 10.0, "reward_clip": 4.0}},
        {"rewards": floats(1.0, 0.25)},
        {"shaped_rewards": floats(4.0, -2.5)},
        "(1 - 1/2) * 10 = 5, clipped; (1/4 - 1/2) * 10",
    ),
)

ADVANTAGES = (
    HandCase(
        "hand-gae",
        "gae_token",
        {"discount": 0.5, "gae_lambda": 0.5, "gae_timestep_unit": "token"},
        {
            "rewards": floats([[0.0, 100.0, 1.0, 0.0]]),
            "values": floats([[0.5, 8.0, 0.25, 2.0]]),
            "mask": floats([[1.0, 0.0, 1.0, 0.0]]),
            "no_eos": flags(1),
        },
        {
            "advantages": floats([[1 / 16, 7 / 4, 7 / 4, 0.0]]),
            "returns": floats([[9 / 16, 39 / 4, 2.0, 2.0]]),
        },
        "last: 1 + 2/2 - 1/4 = 7/4; the masked one carries it; first: 1/8 - 1/2 + 7/16",
    ),
    HandCase(
        "hand-gae-turns",
        "gae_turn",
        {"discount": 0.5, "gae_lambda": 1.0, "gae_timestep_unit": "turn"},
        {
            "rewards": floats([[1.0, 1.0, 9.0, 4.0]]),
            "values": floats([[3.0, 8.0, 8.0, 5.0]]),
            "mask": floats([[1.0, 1.0, 0.0, 1.0]]),
            "turn_ids": np.array([[0, 0, -1, 1]], dtype=np.int32),
            "no_eos": flags(0),
        },
        {"advantages": floats([[1.0, 1.0, 0.0, -1.0]]), "returns": floats([[4.0, 4.0, 8.0, 4.0]])},
        "turn 1: 4 - 5; turn 0: 2 + 5/2 - 3 - 1/2",
    ),
)

LOG_2 = math.log(2)
PPO_INPUTS = {
    "logprobs": floats([[-1.0 + LOG_2, -1.0 - LOG_2, -1.0 + LOG_2, 7.0]]),
    "prox_logp": floats([[-1.0, -1.0, -1.0, 0.0]]),
    "advantages": floats([[1.0, 1.0, -1.0, 5.0]]),
    "mask": flags([1, 1, 1, 0]),
}

LOSSES = (
    HandCase(
        "hand-ppo",
        "policy_loss",
        {"surrogate": "ppo", "eps_clip": 0.2, "c_clip": 1.5, "rejection_sampling": None},
        {**PPO_INPUTS, "old_logp": PPO_INPUTS["prox_logp"]},
        {
            "loss": floats(-1.2 / 3 - 0.5 / 3 + 1.5 / 3).reshape(()),
            "grad_logprobs": floats([[0.0, -0.5 / 3, 0.0, 0.0]]),
            "clip_mask": flags([1, 0, 0, 0]),
            "dual_clip_mask": flags([0, 0, 1, 0]),
            "n_valid_tokens": np.array(3.0),
        },
        "ratios 2, 1/2, 2: clipped at 1.2; 1/2 kept; loss 2 of the bad token capped at 1.5",
    ),
    HandCase(
        "hand-ppo-filtered",
        "policy_loss",
        {
            "surrogate": "ppo",
            "eps_clip": 4.0,
            "rejection_sampling": {"metric": "ratio", "upper": 3.0},
        },
        {**PPO_INPUTS, "old_logp": floats([[-1.0 - LOG_2, -1.0 - 2 * LOG_2, -1.0, 0.0]])},
        {
            "loss": floats(-4 / 3 + 2 / 3).reshape(()),
            "grad_logprobs": floats([[-4 / 3, 0.0, 2 / 3, 0.0]]),
            "behave_mask": flags([1, 0, 1, 0]),
            "behave_weight": floats([[2.0, 0.0, 1.0, 0.0]]),
            "filtered_fraction": np.array(1 / 3),
        },
        "weights 2, 4, 1: the second exceeds 3 and goes, the denominator stays 3",
    ),
    HandCase(
        "hand-sapo",
        "policy_loss",
        {"surrogate": "sapo", "sapo_tau_pos": 2.0, "sapo_tau_neg": 4.0},
        {
            "logprobs": floats([[-1.0, -1.0]]),
            "old_logp": floats([[-1.0, -1.0]]),
            "advantages": floats([[3.0, -3.0]]),
            "mask": flags([1, 1]),
        },
        {
            "loss": floats(-0.75).reshape(()),
            "grad_logprobs": floats([[-1.5, 1.5]]),
            "gate": floats([[1.0, 0.5]]),
        },
        "at ratio 1 the gate is (4 / tau) / 2 and its slope 1",
    ),
    HandCase(
        "hand-cispo",
        "policy_loss",
        {
            "surrogate": "cispo",
            "eps_clip": 1.0,
            "eps_clip_higher": 0.5,
            "rejection_sampling": None,
        },
        {
            "logprobs": floats([[-1.0, -3.0]]),
            "prox_logp": floats([[-1.0 - LOG_2, -3.0]]),
            "old_logp": floats([[-1.0 - LOG_2, -3.0]]),
            "advantages": floats([[2.0, 1.0]]),
            "mask": flags([1, 1]),
        },
        {"loss": floats(3.0).reshape(()), "grad_logprobs": floats([[-1.5, -0.5]])},
        "weights min(2, 1.5) and 1: (1.5 * 2 * 1 + 3) / 2",
    ),
    HandCase(
        "hand-value",
        "value_loss",
        {"loss_fn_type": "mse", "eps_clip": 0.5},
        {
            "value": floats([[2.0, 1.25]]),
            "old_value": floats([[1.0, 1.0]]),
            "target_value": floats([[3.0, 3.0]]),
            "mask": flags([1, 1]),
        },
        {
            "loss": floats((1.125 + 1.53125) / 2).reshape(()),
            "grad_value": floats([[0.0, -0.875]]),
            "clip_mask": flags([1, 0]),
        },
        "2 is clipped to 1.5: 1.5^2 / 2; 1.25 is inside: 1.75^2 / 2",
    ),
)

TRL_OPTIONS = {
    "loss_type": "grpo",
    "beta": 0.0,
    "scale_rewards": "none",
    "importance_sampling_level": "token",
    "epsilon": 0.2,
    "epsilon_high": None,
    "delta": None,
    "num_generations": 2,
    "mask_truncated_completions": False,
    "multi_objective_aggregation": "sum_then_normalize",
    "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05,
    "use_bias_correction_kl": True,
    "vllm_importance_sampling_correction": False,
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "vllm_importance_sampling_clip_min": None,
    "off_policy_mask_threshold": None,
    "max_completion_length": 4,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": 1,
    "vespo_k_pos": 2.0,
    "vespo_lambda_pos": 3.0,
    "vespo_k_neg": 3.0,
    "vespo_lambda_neg": 2.0,
    "reward_weights": None,
}
TRL_INPUTS = {
    "prompt_lengths": integers(1, 1),
    "completion_lengths": integers(1, 2),
    "ends_with_eos": flags(1, 1),
    "rewards_per_func": floats([[1.0], [0.0]]),
    "logps": floats([[-1.0, -9.0], [-1.0, -1.0]]),
}

WHOLE = (
    HandCase(
        "hand-e2e",
        "end_to_end",
        {
            "actor": {
                "kl_ctl": 0.0,
                "reward_norm": {
                    "mean_level": "group",
                    "std_level": "group",
                    "std_unbiased": False,
                    "eps": 0.0,
                },
            }
        },
        {
            "input_ids": integers([[5, 6, 7], [5, 6, 0]]),
            "attention_mask": integers([[1, 1, 1], [1, 1, 0]]),
            "loss_mask": integers([[0, 1, 1], [0, 1, 0]]),
            "logprobs": floats([[9.0, -1.0, -1.0], [9.0, -1.0, 9.0]]),
            "rewards": floats(3.0, 1.0),
            "group_sizes": integers([2]),
            "new_logprobs": floats([[-1.0, -1.0, 9.0], [-1.0, 9.0, 9.0]]),
            "ends_with_eos": flags(1, 1),
        },
        {
            "normalized_rewards": floats(1.0, -1.0),
            "tot_rewards": floats([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]),
            "advantages": floats([[1.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]),
            "old_logp": floats([[-1.0, -1.0, 0.0], [-1.0, 0.0, 0.0]]),
            "loss": floats(-1 / 3).reshape(()),
            "grad_logprobs": floats([[-1 / 3, -1 / 3, 0.0], [1 / 3, 0.0, 0.0]]),
        },
        "fresh data: -A / 3 per token",
    ),
    HandCase(
        "hand-trl-grpo",
        "trl_grpo",
        TRL_OPTIONS,
        TRL_INPUTS,
        {
            "advantages": floats(0.5, -0.5),
            "loss": floats(0.0).reshape(()),
            "grad_logps": floats([[-0.25, 0.0], [0.125, 0.125]]),
        },
        "per answer and then over answers: -1/2 / 2 and 1/2 / (2 * 2)",
    ),
    HandCase(
        "hand-trl-dr-grpo",
        "trl_grpo",
        TRL_OPTIONS | {"loss_type": "dr_grpo"},
        TRL_INPUTS,
        {
            "advantages": floats(0.5, -0.5),
            "loss": floats(0.5 / 8).reshape(()),
            "grad_logps": floats([[-0.0625, 0.0], [0.0625, 0.0625]]),
        },
        "over 2 answers times 4 tokens: -1/2 / 8 and 1/2 / 8 each",
    ),
)

CASES = NORMALIZATION + SHAPING + ADVANTAGES + LOSSES + WHOLE


def write(folder: Path, cases: Sequence[HandCase] = CASES) -> None:
    """Write index and arrays."""
    arrays: dict[str, Array] = {}

    def described(case: HandCase, role: str, named: Mapping[str, Array]) -> dict[str, Any]:
        entries = {}
        for name, array in named.items():
            key = f"{case.id}.{role}.{name}"
            arrays[key] = array
            entries[name] = {"key": key, "shape": list(array.shape), "dtype": str(array.dtype)}
        return entries

    index = {
        "schema": "golden-1",
        "section": "hand_computed",
        "archive": "hand.npz",
        "cases": [
            {
                "id": case.id,
                "kind": case.kind,
                "config": case.config,
                "inputs": described(case, "in", case.inputs),
                "outputs": described(case, "out", case.outputs),
                "note": case.note,
            }
            for case in cases
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(index, indent=1) + "\n"
    (folder / "hand.json").write_text(text, encoding="utf-8")
    np.savez(folder / "hand.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
