import math

import pytest
import torch

from grpo_core.update import GradientNoise


def noise_of(*gradients: list[float]) -> GradientNoise:
    noise = GradientNoise()
    for numbers in gradients:
        gradient = torch.tensor(numbers)
        noise.add(gradient, gradient.norm().item())
    return noise


@pytest.mark.parametrize(
    ("gradients", "expected"),
    [
        # Mean (2, 0); m = (9 + 1) / 2 = 5; (2 * 4 - 5) / (2 * (5 - 4)).
        pytest.param([[3.0, 0.0], [1.0, 0.0]], 1.5, id="two-that-agree"),
        # Mean 0; m = 1; (0 - 1) / (2 * 1) = -1 / K.
        pytest.param([[1.0, 0.0], [-1.0, 0.0]], -0.5, id="two-that-cancel"),
        # Mean (0.5, 0.5); m = 1; (2 * 0.5 - 1) / (2 * 0.5).
        pytest.param([[1.0, 0.0], [0.0, 1.0]], 0.0, id="two-at-right-angles"),
        # Mean (4/3, 4/3); m = 16/3; (3 * 32/9 - 16/3) / (3 * (16/3 - 32/9)) = (16/3) / (16/3).
        pytest.param([[2.0, 0.0], [0.0, 2.0], [2.0, 2.0]], 1.0, id="three"),
        # Mean (1, 0, 0); m = 2; (4 * 1 - 2) / (4 * (2 - 1)).
        pytest.param(
            [[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, -1.0]], 0.5, id="four"
        ),
    ],
)
def test_signal_to_noise_by_hand(gradients: list[list[float]], expected: float) -> None:
    assert noise_of(*gradients).snr == pytest.approx(expected, abs=1e-6)


def test_the_scale_of_the_gradients_does_not_matter() -> None:
    small = noise_of([3e-6, 0.0], [1e-6, 0.0]).snr
    assert small == pytest.approx(1.5, abs=1e-5)


@pytest.mark.parametrize(
    "gradients",
    [
        pytest.param([], id="none"),
        pytest.param([[1.0, 2.0]], id="one"),
        pytest.param([[0.1, 0.7], [0.1, 0.7], [0.1, 0.7]], id="equal"),
        pytest.param([[0.0, 0.0], [0.0, 0.0]], id="all-zero"),
    ],
)
def test_without_a_spread_there_is_no_ratio(gradients: list[list[float]]) -> None:
    assert noise_of(*gradients).snr is None


def test_the_gradients_stay_as_they_were() -> None:
    gradients = [torch.tensor([float(i), 1.0]) for i in range(3)]
    noise = GradientNoise()
    for gradient in gradients:
        noise.add(gradient, gradient.norm().item())
    assert [gradient.tolist() for gradient in gradients] == [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]


def test_both_parts_are_unbiased() -> None:
    # Two gradients of a normal distribution with mean (1, 0, 0) and variance 0.5 per component:
    # E[2 |mean|^2 - m] = |E g|^2 = 1 and E[2 (m - |mean|^2)] = tr Var = 1.5. Over 4000 draws the
    # ratio of the averages is 2/3 with a standard error of about 0.025.
    draws = torch.randn(4000, 2, 3, generator=torch.Generator().manual_seed(0)) * math.sqrt(0.5)
    draws[:, :, 0] += 1.0
    signal = noise = 0.0
    for pair in draws:
        found = noise_of(*pair.tolist())
        assert found.total is not None
        square_of_mean = (found.total / 2).square().sum().item()
        spread = found.squares - 2 * square_of_mean
        assert found.snr is not None
        signal += found.snr * spread
        noise += spread
    assert signal / noise == pytest.approx(1 / 1.5, abs=0.1)
