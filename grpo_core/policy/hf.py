"""A real causal language model as a policy: full fine-tuning or low-rank adapters."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from typing_extensions import override

from grpo_core.config import GenerationConfig
from grpo_core.errors import ConfigError
from grpo_core.policy.base import Policy
from grpo_core.policy.hf_sampling import Reader, read_on, sample
from grpo_core.policy.logprobs import token_logprobs
from grpo_core.policy.prefixes import Sharing, share_prefixes
from grpo_core.policy.sampling import Generated, left_pad
from grpo_core.tasks.base import Prompt


@dataclass(frozen=True, slots=True)
class Text:
    """A tokenizer and what it says about a model."""

    tokenizer: Any
    """The tokenizer of transformers."""
    ends: tuple[int, ...]
    """Token ids that end an answer."""
    longest: int
    """Most tokens of a context."""


class HfPolicy:
    """A transformers model with its tokenizer.

    Args:
        module: The causal language model, or peft's wrapper around it.
        text: The tokenizer.
        dtype: Precision of the arithmetic; weights that are trained stay in float32.
        adapters: False: the model without its adapters.
    """

    def __init__(
        self, module: nn.Module, text: Text, *, dtype: torch.dtype, adapters: bool = True
    ) -> None:
        self.module = module
        self.longest = text.longest
        self._text, self._dtype, self._adapters = text, dtype, adapters
        self._model = base_model(module)
        self._decoder: nn.Module = self._model.get_decoder()
        self._recomputes = any(
            getattr(part, "gradient_checkpointing", False) and part.training
            for part in self._model.modules()
        )
        self.vocabulary = int(self._model.get_output_embeddings().weight.shape[0])

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, with what the tokenizer puts before a text."""
        ids: list[int] = self._text.tokenizer(text)["input_ids"]
        return ids

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt; a chat through the tokenizer's chat template.

        Raises:
            ConfigError: the tokenizer has no chat template, or the prompt has no token.
        """
        ids = self._encode_chat(prompt) if prompt.messages else self.encode(prompt.text)
        if not ids:
            raise ConfigError(["task.template: the prompt has no token; give the model a text"])
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of `ids` without special tokens."""
        text: str = self._text.tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def generate(
        self, prompts: list[list[int]], config: GenerationConfig, generator: torch.Generator
    ) -> Generated:
        """Sample one answer for each prompt."""
        device = self._model.get_output_embeddings().weight.device
        reader = Reader(
            decoder=self._decoder,
            head=self._head,
            vocabulary=self.vocabulary,
            config=self._model.config,
            ends=torch.tensor(self._text.ends, device=device),
            decode=self._text.tokenizer.decode,
        )
        with self._computing():
            return sample(reader, prompts, config, generator)

    def logprobs(self, ids: Int[Tensor, "B T"], temperature: float) -> Float[Tensor, "B T"]:
        """Prediction-aligned log-probs of right-padded rows; the last column is 0.

        Padding stands behind everything real, where causal attention can't see it.
        """
        sharing = share_prefixes(ids.tolist()) if self._may_share() else None
        with self._computing():
            if sharing is None:
                hidden = self._decoder(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
                chosen = self._chosen(hidden, ids[:, 1:], temperature)
            else:
                chosen = self._shared_logprobs(ids, sharing, temperature)
        return nn.functional.pad(chosen, (0, 1))

    def copy(self) -> Policy:
        """The same weights, trained apart; frozen ones are shared."""
        return HfPolicy(_copied(self.module), self._text, dtype=self._dtype)

    def reference(self) -> Policy:
        """Without adapters, the same model; else a frozen copy."""
        if is_adapted(self.module):
            return HfPolicy(self.module, self._text, dtype=self._dtype, adapters=False)
        frozen = copy.deepcopy(self.module)
        frozen.requires_grad_(requires_grad=False)
        store_frozen(frozen, self._dtype)
        return HfPolicy(frozen, self._text, dtype=self._dtype)

    def weights(self) -> dict[str, Tensor]:
        """What is trained: all weights, or the adapters."""
        named = self.module.named_parameters()
        return {name: weight.detach() for name, weight in named if weight.requires_grad}

    @torch.no_grad()
    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Take over what `weights` gave.

        Raises:
            KeyError: they are those of another model.
        """
        own = self.weights()
        if own.keys() != weights.keys():
            strange = sorted(own.keys() ^ weights.keys())
            raise KeyError(f"weights of another model: {strange[:3]}")
        for name, weight in own.items():
            weight.copy_(weights[name])

    def build_critic(self) -> nn.Module:
        """A value function on a copy of the model, without its output layer."""
        copied = HfPolicy(_copied(self.module), self._text, dtype=self._dtype)
        return HfCritic(copied._decoder, self._model.config, copied._computing)

    def _may_share(self) -> bool:
        """Whether hidden states may be read on from a cache: recomputed layers cannot keep one."""
        recomputed = torch.is_grad_enabled() and self._recomputes
        layers = DynamicCache(config=self._model.config).layers
        return not recomputed and all(type(layer) is DynamicLayer for layer in layers)

    def _shared_logprobs(
        self, ids: Int[Tensor, "B T"], sharing: Sharing, temperature: float
    ) -> Float[Tensor, "B S"]:
        """Log-probs of every token but the first, from beginnings that are read once.

        Gradients flow through the cache.
        """
        device = ids.device
        prefixes = [list(prefix) for prefix in sharing.prefixes]
        heads, pads = left_pad(prefixes, device)
        rows = torch.tensor(sharing.prefix_of, device=device)
        lengths = torch.tensor([len(prefix) for prefix in prefixes], device=device)
        columns = torch.arange(heads.shape[1], device=device)
        mask = (columns[None, :] >= pads[:, None]).long()
        cache = DynamicCache(config=self._model.config)
        positions = (columns - pads[:, None]).clamp(min=0)
        first = read_on(self._decoder, heads, cache, mask=mask, positions=positions)
        # What the beginning predicts: all of itself but its first token, then each row's next one.
        inner = self._chosen(first[:, :-1], heads[:, 1:], temperature)
        starts = lengths[rows][:, None]
        tails = starts + torch.arange(ids.shape[1] - int(lengths.min()), device=device)[None, :]
        real = tails < ids.shape[1]
        tokens = ids.gather(1, tails.clamp(max=ids.shape[1] - 1)) * real
        cache.batch_select_indices(rows)
        mask = torch.cat([mask[rows], torch.ones_like(tokens)], dim=1)
        last = read_on(
            self._decoder, tokens[:, :-1], cache, mask=mask[:, :-1], positions=tails[:, :-1]
        )
        states = torch.cat([first[rows, -1:], last], dim=1)
        outer = self._chosen(states, tokens, temperature)
        return _joined(inner[rows], outer, pads=pads[rows], starts=starts, width=ids.shape[1] - 1)

    def _chosen(
        self, hidden: Float[Tensor, "B S D"], targets: Int[Tensor, "B S"], temperature: float
    ) -> Float[Tensor, "B S"]:
        size = self.vocabulary
        return token_logprobs(self._head, hidden, targets, temperature=temperature, vocabulary=size)

    def _head(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._model.get_output_embeddings()(hidden)
        return shape_logits(logits, self._model.config)

    def _encode_chat(self, prompt: Prompt) -> list[int]:
        tokenizer = self._text.tokenizer
        if not tokenizer.chat_template:
            raise ConfigError(
                ["task.chat=true: the model's tokenizer has no chat template; set it to false"]
            )
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt.messages]
        text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """The policy's precision, and the model without adapters where it is the reference."""
        kind = next(self.module.parameters()).device.type
        precision = torch.autocast(kind, dtype=self._dtype, enabled=self._dtype != torch.float32)
        bare = contextlib.nullcontext() if self._adapters else without_adapters(self.module)
        with precision, bare:
            yield


class HfCritic(nn.Module):
    """A value function on a transformers model; it starts at 0 everywhere."""

    def __init__(
        self,
        decoder: nn.Module,
        config: Any,  # noqa: ANN401 - a configuration of transformers
        computing: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        super().__init__()
        self.decoder = decoder
        self.value = nn.Linear(config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)
        self._computing = computing

    @override
    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Value of the state before each next token; prediction-aligned."""
        with self._computing():
            hidden = self.decoder(input_ids=ids, use_cache=False).last_hidden_state
        values: Tensor = self.value(hidden.float())
        return values.squeeze(-1)


def base_model(module: Any) -> Any:  # noqa: ANN401 - peft and transformers are optional
    """The causal language model itself."""
    return module.get_base_model() if is_adapted(module) else module


def is_adapted(module: nn.Module) -> bool:
    """It is peft's wrapper around a model."""
    return hasattr(module, "disable_adapter")


@contextlib.contextmanager
def without_adapters(module: Any) -> Iterator[None]:  # noqa: ANN401 - peft is optional
    """The model as it was before training.

    peft freezes adapters while they are off and leaves gradients alone.
    """
    with module.disable_adapter():
        yield


def store_frozen(model: nn.Module, dtype: torch.dtype) -> None:
    """Keep frozen matrices in the precision that they are computed in.

    Embeddings, norms and whatever is tied to them stay as they are: only what arithmetic would
    round anyway is rounded, so that a frozen copy computes exactly what the original does.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if not isinstance(module, nn.Linear) or id(module.weight) in embeddings:
            continue
        for parameter in module.parameters(recurse=False):
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(dtype)


def shape_logits(logits: Tensor, config: Any) -> Tensor:  # noqa: ANN401 - of transformers
    """What some architectures do behind the output layer: scaling and soft capping."""
    scale = getattr(config, "logit_scale", None)
    divisor = getattr(config, "logits_scaling", None)
    cap = getattr(config, "final_logit_softcapping", None)
    if scale is not None:
        logits = logits * scale
    if divisor is not None:
        logits = logits / divisor
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _joined(
    inner: Float[Tensor, "B P"],
    outer: Float[Tensor, "B S"],
    *,
    pads: Int[Tensor, " B"],
    starts: Int[Tensor, "B 1"],
    width: int,
) -> Float[Tensor, "B W"]:
    """Log-probs inside the beginnings and behind them, side by side.

    Entry t of a row belongs to its token t + 1: inside the beginning at t + pads, behind it from
    t = starts - 1 on.
    """
    t = torch.arange(width, device=inner.device)[None, :]
    before = t < starts - 1
    padded = nn.functional.pad(inner, (0, 1))
    within = padded.gather(1, (t + pads[:, None]).clamp(max=padded.shape[1] - 1))
    behind = outer.gather(1, (t - starts + 1).clamp(min=0, max=outer.shape[1] - 1))
    return torch.where(before, within, behind)


def _copied(module: nn.Module) -> nn.Module:
    """A copy that shares what is frozen."""
    frozen = [p for p in module.parameters() if not p.requires_grad]
    return copy.deepcopy(module, {id(p): p for p in frozen})
