import json
import math
from dataclasses import fields, replace

from grpo_core.metrics import STAGES, StageSignal, StepMetrics


def make_metrics(**changes: object) -> StepMetrics:
    values: dict[str, object] = {
        item.name: 0.5 for item in fields(StepMetrics) if item.name not in ("stages", "nonfinite")
    }
    values |= {"step": 3, "tokens": 7, "reward_distinct": 2, "eval_pass_rate": None}
    stages = {name: StageSignal(0.1, None, 0.2, 0.3) for name in STAGES}
    return StepMetrics(**{**values, "stages": stages, **changes})  # type: ignore[arg-type]


def test_a_step_survives_json_with_its_non_finite_numbers() -> None:
    step = make_metrics(loss=math.inf, ratio_min=-math.inf, nonfinite="gradient")
    assert StepMetrics.from_json(json.loads(json.dumps(step.to_json()))) == step


def test_nan_comes_back_as_nan_and_absent_as_absent() -> None:
    back = StepMetrics.from_json(json.loads(json.dumps(make_metrics(loss=math.nan).to_json())))
    assert math.isnan(back.loss)
    assert back.eval_pass_rate is None


def test_a_step_of_an_older_version_has_no_signal_to_noise_ratio() -> None:
    record = make_metrics().to_json()
    del record["grad_snr"]
    assert StepMetrics.from_json(record).grad_snr is None


def test_scalars_leave_out_what_was_not_measured() -> None:
    scalars = make_metrics().scalars()
    assert "eval/pass_rate" not in scalars
    assert "signal/raw_fidelity" not in scalars
    assert scalars["signal/clipped_silent"] == 0.2
    assert scalars["reward/pass_rate"] == 0.5
    assert "step" not in scalars


def test_every_number_of_a_step_is_tracked() -> None:
    complete = replace(make_metrics(), eval_pass_rate=0.5)
    names = [item.name for item in fields(StepMetrics)]
    plain = len(names) - len({"step", "stages", "nonfinite"})
    parts_without_fidelity = 3
    assert len(complete.scalars()) == plain + parts_without_fidelity * len(STAGES)
