"""Every promise of the docs names tests that exist; those of `make soak` have a star, and no others."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "promises.md").read_text()
HEADS = ("| ---", "| promise", "| what |")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(HEADS)]
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`(\*?)", PAGE)


def marks_of(file: str, test: str) -> set[str]:
    """Returns the marks of a test; fails if there is no such test."""
    found = [
        node
        for node in ast.walk(ast.parse((TESTS / file).read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == test
    ]
    assert len(found) == 1, f"{file} has no test `{test}`"
    return {mark for each in found[0].decorator_list for mark in re.findall(r"mark\.(\w+)", ast.unparse(each))}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:60])
def test_a_promise_has_a_test(row: str) -> None:
    assert re.search(r"`[\w/]+\.py::test_\w+`", row)


@pytest.mark.parametrize(("file", "test", "star"), NAMED, ids=[test for _, test, _ in NAMED])
def test_a_test_that_is_named_exists(file: str, test: str, star: str) -> None:
    assert ("soak" in marks_of(file, test)) == bool(star)


def test_promises_are_found() -> None:
    assert len(ROWS) > 15
    assert len(NAMED) > len(ROWS)
