import pytest
import torch

from grpo_core.config import GenerationConfig
from grpo_core.policy import TinyPolicy
from grpo_core.policy.sampling import Generated, generate
from grpo_core.policy.tiny import EOS, PAD, VOCABULARY, CharacterTokenizer, TinyDecoder

TOKENIZER = CharacterTokenizer()
PROMPTS = [TOKENIZER.encode(text) for text in ("^Rabc=", "^Rdcbad=", "^Rbb=", "^Rabcd=")]


def decoder(end_bias: float = 0.0) -> TinyDecoder:
    model = TinyDecoder()
    model.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.head.bias[EOS] += end_bias
    return model


def sample(model: TinyDecoder, prompts: list[list[int]], **settings: object) -> Generated:
    config = GenerationConfig.model_validate({"max_new_tokens": 12, **settings})
    return generate(model, prompts, config, torch.Generator().manual_seed(7))


def recomputed(
    model: TinyDecoder, out: Generated, row: int, temperature: float = 1.0
) -> torch.Tensor:
    """Log-probs of one answer by a plain forward pass without a cache."""
    length = int(out.lengths[row])
    ids = torch.tensor([PROMPTS[row] + out.ids[row, :length].tolist()])
    logprobs = TinyPolicy(model).logprobs(ids, temperature)
    start = len(PROMPTS[row]) - 1
    return logprobs[0, start : start + length]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_sampler_and_the_trainer_agree_on_log_probs(temperature: float) -> None:
    model = decoder(end_bias=1.5)
    out = sample(model, PROMPTS, temperature=temperature)
    for row in range(len(PROMPTS)):
        length = int(out.lengths[row])
        torch.testing.assert_close(
            out.logprobs[row, :length], recomputed(model, out, row, temperature), atol=1e-5, rtol=0
        )


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    model = decoder(end_bias=1.5)
    alone = sample(model, PROMPTS[:1])
    beside = sample(model, PROMPTS)
    assert alone.ids[0].tolist() == beside.ids[0].tolist()


def test_nothing_stands_behind_the_end_of_a_row() -> None:
    out = sample(decoder(end_bias=1.5), PROMPTS)
    for row, length in enumerate(out.lengths.tolist()):
        assert (EOS in out.ids[row, :length].tolist()) is bool(out.ended[row])
        assert set(out.ids[row, length:].tolist()) <= {PAD}
        assert not out.logprobs[row, length:].any()
        assert not out.entropy[row, length:].any()
    assert bool(out.ended.any())


def test_top_k_of_one_is_greedy() -> None:
    model = decoder()
    assert (
        sample(model, PROMPTS, top_k=1).ids.tolist()
        == sample(model, PROMPTS, greedy=True).ids.tolist()
    )


def test_top_p_keeps_the_smallest_sufficient_set() -> None:
    model = decoder()
    assert (
        sample(model, PROMPTS, top_p=1e-6).ids.tolist()
        == sample(model, PROMPTS, greedy=True).ids.tolist()
    )


def test_no_answer_ends_before_min_new_tokens() -> None:
    model = decoder(end_bias=8.0)
    assert sample(model, PROMPTS).lengths.max() < 6
    assert sample(model, PROMPTS, min_new_tokens=6).lengths.min() >= 6


def test_without_training_the_entropy_is_nearly_uniform() -> None:
    model = decoder()
    with torch.no_grad():
        model.head.weight.zero_()
    out = sample(model, PROMPTS)
    mask = torch.arange(12)[None] < out.lengths[:, None]
    expected = torch.tensor(VOCABULARY).log().expand(int(mask.sum()))
    torch.testing.assert_close(out.entropy[mask], expected, atol=1e-5, rtol=0)


def test_the_tokenizer_takes_back_what_it_gave_and_refuses_strangers() -> None:
    assert TOKENIZER.decode([*TOKENIZER.encode("^Rab=#;~"), EOS, PAD]) == "^Rab=#;~"
    with pytest.raises(ValueError, match="got \\['x'\\] in '\\^Rx='"):
        TOKENIZER.encode("^Rx=")
