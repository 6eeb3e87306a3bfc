"""A user's own reward function: the only code that a configuration can name."""

import importlib
import math
from collections.abc import Callable
from typing import Any

from grpo_core.errors import ConfigError, GrpoError

RewardFunction = Callable[..., Any]
"""AReaL's signature: (prompt, completions, prompt_ids, completion_ids, **entry) -> number."""


def load_function(path: str, *, allow_code: bool = True) -> RewardFunction:
    """Import `module:function`.

    Args:
        path: A module that Python can import, and the name of a function in it.
        allow_code: Whether configurations may run code at all.

    Raises:
        ConfigError: they may not, or there is no such function.
    """
    if not allow_code:
        raise ConfigError(
            [f"task.reward_fn={path}: running code that a configuration names is turned off"]
        )
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise ConfigError([f"task.reward_fn: got {path!r}, wanted module:function"])
    try:
        module = importlib.import_module(module_name)
    # A user's module may raise anything when it is imported.
    except Exception as error:
        problem = (
            f"task.reward_fn={path}: {module_name} cannot be imported: "
            f"{type(error).__name__}: {error}; is its folder on PYTHONPATH?"
        )
        raise ConfigError([problem]) from error
    function = getattr(module, name, None)
    if not callable(function):
        what = "nothing of that name" if function is None else repr(function)
        raise ConfigError([f"task.reward_fn={path}: wanted a function, {module_name} has {what}"])
    return function  # type: ignore[no-any-return]


class RewardError(GrpoError):
    """A reward function gave something that is no reward."""


def as_number(reward: object) -> float:
    """What a user's function returned: a number, or a tensor or array with one number in it.

    Raises:
        RewardError: it is anything else.
    """
    # Arrays and tensors alike; this module knows neither library.
    shape, item = getattr(reward, "shape", None), getattr(reward, "item", None)
    if shape is not None and item is not None:
        if math.prod(shape) != 1:
            raise RewardError(f"must be a number, got shape {tuple(shape)}")
        return float(item())
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise RewardError(f"must be a number, got {reward!r}")
    return float(reward)
