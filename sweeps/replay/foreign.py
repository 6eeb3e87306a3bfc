"""Rollouts that other trainers dumped: JSONL, an answer per line, or npz; see docs/replay.md."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from grpo_core.errors import ConfigError
from sweeps.replay.files import FORMAT_VERSION, load_safetensors, newest_recording
from sweeps.replay.recording import PER_ANSWER, PER_TOKEN, Array, Recording, check_arrays

READERS = {".safetensors": "ours", ".jsonl": "an answer per line", ".npz": "named arrays"}
"""What the ending of a file says about it."""
LINE_FIELDS = {
    "reward": "rewards",
    "group": "group_ids",
    "passed": "passed",
    "truncated": "truncated",
    "length": "lengths",
    "logprobs": "logprobs",
    "mask": "mask",
    "reference_logprobs": "reference_logprobs",
    "proximal_logprobs": "proximal_logprobs",
    "values": "values",
    "versions": "versions",
    "turn_ids": "turn_ids",
}
"""Field of a line -> array."""
ASIDE = {"format_version", "alignment", "current_version"}
"""What a file says about itself: entries of an npz, or of a first line without a reward."""
EMPTY = {"versions": -1, "turn_ids": -1}
"""What stands behind the end of a short row, where it is not 0."""
MOST_PROBLEMS = 20
"""Lines of complaints before the rest is only counted."""


def load_recording(path: Path) -> Recording:
    """Read recorded rollouts: a file by its ending, or the newest of a folder.

    Raises:
        ConfigError: Lists everything that is wrong with the file.
    """
    if path.is_dir():
        path = newest_recording(path)
    if not path.exists():
        raise ConfigError([f"{path}: there is no such file"])
    match path.suffix:
        case ".safetensors":
            return load_safetensors(path)
        case ".jsonl":
            return load_jsonl(path)
        case ".npz":
            return load_npz(path)
        case _:
            raise ConfigError([f"{path}: ends in {path.suffix!r}, wanted {', '.join(READERS)}"])


def load_npz(path: Path) -> Recording:
    """Read named arrays.

    Raises:
        ConfigError: Lists everything that is wrong with the file.
    """
    try:
        # Opened here, for numpy leaves a damaged file open.
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            arrays: dict[str, Array] = {
                name.removesuffix(".npy"): np.lib.format.read_array(archive.open(name))
                for name in names
            }
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError([f"{path}: is truncated or no npz of plain arrays: {error}"]) from error
    aside = {name: arrays.pop(name).item() for name in ASIDE & arrays.keys()}
    return _check(arrays, aside, path)


def load_jsonl(path: Path) -> Recording:
    """Read an answer per line; token lists may differ in length from line to line.

    Raises:
        ConfigError: Lists every line that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    problems: list[str] = []
    rows = _rows(text.splitlines(), problems)
    aside = rows.pop(0)[1] if rows and rows[0][1].keys() <= ASIDE else {}
    problems += _row_problems(rows)
    if not rows and not problems:
        problems.append("holds no answer")
    if problems:
        raise ConfigError([f"{path}: {problem}" for problem in _shortened(problems)])
    return _check(_stacked([row for _, row in rows]), aside, path)


def _rows(lines: list[str], problems: list[str]) -> list[tuple[int, dict[str, Any]]]:
    """Every line that is a mapping, with its number."""
    rows: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            what = "is truncated or no JSON" if number == len(lines) else "is no JSON"
            problems.append(f"line {number} {what}: {error}")
            continue
        if isinstance(row, dict):
            rows.append((number, row))
        else:
            problems.append(f"line {number}: got {type(row).__name__}, wanted a mapping")
    return rows


def _check(arrays: dict[str, Array], aside: dict[str, Any], path: Path) -> Recording:
    version, alignment = aside.get("format_version", 1), aside.get("alignment", "prediction")
    problems = []
    if version != 1:
        problems.append(f"format_version {version}; this release reads up to {FORMAT_VERSION}")
    if alignment not in {"prediction", "token"}:
        problems.append(f"alignment: got {alignment!r}, wanted prediction or token")
    current = aside.get("current_version")
    if current is not None and (isinstance(current, bool) or not isinstance(current, int)):
        problems.append(f"current_version: got {current!r}, wanted a whole number")
    if problems:
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    token = alignment == "token"
    return check_arrays(arrays, str(path), token_aligned=token, current_version=current)


def _row_problems(rows: list[tuple[int, dict[str, Any]]]) -> list[str]:
    names = set(rows[0][1]) if rows else set()
    problems = []
    for number, row in rows:
        problems += [f"line {number}: {problem}" for problem in _line_problems(row, names)]
    return problems


def _line_problems(row: dict[str, Any], names: set[str]) -> list[str]:
    unknown = row.keys() - LINE_FIELDS.keys()
    problems = [
        f"no such field {name}; wanted some of {', '.join(LINE_FIELDS)}" for name in unknown
    ]
    missing = (names | {"reward", "group", "logprobs"}) - row.keys()
    problems += [f"field {name} is missing" for name in sorted(missing)]
    if row.keys() - names - unknown:
        extra = ", ".join(sorted(row.keys() - names - unknown))
        problems.append(f"has {extra}, which the first answer lacks")
    logprobs = row.get("logprobs")
    if not isinstance(logprobs, list):
        return [*problems, "logprobs: wanted a list of numbers"] if "logprobs" in row else problems
    for name, array in LINE_FIELDS.items():
        value = row.get(name)
        if array in PER_TOKEN and name in row and not _numbers(value, len(logprobs)):
            got = f"{len(value)} entries" if isinstance(value, list) else repr(value)
            problems.append(f"{name}: got {got}, wanted {len(logprobs)} numbers as in logprobs")
        scalar = name in row and array in PER_ANSWER and name != "group"
        if scalar and not isinstance(value, int | float):
            problems.append(f"{name}: got {value!r}, wanted a number")
    return problems


def _numbers(value: object, count: int) -> bool:
    if not isinstance(value, list) or len(value) != count:
        return False
    return all(isinstance(entry, int | float) for entry in value)


def _stacked(rows: list[dict[str, Any]]) -> dict[str, Array]:
    width = max(len(row["logprobs"]) for row in rows)
    arrays: dict[str, Array] = {}
    for name, array in LINE_FIELDS.items():
        if name not in rows[0] and name != "mask":
            continue
        if array in PER_ANSWER:
            arrays[array] = np.asarray([row[name] for row in rows])
            continue
        table = np.full((len(rows), width), EMPTY.get(array, 0), dtype=np.float64)
        for i, row in enumerate(rows):
            values = row.get(name, [1] * len(row["logprobs"]))
            table[i, : len(values)] = values
        arrays[array] = table
    names = {name: i for i, name in enumerate(dict.fromkeys(str(row["group"]) for row in rows))}
    arrays["group_ids"] = np.asarray([names[str(row["group"])] for row in rows])
    return arrays


def _shortened(problems: list[str]) -> list[str]:
    left = len(problems) - MOST_PROBLEMS
    return problems if left <= 0 else [*problems[:MOST_PROBLEMS], f"and {left} more problems"]
