"""Per-token estimates of the KL divergence between two policies, from the sampled tokens alone."""

from typing import Literal, assert_never

import torch
from jaxtyping import Float
from torch import Tensor

KlEstimator = Literal["k1", "k2", "k3"]

KL_CLAMP = 10.0
"""AReaL's limit on a token's estimate, in nats: one wild token cannot outweigh an answer."""


def kl_estimate(
    logprobs: Float[Tensor, "*B"],
    reference: Float[Tensor, "*B"],
    estimator: KlEstimator,
    *,
    clamp: float | None = KL_CLAMP,
) -> Float[Tensor, "*B"]:
    """Estimate KL(policy || reference) at each sampled token, in nats.

        d = logprobs - reference;  k1 = d;  k2 = d^2 / 2;  k3 = exp(-d) - 1 + d

    Source: J. Schulman, "Approximating KL divergence", 2020; the clamp is AReaL's.

    Args:
        logprobs: Log-probabilities under the policy that sampled the tokens.
        reference: Log-probabilities under the reference policy.
        estimator: Which estimate.
        clamp: Limit results to [-clamp, clamp]; None for no limit.

    Returns:
        One estimate per token.
    """
    gap = logprobs - reference
    match estimator:
        case "k1":
            estimate = gap
        case "k2":
            estimate = gap**2 / 2
        case "k3":
            estimate = torch.expm1(-gap) + gap
        case _:
            assert_never(estimator)
    return estimate if clamp is None else estimate.clamp(-clamp, clamp)
