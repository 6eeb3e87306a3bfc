"""Real models as policies, on a Llama of 2 layers that is made here."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

pytest.importorskip("transformers", reason="the [hf] extra is not installed")

from grpo_core.config import ActorConfig, GenerationConfig, TrialConfig
from grpo_core.errors import ConfigError, GrpoError
from grpo_core.policy import load_policy, logprobs, noise
from grpo_core.policy.hf import HfPolicy
from grpo_core.policy.hf_load import build_policy, load_folder
from grpo_core.policy.noise import gumbel
from grpo_core.policy.prefixes import share_prefixes
from grpo_core.policy.sampling import Generated
from grpo_core.rollout import encode_prompts, sample_batch
from grpo_core.tasks import Message, Prompt, load_task
from grpo_core.trainer import Trainer
from tests.language_models import write_model

STOP = 3
TEXTS = ["ab= ", "abc= ", "z:\n", "ab= "]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def policy(folder: Path, *, seed: int = 1, **actor: Any) -> HfPolicy:  # noqa: ANN401
    text, model = load_folder(folder, "tiny")
    return build_policy(model, text, ActorConfig.model_validate(actor), seed)


def adapted(folder: Path, **actor: Any) -> HfPolicy:  # noqa: ANN401
    """With adapters that have been trained: their second matrix is no longer 0."""
    adapted = policy(folder, use_lora=True, lora_rank=4, **actor)
    draws = torch.Generator().manual_seed(3)
    weights = adapted.weights()
    adapted.load_weights({n: torch.randn(w.shape, generator=draws) for n, w in weights.items()})
    return adapted


def sample(policy: HfPolicy, texts: list[str] = TEXTS, **settings: object) -> Generated:
    config = GenerationConfig.model_validate({"max_new_tokens": 12, **settings})
    prompts = [policy.encode(text) for text in texts]
    return policy.generate(prompts, config, torch.Generator().manual_seed(7))


def rows_of(policy: HfPolicy, out: Generated, texts: list[str] = TEXTS) -> list[list[int]]:
    """Prompt and answer of every row."""
    lengths = out.lengths.tolist()
    return [
        policy.encode(text) + ids[:length]
        for text, ids, length in zip(texts, out.ids.tolist(), lengths, strict=True)
    ]


def right_padded(rows: list[list[int]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [0] * (width - len(row)) for row in rows])


def own_logprobs(policy: HfPolicy, row: list[int], temperature: float = 1.0) -> torch.Tensor:
    """What transformers' own forward pass says about one row without any padding."""
    ids = torch.tensor([row])
    logits = policy.module(input_ids=ids, use_cache=False).logits.float() / temperature
    chosen: torch.Tensor = logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None]).squeeze(1)
    return chosen


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@torch.no_grad()
def test_sampler_trainer_and_transformers_agree_on_log_probs(
    folder: Path, *, lora: bool, temperature: float
) -> None:
    model = adapted(folder) if lora else policy(folder)
    out = sample(model, temperature=temperature)
    rows = rows_of(model, out)
    trained = model.logprobs(right_padded(rows), temperature)
    for i, row in enumerate(rows):
        start, length = len(model.encode(TEXTS[i])) - 1, int(out.lengths[i])
        own = own_logprobs(model, row, temperature)
        torch.testing.assert_close(trained[i, : len(row) - 1], own, atol=2e-5, rtol=0)
        torch.testing.assert_close(out.logprobs[i, :length], own[start:], atol=2e-5, rtol=0)


def test_beginnings_are_shared_without_a_change_to_value_or_gradient(folder: Path) -> None:
    model = policy(folder)
    stems = ["abcdefgh= ", "abcdefgh= ", "abcdefgh= ", "zyx= ", "zyx= "]
    tails = ["1\n", "22 3\n", "1 4", "9", "9\n5"]
    encoded = [model.encode(stem + tail) for stem, tail in zip(stems, tails, strict=True)]
    ids = right_padded(encoded)
    assert share_prefixes(ids.tolist()) is not None
    real = (
        torch.arange(ids.shape[1] - 1)[None] < torch.tensor([len(r) - 1 for r in encoded])[:, None]
    )

    def value_and_gradient(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        model.module.zero_grad()
        parts = [model.logprobs(part, 1.0)[:, :-1] for part in rows]
        chosen = torch.cat(parts)[real]
        (chosen * torch.linspace(-1, 1, len(chosen))).sum().backward()  # type: ignore[no-untyped-call]
        grads = [p.grad.flatten() for p in model.module.parameters() if p.grad is not None]
        return chosen.detach(), torch.cat(grads)

    together = value_and_gradient([ids])
    alone = value_and_gradient([row[None] for row in ids])
    torch.testing.assert_close(together[0], alone[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(together[1], alone[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("rows", "prefixes", "prefix_of"),
    [
        # By groups: 4 + 3 positions are saved; by the common start alone, 1 would be saved thrice.
        pytest.param(
            [[1, 2, 3, 4, 5, 6], [1, 9, 9, 9, 7], [1, 2, 3, 4, 5, 7], [1, 9, 9, 9, 8]],
            ((1, 2, 3, 4, 5), (1, 9, 9, 9)),
            (0, 1, 0, 1),
            id="two-groups",
        ),
        # Every row keeps a token of its own, also where two are equal.
        pytest.param([[1, 2, 3], [1, 2, 3]], ((1, 2),), (0, 0), id="equal-rows"),
    ],
)
def test_the_beginnings_that_save_most_are_shared(
    rows: list[list[int]], prefixes: tuple[tuple[int, ...], ...], prefix_of: tuple[int, ...]
) -> None:
    sharing = share_prefixes(rows)
    assert sharing is not None
    assert (sharing.prefixes, sharing.prefix_of) == (prefixes, prefix_of)


def test_little_in_common_is_not_shared() -> None:
    assert share_prefixes([[1, 2, 3, 4, 5], [1, 6, 7, 8, 9]]) is None
    assert share_prefixes([[1, 2, 3]]) is None


def test_a_row_does_not_depend_on_the_rows_beside_it(folder: Path) -> None:
    model = policy(folder)
    alone = sample(model, TEXTS[:1])
    beside = sample(model, TEXTS)
    assert alone.ids[0].tolist() == beside.ids[0].tolist()
    torch.testing.assert_close(alone.logprobs[0], beside.logprobs[0], atol=1e-5, rtol=0)


def test_padding_behind_a_row_changes_nothing(folder: Path) -> None:
    model = policy(folder)
    row = torch.tensor([model.encode("abc= 12\n")])
    padded = torch.nn.functional.pad(row, (0, 5), value=40)
    with torch.no_grad():
        short, long = model.logprobs(row, 1.0), model.logprobs(padded, 1.0)
    torch.testing.assert_close(long[:, : row.shape[1] - 1], short[:, :-1], atol=1e-5, rtol=0)


def test_each_end_token_ends_an_answer_and_nothing_stands_behind_it(folder: Path) -> None:
    model = policy(folder)
    out = sample(model, TEXTS * 24, max_new_tokens=40)
    last = {
        int(ids[length - 1])
        for ids, length, ended in zip(out.ids, out.lengths, out.ended, strict=True)
        if ended
    }
    assert last == {2, STOP}
    for ids, length in zip(out.ids.tolist(), out.lengths.tolist(), strict=True):
        assert not {2, STOP} & set(ids[: length - 1])
        assert set(ids[length:]) <= {0}


def test_a_stop_text_and_a_stop_token_end_an_answer(folder: Path) -> None:
    model = policy(folder)
    newline = model.encode("\n")[-1]
    by_text = sample(model, TEXTS * 24, max_new_tokens=40, stop=("\n",))
    by_token = sample(model, TEXTS * 24, max_new_tokens=40, stop_token_ids=(newline,))
    assert by_text.ids.tolist() == by_token.ids.tolist()
    assert newline in {int(i[n - 1]) for i, n in zip(by_text.ids, by_text.lengths, strict=True)}


def test_a_stop_text_of_several_tokens_ends_an_answer(folder: Path) -> None:
    model = policy(folder)
    forbidding = {"max_new_tokens": 24, "min_new_tokens": 24}
    free = sample(model, ["ab= "], **forbidding)
    text = model.decode(free.ids[0].tolist())
    assert len(text) >= 12
    stop = text[6:9]
    cut = sample(model, ["ab= "], stop=(stop,), **forbidding)
    assert bool(cut.ended[0])
    assert model.decode(cut.ids[0, : int(cut.lengths[0])].tolist()) == text[: text.index(stop) + 3]


def test_no_answer_ends_before_min_new_tokens(folder: Path) -> None:
    out = sample(policy(folder), TEXTS * 24, max_new_tokens=40, min_new_tokens=9)
    assert int(out.lengths.min()) >= 9


def test_top_k_of_one_and_a_tiny_top_p_are_greedy(folder: Path) -> None:
    model = policy(folder)
    greedy = sample(model, greedy=True).ids.tolist()
    assert sample(model, top_k=1).ids.tolist() == greedy
    assert sample(model, top_p=1e-6).ids.tolist() == greedy
    assert sample(model).ids.tolist() != greedy


def test_hashed_noise_is_gumbel_noise_and_differs_everywhere() -> None:
    keys = torch.randint(0, 2**32, (50, 2), generator=torch.Generator().manual_seed(0))
    drawn = gumbel(keys, 4000).double()
    assert len(set(drawn.flatten().tolist())) > 0.99 * drawn.numel()
    # Mean is Euler's constant, variance pi^2 / 6; with 200,000 draws 5 standard errors are below.
    assert drawn.mean().item() == pytest.approx(0.57722, abs=0.015)
    assert drawn.var().item() == pytest.approx(math.pi**2 / 6, rel=0.04)
    correlation = torch.corrcoef(drawn)
    off = correlation[~torch.eye(50, dtype=torch.bool)]
    assert off.abs().max().item() < 5 / math.sqrt(4000)


def test_noise_does_not_depend_on_how_much_is_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = torch.randint(0, 2**32, (7, 2), generator=torch.Generator().manual_seed(0))
    whole = gumbel(keys, 100)
    monkeypatch.setattr(noise, "BLOCK", 250)
    assert torch.equal(gumbel(keys, 100), whole)


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    keys = torch.randint(0, 2**32, (20_000, 2), generator=torch.Generator().manual_seed(1))
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = (probabilities.log() + gumbel(keys, 4)).argmax(1)
    counts = torch.bincount(drawn, minlength=4).double()
    expected = probabilities.double() * 20_000
    chi_squared = ((counts - expected).square() / expected).sum().item()
    assert chi_squared < 16.27  # 99.9 % quantile with 3 degrees of freedom


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the size of the largest tensor that any operation gave."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, torch.Tensor):
                self.largest = max(self.largest, value.numel())
        return out


def test_the_logits_of_a_batch_never_exist_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = policy(folder)
    rows = torch.randint(8, 50, (6, 40), generator=torch.Generator().manual_seed(0))
    vocabulary, positions = model.vocabulary, 6 * 39
    largest = {}
    for chunk in (8, positions):
        monkeypatch.setattr(logprobs, "CHUNK_LOGITS", chunk * vocabulary)
        with LargestTensor() as watch:
            model.logprobs(rows, 1.0).sum().backward()  # type: ignore[no-untyped-call]
        largest[chunk] = watch.largest
    assert largest[positions] == positions * vocabulary
    assert largest[8] == positions * 48  # the feed-forward layer is the next largest


def test_chunks_change_neither_values_nor_gradients(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = policy(folder)
    rows = torch.randint(8, 50, (3, 10), generator=torch.Generator().manual_seed(0))
    results = []
    for chunk in (4, 1000):
        monkeypatch.setattr(logprobs, "CHUNK_LOGITS", chunk * model.vocabulary)
        model.module.zero_grad()
        chosen = model.logprobs(rows, 0.7)
        chosen.square().sum().backward()  # type: ignore[no-untyped-call]
        grads = [p.grad.flatten() for p in model.module.parameters() if p.grad is not None]
        results.append((chosen.detach(), torch.cat(grads)))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-5, rtol=0)
    torch.testing.assert_close(results[0][1], results[1][1], atol=1e-3, rtol=1e-4)


def test_checkpointed_layers_give_the_same_gradients(folder: Path) -> None:
    gradients = []
    for on in (False, True):
        model = policy(folder, gradient_checkpointing=on)
        ids = right_padded([model.encode("abcd= 1\n"), model.encode("abcd= 22\n")])
        model.logprobs(ids, 1.0).square().sum().backward()  # type: ignore[no-untyped-call]
        grads = [p.grad.flatten() for p in model.module.parameters() if p.grad is not None]
        gradients.append(torch.cat(grads))
        assert sample(model).ids.tolist() == sample(policy(folder)).ids.tolist()
    torch.testing.assert_close(*gradients, atol=1e-3, rtol=1e-4)


@torch.no_grad()
def test_without_its_adapters_the_model_is_the_reference(folder: Path) -> None:
    base, trained = policy(folder), adapted(folder)
    reference = trained.reference()
    assert reference.module is trained.module  # no second copy
    ids = right_padded([base.encode("abc= 12\n"), base.encode("z: 3\n")])
    torch.testing.assert_close(reference.logprobs(ids, 1.0), base.logprobs(ids, 1.0))
    assert not torch.allclose(trained.logprobs(ids, 1.0), base.logprobs(ids, 1.0))
    assert all(p.requires_grad for n, p in trained.module.named_parameters() if "lora_" in n)


@torch.no_grad()
def test_a_full_reference_stays_what_the_policy_was(folder: Path) -> None:
    model = policy(folder)
    reference = model.reference()
    ids = right_padded([model.encode("abc= 12\n")])
    before = model.logprobs(ids, 1.0)
    model.load_weights({name: weight + 0.1 for name, weight in model.weights().items()})
    torch.testing.assert_close(reference.logprobs(ids, 1.0), before)
    assert not torch.allclose(model.logprobs(ids, 1.0), before)


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@torch.no_grad()
def test_a_copy_is_trained_apart_and_shares_what_is_frozen(folder: Path, *, lora: bool) -> None:
    model = adapted(folder) if lora else policy(folder)
    copied = model.copy()
    ids = right_padded([model.encode("abc= 12\n")])
    before = model.logprobs(ids, 1.0)
    torch.testing.assert_close(copied.logprobs(ids, 1.0), before)
    copied.load_weights({name: weight * 0 for name, weight in copied.weights().items()})
    torch.testing.assert_close(model.logprobs(ids, 1.0), before)
    shared = {id(p) for p in model.module.parameters()} & {
        id(p) for p in copied.module.parameters()
    }
    frozen = {id(p) for p in model.module.parameters() if not p.requires_grad}
    assert shared == frozen
    assert bool(frozen) is lora


def test_fresh_adapters_come_from_the_seed_and_change_nothing_yet(folder: Path) -> None:
    one, same, other = (policy(folder, seed=seed, use_lora=True) for seed in (1, 1, 2))
    first = {name: weight.clone() for name, weight in one.weights().items()}
    assert all(torch.equal(first[name], weight) for name, weight in same.weights().items())
    assert any(not torch.equal(first[name], weight) for name, weight in other.weights().items())
    ids = right_padded([one.encode("abc= 12\n")])
    with torch.no_grad():
        torch.testing.assert_close(one.logprobs(ids, 1.0), policy(folder).logprobs(ids, 1.0))


@torch.no_grad()
def test_in_bfloat16_a_frozen_copy_computes_exactly_what_the_policy_does(folder: Path) -> None:
    model = policy(folder, dtype="bfloat16")
    assert {weight.dtype for weight in model.weights().values()} == {torch.float32}
    reference = model.reference()
    ids = right_padded([model.encode("abc= 12\n"), model.encode("z: 3\n")])
    assert torch.equal(reference.logprobs(ids, 1.0), model.logprobs(ids, 1.0))
    stored = {p.dtype for p in reference.module.parameters() if p.ndim == 2}
    assert stored == {torch.float32, torch.bfloat16}  # tied embeddings, matrices


def test_a_chat_goes_through_the_template(folder: Path) -> None:
    model = policy(folder)
    turns = (Message("system", "s"), Message("user", "hi"))
    ids = model.encode_prompt(Prompt("hi", "", turns))
    expected = "<system>s<end><user>hi<end><assistant>"
    assert ids == model.encode(expected)[1:]  # the template has no <begin>


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    lines = [
        f'{{"question": "{a}+{b}", "answer": "#### {a + b}"}}' for a in range(5) for b in range(5)
    ]
    file = tmp_path / "sums.jsonl"
    file.write_text("\n".join(lines))
    return file


def trial(
    folder: Path,
    questions: Path,
    *,
    actor: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    **sections: object,
) -> TrialConfig:
    settings: dict[str, Any] = {
        "policy": f"hf:{folder}",
        "total_train_steps": 4,
        "task": {"name": f"jsonl:{questions}", "template": "{question}=", "reward_fn": None},
        "train_dataset": {"batch_size": 2},
        "gconfig": {"n_samples": 4, "max_new_tokens": 6},
        "evaluation": {"prompts": 8, "every": 2, "interim_prompts": 8},
    }
    basis: dict[str, Any] = {
        "kl_ctl": 0.0,
        "ppo_n_minibatches": 2,
        "optimizer": {"lr": 1e-2},
        "adv_norm": {"mean_level": "batch"},
    }
    settings["actor"] = basis | (actor or {})
    settings["task"] |= task or {}
    return TrialConfig.model_validate(settings | sections)


def length_reward(
    prompt: str, completions: str, prompt_ids: list[int], completion_ids: list[int], **entry: str
) -> float:
    """AReaL's signature."""
    assert prompt.endswith("=")
    assert entry["question"] in prompt
    assert prompt_ids
    return len(completion_ids) / 6 + completions.count("a")


HERE = f"{__name__}:length_reward"


def train(config: TrialConfig) -> list[dict[str, Any]]:
    trainer = Trainer(config)
    steps = []
    while not trainer.finished:
        steps.append(trainer.step().to_json())
    return steps


@pytest.mark.parametrize(
    ("actor", "sections"),
    [
        pytest.param({}, {}, id="full"),
        pytest.param({"use_lora": True, "lora_rank": 4, "kl_ctl": 0.1}, {}, id="lora-kl"),
        pytest.param(
            {"use_lora": True, "lora_rank": 4},
            {"rollout": {"max_head_offpolicyness": 2}},
            id="lora-stale",
        ),
        pytest.param({}, {"critic": {"ppo_n_minibatches": 2}}, id="critic"),
    ],
)
def test_a_restored_trial_goes_on_as_if_nothing_had_happened(
    folder: Path,
    questions: Path,
    tmp_path: Path,
    *,
    actor: dict[str, Any],
    sections: dict[str, Any],
) -> None:
    config = trial(folder, questions, actor=actor, task={"reward_fn": HERE}, **sections)
    whole = train(config)
    assert any(step["grad_norm"] > 0 for step in whole)
    first = Trainer(config)
    first.initial_evaluation()
    steps = [first.step().to_json(), first.step().to_json()]
    first.save(tmp_path)
    second = Trainer(config)
    second.restore(tmp_path)
    while not second.finished:
        steps.append(second.step().to_json())
    assert steps == whole


def test_a_checkpoint_under_lora_holds_adapters_only(folder: Path, questions: Path) -> None:
    config = trial(folder, questions, actor={"use_lora": True, "lora_rank": 4})
    trainer = Trainer(config)
    trainer.step()
    tensors, _ = trainer.state()
    assert tensors
    assert all("lora_" in n for n in tensors if n.startswith("policy."))


def test_sampler_and_trainer_differ_only_by_rounding_and_more_in_bfloat16(
    folder: Path, questions: Path
) -> None:
    gaps = {}
    for dtype in ("float32", "bfloat16"):
        config = trial(folder, questions, actor={"dtype": dtype}, task={"reward_fn": HERE})
        gaps[dtype] = Trainer(config).step().logprob_gap
    assert gaps["float32"] < 1e-5
    assert 1e-5 < gaps["bfloat16"] < 0.2


def test_the_first_step_stands_exactly_on_the_reference(folder: Path, questions: Path) -> None:
    for actor in ({}, {"use_lora": True}, {"dtype": "bfloat16"}):
        step = Trainer(trial(folder, questions, actor={"kl_ctl": 0.1, **actor})).step()
        assert step.kl_reference == pytest.approx(0.0, abs=1e-3 if "dtype" in actor else 1e-8)


def test_a_users_reward_gets_the_entry_and_the_tokens(folder: Path, questions: Path) -> None:
    config = trial(folder, questions, task={"reward_fn": HERE})
    task = load_task(config.task.name, config.task)
    batch = sample_batch(policy(folder), task, config, step=0, version=0)
    expected = [len(answer.ids) / 6 + answer.text.count("a") for answer in batch.answers]
    assert batch.rewards.tolist() == pytest.approx(expected)
    assert [len(answer.ids) for answer in batch.answers] == batch.answer_lengths.tolist()
    for prompt, answer in zip(batch.prompts, batch.answers, strict=True):
        assert list(answer.prompt_ids) == policy(folder).encode(prompt.text)


def test_a_prompt_that_does_not_fit_is_refused_with_its_length(folder: Path) -> None:
    prompts = [Prompt("a" * 50, "1"), Prompt("a" * 90, "1")]
    # 90 letters and <begin>: 91 tokens, and 96 are the context.
    with pytest.raises(ConfigError, match=r"a prompt of 91 tokens .* context of 96"):
        encode_prompts(policy(folder), prompts, GenerationConfig(max_new_tokens=6))


class Hungry(HfPolicy):
    """A policy whose sampling or log-probs want more memory than there is."""

    phase = "generate"

    @override
    def generate(self, *args: Any, **kwargs: Any) -> Generated:
        if self.phase == "generate":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return super().generate(*args, **kwargs)

    @override
    def logprobs(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        pytest.param("generate", "out of memory in sampling: lower train_dataset", id="sampling"),
        pytest.param("update", "out of memory in the update: raise actor.ppo_n_min", id="update"),
    ],
)
def test_running_out_of_memory_names_the_setting_to_change(
    folder: Path, questions: Path, phase: str, message: str
) -> None:
    text, model = load_folder(folder, "tiny")
    hungry = Hungry(model, text, dtype=torch.float32)
    hungry.phase = phase
    trainer = Trainer(trial(folder, questions), policy=hungry)
    with pytest.raises(GrpoError, match=message):
        trainer.step()


def test_a_value_function_starts_at_zero_and_learns(folder: Path, questions: Path) -> None:
    critic = {"ppo_n_minibatches": 2, "optimizer": {"lr": 1e-2}}
    config = trial(folder, questions, critic=critic, task={"reward_wrong": 1.0})
    steps = train(config)
    losses = [step["value_loss"] for step in steps]
    assert all(loss is not None for loss in losses)
    assert losses[-1] < losses[0]


def test_load_policy_takes_the_model_from_actor_path_too(folder: Path) -> None:
    config = TrialConfig.model_validate({"policy": "hf", "actor": {"path": str(folder)}})
    assert load_policy(config).longest == 96
    with pytest.raises(ConfigError, match="names no model"):
        load_policy(TrialConfig(policy="hf"))


def test_training_prompts_are_random_but_never_held_out(questions: Path) -> None:
    task = load_task(f"jsonl:{questions}")
    held_out = {prompt.text for prompt in task.held_out_prompts(25)}
    drawn = {p.text for i in range(20) for p in task.training_prompts(np.random.default_rng(i), 4)}
    assert held_out
    assert not held_out & drawn
    assert len(held_out | drawn) == 25
