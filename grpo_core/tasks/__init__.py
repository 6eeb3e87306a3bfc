"""Tasks by name; a new one is one definition and one entry in TASKS or TASK_FAMILIES."""

from collections.abc import Callable

from grpo_core.config import TaskConfig
from grpo_core.errors import ConfigError
from grpo_core.names import TASK_NAMES
from grpo_core.tasks.base import Answer, EmbeddedTask, Message, Prompt, Task
from grpo_core.tasks.functions import load_function
from grpo_core.tasks.jsonl import JsonlQuestions
from grpo_core.tasks.letters import LetterTask
from grpo_core.tasks.questions import Questions, QuestionTask
from grpo_core.tasks.reasoning import ReasoningGym

TASKS: dict[str, EmbeddedTask] = {
    "think": LetterTask(name="think", symbol="R", operation=lambda letters: letters[::-1]),
    "sort": LetterTask(name="sort", symbol="S", operation=lambda letters: "".join(sorted(letters))),
}
"""Embedded tasks."""

TASK_FAMILIES: dict[str, Callable[[str, TaskConfig], Questions]] = {
    "reasoning_gym": ReasoningGym.load,
    "jsonl": JsonlQuestions.load,
}
"""Questions by what stands before the colon; given what stands behind it."""


def load_task(name: str, settings: TaskConfig | None = None, *, allow_code: bool = True) -> Task:
    """The task called `name`.

    Args:
        name: A key of TASKS, or FAMILY:REST.
        settings: The `task` section; None: its defaults.
        allow_code: `task.reward_fn` may name a function to import.

    Raises:
        ConfigError: there is no such task, or its questions cannot be read.
    """
    settings = TaskConfig(name=name) if settings is None else settings
    reward = None
    if settings.reward_fn is not None:
        reward = load_function(settings.reward_fn, allow_code=allow_code)
    family, _, rest = name.partition(":")
    if name in TASKS:
        if reward is not None:
            problem = (
                f"task.reward_fn is set with task.name={name}: an embedded task has its own "
                "rewards; leave it out"
            )
            raise ConfigError([problem])
        return TASKS[name]
    if family not in TASK_FAMILIES or not rest:
        names = ", ".join([*TASKS, *TASK_NAMES[len(TASKS) :]])
        raise ConfigError([f"task.name: {name!r} is not a task; wanted one of {names}"])
    return QuestionTask(name, TASK_FAMILIES[family](rest, settings), settings, reward)


__all__ = ["TASKS", "TASK_FAMILIES", "Answer", "Message", "Prompt", "Task", "load_task"]
