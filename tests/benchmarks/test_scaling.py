"""Scaling along every axis."""

from pathlib import Path

import pytest

import benchmarks.scaling
from tests.benchmarks.helpers import CARRIED, invoke, read_result


def test_every_axis_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        benchmarks.scaling, "AXES", {"nodes": (0.5, 1), "edges": (0.5, 1), "steps": (1, 4), "parts": (1, 2)}
    )
    words = ("--shape", "tiny", "--device", "cpu", "--repeats", "1", "--out", str(tmp_path / "out"))
    outcome = invoke("scaling", *words)
    assert outcome.exit_code == 0, outcome.output
    result, _ = read_result(tmp_path / "out")
    assert result.keys() >= CARRIED
    assert [(row["axis"], row["status"]) for row in result["rows"]] == [
        (axis, "ok") for axis in ("nodes", "edges", "steps", "parts") for _ in range(2)
    ]
    assert [row["entries"] for row in result["rows"][2:4]] == [14_000, 26_000]
    assert len(list((tmp_path / "out").glob("*.png"))) == 1
