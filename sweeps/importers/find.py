"""The logs in a folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sweeps.importers.lines import head_of, tail_of
from sweeps.importers.names import EXPERIMENT
from sweeps.importers.own import HEADER, trials_of
from sweeps.importers.tensorboard import MARK

SUFFIXES = frozenset([".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".log", ".txt", ".out"])
"""What logs are called."""
STATE = "trainer_state.json"
"""The Trainer's own record, in every checkpoint."""
NEVER = frozenset(
    ["config.json", "labels.json", "tokenizer.json", "tokenizer_config.json", "wandb-summary.json"]
)
"""Files of these suffixes that are no logs."""
_SIGNS = (b"reward", b"loss", b"entropy", b"score", b"Reward")


@dataclass(frozen=True, slots=True)
class Target:
    """One log to judge."""

    path: str
    """Where it is."""
    sure: bool = True
    """It was named by the user; a file that a search found may turn out to be no log."""


def find_logs(given: Iterable[str]) -> list[Target]:
    """Every log that is named, or lies in a folder that is named.

    Raises:
        LogError: an MLflow experiment does not exist.
        GrpoError: the record of a sweep is damaged.
    """  # noqa: DOC502 - raised by what it calls
    targets: list[Target] = []
    for name in given:
        path = Path(name)
        if name.startswith(EXPERIMENT):
            from sweeps.importers.mlflow_runs import expand  # noqa: PLC0415 - the store

            targets += [Target(one) for one in expand(name)]
        elif path.is_dir():
            targets += [Target(str(one), sure=False) for one in _in_folder(path)] or [Target(name)]
        else:
            targets.append(Target(name))
    return list(dict.fromkeys(targets))


def _in_folder(folder: Path) -> list[Path]:
    if (folder / HEADER).exists():
        return trials_of(folder)
    found: list[Path] = []
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if any(MARK in path.name for path in files):
        found.append(folder)
    found += [path for path in files if path.is_file() and _may_be_log(path)]
    for path in files:
        if path.is_dir() and not path.is_symlink():
            found += _in_folder(path)
    return _latest_state(found)


def _may_be_log(path: Path) -> bool:
    if path.suffix not in SUFFIXES or path.name in NEVER or MARK in path.name:
        return False
    ends = (head_of(path) + tail_of(path)).replace(b"\0", b"")
    return not ends.strip() or any(sign in ends for sign in _SIGNS) or path.name == STATE


def _latest_state(found: list[Path]) -> list[Path]:
    """Of the states in a run's checkpoints only the newest: it holds the others' history."""
    states = [path for path in found if path.name == STATE]
    newest: dict[Path, Path] = {}
    for path in states:
        run = path.parent.parent if path.parent.name.startswith("checkpoint-") else path.parent
        old = newest.get(run)
        if old is None or _age(path) > _age(old):
            newest[run] = path
    kept = set(newest.values())
    return [path for path in found if path.name != STATE or path in kept]


def _age(path: Path) -> int:
    """Steps after which a checkpoint was written; a state outside of one is the last."""
    number = path.parent.name.rpartition("-")[2]
    return int(number) if number.isdigit() else 2**62
