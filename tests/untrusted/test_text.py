import json

import pytest

from lazygnn.untrusted.text import check_json, parse_json, parse_toml


@pytest.mark.parametrize("value", [{}, [], None, 1, -1.5, "a[[[[{", {"a": [1, {"b": None}]}, ["\\", '"', "]"] * 50])
def test_json_is_read(value: object) -> None:
    text = json.dumps(value)
    assert parse_json(text) == parse_json(text.encode()) == value


def test_brackets_in_strings_are_not_depth() -> None:
    value = ["[" * 1000, "{" * 1000, '"[' * 1000]
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["[" * 65, '{"a":' * 65, "[" * 100_000, ("[" * 40 + '"]"') * 2])
def test_json_that_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it is nested more than 64 deep"):
        parse_json(text)
    assert parse_json("[" * 64 + "]" * 64)


@pytest.mark.parametrize("text", ["9" * 5000, "", "{", "\x00", b"\xff", b"\xff\xfe[", "nul"])
def test_other_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_json_of_many_empty_lists_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ValueError, match=r"it takes 448 MB of memory for 12 MB of text"):
        check_json(b"[" + b"[]," * 4_000_000 + b"[]]")


def test_json_of_labels_is_read() -> None:
    """A line of numbers takes little more memory than its text."""
    check_json(b'{"0": [' + b"0, " * 6_000_000 + b"1]}")


def test_toml_is_read() -> None:
    assert parse_toml('a = 1\nb.c = [1.5, "x. y. z"]\n[d]\ne = {f = 0x7f}') == {
        "a": 1,
        "b": {"c": [1.5, "x. y. z"]},
        "d": {"e": {"f": 127}},
    }
    assert parse_toml(f"a = {2**64 - 1}") == {"a": 2**64 - 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "nested more than 64 deep"),
        ("a = " + "[" * 70 + "]" * 70, "nested more than 64 deep"),
        ("a" + ".a" * 70 + " = 1", "a key has more than 64 parts"),
        ("[a" + ' . "b"' * 70 + "]", "a key has more than 64 parts"),
        ("a = 0x" + "f" * 100_000, "a number has 400000 bits, but integers have at most 64"),
        ("a = " + "9" * 5000, "."),
        (f"a = {2**64}", "a number has 65 bits"),
        ("a = [{b = 0x1ffffffffffffffff}]", "a number has 65 bits"),
        ("#" * 2**21, "it has 2.1 MB, options have at most 1.05 MB"),
        ("a = ", "."),
    ],
    ids=range(10),
)
def test_other_toml_is_a_value_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_toml(text)
