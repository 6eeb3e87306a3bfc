"""A user's own reward function: the only code that a configuration can name."""

import importlib
from collections.abc import Callable
from typing import Any

from grpo_core.errors import ConfigError

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
