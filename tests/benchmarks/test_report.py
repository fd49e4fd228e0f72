"""Result files."""

import json
from pathlib import Path
from typing import Any

import pytest

import benchmarks.report
from tests.benchmarks.helpers import CPU


def test_rows_of_one_commit_are_merged_and_those_of_another_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = benchmarks.report
    made_by = {"commit": "a", "date": "2026-01-01", "machine": "some"}
    monkeypatch.setattr(report, "provenance", lambda: made_by)

    def write(name: str, seconds: float) -> list[Any]:
        made = report.Report("some", CPU, ("name",), ("seconds",), {"name": "name"}, tmp_path)
        made.run({"name": name}, lambda: {"seconds": seconds})
        # stored as soon as it is measured
        (file,) = tmp_path.glob("*.json")
        rows = json.loads(file.read_text())["rows"]
        assert made.write() == file
        assert json.loads(file.read_text())["rows"] == rows
        return [(row["name"], row["seconds"]) for row in rows]

    write("first", 1.0)
    write("second", 2.0)
    assert write("first", 3.0) == [("first", 3.0), ("second", 2.0)]
    made_by["commit"] = "b"
    assert write("third", 4.0) == [("third", 4.0)]
