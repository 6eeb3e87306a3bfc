"""Every form of log that is read, and ours."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboardX import SummaryWriter

from sweeps.findings import Diagnosis
from sweeps.importers import LogError, Options, Reader, find_logs, load_run
from sweeps.importers.errors import NoLogError
from sweeps.record import SweepRecord
from sweeps.trace import Judge, Trace, trace_of
from tests.sweep_records import make_end, make_record, make_step, make_trial
from tests.training_logs import ROWS, healthy_run, trl_rows, verl_rows, write_lines

RUN = healthy_run(20)


def equal(one: Trace, other: Trace) -> bool:
    """The same signals with the same steps and values."""
    if one.series.keys() != other.series.keys() or not np.array_equal(one.steps, other.steps):
        return False
    return all(
        np.array_equal(series.steps, other[name].steps)
        and np.array_equal(series.values, other[name].values, equal_nan=True)
        for name, series in one.series.items()
    )


@pytest.fixture
def lines(tmp_path: Path) -> Trace:
    """What the JSON lines of TRL's run give."""
    return load_run(str(write_lines(tmp_path / "lines.jsonl", trl_rows(RUN)))).trace


# --- JSON --------------------------------------------------------------------------------


def state(**also: object) -> dict[str, Any]:
    return {"epoch": 1.0, "global_step": 20, "log_history": trl_rows(RUN), "max_steps": 40} | also


@pytest.mark.parametrize("indent", [2, None], ids=["indented", "on-one-line"])
def test_a_trainer_state_reads_like_its_lines(
    tmp_path: Path, lines: Trace, indent: int | None
) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps(state(), indent=indent))
    run = load_run(str(path))
    assert equal(run.trace, lines)
    assert not run.ended
    path.write_text(json.dumps(state(max_steps=20), indent=indent))
    assert load_run(str(path)).ended


def test_a_trainer_state_that_is_cut_off_gives_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    text = json.dumps(state(), indent=2)
    path.write_text(text[: text.index('"step": 11')])
    run = load_run(str(path))
    assert run.trace.steps.tolist() == list(range(1, 11))
    assert "the file is cut off; what comes before was read" in run.notes


def test_a_json_list_of_records_is_read(tmp_path: Path, lines: Trace) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(trl_rows(RUN), indent=1))
    assert equal(load_run(str(path)).trace, lines)


def test_a_json_document_without_records_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"hidden_size": 64, "layers": [1, 2]}, indent=2))
    with pytest.raises(LogError, match="wanted JSON lines, a list of records, or a log_history"):
        load_run(str(path))


def test_of_several_checkpoints_only_the_newest_state_is_judged(tmp_path: Path) -> None:
    for step in (5, 10, 100):
        path = tmp_path / "run" / f"checkpoint-{step}" / "trainer_state.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(state(), indent=2))
    found = find_logs([str(tmp_path)])
    assert [Path(target.path).parent.name for target in found] == ["checkpoint-100"]


# --- what is printed ---------------------------------------------------------------------


def test_the_console_of_verl_is_read(tmp_path: Path) -> None:
    text = "(TaskRunner pid=7) loading\n"
    for row in verl_rows(RUN):
        pairs = " - ".join(f"{key}:np.float64({value!r})" for key, value in row["data"].items())
        text += f"\x1b[36m(TaskRunner pid=7)\x1b[0m step:{row['step']} - {pairs}\n"
        text += "Training Progress:  10%|#  | 1/20 [00:19<6:22, 19.2s/it]\n"
    path = tmp_path / "console.log"
    path.write_text(text)
    expected = load_run(str(write_lines(tmp_path / "a.jsonl", verl_rows(RUN))))
    run = load_run(str(path))
    assert run.dialect == "verl"
    assert equal(run.trace, expected.trace)


def test_a_console_may_begin_with_a_long_start_up(tmp_path: Path) -> None:
    path = tmp_path / "slurm.out"
    steps = "".join(f"step:{s} - critic/score/mean:0.5 - actor/entropy:0.1\n" for s in range(3))
    path.write_text("loading a shard of the weights\n" * 5000 + steps)
    assert load_run(str(path)).trace.steps.tolist() == [0, 1, 2]
    assert [target.path for target in find_logs([str(tmp_path)])] == [str(path)]


def areal_table(row: dict[str, Any], columns: int = 4) -> str:
    """As AReaL prints it: keys and values down the columns, in a frame."""
    items = [(key, f"{value:.4e}") for key, value in row.items()]
    height = -(-len(items) // columns)
    text = "╒════╤════╕\n"
    for at in range(height):
        cells = [part for item in items[at::height] for part in item]
        text += "│ " + " │ ".join(f"{cell:<40}" for cell in cells) + " │\n├────┼────┤\n"
    return text + "╘════╧════╛\n"


def test_the_console_of_areal_is_read(tmp_path: Path) -> None:
    text = "20261201-13:00:00.000 StatsLogger INFO: starting\n"
    for row in ROWS["areal"](RUN):
        step = row.pop("step")
        text += f"\x1b[37m20261201-13:00:00.000 StatsLogger INFO: Epoch 1/1 Step {step}/20 "
        text += f"Train step {step}/20 done.\x1b[0m\n"
        text += "20261201-13:00:00.000 StatsLogger INFO: Stats (1/1):\n\n" + areal_table(row)
    path = tmp_path / "trainer.log"
    path.write_text(text)
    run = load_run(str(path))
    assert run.dialect == "areal"
    assert run.ended
    assert run.trace.steps.tolist() == list(range(1, 21))
    np.testing.assert_allclose(run.trace["reward_mean"].values, RUN["reward"], rtol=1e-4)
    np.testing.assert_allclose(run.trace["length_mean"].values, RUN["length"], rtol=1e-3)
    assert run.trace.settings["actor.eps_clip"] == 0.2


def test_what_trl_prints_is_counted(tmp_path: Path) -> None:
    text = "Loading checkpoint shards: 100%|##| 2/2\n"
    for row in trl_rows(RUN):
        printed = {key: value for key, value in row.items() if key != "step"} | {"epoch": 0.1}
        text += f"  5%|#    | 1/20 [00:19<6:22, 19.2s/it]{printed!s}\n"
    path = tmp_path / "train.out"
    path.write_text(text + "{'train_runtime': 12.5, 'train_loss': nan, 'epoch': 1.0}\n")
    run = load_run(str(path))
    assert run.dialect == "trl"
    assert run.ended
    np.testing.assert_array_equal(run.trace["entropy"].values, RUN["entropy"])
    assert run.trace.steps.tolist() == list(range(1, 21))
    assert any("no step counter" in note for note in run.notes)


def test_printed_nan_is_evidence(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("{'loss': nan, 'reward': 0.5}\n" * 3)
    assert np.isnan(load_run(str(path)).trace["loss"].values).all()


# --- tables ------------------------------------------------------------------------------


def test_a_csv_of_signals_own_names_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,reward_mean,entropy,component.form\n1,0.1,0.9,1\n2,0.2,,0.5\n3,,nan,0\n")
    run = load_run(str(path))
    assert run.dialect == "plain"
    assert run.trace["reward_mean"].steps.tolist() == [1, 2]
    assert run.trace["entropy"].steps.tolist() == [1, 3]
    assert np.isnan(run.trace["entropy"].values[1])
    assert run.trace["component.form"].values.tolist() == [1.0, 0.5, 0.0]


def test_the_csv_of_a_tracker_is_read(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text(
        '"Step","r1 - train/reward","r1 - train/reward__MIN","r1 - train/reward__MAX",'
        '"r1 - train/completions/mean_length"\n"1","0.5","0.5","0.5","12"\n"2","0.6","0.6","0.6",\n'
    )
    run = load_run(str(path))
    assert run.dialect == "trl"
    assert run.found == {
        "length_mean": "train/completions/mean_length",
        "reward_mean": "train/reward",
    }
    assert run.trace["reward_mean"].values.tolist() == [0.5, 0.6]


def test_a_csv_of_several_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text('"Step","a - train/reward","b - train/reward"\n1,2,3\n')
    with pytest.raises(LogError, match=r"export\.csv:1: holds 2 runs \(a, b\)"):
        load_run(str(path))


def test_other_separators_are_found_out(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step;reward_mean\n1;0.5\n2;0.7\n")
    assert load_run(str(path)).trace["reward_mean"].values.tolist() == [0.5, 0.7]


# --- TensorBoard -------------------------------------------------------------------------


def write_events(folder: Path, rows: list[dict[str, Any]], suffix: str = "") -> Path:
    with SummaryWriter(str(folder), filename_suffix=suffix) as writer:
        for row in rows:
            for key, value in row.items():
                if key != "step":
                    writer.add_scalar(f"train/{key}", value, row["step"])
    return next(folder.iterdir())


def test_event_files_are_read(tmp_path: Path, lines: Trace) -> None:
    write_events(tmp_path / "board", trl_rows(RUN))
    run = load_run(str(tmp_path / "board"))
    assert run.dialect == "trl"
    assert run.trace.steps.tolist() == lines.steps.tolist()
    assert run.found["reward_mean"] == "train/reward"
    for name in ("reward_mean", "entropy", "loss", "raw.silent", "pass_rate"):
        np.testing.assert_allclose(run.trace[name].values, lines[name].values, rtol=1e-6)


def test_an_event_file_that_is_cut_off_gives_what_is_there(tmp_path: Path) -> None:
    file = write_events(tmp_path / "board", trl_rows(RUN))
    file.write_bytes(file.read_bytes()[:-5])
    run = load_run(str(file))
    assert len(run.trace) == 20
    assert any("is cut off" in note for note in run.notes)


def test_damage_in_an_event_file_is_an_error(tmp_path: Path) -> None:
    file = write_events(tmp_path / "board", trl_rows(RUN))
    content = bytearray(file.read_bytes())
    content[0] ^= 0xFF
    file.write_bytes(bytes(content))
    with pytest.raises(LogError, match="record 1 is damaged; wanted an event file"):
        load_run(str(file))


def test_a_folder_of_events_is_one_log(tmp_path: Path) -> None:
    write_events(tmp_path / "runs" / "first", trl_rows(RUN))
    write_lines(tmp_path / "runs" / "second.jsonl", trl_rows(RUN))
    found = find_logs([str(tmp_path)])
    assert sorted(Path(target.path).name for target in found) == ["first", "second.jsonl"]


# --- MLflow ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's and SQLAlchemy's own
def test_runs_of_mlflow_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Trace
) -> None:
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import
    from mlflow.entities import Metric, Param  # noqa: PLC0415

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    client = MlflowClient(uri)
    experiment = client.create_experiment("grpo", artifact_location=str(tmp_path / "artifacts"))
    run = client.create_run(experiment, run_name="first")
    metrics = [
        Metric(key, value, 1000 * row["step"], row["step"])
        for row in trl_rows(RUN)
        for key, value in row.items()
        if key != "step"
    ]
    client.log_batch(run.info.run_id, metrics=metrics, params=[Param("num_generations", "8")])
    client.set_terminated(run.info.run_id)
    loaded = load_run(f"runs:/{run.info.run_id}")
    assert equal(loaded.trace, lines)
    assert loaded.ended
    assert loaded.trace.settings["gconfig.n_samples"] == 8
    assert [target.path for target in find_logs(["experiments:/grpo"])] == [
        f"runs:/{run.info.run_id}"
    ]
    assert load_run(run.info.run_id).dialect == "trl"
    with pytest.raises(LogError, match="no such experiment in sqlite"):
        find_logs(["experiments:/other"])
    with pytest.raises(LogError, match="not found"):
        load_run("runs:/" + "0" * 32)


def test_a_store_that_is_not_there_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    with pytest.raises(LogError, match="no MLflow store at"):
        load_run("runs:/" + "0" * 32)
    assert list(tmp_path.iterdir()) == []


# --- samples -----------------------------------------------------------------------------


def test_a_line_per_sample_gives_the_signals_of_the_batch(tmp_path: Path) -> None:
    rows = []
    for step, rewards in ((1, [[1, 1], [0, 1], [0, 0]]), (2, [[1, 0], [0, 1], [1, 1]])):
        rows += [
            {
                "input": f"prompt {at}",
                "output": "text",
                "score": reward,
                "acc": reward,
                "step": step,
            }
            for at, group in enumerate(rewards)
            for reward in group
        ]
    run = load_run(str(write_lines(tmp_path / "dump.jsonl", rows)))
    assert run.dialect == "plain"
    assert run.decided == "the samples' own rewards"
    assert run.trace.steps.tolist() == [1, 2]
    np.testing.assert_allclose(run.trace["reward_mean"].values, [0.5, 4 / 6])
    np.testing.assert_allclose(run.trace["raw.silent"].values, [2 / 3, 1 / 3])
    np.testing.assert_allclose(run.trace["pass_rate"].values, [0.5, 4 / 6])


def test_a_graded_check_is_no_pass_rate(tmp_path: Path) -> None:
    rows = [
        {"uid": "a", "reward": 0.5, "acc": 0.5, "step": 1},
        {"uid": "a", "reward": 1, "step": 1},
    ]
    run = load_run(str(write_lines(tmp_path / "dump.jsonl", rows)))
    assert "pass_rate" not in run.trace


def test_lists_of_rewards_in_a_step_give_its_silent_groups(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"config": {"num_generations": 2}}]
    rows += [
        {"step": 1, "loss": 0.1, "reward": 0.5, "rewards": [1, 1, 0, 0]},
        {"step": 2, "loss": 0.1, "reward": 0.5, "rewards": [1, 0, 0, 1]},
    ]
    run = load_run(str(write_lines(tmp_path / "run.jsonl", rows)))
    assert run.trace["raw.silent"].values.tolist() == [1.0, 0.0]
    assert run.found["raw.silent"] == "from the rewards in rewards"
    assert run.trace["loss"].values.tolist() == [0.1, 0.1]


def test_a_step_that_quotes_a_prompt_is_no_sample(tmp_path: Path) -> None:
    rows = [{"step": s, "loss": 0.1, "reward": 0.5, "prompt": "1 + 1 ="} for s in (1, 2)]
    run = load_run(str(write_lines(tmp_path / "run.jsonl", rows)))
    assert run.dialect == "trl"
    assert run.trace["loss"].values.tolist() == [0.1, 0.1]


# --- ours --------------------------------------------------------------------------------


def test_our_own_trial_is_the_trace_that_it_was_judged_by(tmp_path: Path) -> None:
    trial = make_trial()
    record = make_record(tmp_path, trial)
    steps = [make_step(step) for step in range(12)]
    record.append_steps(trial.id, steps)
    [target] = find_logs([str(record.folder)])
    running = load_run(target.path)
    assert equal(running.trace, trace_of(steps))
    assert running.trace.judge is None
    assert not running.ended


def test_our_own_trial_has_its_judge(tmp_path: Path) -> None:
    trial = make_trial()
    object.__setattr__(trial, "config", {**trial.config, "evaluation": {"prompts": 64}})
    record = make_record(tmp_path, trial)
    steps = [make_step(step) for step in range(11)]
    record.append_steps(trial.id, steps)
    record.finish(trial.id, make_end())
    run = load_run(str(record.folder / "trials" / f"{trial.id}.jsonl"))
    expected = trace_of(steps, Judge(0.25, 64, steps[-1].eval_pass_rate, 64))
    assert equal(run.trace, expected)
    assert run.trace.judge == expected.judge
    assert run.trace.solvable == expected.solvable
    assert run.trace.framework is None
    assert run.name == f"kl: {trial.name}"
    assert run.ended


def test_our_tracked_names_lead_back_to_our_signals(tmp_path: Path) -> None:
    steps = [make_step(step) for step in range(12)]
    rows = [{"step": step.step, **step.scalars()} for step in steps]
    run = load_run(str(write_lines(tmp_path / "tracked.jsonl", rows)))
    assert run.dialect == "sweeps"
    assert equal(run.trace, trace_of(steps))


def test_a_file_alone_is_judged_without_its_sweep(tmp_path: Path) -> None:
    steps = [make_step(step) for step in range(3)]
    path = write_lines(tmp_path / "alone.jsonl", [step.to_json() for step in steps])
    run = load_run(str(path))
    assert equal(run.trace, trace_of(steps))
    path.write_text(path.read_text() + '{"step": 3, "rew')
    assert len(load_run(str(path)).trace) == 3
    path.write_text('{"stages": {}, "reward_distinct": 1}\n')
    with pytest.raises(LogError, match=r"alone\.jsonl:1: is no step of a trial"):
        load_run(str(path))


# --- none of them ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("a.txt", "dear diary\n", "is no log that is known", id="prose"),
        pytest.param(
            "a.jsonl", '{"user": "me", "age": 3}\n', "none of its keys is known", id="json"
        ),
    ],
)
def test_a_file_that_holds_something_else_is_no_log(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(NoLogError, match=expected):
        load_run(str(path))


def test_a_list_of_something_else_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_text('[\n"reward",\n"loss"\n]\n')
    with pytest.raises(NoLogError, match="wanted a record, got 'reward'"):
        load_run(str(path))


def test_a_binary_file_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "weights.log"
    with sqlite3.connect(path) as database:
        database.execute("create table t (x)")
    with pytest.raises(LogError, match=r"weights\.log: is no"):
        load_run(str(path))


def test_a_path_that_does_not_exist_says_what_it_might_have_been(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no such file, folder, or MLflow run \(runs:/ID\)"):
        load_run(str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(LogError, match="is a folder without a log"):
        Reader(str(tmp_path), Options())


def test_a_sweep_of_another_version_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "sweep.json").write_text("{}")
    assert SweepRecord(folder).exists()
    with pytest.raises(Exception, match="another version of grpo-sweeps wrote it"):
        find_logs([str(folder)])
    assert Diagnosis("healthy", "", 1.0).outcome == "healthy"
