"""What is wrong with a file, in words: the key, what was given, what was wanted."""

import difflib
import json
from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from sweeps.keys import KEYS, Key, unknown_key

LONGEST_VALUE = 80
"""Characters of a value in a message."""
_NAME = "letters, digits, `_`, `.` or `-`, beginning with a letter or digit, at most 100"


def describe_problems(
    error: ValidationError, document: object, keys: Mapping[str, Key] = KEYS, *, what: str = ""
) -> list[str]:
    """One line per problem.

    Args:
        error: What pydantic found.
        document: What it was given.
        keys: The keys that there are.
        what: Whose keys they are, where not a trial's.
    """
    lines = []
    for item in error.errors():
        key = _dotted(item["loc"], document)
        if item["type"] == "extra_forbidden":
            lines.append(no_such_key(key, keys, what) if what else unknown_key(key))
        elif item["type"] == "missing":
            lines.append(f"{key}: missing; it is required")
        elif item["type"] == "string_pattern_mismatch":
            lines.append(f"{key}: got {shown(item['input'])}, wanted {_NAME}")
        else:
            wanted = keys[key].kind if key in keys else item["msg"].removeprefix("Input should be ")
            lines.append(f"{key}: got {shown(item['input'])}, wanted {wanted}")
    return list(dict.fromkeys(lines))


def no_such_key(key: str, keys: Iterable[str], what: str) -> str:
    """Why a key of something that is no trial is refused, with the nearest name."""
    close = difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"wanted one of {', '.join(keys)}"
    return f"{key}: no such key in a {what}; {hint}"


def shown(value: object) -> str:
    """A value as in YAML, cut to a readable length; text in quotes."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _dotted(location: tuple[int | str, ...], document: object) -> str:
    """The key that pydantic means: what is not in the document names a branch of a union."""
    key, place = "", document
    for i, part in enumerate(location):
        if isinstance(place, dict) and (part in place or not key or i + 1 == len(location)):
            known = part in place
            if known or not isinstance(part, str) or part.isidentifier():
                key += f".{part}" if key else str(part)
            place = place.get(part)
        elif isinstance(place, list) and isinstance(part, int):
            key += f"[{part}]"
            place = place[part]
    return key
