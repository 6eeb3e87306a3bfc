"""Whose key is which signal: the tables, three dialects side by side, what is derived."""

from pathlib import Path

import numpy as np
import pytest

from sweeps.importers import DIALECTS, SIGNALS, LoadedRun, LogError, Options, load_run
from sweeps.importers.dialects import Entry, match
from sweeps.importers.signals import AUXILIARY, is_signal, lacking
from sweeps.keys import KEYS
from tests.training_logs import KL_CTL, ROWS, Row, areal_rows, healthy_run, trl_rows, write_lines

SAMPLES = Path(__file__).parents[3] / "shared" / "sample_logs"
"""Beside a checkout that has them."""

COMMON = (
    "reward_mean",
    "eval_pass_rate",
    "length_mean",
    "truncated",
    "entropy",
    "kl_reference",
    "clip_fraction",
    "loss",
    "grad_norm",
    "learning_rate",
    "seconds",
)
"""What all three frameworks log, in one way or another."""


def load(tmp_path: Path, rows: list[Row], options: Options | None = None) -> LoadedRun:
    return load_run(str(write_lines(tmp_path / "run.jsonl", rows)), options)


def filled(entry: Entry) -> str:
    return entry.key.format(name="accuracy", any="openai/gsm8k", n="1")


@pytest.mark.parametrize("name", DIALECTS)
def test_every_row_of_a_table_leads_to_a_signal(name: str) -> None:
    for entry in DIALECTS[name].entries:
        found = match(DIALECTS[name], filled(entry))
        assert found is not None, entry.key
        assert found.entry == entry
        assert is_signal(found.signal) or found.signal.startswith(AUXILIARY), entry.key


@pytest.mark.parametrize("name", DIALECTS)
def test_a_key_is_known_below_an_experiment_but_not_below_an_evaluation(name: str) -> None:
    for entry in DIALECTS[name].entries:
        key = filled(entry)
        below = match(DIALECTS[name], f"my-run/train/{key}")
        assert below is not None, key
        assert below.entry == entry
        scoped = match(DIALECTS[name], f"eval/{key}")
        assert scoped is None or scoped.signal == "eval_pass_rate", key


def test_stated_settings_are_settings_of_areal() -> None:
    stated = [entry.signal for dialect in DIALECTS.values() for entry in dialect.stated]
    assert stated
    assert all(key in KEYS for key in stated)


@pytest.mark.parametrize(
    ("dialect", "key", "signal"),
    [
        pytest.param("areal", "ppo_critic/update/grad_norm", None, id="the-critic's-gradient"),
        pytest.param("areal", "grpo_actor/update/grad_norm", "grad_norm", id="an-older-scope"),
        pytest.param("areal", "ppo_actor/update/approx_kl/avg", None, id="not-the-reference"),
        pytest.param("areal", "ppo_actor/final_reward/avg", None, id="a-mean-over-tokens"),
        pytest.param("trl", "train/rewards/acc/mean", "component.acc", id="wandb's-scope"),
        pytest.param("trl", "eval_rewards/format/mean", None, id="a-format-is-no-check"),
        pytest.param("trl", "eval_loss", None, id="an-evaluation's-loss"),
        pytest.param("trl", "eval/loss", None, id="an-evaluation's-loss-in-wandb"),
        pytest.param(
            "verl", "val-core/openai/gsm8k/acc/mean_at_8", "eval_pass_rate", id="mlflow-has-no-at"
        ),
        pytest.param("verl", "val-core/gsm8k/acc/best@8/mean", None, id="the-best-of-several"),
        pytest.param("verl", "critic/vf_loss", "value_loss", id="the-critic's-own-loss"),
        pytest.param("sweeps", "signal/clipped_silent", "clipped.silent", id="a-stage"),
    ],
)
def test_keys_that_are_easily_mistaken(dialect: str, key: str, signal: str | None) -> None:
    found = match(DIALECTS[dialect], key)
    assert (None if found is None else found.signal) == signal


@pytest.mark.parametrize("dialect", ROWS)
def test_the_dialect_is_found_out_and_said(tmp_path: Path, dialect: str) -> None:
    run = load(tmp_path, ROWS[dialect](healthy_run()))
    assert run.dialect == dialect
    assert "of its keys, such as" in run.decided
    assert run.trace.framework == dialect


def test_three_dialects_give_the_same_series(tmp_path: Path) -> None:
    source = healthy_run()
    given = Options(settings={"actor.kl_ctl": KL_CTL})
    runs = {
        name: load_run(str(write_lines(tmp_path / f"{name}.jsonl", rows(source))), given)
        for name, rows in ROWS.items()
    }
    for signal in COMMON:
        for name, run in runs.items():
            expected = runs["trl"].trace[signal]
            np.testing.assert_array_equal(run.trace[signal].steps, expected.steps, err_msg=name)
            np.testing.assert_allclose(
                run.trace[signal].values, expected.values, rtol=1e-9, err_msg=f"{name} {signal}"
            )
    np.testing.assert_array_equal(runs["trl"].trace["entropy"].values, source["entropy"])
    np.testing.assert_array_equal(runs["trl"].trace["eval_pass_rate"].steps, range(10, 61, 10))
    for name in ("trl", "areal"):
        rate = runs[name].trace["pass_rate"]
        np.testing.assert_allclose(rate.values, source["reward"], rtol=1e-9)
    assert "pass_rate" not in runs["verl"].trace


def test_a_log_says_what_it_has_and_what_it_lacks(tmp_path: Path) -> None:
    run = load(tmp_path, trl_rows(healthy_run()))
    assert run.found["raw.silent"] == "frac_reward_zero_std"
    assert run.found["reward_std"] == "rewards/accuracy_reward/std, the only reward function"
    assert "reward_std" in run.derived
    assert set(run.lacking) == {
        "ratio_max",
        "logprob_gap",
        "advantage_max",
        "staleness",
        "value_explained",
    }
    assert not any(name.startswith(AUXILIARY) for name in (*run.found, *run.trace.series))


def test_only_signals_that_matter_are_called_lacking() -> None:
    assert set(lacking(frozenset())) == {name for name, one in SIGNALS.items() if one.without}
    assert lacking(frozenset(SIGNALS)) == {}


# --- what is derived ---------------------------------------------------------------------


def test_the_kl_of_areal_follows_from_its_rewards(tmp_path: Path) -> None:
    rows = [
        {
            "step": step,
            "ppo_actor/task_reward/avg": 0.5,
            "ppo_actor/kl_rewards/avg": -0.002 * step,
        }
        for step in range(3)
    ]
    told = load(tmp_path, rows, Options(settings={"actor.kl_ctl": 0.1}))
    np.testing.assert_allclose(told.trace["kl_reference"].values, [0.0, 0.02, 0.04])
    assert "actor.kl_ctl = 0.1" in told.found["kl_reference"]
    untold = load(tmp_path, rows)
    assert "kl_reference" not in untold.trace
    assert any("--set actor.kl_ctl" in note for note in untold.notes)


def test_the_config_beside_an_areal_log_tells_the_kl_coefficient(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("actor:\n  kl_ctl: 0.05\n  eps_clip: 0.3\n")
    run = load(tmp_path, areal_rows(healthy_run()))
    np.testing.assert_allclose(run.trace["kl_reference"].values, healthy_run()["kl"])
    assert run.trace.settings["actor.kl_ctl"] == 0.05
    assert run.trace.settings["actor.eps_clip"] == 0.2  # as logged: what ran, not what was asked
    assert f"settings of {tmp_path / 'config.yaml'}" in run.notes


def test_a_missing_reference_model_is_no_kl(tmp_path: Path) -> None:
    rows = [
        {"step": step, "ppo_actor/task_reward/avg": 0.5, "ppo_actor/kl_rewards/avg": 0.05}
        for step in range(3)
    ]
    run = load(tmp_path, rows, Options(settings={"actor.kl_ctl": 0.1}))
    assert "kl_reference" not in run.trace
    assert any("without a reference model" in note for note in run.notes)


def test_a_prompt_length_that_is_missing_is_said(tmp_path: Path) -> None:
    rows = [
        {key: value for key, value in row.items() if "prompt_len" not in key}
        for row in areal_rows(healthy_run())
    ]
    run = load(tmp_path, rows)
    assert run.trace["length_mean"].values[0] == 320.0
    assert any("includes the prompt" in note for note in run.notes)


def graded_rows(top: float, *, binary: bool) -> list[Row]:
    """A reward function that pays 0 or `top`, or anything between."""
    rates = np.linspace(0.2, 0.8, 12)
    spreads = top * np.sqrt(rates * (1 - rates)) if binary else np.full(12, 0.1 * top)
    return [
        {
            "step": step,
            "reward": top * rate,
            "rewards/correctness_reward_func/mean": top * rate,
            "rewards/correctness_reward_func/std": spread,
        }
        for step, (rate, spread) in enumerate(zip(rates, spreads, strict=True))
    ]


def test_a_reward_of_0_or_2_gives_the_pass_rate(tmp_path: Path) -> None:
    run = load(tmp_path, graded_rows(2.0, binary=True))
    np.testing.assert_allclose(run.trace["pass_rate"].values, np.linspace(0.2, 0.8, 12))
    assert "a reward of 0 or 2" in run.found["pass_rate"]


def test_a_graded_reward_is_no_pass_rate(tmp_path: Path) -> None:
    run = load(tmp_path, graded_rows(1.0, binary=False))
    assert "pass_rate" not in run.trace
    assert "component.correctness_reward_func" in run.trace


def test_the_spread_of_one_of_several_rewards_is_not_that_of_all(tmp_path: Path) -> None:
    rows = [
        row | {"rewards/format/mean": 0.5, "rewards/format/std": 0.1}
        for row in trl_rows(healthy_run())
    ]
    run = load(tmp_path, rows)
    assert "reward_std" not in run.trace
    assert "raw.gain" in run.trace
    assert "pass_rate" in run.trace


def test_several_data_sets_of_an_evaluation_count_as_their_mean(tmp_path: Path) -> None:
    rows = [
        {
            "step": step,
            "data": {
                "critic/score/mean": 0.5,
                "val-core/gsm8k/acc/mean@1": 0.2,
                "val-core/math/acc/mean@1": 0.6,
            },
        }
        for step in range(3)
    ]
    run = load(tmp_path, rows)
    np.testing.assert_allclose(run.trace["eval_pass_rate"].values, 0.4)
    assert "gsm8k" in run.found["eval_pass_rate"]
    assert "math" in run.found["eval_pass_rate"]


def test_null_is_nan_in_verl_only(tmp_path: Path) -> None:
    verl = [{"step": s, "data": {"critic/score/mean": 0.5, "actor/pg_loss": None}} for s in (1, 2)]
    assert np.isnan(load(tmp_path, verl).trace["loss"].values).all()
    trl: list[Row] = [
        {"step": 1, "reward": 0.5, "loss": None},
        {"step": 2, "reward": 0.5, "loss": 1.0},
    ]
    run = load(tmp_path, trl)
    np.testing.assert_array_equal(run.trace["loss"].steps, [2])


def test_settings_in_the_log_are_translated(tmp_path: Path) -> None:
    config = {"config": {"num_generations": 16, "beta": 0.0, "epsilon": 0.3}}
    run = load(tmp_path, [config, *trl_rows(healthy_run())])
    assert run.trace.settings["gconfig.n_samples"] == 16
    assert run.trace.settings["actor.eps_clip"] == 0.3


# --- what the user says ------------------------------------------------------------------


def test_a_key_of_ones_own_is_mapped(tmp_path: Path) -> None:
    rows = [{"step": step, "my/acc": 0.1 * step, "chat": "text"} for step in range(4)]
    run = load(tmp_path, rows, Options(mapped={"pass_rate": "my/acc"}))
    np.testing.assert_allclose(run.trace["pass_rate"].values, [0.0, 0.1, 0.2, 0.3])
    assert run.found == {"pass_rate": "my/acc"}


def test_a_mapped_key_that_is_not_there_is_refused_with_the_nearest(tmp_path: Path) -> None:
    rows = trl_rows(healthy_run())
    with pytest.raises(LogError, match=r"no such key in the log \(nearest: entropy\)"):
        load(tmp_path, rows, Options(mapped={"entropy": "entropi"}))


def test_a_mapped_key_outranks_the_table(tmp_path: Path) -> None:
    rows = [row | {"better": 7.0} for row in trl_rows(healthy_run())]
    run = load(tmp_path, rows, Options(mapped={"entropy": "better"}))
    assert run.trace["entropy"].values[0] == 7.0


def test_the_format_can_be_forced(tmp_path: Path) -> None:
    rows = [{"step": step, "reward": 0.5, "entropy": 0.1} for step in range(3)]
    assert load(tmp_path, rows).dialect == "trl"
    run = load(tmp_path, rows, Options(dialect="plain"))
    assert run.dialect == "plain"
    assert set(run.trace.series) == {"entropy"}


# --- the samples -------------------------------------------------------------------------

ONLY = {
    "trl": {"raw.silent", "raw.gain", "reward_std", "component.accuracy_reward", "pass_rate"},
    "verl": {"advantage_max", "advantage_min", "length_max", "reward_min", "reward_max"},
    "areal": {"ratio_mean"},
}


@pytest.mark.skipif(not SAMPLES.exists(), reason="the sample logs are not beside this checkout")
@pytest.mark.parametrize("name", sorted(path.stem for path in (SAMPLES / "trl").glob("*.jsonl")))
def test_a_sample_reads_the_same_in_all_dialects(name: str) -> None:
    given = Options(settings={"actor.kl_ctl": 0.001})
    runs = {
        d: load_run(str(SAMPLES / d / f"{name}.jsonl"), given) for d in ("trl", "verl", "areal")
    }
    for dialect, run in runs.items():
        assert run.dialect == dialect
        assert len(run.trace) == 150
        expected = set(COMMON) - ({"kl_reference"} if name == "healthy_beta0" else set())
        assert expected <= set(run.trace.series)
        assert ONLY[dialect] <= set(run.trace.series) | (
            {"pass_rate"} if name in ("nan_loss", "zero_group_std") else set()
        )
    for signal in set(COMMON) & set(runs["trl"].trace.series):
        for run in (runs["verl"], runs["areal"]):
            offset = 90.0 if signal == "length_mean" and run.dialect == "areal" else 0.0
            np.testing.assert_allclose(
                run.trace[signal].values - offset,
                runs["trl"].trace[signal].values,
                rtol=1e-6,
                atol=0.051 if offset else 0.0,  # the samples have five digits
                err_msg=f"{run.dialect} {signal}",
            )
