"""Logs that are not in order: every oddity is handled and said, or refused with its place."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.importers import LoadedRun, LogError, Options, load_run
from tests.training_logs import Row, healthy_run, trl_rows, verl_rows, write_lines

RUN = healthy_run(40)
ROWS = trl_rows(RUN)


def load(tmp_path: Path, rows: list[Row]) -> LoadedRun:
    return load_run(str(write_lines(tmp_path / "run.jsonl", rows)))


def load_text(tmp_path: Path, text: str | bytes) -> LoadedRun:
    path = tmp_path / "run.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_run(str(path))


def text_of(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# --- steps -------------------------------------------------------------------------------


def test_an_orderly_log_has_nothing_to_say(tmp_path: Path) -> None:
    assert load(tmp_path, ROWS).notes == ()


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff"], ids=["nothing", "blank", "a-mark"])
def test_an_empty_log_says_what_was_wanted(tmp_path: Path, text: str) -> None:
    with pytest.raises(LogError, match=r"run\.jsonl: is empty; wanted at least one step"):
        load_text(tmp_path, text)


def test_one_step_is_a_run(tmp_path: Path) -> None:
    run = load(tmp_path, ROWS[:1])
    assert run.trace.steps.tolist() == [1]
    assert run.trace["reward_mean"].values.tolist() == [RUN["reward"][0]]


def test_shuffled_steps_are_sorted(tmp_path: Path) -> None:
    shuffled = [ROWS[at] for at in np.random.default_rng(0).permutation(len(ROWS))]
    run = load(tmp_path, shuffled)
    np.testing.assert_array_equal(run.trace["reward_mean"].values, RUN["reward"])
    assert any("steps are out of order" in note for note in run.notes)


def test_of_repeated_steps_the_last_counts(tmp_path: Path) -> None:
    rows = [*ROWS[:10], ROWS[9] | {"entropy": 9.0}, *ROWS[10:]]
    run = load(tmp_path, rows)
    assert len(run.trace) == 40
    assert run.trace["entropy"].values[9] == 9.0
    assert "1 steps are logged more than once; the last one counts" in run.notes


def test_missing_steps_are_counted_and_not_filled(tmp_path: Path) -> None:
    run = load(tmp_path, ROWS[:10] + ROWS[15:])
    assert len(run.trace) == 35
    assert "5 steps are missing" in run.notes


def test_a_resume_replaces_what_came_after_its_step(tmp_path: Path) -> None:
    again = [row | {"entropy": 5.0} for row in ROWS[19:30]]
    run = load(tmp_path, ROWS[:35] + again)
    assert run.trace.steps.tolist() == list(range(1, 31))
    assert run.trace["entropy"].values[18] == RUN["entropy"][18]
    assert (run.trace["entropy"].values[19:] == 5.0).all()
    assert run.trace["eval_pass_rate"].steps.tolist() == [10, 20, 30]
    assert any("restarts at 20 (a resume)" in note for note in run.notes)


def test_an_evaluation_on_a_line_of_its_own_belongs_to_its_step(tmp_path: Path) -> None:
    rows: list[Row] = []
    for row in ROWS:
        rows.append({key: value for key, value in row.items() if key != "eval_reward"})
        if "eval_reward" in row:
            rows.append({"step": row["step"], "eval_reward": row["eval_reward"], "eval_loss": 0.1})
    run, whole = load(tmp_path, rows), load(tmp_path, ROWS)
    assert run.notes == ()
    for name, series in whole.trace.series.items():
        np.testing.assert_array_equal(run.trace[name].values, series.values)


def test_an_evaluation_before_training_is_no_step(tmp_path: Path) -> None:
    first = {"step": 0, "data": {"val-core/gsm8k/acc/mean@1": 0.25}}
    run = load(tmp_path, [first, *verl_rows(RUN)])
    assert run.trace.steps[0] == 1
    assert run.trace["eval_pass_rate"].steps[0] == 0


def test_a_log_without_steps_is_counted(tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "step"} for row in ROWS]
    run = load(tmp_path, rows)
    assert run.trace.steps.tolist() == list(range(1, 41))
    assert "the log has no step counter: its records are counted from 1" in run.notes


def test_records_without_a_step_beside_others_are_left_out(tmp_path: Path) -> None:
    run = load(tmp_path, [*ROWS, {"reward": 0.1, "entropy": 3.0}])
    assert len(run.trace["entropy"]) == 40
    assert "1 records without a step were left out" in run.notes


@pytest.mark.parametrize("step", [1.5, "two", "nan", 1e300, [1, 2]], ids=str)
def test_a_step_that_is_no_whole_number_is_refused(tmp_path: Path, step: object) -> None:
    with pytest.raises(LogError, match=r"run\.jsonl:2: key 'step': wanted a whole number"):
        load(tmp_path, [ROWS[0], ROWS[1] | {"step": step}])


def test_a_step_may_be_written_as_text_or_float(tmp_path: Path) -> None:
    run = load(tmp_path, [ROWS[0] | {"step": "1"}, ROWS[1] | {"step": 2.0}])
    assert run.trace.steps.tolist() == [1, 2]


# --- lines -------------------------------------------------------------------------------


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    run = load_text(tmp_path, text_of(ROWS)[:-30])
    assert len(run.trace) == 39
    assert "line 40, the last one, is cut off; it was left out" in run.notes


def test_a_last_line_without_a_newline_counts(tmp_path: Path) -> None:
    run = load_text(tmp_path, text_of(ROWS)[:-1])
    assert len(run.trace) == 40
    assert run.notes == ()


def test_a_few_broken_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = text_of(ROWS).splitlines(keepends=True)
    lines[4] = '{"step": 5, "rew' + lines[4]
    lines.insert(10, "WARNING: the queue is full\n")
    run = load_text(tmp_path, "".join(lines))
    assert len(run.trace) == 39
    assert "1 broken lines were left out (the first: line 5)" in run.notes
    assert "1 lines that hold no JSON object were left out" in run.notes


def test_many_broken_lines_are_an_error_with_the_first(tmp_path: Path) -> None:
    lines = text_of(ROWS).splitlines()
    broken = [line if at % 3 else "{" + line for at, line in enumerate(lines)]
    with pytest.raises(LogError, match=r"run\.jsonl:1: is not JSON, nor are 13 other lines"):
        load_text(tmp_path, "\n".join(broken) + "\n")


@pytest.mark.parametrize(
    "encode",
    [
        pytest.param(lambda text: text.encode("utf-8-sig"), id="utf-8-with-a-mark"),
        pytest.param(lambda text: text.encode("utf-16"), id="utf-16"),
        pytest.param(lambda text: b"\xfe\xff" + text.encode("utf-16-be"), id="utf-16-big"),
        pytest.param(lambda text: text.encode("utf-16-le"), id="utf-16-without-a-mark"),
        pytest.param(lambda text: text.encode("utf-32"), id="utf-32"),
        pytest.param(lambda text: text.replace("\n", "\r\n").encode(), id="windows-ends"),
    ],
)
def test_other_encodings_are_read(tmp_path: Path, encode: Callable[[str], bytes]) -> None:
    text = text_of([row | {"run": "Prüfung"} for row in ROWS])
    run = load_text(tmp_path, encode(text))
    np.testing.assert_array_equal(run.trace["reward_mean"].values, RUN["reward"])
    assert run.notes == ()


def test_bytes_that_are_no_utf_8_are_read_as_latin_1_and_said(tmp_path: Path) -> None:
    text = "".join(json.dumps(row | {"run": "Prüfung"}, ensure_ascii=False) + "\n" for row in ROWS)
    run = load_text(tmp_path, text.encode("latin-1"))
    assert len(run.trace) == 40
    expected = "40 lines are not UTF-8 and were read as Latin-1 (the first: line 1)"
    assert expected in run.notes


def test_a_broken_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    content = text_of(ROWS).encode("utf-16") + b"\x00\xd8\x00\xd8\x0a\x00"
    with pytest.raises(
        LogError, match=r"run\.jsonl: near line 4\d: cannot be read: it is not the utf-16"
    ):
        load_text(tmp_path, content)


# --- values ------------------------------------------------------------------------------


def test_nan_and_infinity_are_evidence(tmp_path: Path) -> None:
    text = '{"step": 1, "reward": 0.5, "loss": NaN, "grad_norm": Infinity, "entropy": "nan"}\n'
    run = load_text(tmp_path, text)
    assert np.isnan(run.trace["loss"].values[0])
    assert np.isinf(run.trace["grad_norm"].values[0])
    assert np.isnan(run.trace["entropy"].values[0])


def test_numbers_as_text_and_tensors_are_read(tmp_path: Path) -> None:
    rows = [{"step": 1, "reward": "0.5", "loss": "tensor(0.25, device='cuda:0')", "kl": [0.125]}]
    run = load(tmp_path, rows)
    assert [run.trace[name].values[0] for name in ("reward_mean", "loss", "kl_reference")] == [
        0.5,
        0.25,
        0.125,
    ]


def test_nested_records_are_read(tmp_path: Path) -> None:
    nested: list[Row] = [
        {"step": 3, "train": {"rewards": {"acc": {"mean": 0.5}}, "completions": {"mean_length": 9}}}
    ]
    run = load(tmp_path, nested)
    assert run.trace["component.acc"].values.tolist() == [0.5]
    assert run.trace["length_mean"].values.tolist() == [9.0]
    assert run.trace.steps.tolist() == [3]


def test_several_numbers_in_place_of_one_are_averaged_and_said(tmp_path: Path) -> None:
    rows = [row | {"loss": [0.1, 0.3]} for row in ROWS]
    run = load(tmp_path, rows)
    np.testing.assert_allclose(run.trace["loss"].values, 0.2)
    assert any("several numbers in place of one (loss)" in note for note in run.notes)


def test_text_where_a_number_belongs_is_refused_with_its_place(tmp_path: Path) -> None:
    rows = [ROWS[0], ROWS[1] | {"entropy": "rather low"}]
    expected = r"run\.jsonl:2: key 'entropy': wanted a number, got 'rather low'"
    with pytest.raises(LogError, match=expected):
        load(tmp_path, rows)


def test_text_under_a_key_that_is_not_read_does_not_matter(tmp_path: Path) -> None:
    rows = [row | {"actor/pg_loss": "n/a", "chat": {"text": "hello"}} for row in ROWS]
    run = load(tmp_path, rows)
    assert len(run.trace) == 40
    assert run.unknown == ("chat/text",)


def test_mixed_dialects_are_said(tmp_path: Path) -> None:
    mixed = [
        trl | {"actor/pg_clipfrac": 0.5, "critic/score/mean": 0.5, "response_length/mean": 9.0}
        for trl in ROWS
    ]
    run = load(tmp_path, mixed)
    assert run.dialect == "trl"
    assert np.array_equal(run.trace["reward_mean"].values, RUN["reward"])
    [note] = [note for note in run.notes if note.startswith("mixed dialects")]
    assert "besides TRL it holds 3 keys of verl" in note


# --- size --------------------------------------------------------------------------------

_PEAK = """
import resource, sys
from sweeps.importers import load_run
load_run(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run = load_run(sys.argv[2])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(run.trace), after - before)
"""


def large(path: Path, form: str) -> tuple[Path, int]:
    """A file of some tens of megabytes, most of it text that nobody reads, and its steps."""
    count = 2000
    run = healthy_run(count)
    rows: list[dict[str, Any]] = [
        row | {"completions": [f"{row['step']} " + "word " * 3000]} for row in trl_rows(run)
    ]
    if form == "state":
        path.write_text(json.dumps({"log_history": rows, "max_steps": count}, indent=2))
    else:
        write_lines(path, rows)
    return path, count


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lines", "state"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, form: str) -> None:
    small = write_lines(tmp_path / "small.jsonl", ROWS)
    path, count = large(tmp_path / "large.json", form)
    size = path.stat().st_size // 1024
    assert size > 25_000
    done = subprocess.run(  # noqa: S603 - our own code in a process of its own
        [sys.executable, "-c", _PEAK, str(small), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    steps, kibibytes = map(int, done.stdout.split())
    assert steps == count
    assert kibibytes < size / 3


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.importers.lines.LONGEST_LINE", 1000)
    with pytest.raises(LogError, match=r"run\.jsonl:1: a line of more than"):
        load_text(tmp_path, '{"step": 1, "reward": 0.5, "text": "' + "a" * 2000 + '"}\n')


def test_options_are_plain_by_default(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "run.jsonl", ROWS)
    assert load_run(str(path)).found == load_run(str(path), Options()).found
