"""Seeds in waves, and TPE, for real: small trials under Ray."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.running_sweeps import RunningSweep, make_sweep

pytestmark = [pytest.mark.slow, pytest.mark.ray]

RACE = """\
name: race
base:
  actor: {adv_norm: {mean_level: batch, std_level: batch}, kl_ctl: 0.0}
  evaluation: {prompts: 64, every: 0}
space:
  change:
    healthy: {}
    group norm: {actor.reward_norm: {mean_level: group, std_level: group}}
    no signal: {actor.reward_scaling: 0.0}
seeds: 2
budget: {steps: 15}
implied: false
"""
SEARCH = """\
name: search
base:
  actor: {adv_norm: {mean_level: batch, std_level: batch}, kl_ctl: 0.0}
  evaluation: {prompts: 64, every: 0}
space:
  actor.eps_clip: [0.1, 0.2, 0.3]
  actor.reward_scaling: [0.0, 1.0]
seeds: 2
budget: {steps: 12}
design: {kind: tpe, cells: 3, seed: 1}
"""


def results_of(sweep: RunningSweep, *options: str) -> tuple[dict[str, Any], str]:
    """What the sweep prints as JSON, and what it says while it runs."""
    ran = sweep.run("run", "--json", *options)
    assert ran.returncode == 0, ran.stderr
    printed: dict[str, Any] = json.loads(ran.stdout)
    return printed, ran.stderr


def test_a_cell_that_is_broken_gets_no_second_seed_and_the_others_do(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, RACE, "race")
    results, said = results_of(sweep)
    by_name = {c["config"]: c for c in results["configurations"]}
    dead = by_name["no signal"]
    assert (dead["verdict"]["outcome"], dead["verdict"]["seeds"]) == ("unhealthy", 1)
    assert dead["dropped"].startswith("after seed 1: zero_signal at stage scaled, confidence ")
    assert [by_name[name]["verdict"]["seeds"] for name in ("healthy", "group norm")] == [2, 2]
    assert results["not_run"] == []
    assert results["recommended"] in (by_name["healthy"]["hash"], by_name["group norm"]["hash"])
    assert "  no signal · s2: dropped after seed 1: zero_signal" in said
    decided = sweep.record.header()
    # Taken up again, it decides the same and runs nothing.
    before = {p.name: p.stat().st_mtime_ns for p in (sweep.record.folder / "trials").iterdir()}
    results_of(sweep, "--resume")
    assert sweep.record.header() == decided
    after = {p.name: p.stat().st_mtime_ns for p in (sweep.record.folder / "trials").iterdir()}
    assert after == before


def test_a_search_asks_its_cells_one_by_one_and_plans_them_in_the_record(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, SEARCH, "search")
    results, _ = results_of(sweep, "--max-concurrent", "1")
    header = sweep.record.header()
    assert len(header.trials) == 6
    assert len(results["configurations"]) == 3
    assert results["not_run"] == []
    for spec in header.trials:
        end = sweep.record.end(spec.id)
        assert end is not None
        # What is provably dead was recorded without training.
        assert end.implied == (spec.config["actor"]["reward_scaling"] == 0.0)
        assert len(sweep.record.steps(spec.id)) == (0 if end.implied else 12)
    printed = sweep.run("results").stdout
    assert len(re.findall(r"^ ?eps_clip=", printed, flags=re.MULTILINE)) == 3
