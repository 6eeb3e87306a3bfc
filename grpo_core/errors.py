"""What the package raises on purpose."""


class GrpoError(Exception):
    """Anything a user can put right; the command line turns it into exit code 2."""


class ConfigError(GrpoError):
    """A configuration that cannot be trained; lists every problem at once."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class CheckpointError(GrpoError):
    """A checkpoint that does not belong to this trial or cannot be read."""
