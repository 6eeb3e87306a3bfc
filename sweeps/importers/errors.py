"""What is wrong with a log."""

from grpo_core.errors import GrpoError


class LogError(GrpoError):
    """A log that cannot be read or judged; the message says where, and what was wanted."""


class NoLogError(LogError):
    """A file that holds something else."""
