import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweeps.cli import BY_CTRL_C, app, main
from sweeps.record import SweepRecord
from sweeps.workspace import STORAGE_VARIABLE
from tests.sweeps_made import begun, end_of, finish

SPACE = "space: {x: {a: {}, b: {actor.kl_ctl: 9.0}}}\nseeds: 1\nquestion: Which one?\n"
SICK = end_of(0.25, outcome="unhealthy", symptom="kl_pinned", stage="returns", onset=4)


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """Runs commands in this process."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str | Path) -> Ran:
        self.monkeypatch.setattr(sys, "argv", ["sweeps", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        shown = self.capsys.readouterr()
        return Ran(code, shown.out, shown.err)


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name in (STORAGE_VARIABLE, "MLFLOW_TRACKING_URI", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.delenv(name, raising=False)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "kl.yaml"
    path.write_text(SPACE)
    return path


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    return finish(begun(tmp_path / "storage", SPACE), {"a": [end_of(0.9)], "b": [SICK]})


def test_plan_says_what_would_run(shell: Shell, space: Path) -> None:
    ran = shell("plan", space)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "kl: Which one?",
        "  x: a, b",
        "2 configurations x 1 seeds = 2 trials, 80 steps",
        "  a",
        "  b",
    ]
    assert list(Path.cwd().iterdir()) == []


def test_plan_speaks_json_too(shell: Shell, space: Path) -> None:
    planned = json.loads(shell("plan", space, "--json").out)
    assert (planned["sweep"], planned["configurations"], planned["seeds"]) == ("kl", 2, [1])
    assert [trial["configuration"] for trial in planned["trials"]] == ["a", "b"]


IMPLIED = """\
base: {actor: {kl_ctl: 0.0}}
space: {x: {a: {}, dead: {actor.reward_scaling: 0.0}, twin: {actor.kl_estimator: k3}}}
seeds: 1
"""
DEAD = "actor.reward_scaling=0: every reward becomes 0, and nothing else enters the loss"
TWIN = "actor.kl_estimator (k1 or k3) decides nothing: actor.kl_ctl=0: no KL is estimated"


def test_plan_says_what_need_not_run(shell: Shell, space: Path) -> None:
    space.write_text(IMPLIED)
    lines = shell("plan", space).out.splitlines()
    assert lines[-4] == (
        "3 configurations x 1 seeds = 3 trials, 120 steps; not trained: 1 provably dead and 1 "
        "provably equal to another (--no-implied trains them)"
    )
    assert lines[-3:] == [
        "  a",
        f"  dead (implied: {DEAD})",
        f"  twin (implied: equal to a, because {TWIN})",
    ]
    planned = json.loads(shell("plan", space, "--json").out)
    a, dead, twin = planned["trials"]
    assert planned["implied"] == {
        dead["id"]: {"of": None, "proof": DEAD},
        twin["id"]: {"of": a["config_hash"], "proof": TWIN},
    }


def test_plan_of_a_space_that_trains_everything_speaks_of_no_proof(
    shell: Shell, space: Path
) -> None:
    space.write_text(IMPLIED + "implied: false\n")
    assert "implied" not in shell("plan", space).out
    assert json.loads(shell("plan", space, "--json").out)["implied"] == {}


def test_set_changes_what_would_run(shell: Shell, space: Path) -> None:
    ran = shell(
        "plan", space, "--set", "total_train_steps=7", "--set", "actor.eps_clip=0.3", "--json"
    )
    config = json.loads(ran.out)["trials"][0]["config"]
    assert (config["total_train_steps"], config["actor"]["eps_clip"]) == (7, 0.3)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_every_problem_is_a_line_and_nothing_is_left_on_disk(
    shell: Shell, tmp_path: Path, command: str
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("space: {actor.kl_ctrl: [0.0]}\nseeds: 0\n")
    ran = shell(command, bad, "--set", "x")
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.splitlines() == [
        f"error: {bad}: seeds: got 0, wanted 1 to 1000 (or a list of seeds)",
        "error: --set x: wanted key=value",
        f"error: {bad}: space.actor.kl_ctrl: no such key; did you mean actor.kl_ctl?",
    ]
    assert list(Path.cwd().iterdir()) == []


def test_bad_input_never_loads_ray_or_torch(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("space: {}\n")
    code = (
        "import sys\nfrom sweeps.cli import main\n"
        f"sys.argv = ['sweeps', 'run', {str(bad)!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 2, end.code\n"
        "heavy = {'torch', 'ray', 'mlflow', 'scipy'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)  # noqa: S603 - our own interpreter
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


def test_a_storage_that_cannot_be_written_is_bad_input(
    shell: Shell, space: Path, tmp_path: Path
) -> None:
    ran = shell("run", space, "--storage", tmp_path / "kl.yaml" / "inside")
    assert ran.code == 2
    assert "--storage" in ran.err
    assert "cannot be written" in ran.err


def test_a_sweep_of_another_content_is_bad_input(shell: Shell, space: Path, tmp_path: Path) -> None:
    begun(tmp_path / "storage", SPACE.replace("9.0", "8.0"))
    ran = shell("run", space, "--storage", tmp_path / "storage")
    assert ran.code == 2
    assert "exists in" in ran.err
    assert "with another content" in ran.err


def test_a_store_of_another_mlflow_is_bad_input_and_no_sweep_is_begun(
    shell: Shell, space: Path, tmp_path: Path
) -> None:
    with sqlite3.connect("mlflow.db") as store:
        store.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        store.execute("INSERT INTO alembic_version VALUES ('ffffffffffff')")
    store.close()
    ran = shell("run", space, "--storage", tmp_path / "storage")
    assert ran.code == 2
    assert "mlflow.db" in ran.err
    assert not (tmp_path / "storage").exists()


@pytest.mark.parametrize("name", ["../up", "/etc/up", "a/b", "..", ".hidden", "", "a b"])
def test_a_name_on_the_command_line_cannot_leave_the_storage_folder(
    shell: Shell, space: Path, name: str
) -> None:
    ran = shell("run", space, "--name", name)
    assert ran.code == 2
    assert ran.err.splitlines()[-1].startswith(f"error: --name: got {name!r}, wanted letters")
    assert list(Path.cwd().iterdir()) == []


def test_resuming_a_sweep_that_is_not_there_is_bad_input(shell: Shell, space: Path) -> None:
    ran = shell("run", space, "--resume")
    assert (ran.code, ran.out) == (2, "")
    assert "--resume: there is no sweep 'kl'" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["run"], id="no-file"),
        pytest.param(["nonsense"], id="no-such-command"),
        pytest.param(["plan", "x.yaml", "--nonsense"], id="no-such-option"),
        pytest.param(["run", "x.yaml", "--max-concurrent", "0"], id="no-trial-at-once"),
        pytest.param(["run", "x.yaml", "--fail-on", "sometimes"], id="no-such-gate"),
        pytest.param(["plan", "none.yaml"], id="no-such-file"),
        pytest.param(["results", "none"], id="no-such-sweep"),
        pytest.param(["explain", "nonsense.key"], id="no-such-key"),
    ],
)
def test_a_command_that_cannot_be_meant_is_bad_input(shell: Shell, words: list[str]) -> None:
    ran = shell(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err != ""


def test_results_print_the_table_and_where_to_look(shell: Shell, record: SweepRecord) -> None:
    ran = shell("results", record.folder)
    assert ran.code == 0
    assert "healthy 1 of 1" in ran.out
    assert "recommended: a: healthy on 1 of 1 seeds" in ran.out
    assert f"report   {record.folder / 'report'}" in ran.out


def test_results_are_json_and_nothing_else_when_asked(shell: Shell, record: SweepRecord) -> None:
    shape = json.loads(shell("results", "kl", "--storage", record.folder.parent, "--json").out)
    assert shape["sweep"] == "kl"
    assert [c["config"] for c in shape["configurations"]] == ["a", "b"]


def test_explain_prints_a_setting_or_all(shell: Shell) -> None:
    assert shell("explain", "actor.kl_ctl").out.startswith("actor.kl_ctl: Weight of the per-token")
    assert len(shell("explain").out.splitlines()) > 80


def test_explain_lists_the_lint_rules_that_read_a_setting(shell: Shell) -> None:
    scaling = shell("explain", "actor.reward_scaling").out
    assert "\n  scaling-zero (fatal): " in scaling
    assert "group-of-one" not in scaling
    # A section has the rules of what is inside it, and what is inside those of the section.
    assert "\n  biased-std (worth-knowing): " in shell("explain", "actor.reward_norm").out
    assert "\n  mask-pays-for-truncation (" in shell("explain", "actor.reward_norm.mean_level").out
    assert "Lint rules" not in shell("explain", "evaluation.prompts").out


def test_promote_writes_the_file_and_prints_the_overrides(
    shell: Shell, record: SweepRecord, tmp_path: Path
) -> None:
    base, out = tmp_path / "areal.yaml", tmp_path / "new.yaml"
    base.write_text("# Our file\nactor:\n  kl_ctl: 0.5\n")
    ran = shell("promote", record.folder, "--base", base, "--out", out)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        f"wrote {out}: a, 1 settings changed",
        "  actor.kl_ctl: 0.5 -> 0.1",
        "as AReaL command-line overrides:",
        "  actor.kl_ctl=0.1",
    ]
    assert out.read_text().endswith("# Our file\nactor:\n  kl_ctl: 0.1\n")
    again = shell("promote", record.folder, "--base", base, "--out", out)
    assert (again.code, again.err) == (2, f"error: --out: {out} exists; --force overwrites it\n")
    assert shell("promote", record.folder, "--base", base, "--out", out, "--force").code == 0


def test_ctrl_c_ends_with_its_own_code(shell: Shell) -> None:
    @app.command("wait-for-test")
    def wait() -> None:
        raise KeyboardInterrupt

    ran = shell("wait-for-test")
    app.registered_commands.pop()
    assert (ran.code, ran.err) == (3, "interrupted\n")
    assert BY_CTRL_C == 130


@pytest.mark.parametrize("command", ["plan", "run", "results", "explain", "promote"])
def test_every_command_has_help_in_plain_words(shell: Shell, command: str) -> None:
    ran = shell(command, "--help")
    assert ran.code == 0
    assert "Usage: sweeps " in ran.out
    assert "Raises" not in ran.out
