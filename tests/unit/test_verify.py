"""A suggestion against the base, paired on fresh seeds."""

from pathlib import Path

import pytest

from grpo_core.errors import ConfigError
from sweeps.record import SweepRecord, TrialEnd
from sweeps.results import ConfigurationResult, load_results
from sweeps.search.verify import check, plan_verification
from sweeps.storage import open_sweep
from tests.sweeps_made import begun, end_of, finish

SPACE = """\
base: {actor: {kl_ctl: 10.0, adv_norm: {mean_level: batch, std_level: batch}}}
space:
  x:
    as it is: {}
    less kl: {actor.kl_ctl: 0.1}
    other norm: {actor.adv_norm: null, actor.reward_norm: {mean_level: group}, actor.kl_ctl: 0.0}
seeds: 2
budget: {steps: 20}
"""
SICK = end_of(0.3, outcome="unhealthy", symptom="kl_pinned", stage="returns", onset=0)


def finished(folder: Path) -> SweepRecord:
    record = begun(folder, SPACE)
    good: list[TrialEnd | None] = [end_of(0.9), end_of(0.9)]
    return finish(record, {"as it is": [SICK, SICK], "less kl": good, "other norm": good})


def named(record: SweepRecord, name: str) -> ConfigurationResult:
    return next(c for c in load_results(record).configurations if c.name == name)


@pytest.mark.parametrize("name", ["less kl", "other norm"])
def test_base_and_change_get_the_same_fresh_seeds(tmp_path: Path, name: str) -> None:
    record = finished(tmp_path)
    choice = named(record, name)
    planned = plan_verification(record.header(), choice, seeds=3)
    assert [(spec.configuration, spec.seed) for spec in planned.trials] == [
        (cell, seed) for seed in (3, 4, 5) for cell in ("base", name)
    ]
    base, change = planned.trials[:2]
    sweep = {spec.configuration: spec for spec in record.header().trials}
    assert base.config_hash == sweep["as it is"].config_hash
    assert change.config_hash == sweep[name].config_hash
    assert (planned.space.racing, planned.space.implied) == (False, False)
    assert planned.space.name == f"kl-verify-{choice.config_hash[:6]}"


def test_the_base_itself_is_no_change(tmp_path: Path) -> None:
    record = finished(tmp_path)
    with pytest.raises(ConfigError, match="as it is is the base itself; name another one"):
        plan_verification(record.header(), named(record, "as it is"), seeds=3)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(
            [SICK, SICK, SICK], [end_of(0.9)] * 3, "less kl: verified, 3 of 3 seeds", id="it-fixes"
        ),
        pytest.param(
            [end_of(0.8)] * 3, [end_of(0.9)] * 3, "less kl: verified, 3 of 3 seeds", id="better"
        ),
        pytest.param(
            [SICK, end_of(0.95), SICK],
            [end_of(0.9), end_of(0.9), SICK],
            "less kl: helped on 1 of 3 seeds only",
            id="now-and-then",
        ),
        pytest.param(
            [SICK, SICK, SICK], [SICK] * 3, "less kl: did not help on any of 3 seeds", id="not"
        ),
        pytest.param(
            [SICK, SICK, None], [end_of(0.9), end_of(0.9), end_of(0.9)],
            "less kl: verified, 2 of 2 seeds", id="only-pairs-count",
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_it(
    tmp_path: Path, before: list[TrialEnd | None], after: list[TrialEnd | None], said: str
) -> None:
    record = finished(tmp_path)
    planned = plan_verification(record.header(), named(record, "less kl"), seeds=3)
    verification = open_sweep(planned, tmp_path, None, resume=False)
    finish(verification, {"base": before, "less kl": after})
    found = check(load_results(verification))
    assert found.conclusion == said
    assert found.verified == ("verified" in said)


def test_every_seed_is_told(tmp_path: Path) -> None:
    record = finished(tmp_path)
    planned = plan_verification(record.header(), named(record, "less kl"), seeds=1)
    verification = open_sweep(planned, tmp_path, None, resume=False)
    finish(verification, {"base": [SICK], "less kl": [end_of(0.9)]})
    assert check(load_results(verification)).lines == (
        "seed 3: base kl_pinned 0.30 -> healthy 0.90",
    )
