"""The probe before a sweep."""

import json
from math import comb
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpo_core.config import TrialConfig
from grpo_core.errors import ConfigError
from sweeps.cli import app
from sweeps.probe.measure import Probe, expected_silent, probe, probes_of
from tests.trials import registered_for_tests, small_config


@pytest.mark.parametrize(
    ("passes", "answers", "group", "expected"),
    [
        # Of the 6 pairs from RRWW two are alike; putting 1/2 into p^2 + (1-p)^2 would say 1/2.
        pytest.param([2], 4, 2, 1 / 3, id="half-right"),
        pytest.param([0, 4], 4, 2, 1.0, id="all-or-nothing"),
        pytest.param([1, 3], 4, 4, 0.0, id="as-seen-at-the-groups-own-size"),
        pytest.param([0, 2], 4, 4, 0.5, id="one-of-two-silent"),
        pytest.param([1], 4, 3, 1 / 4, id="three-of-the-wrong-ones"),
        pytest.param([2, 0], 8, 1, 1.0, id="groups-of-one-are-always-silent"),
    ],
)
def test_expected_silence_by_hand(
    passes: list[int], answers: int, group: int, expected: float
) -> None:
    assert expected_silent(passes, answers, group) == pytest.approx(expected)


def test_the_estimate_is_unbiased_where_the_plain_formula_is_not() -> None:
    # Exactly: the expectation over Binomial(4, p) of the estimate for groups of 3.
    p = 0.3
    weights = [comb(4, k) * p**k * (1 - p) ** (4 - k) for k in range(5)]
    expectation = sum(w * expected_silent([k], 4, 3) for k, w in enumerate(weights))
    plain = sum(w * ((k / 4) ** 3 + (1 - k / 4) ** 3) for k, w in enumerate(weights))
    assert expectation == pytest.approx(p**3 + (1 - p) ** 3)
    assert plain > expectation + 0.05


def made(pass_rate: float, equal: float, truncated: float = 0.0) -> Probe:
    return Probe("p", "t", 32, 8, pass_rate, equal, {8: equal}, truncated, 4.0, 1.0, ())


@pytest.mark.parametrize(
    ("result", "starts"),
    [
        pytest.param(made(0.4, 0.2), [], id="a-good-task"),
        pytest.param(made(0.01, 0.95), ["t is too hard for p: pass rate 0.01"], id="hard"),
        pytest.param(made(0.99, 0.95), ["t is too easy for p: pass rate 0.99"], id="easy"),
        pytest.param(made(0.0, 0.2), [], id="graded-rewards-still-differ"),
        pytest.param(made(0.4, 0.2, 0.6), ["60% of the answers are cut"], id="cut"),
    ],
)
def test_warnings_say_what_stands_in_the_way(result: Probe, starts: list[str]) -> None:
    assert len(result.warnings) == len(starts)
    for warning, start in zip(result.warnings, starts, strict=True):
        assert warning.startswith(start)


def test_a_probe_asks_the_initial_policy_and_is_repeatable() -> None:
    with registered_for_tests():
        config = small_config()
        one = probe(config, (1, 2), prompts=6)
        assert (one.prompts, one.answers) == (6, 2)
        assert one.silent[1] == 1.0
        assert 0.0 <= one.silent[2] <= 1.0
        again = probe(config, (1, 2), prompts=6)
        assert (again.pass_rate, again.silent) == (one.pass_rate, one.silent)


def test_a_configuration_that_cannot_be_trained_is_refused() -> None:
    with pytest.raises(ConfigError, match="no directory"):
        probe(TrialConfig(policy="hf:nowhere"))


def test_each_policy_and_task_is_probed_once_with_its_largest_group() -> None:
    def config(samples: int, lr: float, task: str = "think") -> TrialConfig:
        return TrialConfig.model_validate(
            {
                "gconfig": {"n_samples": samples, "max_new_tokens": 8},
                "task": {"name": task},
                "actor": {"optimizer": {"lr": lr}},
            }
        )

    asked = probes_of([config(4, 1e-3), config(8, 1e-3), config(8, 1e-4), config(2, 1e-3, "sort")])
    assert [(c.task.name, c.gconfig.n_samples, groups) for c, groups in asked] == [
        ("think", 8, (4, 8)),
        ("sort", 2, (2,)),
    ]


@pytest.mark.slow
def test_the_command_prints_json(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("space: {actor.kl_ctl: [0.0, 0.1]}\n")
    result = CliRunner().invoke(app, ["probe", str(file), "--prompts", "8", "--json"])
    assert result.exit_code == 0, result.output
    (answer,) = json.loads(result.stdout)
    assert answer["prompts"] == 8
    assert 0.1 < answer["pass_rate"] < 0.6  # the warm start passes about a third
