"""Trained cells agree with what replay implied from the recorded batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typing_extensions import override

from grpo_core.config import TrialConfig
from grpo_core.policy import TinyPolicy
from grpo_core.policy.base import Policy
from grpo_core.policy.tiny import TinyDecoder
from grpo_core.policy.warm_start import Recipe, warm_start
from grpo_core.profiles import PROFILES
from grpo_core.replay import Replayer
from grpo_core.rollout import sample_batch
from grpo_core.trainer import Trainer
from grpo_core.update import minibatches
from sweeps.dotted import nest
from sweeps.replay.dead import prove_dead
from sweeps.replay.evaluate import measure
from sweeps.replay.files import record_rollout
from sweeps.replay.foreign import load_recording
from sweeps.replay.implied import imply
from sweeps.replay.recording import Recording
from sweeps.replay.spared import dead_end
from sweeps.trace import trace_of
from sweeps.verdict import diagnose

pytestmark = pytest.mark.slow

GROUP = {"mean_level": "group", "std_level": "group"}
PLAIN = PROFILES["tiny"].defaults | {
    "total_train_steps": 4,
    "actor.kl_ctl": 0.0,
    "actor.ppo_n_minibatches": 1,
    "actor.reward_norm": GROUP,
    "actor.optimizer.warmup_steps_proportion": 0.0,
    "evaluation.prompts": 8,
    "evaluation.every": 0,
}
STALE = {
    "rollout.max_head_offpolicyness": 2,
    "actor.optimizer.lr": 2e-3,
    "actor.kl_ctl": 0.05,
    "actor.eps_clip": 0.05,
}


def config(changes: dict[str, Any]) -> TrialConfig:
    return TrialConfig.model_validate(nest(PLAIN | changes))


class WatchedPolicy(TinyPolicy):
    """Keeps the log-probs that a gradient went through."""

    def __init__(self, decoder: TinyDecoder) -> None:
        super().__init__(decoder)
        self.seen: list[Tensor] = []

    @override
    def logprobs(self, ids: Tensor, temperature: float) -> Tensor:
        logprobs = super().logprobs(ids, temperature)
        if logprobs.requires_grad:
            logprobs.retain_grad()
            self.seen.append(logprobs)
        return logprobs

    @override
    def copy(self) -> Policy:
        return TinyPolicy(self._decoder).copy()


def start(changes: dict[str, Any], steps: int = 0) -> tuple[Trainer, WatchedPolicy]:
    """A trial after some steps."""
    settings = config(changes)
    policy = WatchedPolicy(warm_start(Recipe(task=settings.task.name), lambda _: None))
    trainer = Trainer(settings, policy=policy)
    for _ in range(steps):
        trainer.step()
    policy.seen.clear()
    return trainer, policy


def record(trainer: Trainer, path: Path) -> Recording:
    """The batch that the next step of a trial will train on."""
    step, staleness = trainer.steps_done, len(trainer._past)
    batch = sample_batch(
        trainer._behaviour(), trainer.task, trainer.config, step=step, version=step - staleness
    )
    with torch.no_grad():
        reference = trainer.reference.logprobs(batch.ids, 1.0)
        proximal = trainer.policy.logprobs(batch.ids, 1.0)
    record_rollout(
        batch,
        reference,
        path,
        config=trainer.config,
        proximal_logprobs=proximal,
        current_version=step,
    )
    return load_recording(path)


def trained_gradient(trainer: Trainer, policy: WatchedPolicy) -> Tensor:
    """d loss / d log-prob of the next step's only update, rows in the batch's order."""
    step, staleness = trainer.steps_done, len(trainer._past)
    batch = sample_batch(
        trainer._behaviour(), trainer.task, trainer.config, step=step, version=step - staleness
    )
    (rows,) = minibatches(batch, 1, trainer.config.seed, step)
    trainer.step()
    (logprobs,) = policy.seen
    assert logprobs.grad is not None
    whole = torch.zeros(batch.ids.shape)
    whole[rows, : logprobs.shape[1]] = logprobs.grad
    return whole


@pytest.fixture(scope="module")
def initial(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(start({})[0], tmp_path_factory.mktemp("rollouts") / "initial.safetensors")


PROVEN_DEAD = [
    pytest.param({"actor.reward_scaling": 0.0}, id="scaling"),
    pytest.param(
        {"actor.reward_bias": 1.0, "actor.reward_scaling": 5.0, "actor.reward_clip": 1.0}, id="clip"
    ),
    pytest.param({"gconfig.n_samples": 1, "train_dataset.batch_size": 96}, id="groups-of-one"),
    pytest.param(
        {"gconfig.n_samples": 1, "actor.reward_norm": None, "actor.adv_norm": GROUP},
        id="groups-of-one-advantages",
    ),
    pytest.param(
        {"actor.reward_bias": 9.0, "actor.reward_clip": 2.0, "actor.reward_norm": None}
        | {"actor.adv_norm": {"mean_level": "batch", "std_level": "batch"}},
        id="clip-centred-by-advantages",
    ),
    pytest.param(
        {"task.reward_wrong": 1.0, "actor.reward_norm": None, "actor.adv_norm": GROUP},
        id="one-reward",
    ),
    pytest.param(
        {"actor.reward_scaling": 0.0, "actor.ppo_n_minibatches": 4, "actor.use_sapo_loss": True},
        id="sapo",
    ),
    pytest.param(
        {"actor.reward_scaling": 0.0, "actor.ppo_n_minibatches": 2, "areal_compat": True},
        id="areal-compat",
    ),
]


@pytest.mark.parametrize("changes", PROVEN_DEAD)
def test_cells_implied_dead_never_move(changes: dict[str, Any], initial: Recording) -> None:
    (implied,) = imply([config(changes)], initial.recorded)
    assert implied.kind == "dead"
    trainer, policy = start(changes)
    before = trainer._flat_weights()
    for _ in range(2):
        metrics = trainer.step()
        assert metrics.grad_norm == 0.0
        assert metrics.update_norm == 0.0
    assert policy.seen
    assert torch.equal(trainer._flat_weights(), before)


@pytest.mark.parametrize("changes", PROVEN_DEAD)
def test_a_trained_dead_cell_gets_the_verdict_that_was_implied(changes: dict[str, Any]) -> None:
    proof = prove_dead(config(changes))
    assert proof is not None
    implied = dead_end(proof, 0.0).diagnosis
    trainer, _ = start(changes | {"total_train_steps": 10})
    found = diagnose(trace_of([trainer.step() for _ in range(10)]))
    for part in ("outcome", "symptom", "stage", "onset"):
        assert getattr(found, part) == getattr(implied, part)


def test_a_cell_dead_on_this_batch_does_not_move_in_its_first_step(initial: Recording) -> None:
    changes = {
        "actor.overlong_reward_penalty": True,
        "actor.overlong_tokens": 18,
        "actor.overlong_penalty_factor": 1000.0,
        "actor.kl_ctl": 0.0,
    }
    assert imply([config(changes)], initial.recorded) == []
    assert measure(Replayer(initial.recorded).evaluate(config(changes))).norm == 0.0
    assert start(changes)[0].step().grad_norm == 0.0


IDENTICAL = [
    pytest.param(
        {"actor.reward_norm": GROUP | {"eps": 1e-30}},
        {"actor.reward_norm": GROUP | {"eps": 1e-30}, "actor.reward_scaling": 4.0},
        id="scaling-below-a-spread",
    ),
    pytest.param({}, {"actor.reward_clip": 5.0}, id="clip-above-the-rewards"),
]


@pytest.mark.parametrize(("one", "other"), IDENTICAL)
def test_cells_called_identical_give_equal_gradients(
    one: dict[str, Any], other: dict[str, Any], initial: Recording
) -> None:
    replayer = Replayer(initial.recorded)
    weights = [replayer.evaluate(config(changes)).weights for changes in (one, other)]
    assert torch.equal(*weights)
    gradients = [trained_gradient(*start(changes)) for changes in (one, other)]
    assert torch.equal(*gradients)
    assert gradients[0].any()


PROVEN_TWINS = [
    pytest.param({}, {"actor.kl_estimator": "k3"}, id="estimator"),
    pytest.param({}, {"actor.eps_clip": 0.01}, id="clip-range-with-one-fresh-update"),
    pytest.param(
        {"actor.ppo_n_minibatches": 2},
        {"actor.ppo_n_minibatches": 2, "actor.m2_threshold": 1e-6},
        id="m2po-without-decoupling",
    ),
    pytest.param({"ref": None}, {}, id="reference-that-is-only-looked-at"),
    pytest.param(
        {"actor.optimizer.type": "sgd"},
        {"actor.optimizer.type": "sgd", "actor.optimizer.beta2": 0.5},
        id="moments-of-sgd",
    ),
]


@pytest.mark.parametrize(("one", "other"), PROVEN_TWINS)
def test_cells_implied_as_duplicates_train_the_same_policy_bit_for_bit(
    one: dict[str, Any], other: dict[str, Any], initial: Recording
) -> None:
    (implied,) = imply([config(one), config(other)], initial.recorded)
    assert (implied.kind, implied.of) == ("duplicate", 0)
    weights = [start(changes, steps=3)[0]._flat_weights() for changes in (one, other)]
    assert torch.equal(*weights)
    assert not torch.equal(weights[0], start(one)[0]._flat_weights())


CELLS = [
    pytest.param({}, 0, id="group-norm"),
    pytest.param({"actor.reward_norm": None}, 0, id="no-norm"),
    pytest.param({"actor.adv_norm": {}, "actor.gae_lambda": 0.9}, 0, id="gae-and-whitening"),
    pytest.param(
        {"extensions.loss_aggregation": "sequence-mean", "actor.kl_ctl": 0.1}, 2, id="kl-later"
    ),
    pytest.param(
        {"extensions.kl_loss_coef": 0.1, "extensions.truncated_answers": "mask"},
        2,
        id="kl-in-the-loss",
    ),
    pytest.param(STALE, 3, id="stale"),
    pytest.param(
        STALE | {"actor.importance_sampling_level": "sequence", "actor.eps_clip": 3e-3},
        3,
        id="stale-sequence",
    ),
    pytest.param(
        STALE | {"actor.use_decoupled_loss": True, "actor.rejection_sampling": {"upper": 1.1}},
        3,
        id="stale-decoupled",
    ),
    pytest.param(
        STALE | {"areal_compat": True, "actor.mask_no_eos_with_zero": True}, 3, id="areal-compat"
    ),
]


@pytest.mark.parametrize(("changes", "steps"), CELLS)
def test_replay_gives_the_gradient_of_the_trainers_own_update(
    changes: dict[str, Any], steps: int, tmp_path: Path
) -> None:
    trainer, policy = start(changes, steps)
    recording = record(trainer, tmp_path / "batch.safetensors")
    replayed = Replayer(recording.recorded).evaluate(trainer.config).weights
    trained = trained_gradient(trainer, policy)
    assert trained.any()
    gap = (replayed - trained).norm() / trained.norm()
    assert gap < 1e-6


def test_stated_cosines_are_those_of_the_trained_gradients(initial: Recording) -> None:
    cells: list[dict[str, Any]] = [
        {},
        {"actor.reward_norm": None},
        {"actor.reward_norm": None, "actor.adv_norm": {}},
        {"extensions.loss_aggregation": "sequence-mean"},
        {"actor.gae_lambda": 0.8, "actor.discount": 0.9},
    ]
    replayer = Replayer(initial.recorded)
    replayed = torch.stack([replayer.evaluate(config(c)).weights.flatten() for c in cells])
    trained = torch.stack([trained_gradient(*start(c)).flatten() for c in cells])
    stated, found = (cosines(x) for x in (replayed, trained))
    torch.testing.assert_close(stated, found, rtol=0.0, atol=1e-5)
    assert float(stated.min()) < 0.95


def cosines(vectors: Tensor) -> Tensor:
    units = vectors.double() / vectors.double().norm(dim=1, keepdim=True)
    products: Tensor = units @ units.T
    return products
