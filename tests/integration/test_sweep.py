"""The main job for real: a tiny sweep under Ray, its record, its verdicts, MLflow."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweeps.record import SweepRecord

pytestmark = [pytest.mark.slow, pytest.mark.ray]

SPACE = """\
name: tiny
question: Does it run?
base:
  actor: {adv_norm: {mean_level: batch, std_level: batch}, kl_ctl: 0.0}
  evaluation: {prompts: 64, every: 0}
space:
  change:
    healthy: {}
    group norm: {actor.reward_norm: {mean_level: group, std_level: group}}
    dead: {actor.reward_scaling: 0.0}
    twin: {actor.kl_estimator: k3}
seeds: 1
budget: {steps: 12}
implied: false
stop: "off"
"""
INTERRUPTED = (
    SPACE.replace("steps: 12", "steps: 60")
    .replace("name: tiny", "name: long")
    .replace("    twin: {actor.kl_estimator: k3}\n", "")
)
TAGS = ("verdict", "symptom", "stage", "onset", "sweep", "seed", "config_hash")


@dataclass(frozen=True)
class Sweep:
    """A sweep's files and how to run commands on it."""

    work: Path
    space: Path

    @property
    def store(self) -> Path:
        """MLflow's database."""
        return self.work / "mlflow.db"

    @property
    def record(self) -> SweepRecord:
        """Its record."""
        return SweepRecord(self.work / "sweep_results" / self.space.stem)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start `python -m sweeps` as a user does."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("GRPO_SWEEPS_STORAGE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS")
        }
        return subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", "sweeps", *words],
            cwd=self.work,
            env=environment | {"PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        process = self.start(*words)
        out, err = process.communicate(timeout=400)
        return subprocess.CompletedProcess(words, process.returncode, out, err)


def made(folder: Path, text: str, name: str) -> Sweep:
    space = folder / f"{name}.yaml"
    space.write_text(text)
    return Sweep(folder, space)


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The tiny sweep, run once for all tests."""
    sweep = made(tmp_path_factory.mktemp("tiny"), SPACE, "tiny")
    ran = sweep.run("run", str(sweep.space), "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["sweep"] == "tiny"
    return sweep


@pytest.fixture(scope="session")
def shape(sweep: Sweep) -> dict[str, Any]:
    """What `sweeps results --json` prints."""
    ran = sweep.run("results", "tiny", "--json")
    assert ran.returncode == 0, ran.stderr
    printed: dict[str, Any] = json.loads(ran.stdout)
    return printed


def test_healthy_and_dead_are_told_apart(shape: dict[str, Any]) -> None:
    verdicts = {c["config"]: c["verdict"] for c in shape["configurations"]}
    assert list(verdicts) == ["healthy", "group norm", "dead", "twin"]
    dead = verdicts["dead"]
    assert (dead["outcome"], dead["healthy"], dead["seeds"]) == ("unhealthy", 0, 1)
    assert (dead["symptom"], dead["stage"]) == ("zero_signal", "scaled")
    for name in ("healthy", "group norm"):
        assert (verdicts[name]["outcome"], verdicts[name]["symptom"]) == ("healthy", None)


def test_results_have_the_documented_shape(shape: dict[str, Any]) -> None:
    assert {"sweep", "configurations", "recommended", "not_run"} <= set(shape)
    assert shape["not_run"] == []
    hashes = {c["hash"]: c["config"] for c in shape["configurations"]}
    assert hashes[shape["recommended"]] in ("healthy", "group norm", "twin")
    for configuration in shape["configurations"]:
        assert {"config", "hash", "verdict", "final", "trials"} <= set(configuration)
        verdict, final = configuration["verdict"], configuration["final"]
        assert {"outcome", "healthy", "seeds", "symptom", "stage"} <= set(verdict)
        assert 0 <= final["low"] <= final["mean"] <= final["high"] <= 1
        (trial,) = configuration["trials"]
        assert {"id", "seed", "outcome", "state", "symptom", "stage", "onset", "final"} <= set(
            trial
        )
        assert trial["seed"] == 1
        assert trial["final"] == final["mean"]


def test_the_record_holds_every_step_once_and_no_checkpoint(sweep: Sweep) -> None:
    for spec in sweep.record.header().trials:
        assert [step.step for step in sweep.record.steps(spec.id)] == list(range(12))
        assert not sweep.record.checkpoint(spec.id).exists()


def test_the_report_folder_is_written(sweep: Sweep) -> None:
    names = {path.name for path in sweep.record.report_folder.iterdir()}
    assert {"results.json", "results.md", "curves.png"} <= names


def test_mlflow_has_a_tagged_run_per_trial_with_each_step_once(
    sweep: Sweep, shape: dict[str, Any]
) -> None:
    with sqlite3.connect(sweep.store) as store:
        tags: dict[str, dict[str, str]] = {}
        for run, key, value in store.execute("SELECT run_uuid, key, value FROM tags"):
            tags.setdefault(run, {})[key] = value
        steps: dict[str, list[int]] = {}
        rewards = "SELECT run_uuid, step FROM metrics WHERE key = 'reward/pass_rate' ORDER BY step"
        for run, step in store.execute(rewards):
            steps.setdefault(run, []).append(step)
    store.close()
    assert sorted(steps.values()) == [list(range(12))] * 4
    by_hash = {tags[run]["config_hash"]: tags[run] for run in steps}
    assert set(by_hash) == {c["hash"] for c in shape["configurations"]}
    for configuration in shape["configurations"]:
        found = by_hash[configuration["hash"]]
        (trial,) = configuration["trials"]
        wanted = {"verdict": trial["outcome"], "sweep": "tiny", "seed": "1"}
        wanted["config_hash"] = configuration["hash"]
        wanted |= {
            key: str(trial[key]) for key in ("symptom", "stage", "onset") if trial[key] is not None
        }
        assert {key: found[key] for key in TAGS if key in wanted} == wanted


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        pytest.param("never", 0, id="no-gate"),
        pytest.param("no-recommendation", 0, id="something-is-recommended"),
        pytest.param("unhealthy", 1, id="a-configuration-is-unhealthy"),
    ],
)
def test_running_it_again_runs_nothing_and_answers_by_its_gate(
    sweep: Sweep, gate: str, code: int
) -> None:
    trials = sweep.record.folder / "trials"
    before = {path.name: path.stat().st_mtime_ns for path in trials.iterdir()}
    ran = sweep.run("run", str(sweep.space), "--resume", "--fail-on", gate)
    assert ran.returncode == code, ran.stderr
    assert {path.name: path.stat().st_mtime_ns for path in trials.iterdir()} == before
    assert "recommended: " in ran.stdout
    assert "0 running" in ran.stderr
    assert " running · 1 waiting" not in ran.stderr


@pytest.fixture(scope="session")
def implied(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The same sweep without training what follows from a proof."""
    implied = made(tmp_path_factory.mktemp("implied"), SPACE, "tiny")
    ran = implied.run("run", str(implied.space), "--implied", "--json")
    assert ran.returncode == 0, ran.stderr
    assert "not trained: 1 provably dead and 1 provably equal to another" in ran.stderr
    assert [spec.id for spec in implied.record.header().trials] == [
        spec.id for spec in sweep.record.header().trials
    ]
    return implied


def test_what_is_implied_agrees_with_what_was_trained(sweep: Sweep, implied: Sweep) -> None:
    healthy, normed, dead, twin = (spec.id for spec in sweep.record.header().trials)
    for trial in (healthy, normed):
        trained, again = sweep.record.steps(trial), implied.record.steps(trial)
        assert [step.to_json() for step in trained] == [step.to_json() for step in again]
    for trial in (dead, twin):
        assert implied.record.steps(trial) == []
        seen, said = sweep.record.end(trial), implied.record.end(trial)
        assert seen is not None
        assert said is not None
        assert (seen.status, said.status) == ("finished", "implied")
        for part in ("outcome", "state", "symptom", "stage", "onset"):
            assert getattr(said.diagnosis, part) == getattr(seen.diagnosis, part)
    # The dead one never moved; the twin trained as the one that it repeats did.
    assert {step.update_norm for step in sweep.record.steps(dead)} == {0.0}
    curves = [sweep.record.steps(trial) for trial in (healthy, twin)]
    assert [step.to_json() for step in curves[0]] == [step.to_json() for step in curves[1]]


def test_nobody_takes_an_implied_trial_for_a_run(implied: Sweep) -> None:
    printed = implied.run("results", "tiny")
    assert "unhealthy 1 of 1, implied" in printed.stdout
    assert "= healthy" in printed.stdout
    assert "implied, not run: dead: actor.reward_scaling=0: every reward" in printed.stdout
    shape = json.loads(implied.run("results", "tiny", "--json").stdout)
    assert shape["not_run"] == []
    by_name = {c["config"]: c for c in shape["configurations"]}
    assert [by_name[name]["final"] for name in ("dead", "twin")] == [None, None]
    assert by_name["twin"]["implied"]["of"] == by_name["healthy"]["hash"]
    assert shape["recommended"] in (by_name["healthy"]["hash"], by_name["group norm"]["hash"])
    with sqlite3.connect(implied.store) as store:
        tagged = dict(store.execute("SELECT run_uuid, value FROM tags WHERE key = 'implied'"))
        measured = {run for (run,) in store.execute("SELECT DISTINCT run_uuid FROM metrics")}
    store.close()
    assert len(tagged) == 4
    assert {run for run, proof in tagged.items() if proof == ""} == measured


@pytest.mark.parametrize("flag", ["--implied", "--no-implied"])
def test_an_implied_end_stays_when_the_sweep_is_taken_up_again(implied: Sweep, flag: str) -> None:
    trials = implied.record.folder / "trials"
    before = {path.name: path.stat().st_mtime_ns for path in trials.iterdir()}
    ran = implied.run("run", str(implied.space), "--resume", flag)
    assert ran.returncode == 0, ran.stderr
    assert {path.name: path.stat().st_mtime_ns for path in trials.iterdir()} == before


def test_a_sweep_of_another_content_is_refused_before_ray(sweep: Sweep) -> None:
    ran = sweep.run("run", str(sweep.space), "--set", "actor.eps_clip=0.3")
    assert ran.returncode == 2
    assert "exists in" in ran.stderr


def test_a_sweep_that_is_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    sweep = made(tmp_path, INTERRUPTED, "long")
    process = sweep.start("run", str(sweep.space))
    deadline = time.monotonic() + 120
    while not _has_steps(sweep):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "trials are unfinished; the same command goes on with them" in out
    kept = {s.id: len(sweep.record.steps(s.id)) for s in sweep.record.header().trials}
    assert 0 < sum(kept.values()) < 180

    ran = sweep.run("run", str(sweep.space), "--resume")
    assert ran.returncode == 0, ran.stderr
    for spec in sweep.record.header().trials:
        assert [step.step for step in sweep.record.steps(spec.id)] == list(range(60))


def _has_steps(sweep: Sweep) -> bool:
    return any(path.stat().st_size for path in sweep.record.folder.glob("trials/*.jsonl"))
