import math

import pytest
import torch

from grpo_core.kl import KlEstimator, kl_estimate


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        pytest.param("k1", 0.5, id="k1"),
        pytest.param("k2", 0.125, id="k2"),
        pytest.param("k3", math.exp(-0.5) - 1 + 0.5, id="k3"),
    ],
)
def test_estimate_of_a_gap_of_one_half(estimator: KlEstimator, expected: float) -> None:
    kl = kl_estimate(torch.tensor([-1.0]), torch.tensor([-1.5]), estimator)
    torch.testing.assert_close(kl, torch.tensor([expected]))


def test_k1_alone_can_be_negative() -> None:
    policy, reference = torch.tensor([-2.0]), torch.tensor([-1.0])
    assert kl_estimate(policy, reference, "k1").item() == -1.0
    assert kl_estimate(policy, reference, "k2").item() == 0.5
    # The third is e to the 1, less 1, less 1.
    assert kl_estimate(policy, reference, "k3").item() == pytest.approx(math.e - 2)


@pytest.mark.parametrize(("clamp", "expected"), [(10.0, -10.0), (None, -12.0), (3.0, -3.0)])
def test_clamp_limits_a_wild_token(clamp: float | None, expected: float) -> None:
    kl = kl_estimate(torch.tensor([-13.0]), torch.tensor([-1.0]), "k1", clamp=clamp)
    assert kl.item() == expected
