"""Numbers as logs print them: strings, tensors, lists, NaN in any spelling."""

import math
import re
from collections.abc import Iterator, Mapping

Parsed = float | list[float] | None
"""A number, several of them, or nothing there."""

DEEPEST = 8
"""Levels of nested mappings that are looked into."""

_WRAPPED = re.compile(r"^(?:tensor|array|np\.\w+|numpy\.\w+)\((.*)\)$", re.DOTALL)
_OPTION = re.compile(r",\s*(?:device|dtype|grad_fn|requires_grad)=.*$", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:nan|inf(?:inity)?|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)", re.IGNORECASE)


def parse(value: object) -> Parsed:
    """The number or numbers that `value` stands for.

    Raises:
        ValueError: it is something else.
    """
    if value is None or value == "":
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list):
        return _numbers(value)
    if isinstance(value, str):
        return _from_text(value.strip())
    raise ValueError(f"wanted a number, got {_shown(value)}")


def is_list(value: object) -> bool:
    """A list of numbers or of such lists, as a per-sample or per-group log has it."""
    return isinstance(value, list) and bool(value)


def single(numbers: list[float], signal: str) -> float:
    """One number for several: the extreme for a minimum or maximum, else the mean."""
    name = signal.rpartition("_")[2]
    if name == "max":
        return max(numbers)
    if name == "min":
        return min(numbers)
    return math.fsum(numbers) / len(numbers) if all(map(math.isfinite, numbers)) else math.nan


def flatten(
    nested: Mapping[str, object], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, object]]:
    """Every value under its slash-separated key."""
    for key, value in nested.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and depth < DEEPEST:
            yield from flatten(value, f"{name}/", depth + 1)
        else:
            yield name, value


def _from_text(text: str) -> Parsed:
    wrapped = _WRAPPED.match(text)
    if wrapped:
        text = _OPTION.sub("", wrapped.group(1)).strip()
    if text.lower() in ("none", "null"):
        return None
    if text.startswith("["):
        return _one_or_more([float(part) for part in _NUMBER.findall(text)])
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"wanted a number, got {_shown(text)}") from None


def _numbers(values: list[object]) -> Parsed:
    numbers: list[float] = []
    for value in values:
        parsed = parse(value)
        numbers += parsed if isinstance(parsed, list) else [] if parsed is None else [parsed]
    return _one_or_more(numbers)


def _one_or_more(numbers: list[float]) -> Parsed:
    if not numbers:
        return None
    return numbers[0] if len(numbers) == 1 else numbers


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
