"""Names of the registered tasks and policies, readable without loading torch."""

TASK_NAMES = ("think", "sort")
"""The keys of grpo_core.tasks.TASKS."""
POLICY_NAMES = ("tiny",)
"""The keys of grpo_core.policy.POLICIES."""
