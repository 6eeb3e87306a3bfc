"""What an adapter from golden cases to the public functions is."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from grpo_core.losses import PolicyLoss
from tests.golden.store import Case

Adapter = Callable[[Case], Mapping[str, Tensor]]


class UnsupportedCaseError(Exception):
    """A case that asks for something we do not have."""


def loss_outputs(result: PolicyLoss) -> dict[str, Tensor]:
    """Name the quantities of a policy loss as the golden cases do."""
    outputs = {
        "token_loss": result.token_loss,
        "ratio": result.ratio,
        "log_ratio": result.log_ratio,
        "clip_mask": result.clip_mask,
        "dual_clip_mask": result.dual_clip_mask,
    }
    if result.staleness is not None:
        outputs |= {
            "behave_log_ratio": result.staleness.log_ratio,
            "behave_weight": result.staleness.weight,
            "behave_mask": result.staleness.mask,
        }
    if result.gates is not None:
        outputs |= {
            "gate": result.gates.gate,
            "gate_pos": result.gates.positive,
            "gate_neg": result.gates.negative,
        }
    return outputs


def token_counts(entering_mask: Tensor) -> dict[str, Tensor]:
    """Count the positions that the denominator sees."""
    total, valid = torch.tensor(entering_mask.numel()), entering_mask.sum()
    return {
        "n_total_tokens": total,
        "n_valid_tokens": valid,
        "n_masked_tokens": total - valid,
        "masked_token_ratio": (total - valid) / total,
    }
