"""`sweeps diagnose`: what it prints, what it exits with, what it refuses."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from grpo_core.errors import ConfigError
from sweeps.diagnose.command import diagnose_command
from sweeps.diagnose.document import render_document
from sweeps.diagnose.judge import Judged, judge_all
from sweeps.diagnose.render import render_verdict
from sweeps.importers import DIALECTS, SIGNALS, Options, find_logs
from sweeps.verdict import diagnose
from tests.training_logs import ROWS, Row, healthy_run, trl_rows, write_lines

ROOT = Path(__file__).parents[2]
APP = typer.Typer()
APP.command()(diagnose_command)


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and output; 2 and the problems where the command refuses."""
    result = CliRunner().invoke(APP, list(arguments))
    if isinstance(result.exception, ConfigError):
        return 2, result.output + "\n".join(result.exception.problems)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def broken_rows() -> list[Row]:
    """A run whose loss is no number from step 31 on."""
    rows = trl_rows(healthy_run())
    return rows[:30] + [
        row | {"loss": float("nan"), "grad_norm": float("nan")} for row in rows[30:]
    ]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder with a healthy run, a sick one, a bad file and one that is no log."""
    folder = tmp_path / "logs"
    write_lines(folder / "healthy.jsonl", ROWS["verl"](healthy_run()))
    write_lines(folder / "deep" / "sick.jsonl", broken_rows())
    (folder / "bad.jsonl").write_text('{"step": 1, "reward": "high"}\n')
    (folder / "notes.txt").write_text("the reward went up\n")
    return folder


# --- one log -----------------------------------------------------------------------------


def test_one_log_gets_a_whole_verdict(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "sick.jsonl", broken_rows())
    code, output = run(str(path))
    assert code == 0
    first, second = output.splitlines()[:2]
    assert first.startswith(f"{path}: unhealthy: nonfinite from step 31")
    assert "became NaN or inf at step 31" in second
    for part in (
        "docs/verdicts.md#nonfinite",
        "read as TRL (",
        "60 steps, 1 to 60",
        "  kl_reference: kl\n",
        "lacking, and what cannot be told without it:\n  ratio_max: unstable importance weights",
    ):
        assert part in output


def test_lines_fit_the_terminal(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "sick.jsonl", broken_rows())
    body = run(str(path))[1].splitlines()[1:]
    assert max(len(line) for line in body if "read as" not in line) <= 100


def test_the_verdict_is_that_of_the_trace(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "sick.jsonl", broken_rows())
    [judged], others = judge_all(find_logs([str(path)]), Options())
    assert isinstance(judged, Judged)
    assert judged.diagnosis == diagnose(judged.run.trace)
    assert others == []


def test_keys_that_nobody_knows_are_listed_on_request(tmp_path: Path) -> None:
    rows = [row | {"chat/speed": 3.0} for row in trl_rows(healthy_run())]
    path = write_lines(tmp_path / "run.jsonl", rows)
    assert "1 other keys: --verbose lists them" in run(str(path))[1]
    assert "1 other keys: chat/speed" in run(str(path), "--verbose")[1]


# --- several -----------------------------------------------------------------------------


def test_a_folder_gets_a_row_per_log_and_the_bad_one_its_error(logs: Path) -> None:
    code, output = run(str(logs))
    assert code == 2
    rows = {line.split()[0]: line for line in output.splitlines() if ".jsonl" in line}
    assert "unhealthy" in rows["deep/sick.jsonl"]
    assert "nonfinite" in rows["deep/sick.jsonl"]
    assert " verl " in rows["healthy.jsonl"]
    assert "error" in rows["bad.jsonl"]
    assert "bad.jsonl:1: key 'reward': wanted a number, got 'high'" in output
    assert "1 other files hold no log" in output


def test_json_has_an_entry_per_log(logs: Path) -> None:
    code, output = run(str(logs), "--json")
    assert code == 2
    records = json.loads(output[: output.rindex("]") + 1])
    by_name = {Path(record["path"]).name: record for record in records}
    assert by_name.keys() == {"healthy.jsonl", "sick.jsonl", "bad.jsonl"}
    assert by_name["bad.jsonl"].keys() == {"path", "error"}
    sick = by_name["sick.jsonl"]
    assert (sick["outcome"], sick["symptom"], sick["onset"]) == ("unhealthy", "nonfinite", 31)
    assert sick["steps"] == 60
    assert sick["found"]["raw.silent"] == "frac_reward_zero_std"
    assert set(sick) == {
        "path", "name", "dialect", "decided", "steps", "outcome", "state", "symptom", "onset",
        "stage", "confidence", "evidence", "message", "secondary", "missing", "lacking", "found",
        "derived", "settings", "unknown", "notes", "ended",
    }  # fmt: skip


def test_a_bad_log_that_is_named_stands_alone(logs: Path) -> None:
    code, output = run(str(logs / "bad.jsonl"))
    assert code == 2
    assert "bad.jsonl:1: key 'reward'" in output
    code, output = run(str(logs / "notes.txt"))
    assert code == 2
    assert "is no log that is known" in output


def test_the_same_log_twice_is_one_row(logs: Path) -> None:
    path = str(logs / "healthy.jsonl")
    assert len(find_logs([path, path])) == 1


# --- exit codes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "gate", "expected"),
    [
        pytest.param(broken_rows(), "unhealthy", 1, id="sick"),
        pytest.param(broken_rows(), "never", 0, id="sick-but-no-gate"),
        pytest.param(trl_rows(healthy_run()), "unhealthy", 0, id="not-sick"),
        pytest.param(trl_rows(healthy_run(4)), "unhealthy", 0, id="too-short-to-tell"),
        pytest.param(trl_rows(healthy_run(4)), "inconclusive", 1, id="too-short-to-pass"),
    ],
)
def test_the_gate(tmp_path: Path, rows: list[Row], gate: str, expected: int) -> None:
    path = write_lines(tmp_path / "run.jsonl", rows)
    assert run(str(path), "--fail-on", gate)[0] == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], "no log given; wanted at least one path", id="no-path"),
        pytest.param(["--map", "entropy"], "--map entropy: wanted SIGNAL=KEY", id="no-key"),
        pytest.param(
            ["--map", "entropie=a"],
            "--map entropie=a: no such signal (nearest: entropy)",
            id="no-signal",
        ),
        pytest.param(["--map", "entropy=entropi"], "(nearest: entropy)", id="no-such-key"),
        pytest.param(
            ["--set", "actor.kl_ctrl=1"], "did you mean actor.kl_ctl?", id="no-such-setting"
        ),
        pytest.param(["--set", "actor.kl_ctl"], "wanted KEY=VALUE", id="no-value"),
        pytest.param(["--set", "actor.kl_ctl={"], "the value is no YAML", id="bad-value"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, arguments: list[str], expected: str) -> None:
    path = write_lines(tmp_path / "run.jsonl", trl_rows(healthy_run()))
    code, output = run(*([str(path)] if arguments else []), *arguments)
    assert code == 2
    assert expected in output


def test_options_reach_the_importer(tmp_path: Path) -> None:
    rows = [row | {"mine": 2.0} for row in ROWS["areal"](healthy_run())]
    path = write_lines(tmp_path / "run.jsonl", rows)
    _, output = run(
        str(path),
        "--json",
        "--map",
        "entropy=mine",
        "--set",
        "actor.kl_ctl=0.05",
        "--format",
        "areal",
    )
    [record] = json.loads(output)
    assert record["found"]["entropy"] == "mine"
    assert record["settings"]["actor.kl_ctl"] == 0.05
    assert "kl_reference" in record["found"]
    assert record["decided"] == "--format"


@pytest.mark.slow
def test_the_command_line_says_what_is_wrong_and_stays_light(logs: Path) -> None:
    script = (
        "import sys; from sweeps.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    print([m for m in ('torch', 'ray', 'mlflow') if m in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", script, "diagnose", str(logs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "bad.jsonl:1: key 'reward'" in done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


# --- the document ------------------------------------------------------------------------


def test_the_document_agrees_with_the_tables() -> None:
    assert (ROOT / "docs" / "diagnose.md").read_text() == render_document()


def test_the_document_names_every_signal_and_key() -> None:
    text = render_document()
    assert all(f"| `{name}` |" in text for name in SIGNALS)
    for dialect in DIALECTS.values():
        assert dialect.name in ("plain", "sweeps") or all(
            f"| `{entry.key}` |" in text for entry in dialect.entries
        )


def test_the_options_of_the_document_exist() -> None:
    help_text = re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(APP, ["--help"]).output)
    named = set(re.findall(r"`(--[a-z-]+)", render_document()))
    assert named >= {"--watch", "--map", "--set", "--fail-on", "--format", "--alarm"}
    missing = [name for name in named if name not in help_text]
    assert missing == []


def test_every_part_of_a_verdict_is_shown(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "sick.jsonl", broken_rows()[:45] + broken_rows()[50:])
    [judged], _ = judge_all(find_logs([str(path)]), Options(settings={"seed": 3}))
    assert isinstance(judged, Judged)
    text = render_verdict(judged)
    parts: list[Any] = [*judged.run.found, *judged.run.lacking, *judged.run.notes]
    assert judged.run.notes
    assert all(str(part) in text for part in parts)
    assert all(f"{name} " in text for name in judged.diagnosis.evidence)
    assert all(name in text for name in judged.diagnosis.secondary)
    assert "  seed: 3" in text
