import pytest
import torch
from torch import nn

from grpo_core.config import OptimizerConfig
from grpo_core.optimizer import build_optimizer, learning_rate


@pytest.mark.parametrize(
    ("shape", "step", "expected"),
    [
        pytest.param("constant", 0, 0.25, id="first-of-four-warm-up-steps"),
        pytest.param("constant", 3, 1.0, id="warm-up-done"),
        pytest.param("constant", 19, 1.0, id="constant-stays"),
        pytest.param("linear", 4, 1.0, id="linear-starts-at-peak"),
        pytest.param("linear", 12, 0.1 + 0.9 * 0.5, id="linear-half-way"),
        pytest.param("cosine", 12, 0.1 + 0.9 * 0.5, id="cosine-half-way"),
        pytest.param("linear", 20, 0.1, id="linear-ends-at-minimum"),
    ],
)
def test_learning_rate_by_hand(shape: str, step: int, expected: float) -> None:
    config = OptimizerConfig.model_validate(
        {
            "lr": 1.0,
            "lr_scheduler_type": shape,
            "warmup_steps_proportion": 0.2,
            "min_lr_ratio": 0.1,
        }
    )
    assert learning_rate(config, step, 20) == pytest.approx(expected)


def test_every_optimizer_setting_reaches_the_optimizer() -> None:
    config = OptimizerConfig(lr=0.3, beta1=0.8, beta2=0.7, eps=1e-4, weight_decay=0.2)
    optimizer = build_optimizer([nn.Parameter(torch.ones(1))], config)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (
        0.3,
        (0.8, 0.7),
        1e-4,
        0.2,
    )


def test_sgd_takes_one_plain_step() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = build_optimizer([weight], OptimizerConfig(type="sgd", lr=0.5, weight_decay=0.0))
    weight.grad = torch.tensor([2.0])
    optimizer.step()
    assert weight.item() == 0.0
