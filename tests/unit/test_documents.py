import contextlib
from pathlib import Path

import numpy as np
import pytest

from grpo_core.errors import ConfigError
from sweeps.documents import DEEPEST_DOCUMENT, LARGEST_FILE, load_mapping, parse_mapping


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_mapping(text, "file.yaml")
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        pytest.param("1e-3", 0.001, id="exponent-without-a-point"),
        pytest.param("1E5", 100000.0, id="capital-exponent"),
        pytest.param("-2e+3", -2000.0, id="signs"),
        pytest.param("1.5e-4", 0.00015, id="point-and-exponent"),
        pytest.param("10", 10, id="whole-number"),
        pytest.param(".inf", float("inf"), id="infinity"),
        pytest.param("1e", "1e", id="not-quite-a-number"),
        pytest.param("'1e-3'", "1e-3", id="quoted-number-is-text"),
        pytest.param("2026-01-02", "2026-01-02", id="a-date-is-text"),
        pytest.param("yes", True, id="yes-as-omegaconf-reads-it"),
        pytest.param("~", None, id="tilde"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_plain_value_is_read_as_omegaconf_reads_it(written: str, value: object) -> None:
    read = parse_mapping(f"key: {written}", "file.yaml")["key"]
    assert read == value
    assert type(read) is type(value)


def test_every_key_is_text_even_one_that_looks_like_something_else() -> None:
    document = parse_mapping("off: 1\n1: 2\nnull: 3\n1e-3: 4\n", "file.yaml")
    assert document == {"off": 1, "1": 2, "null": 3, "1e-3": 4}


def test_anchors_and_merge_keys_are_plain_yaml() -> None:
    text = "one: &norm {mean_level: batch, eps: 1.0}\ntwo: {<<: *norm, mean_level: group}\n"
    assert parse_mapping(text, "file.yaml")["two"] == {"mean_level": "group", "eps": 1.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            "a: 1\na: 2", "file.yaml: line 2, column 1: the key 'a' is given twice", id="twice"
        ),
        pytest.param("x: {a: 1, a: 2}", "the key 'a' is given twice", id="twice-inside"),
        pytest.param("on: 1\n'on': 2", "the key 'on' is given twice", id="twice-once-quoted"),
        pytest.param(
            "a: !!python/object/apply:os.system [id]", "the tag !!python/object", id="python-tag"
        ),
        pytest.param("a: !!binary aGk=", "the tag !!binary is refused", id="binary"),
        pytest.param("a: !!set {x}", "the tag !!set is refused", id="set"),
        pytest.param("a: !!timestamp 2026-01-02", "the tag !!timestamp is refused", id="timestamp"),
        pytest.param(
            "a: !secret x", "the tag !secret is refused; write plain values", id="own-tag"
        ),
        pytest.param("? [a, b]\n: 1", "a key must be plain text", id="list-as-key"),
        pytest.param("a: &a [*a]", "line 1, column 4: a value contains itself", id="cycle"),
        pytest.param("a: &a {b: {c: *a}}", "a value contains itself", id="deep-cycle"),
        pytest.param("- a\n- b", "wanted a mapping of keys to values, got a list", id="list"),
        pytest.param("just text", "wanted a mapping of keys to values, got a str", id="text"),
        pytest.param("", "wanted a mapping of keys to values, got nothing", id="empty"),
        pytest.param("# only a comment", "got nothing", id="comment"),
        pytest.param("a: 1\n---\nb: 2", "expected a single document", id="two-documents"),
        pytest.param("a: [1, 2", "line 1, column", id="broken"),
        pytest.param("a:\tb:\n\t- c", "file.yaml: line", id="tabs"),
        pytest.param("a: \x00", "is not YAML: unacceptable character", id="control-character"),
        pytest.param("a: *nowhere", "found undefined alias", id="alias-of-nothing"),
        pytest.param(f"a: {'9' * 5000}", "is not YAML: Exceeds the limit", id="endless-number"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_in_words(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_bomb_of_aliases_is_refused_without_being_expanded() -> None:
    # Nine levels of ten aliases each: 10^9 values from 300 characters.
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 10):
        parts = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{parts}]")
    assert "values through aliases; wanted at most 100000" in refusal("\n".join(lines))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: " + "[" * 100 + "]" * 100, id="brackets"),
        pytest.param("a: " + "[" * 1_000, id="brackets-without-end"),
        pytest.param(
            "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100)),
            id="through-aliases",
        ),
    ],
)
def test_nesting_without_end_is_refused(text: str) -> None:
    assert f"nested deeper than {DEEPEST_DOCUMENT} levels" in refusal(text)


def test_a_value_used_twice_is_no_cycle() -> None:
    assert parse_mapping("a: &a [1]\nb: [*a, *a]", "f")["b"] == [[1], [1]]


def test_random_bytes_never_escape_as_another_error() -> None:
    rng = np.random.default_rng(7)
    alphabet = list("ab:-[]{}&*!<>|?%@`'\"#, \n\t0.1e~")
    for _ in range(2000):
        text = "".join(rng.choice(alphabet, size=int(rng.integers(1, 40))))
        with contextlib.suppress(ConfigError):
            parse_mapping(text, "file.yaml")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(
            "ä: 1".encode("latin-1"), "cannot be read: it is not UTF-8 text", id="latin-1"
        ),
        pytest.param("a: 1".encode("utf-16"), "cannot be read: it is not UTF-8 text", id="utf-16"),
        pytest.param(b"a: " + b"x" * LARGEST_FILE, "larger than 1000000 bytes", id="too-large"),
    ],
)
def test_a_file_that_cannot_be_text_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        load_mapping(path)


def test_a_byte_order_mark_and_windows_line_ends_are_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert load_mapping(path) == {"a": 1, "b": 2}


def test_a_missing_file_and_a_folder_are_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_mapping(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_mapping(tmp_path)


def test_an_endless_device_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigError, match="larger than"):
        load_mapping(Path("/dev/zero"))
