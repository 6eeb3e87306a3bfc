import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from sweeps.display import print_results
from sweeps.record import SweepRecord
from sweeps.report.tables import comparison_rows, render_markdown, render_table
from sweeps.report.write import write_report
from sweeps.results import load_results
from tests.sweep_records import make_step
from tests.sweeps_made import begun, end_of, finish, implied_end

SPACE = (
    "space: {x: {a: {}, 'b|c': {actor.kl_ctl: 9.0}, d: {actor.kl_ctl: 2.0}, "
    "e: {actor.kl_ctl: 3.0}}}\n"
    "seeds: 2\nquestion: Which one?\n"
)
SICK = end_of(0.25, outcome="unhealthy", symptom="kl_pinned", stage="returns", onset=0)
FAILED = end_of(None, outcome="inconclusive", error="the reward raised")


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    record = begun(tmp_path, SPACE)
    good = end_of(0.9)
    finish(record, {"a": [good, good], "b|c": [SICK, SICK], "d": [good, SICK], "e": [FAILED, None]})
    for spec in record.header().trials[:3]:
        record.append_steps(spec.id, [make_step(step) for step in range(12)])
    return record


def test_a_row_says_how_many_seeds_agree(record: SweepRecord) -> None:
    rows = comparison_rows(load_results(record))
    # Binomial error of .9 over 256 prompts and two seeds, at t(.975, 1) = 12.7: capped at 1.
    assert [row[:2] for row in rows] == [
        ("a", "healthy 2 of 2"),
        ("b|c", "unhealthy 2 of 2"),
        ("d", "edge 1 of 2"),
        ("e", "inconclusive 0 of 1"),
    ]
    assert rows[1][3:] == ("kl_pinned", "returns", "0")
    assert rows[0][3:] == ("", "", "")
    assert rows[3][2] == ""


def test_no_row_takes_an_implied_trial_for_a_run(tmp_path: Path) -> None:
    record = begun(tmp_path, SPACE)
    first = record.header().trials[0].config_hash
    twin = implied_end(of=first, outcome="healthy")
    finish(
        record,
        {
            "a": [end_of(0.9), end_of(0.9)],
            "b|c": [implied_end(), implied_end()],
            "d": [twin, twin],
            "e": [end_of(0.9), twin],
        },
    )
    results = load_results(record)
    rows = comparison_rows(results)
    assert [row[:2] for row in rows[1:]] == [
        ("b|c", "unhealthy 2 of 2, implied"),
        ("d", "healthy 2 of 2, implied"),
        ("e", "healthy 2 of 2, 1 implied"),
    ]
    assert [row[2] for row in rows[1:3]] == ["not run", "= a"]
    assert rows[1][3:] == ("zero_signal", "scaled", "0")
    assert rows[3][2].startswith("0.90 [")
    text = render_markdown(results)
    assert "Implied, not run:\n\n- b|c: reward_scaling=0\n" in text
    assert "- d, e: equal to a: the estimator decides nothing\n" in text
    stream = io.StringIO()
    print_results(results, Console(file=stream, width=140))
    assert "implied, not run: b|c: reward_scaling=0" in stream.getvalue()


def test_markdown_has_the_table_the_recommendation_and_every_reason(record: SweepRecord) -> None:
    text = render_markdown(load_results(record))
    assert text.startswith("# kl\n\nWhich one?\n\n| configuration | verdict |")
    assert "| b\\|c | unhealthy 2 of 2 |" in text
    assert "**Recommended**: a: healthy on 2 of 2 seeds" in text
    assert "- **b|c** (kl_pinned): because of kl_pinned." in text
    assert "- **d** (kl_pinned): because of kl_pinned." in text
    assert "Not run: e · s2." in text
    assert "- e · s1: the reward raised" in text


def test_the_terminal_table_marks_the_recommended_one(record: SweepRecord) -> None:
    stream = io.StringIO()
    Console(file=stream, width=140).print(render_table(load_results(record)))
    lines = stream.getvalue().splitlines()
    assert any(line.strip().startswith("a ←") for line in lines)
    assert sum("←" in line for line in lines) == 1


def test_brackets_in_names_are_no_markup(tmp_path: Path) -> None:
    record = begun(tmp_path, "space: {x: {'[bold]a': {}}}\nseeds: 1\n")
    stream = io.StringIO()
    Console(file=stream, width=140).print(render_table(load_results(record)))
    assert "[bold]a" in stream.getvalue()


def test_a_report_folder_holds_the_tables_and_a_picture(record: SweepRecord) -> None:
    results = load_results(record)
    folder = write_report(record, results)
    assert folder == record.folder / "report"
    assert sorted(path.name for path in folder.iterdir()) == [
        "curves.png",
        "results.json",
        "results.md",
    ]
    assert json.loads((folder / "results.json").read_text()) == results.to_json()
    assert (folder / "results.md").read_text() == render_markdown(results)
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_is_written_again_over_the_old_one(record: SweepRecord) -> None:
    write_report(record, load_results(record))
    finish(record, {"e": [FAILED, end_of(0.9)]})
    folder = write_report(record, load_results(record))
    assert json.loads((folder / "results.json").read_text())["not_run"] == []


def test_a_sweep_without_any_end_has_a_report_without_a_picture(tmp_path: Path) -> None:
    record = begun(tmp_path, SPACE)
    folder = write_report(record, load_results(record))
    assert sorted(path.name for path in folder.iterdir()) == ["results.json", "results.md"]
    assert "not run" in (folder / "results.md").read_text()
