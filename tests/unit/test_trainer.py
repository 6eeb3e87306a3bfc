from pathlib import Path

import pytest
import torch
from typing_extensions import override

from grpo_core.config import TaskConfig, TrialConfig
from grpo_core.errors import CheckpointError, ConfigError, GrpoError
from grpo_core.policy import TinyPolicy
from grpo_core.policy.tiny import EOS, CharacterTokenizer, TinyDecoder
from grpo_core.rollout import checked_reward, evaluate, sample_batch
from grpo_core.tasks import Answer, Prompt, Task, load_task
from grpo_core.tasks.letters import LetterTask
from grpo_core.trainer import Trainer

TASK: Task = load_task("think")
SMALL = {
    "total_train_steps": 4,
    "train_dataset": {"batch_size": 3},
    "gconfig": {"n_samples": 4, "max_new_tokens": 8},
    "evaluation": {"prompts": 8, "every": 2, "interim_prompts": 8},
    "task": {"verifier": "graded"},
    "actor": {
        "kl_ctl": 0.0,
        "ppo_n_minibatches": 2,
        "adv_norm": {"mean_level": "batch", "std_level": "batch"},
        "optimizer": {"lr": 1e-2},
    },
}


def config(**sections: object) -> TrialConfig:
    merged = dict(SMALL)
    for name, value in sections.items():
        before = merged.get(name)
        both = isinstance(before, dict) and isinstance(value, dict)
        merged[name] = {**before, **value} if both else value  # type: ignore[dict-item]
    return TrialConfig.model_validate(merged)


def untrained(end_bias: float = 1.0) -> TinyPolicy:
    decoder = TinyDecoder()
    decoder.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        decoder.head.bias[EOS] += end_bias
        for token in CharacterTokenizer().encode("##abcd"):
            decoder.head.bias[token] += 2.0  # answers happen, so that graded rewards differ
    return TinyPolicy(decoder)


def train(trial: TrialConfig) -> list[dict[str, object]]:
    trainer = Trainer(trial, policy=untrained())
    steps = []
    while not trainer.finished:
        steps.append(trainer.step().to_json())
    return steps


def test_a_batch_counts_each_generated_token_once() -> None:
    batch = sample_batch(untrained(), TASK, config(), step=0, version=0)
    assert batch.loss_mask.sum(1).tolist() == batch.answer_lengths.tolist()
    assert not batch.behaviour_logprobs[~batch.loss_mask].any()
    assert bool((batch.behaviour_logprobs[batch.loss_mask] < 0).all())
    assert batch.group_sizes.tolist() == [4, 4, 4]
    assert len({prompt.text for prompt in batch.prompts[:4]}) == 1
    prompt_lengths = (batch.lengths - batch.answer_lengths).tolist()
    assert prompt_lengths == [len(prompt.text) for prompt in batch.prompts]


def test_seed_and_step_decide_a_batch() -> None:
    one = sample_batch(untrained(), TASK, config(), step=1, version=0)
    same = sample_batch(untrained(), TASK, config(), step=1, version=0)
    later = sample_batch(untrained(), TASK, config(), step=2, version=0)
    other = sample_batch(untrained(), TASK, config(seed=2), step=1, version=0)
    assert one.answers == same.answers
    assert one.prompts not in (later.prompts, other.prompts)


def test_dynamic_sampling_keeps_only_groups_with_contrast() -> None:
    rule = {"dynamic_sampling": {"above": None, "below": None, "contrast": True}}
    batch = sample_batch(untrained(), TASK, config(extensions=rule), step=0, version=0)
    assert batch.accepted_groups < 1.0
    assert len(batch.group_sizes) <= 3
    rewards = iter(batch.rewards.tolist())
    for size in batch.group_sizes.tolist():
        assert len({next(rewards) for _ in range(size)}) > 1


def test_dynamic_batch_size_samples_one_round_only() -> None:
    rule = {"dynamic_sampling": {"above": 0.99, "below": None}}
    trial = config(extensions=rule, dynamic_bs=True)
    batch = sample_batch(untrained(), TASK, trial, step=0, version=0)
    assert batch.accepted_groups == 0.0
    assert len(batch.group_sizes) == 3


def test_equal_configurations_give_equal_numbers() -> None:
    assert train(config()) == train(config())


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="plain"),
        pytest.param({"rollout": {"max_head_offpolicyness": 2}}, id="stale"),
        pytest.param({"critic": {"ppo_n_minibatches": 2}}, id="critic"),
        pytest.param({"actor": {**SMALL["actor"], "kl_ctl": 0.1}}, id="kl"),  # type: ignore[dict-item]
    ],
)
def test_a_restored_trial_goes_on_as_if_nothing_had_happened(
    changes: dict[str, object], tmp_path: Path
) -> None:
    whole = train(config(**changes))
    first = Trainer(config(**changes), policy=untrained())
    first.initial_evaluation()
    steps = [first.step().to_json(), first.step().to_json()]
    first.save(tmp_path)
    second = Trainer(config(**changes), policy=untrained())
    second.restore(tmp_path)
    while not second.finished:
        steps.append(second.step().to_json())
    assert steps == whole


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    Trainer(config(), policy=untrained()).save(tmp_path)
    with pytest.raises(CheckpointError, match="another configuration"):
        Trainer(config(seed=9), policy=untrained()).restore(tmp_path)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    Trainer(config(), policy=untrained()).save(tmp_path)
    (tmp_path / "state.safetensors").write_bytes(b"half")
    with pytest.raises(CheckpointError, match="no readable checkpoint"):
        Trainer(config(), policy=untrained()).restore(tmp_path)


def test_nan_ends_the_trial_as_a_result_with_the_tensor_named() -> None:
    policy = untrained()
    with torch.no_grad():
        next(policy.module.parameters()).fill_(torch.nan)
    trainer = Trainer(config(), policy=policy)
    step = trainer.step()
    assert step.nonfinite == "behaviour_logprobs"
    assert trainer.finished


def test_stale_rollouts_come_from_the_policy_of_that_many_steps_ago() -> None:
    trial = config(rollout={"max_head_offpolicyness": 2})
    trainer = Trainer(trial, policy=untrained())
    assert [trainer.step().staleness for _ in range(4)] == [0.0, 1.0, 2.0, 2.0]
    fresh = Trainer(config(), policy=untrained())
    fresh_gaps = [fresh.step().logprob_gap for _ in range(4)]
    stale = Trainer(trial, policy=untrained())
    stale_gaps = [stale.step().logprob_gap for _ in range(4)]
    assert max(fresh_gaps) < 1e-5
    assert stale_gaps[3] > 1e-3


def test_on_fresh_rollouts_one_update_has_ratios_of_exactly_one() -> None:
    trial = config(actor={"ppo_n_minibatches": 1})
    step = Trainer(trial, policy=untrained()).step()
    assert step.ratio_max == pytest.approx(1.0, abs=1e-5)
    assert step.clip_fraction == 0.0
    assert step.grad_cosine is None
    assert step.grad_snr is None


def test_the_signal_of_two_updates_is_their_inner_product() -> None:
    # For two gradients |E g|^2 is estimated by g1 . g2, so the ratio has the cosine's sign.
    trials = [config(actor={"ppo_n_minibatches": 2}, seed=seed) for seed in range(12)]
    steps = [Trainer(trial, policy=untrained()).step() for trial in trials]
    measured = [
        (step.grad_snr, step.grad_cosine)
        for step in steps
        if step.grad_snr is not None and step.grad_cosine is not None
    ]
    assert {snr > 0 for snr, _ in measured} == {True, False}
    assert all((snr > 0) == (cosine > 0) for snr, cosine in measured)


def test_a_value_function_learns_from_zero() -> None:
    # Every answer is worth 1, and a value of 0 is off by 1: half the squared error is 0.5.
    critic = {"ppo_n_minibatches": 4, "optimizer": {"lr": 3e-3}}
    always_one = {"reward_wrong": 1.0, "verifier": "strict"}
    # A cut answer's target would be 1 plus the value behind it, so answers have to end.
    policy = untrained(end_bias=8.0)
    trainer = Trainer(config(critic=critic, task=always_one), policy=policy)
    losses = [trainer.step().value_loss or 0.0 for _ in range(4)]
    assert 0.3 < losses[0] <= 0.5
    assert losses[3] < losses[0] / 4, losses
    assert Trainer(config(), policy=untrained()).step().value_loss is None


def test_the_judge_looks_when_due_and_never_moves_the_policy() -> None:
    looks = [step["eval_pass_rate"] is not None for step in train(config())]
    assert looks == [False, True, False, True]
    policy = untrained()
    before = [parameter.clone() for parameter in policy.module.parameters()]
    one = evaluate(policy, TASK, config(), 8)
    assert evaluate(policy, TASK, config(), 8) == one
    assert all(map(torch.equal, before, policy.module.parameters()))


def test_a_broken_rule_is_refused_before_anything_is_loaded() -> None:
    broken = config(actor={"use_sapo_loss": True, "use_decoupled_loss": True})
    with pytest.raises(ConfigError, match="use_sapo_loss"):
        Trainer(broken, policy=untrained())


class Raising(LetterTask):
    """A task whose reward fails on every answer."""

    @override
    def reward(self, prompt: Prompt, answer: Answer, config: TaskConfig) -> float:
        raise ZeroDivisionError("no letters")


class Textual(LetterTask):
    """A task whose reward is no number."""

    @override
    def reward(self, prompt: Prompt, answer: Answer, config: TaskConfig) -> float:
        return "good"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        pytest.param(Raising, r"raised ZeroDivisionError.* on '\^Rab=' -> '#ba'", id="raises"),
        pytest.param(Textual, r"must be a number, got 'good' on '\^Rab='", id="no-number"),
    ],
)
def test_a_reward_function_that_fails_names_the_sample(
    kind: type[LetterTask], message: str
) -> None:
    task = kind("think", "R", lambda text: text[::-1])
    with pytest.raises(GrpoError, match=message):
        checked_reward(task, task.prompt("ab"), Answer("#ba", ended=True), TaskConfig())
