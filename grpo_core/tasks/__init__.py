"""Tasks by name; a new one is one definition and one entry in TASKS."""

from grpo_core.errors import ConfigError
from grpo_core.tasks.base import Answer, Prompt, Task
from grpo_core.tasks.letters import LetterTask

TASKS: dict[str, Task] = {
    "think": LetterTask(name="think", symbol="R", operation=lambda letters: letters[::-1]),
    "sort": LetterTask(name="sort", symbol="S", operation=lambda letters: "".join(sorted(letters))),
}


def load_task(name: str) -> Task:
    """The task called `name`.

    Raises:
        ConfigError: there is no such task.
    """
    if name not in TASKS:
        raise ConfigError([f"task.name: {name!r} is not a task; wanted one of {', '.join(TASKS)}"])
    return TASKS[name]


__all__ = ["TASKS", "Answer", "Prompt", "Task", "load_task"]
