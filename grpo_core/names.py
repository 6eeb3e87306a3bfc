"""Names of the tasks and policies, readable without loading torch."""

from typing_extensions import override


class Names(tuple[str, ...]):
    """Names, and families of names: `jsonl:FILE` stands for `jsonl:` with anything behind it."""

    __slots__ = ()

    @override
    def __contains__(self, name: object) -> bool:
        """It is one of the names, or belongs to one of the families."""
        return isinstance(name, str) and any(_stands_for(entry, name) for entry in self)


def _stands_for(entry: str, name: str) -> bool:
    family, colon, _ = entry.partition(":")
    if not colon:
        return entry == name
    return name.startswith(f"{family}:") and len(name) > len(family) + 1


TASK_NAMES = Names(("think", "sort", "reasoning_gym:DATASET", "jsonl:FILE"))
"""The keys of grpo_core.tasks.TASKS, then of TASK_FAMILIES."""
EMBEDDED_TASKS = TASK_NAMES[:2]
"""The tasks that the embedded policy can read."""
POLICY_NAMES = Names(("tiny", "hf", "hf:MODEL"))
"""The embedded policy, and what real models are called."""


def model_of(policy: str, path: str) -> str | None:
    """Name of the real model that `policy` and `actor.path` mean; None for the embedded one."""
    family, _, model = policy.partition(":")
    if family != "hf":
        return None
    return model or path
