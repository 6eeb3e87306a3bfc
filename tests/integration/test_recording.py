from pathlib import Path

import pytest

from grpo_core.config import TrialConfig
from grpo_core.profiles import PROFILES
from grpo_core.replay import Replayer
from sweeps.dotted import nest
from sweeps.replay.foreign import load_recording
from sweeps.trial import TrialRun

pytestmark = pytest.mark.slow


def config(**settings: object) -> TrialConfig:
    flat = PROFILES["tiny"].defaults | {"actor.kl_ctl": 0.0, "total_train_steps": 6, **settings}
    return TrialConfig.model_validate(nest(flat))


def test_a_recorded_trial_can_be_replayed_and_is_not_changed_by_it(tmp_path: Path) -> None:
    norm = {"actor.adv_norm.mean_level": "batch", "actor.adv_norm.std_level": "batch"}
    recorded = TrialRun(config(**norm), tmp_path / "one", rollouts=tmp_path / "rollouts")
    plain = TrialRun(config(**norm), tmp_path / "two")
    steps = recorded.advance(seconds=1e9).steps
    assert [s.to_json() for s in steps] == [s.to_json() for s in plain.advance(seconds=1e9).steps]
    names = sorted(path.name for path in (tmp_path / "rollouts").glob("*.safetensors"))
    # The reference policy is asked on every fourth step and on the last.
    assert names == [f"step-{step:06d}.safetensors" for step in (0, 4, 5)]
    batch = load_recording(tmp_path / "rollouts" / names[0]).recorded
    replayed = Replayer(batch)
    assert bool(replayed.evaluate(config(**norm)).weights.any())
    assert not replayed.evaluate(config(**norm, **{"actor.reward_scaling": 0.0})).weights.any()
