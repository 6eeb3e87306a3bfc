"""A language model small enough for unit tests, with a tokenizer, made here from nothing."""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789+-=#.,?:;\n "
CHAT = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPECIAL = ("<unk>", "<pad>", "<end>", "<stop>", "<system>", "<user>", "<assistant>", "<begin>")


def write_model(folder: Path, **changes: object) -> Path:
    """A Llama of 2 layers with two end-of-sequence tokens, `<end>` and `<stop>`."""
    tokenizer = build_tokenizer()
    generator = torch.Generator().manual_seed(0)
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "tie_word_embeddings": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    model = LlamaForCausalLM(LlamaConfig(**settings | changes))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    ends = tokenizer.convert_tokens_to_ids(["<end>", "<stop>"])
    model.generation_config = GenerationConfig(eos_token_id=ends)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character; `<begin>` before every text."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *LETTERS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106 - a token
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    inner.post_processor = processors.TemplateProcessing(
        single="<begin> $A", special_tokens=[("<begin>", vocabulary["<begin>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",  # noqa: S106 - a token
        pad_token="<pad>",  # noqa: S106 - a token
        eos_token="<end>",  # noqa: S106 - a token
        bos_token="<begin>",  # noqa: S106 - a token
        additional_special_tokens=list(SPECIAL[3:7]),
        chat_template=CHAT,
    )
