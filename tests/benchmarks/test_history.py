"""Histories return what was written."""

from pathlib import Path

import pytest

import benchmarks.history
from lazygnn.history.device import DeviceStore
from tests.benchmarks.helpers import CARRIED, CPU, invoke, read_result, tiny


def test_every_tier_and_type_is_measured_and_checked(tmp_path: Path) -> None:
    outcome = invoke("history", "--shape", "tiny", "--device", "cpu", "--repeats", "2", "--out", str(tmp_path / "out"))
    assert outcome.exit_code == 0, outcome.output
    result, _ = read_result(tmp_path / "out")
    assert result.keys() >= CARRIED
    tiers, dtypes = ("device", "host", "pinned", "disk"), ("float32", "bfloat16", "int8")
    assert [(row["tier"], row["dtype"]) for row in result["rows"]] == [(t, d) for t in tiers for d in dtypes]
    for row in result["rows"]:
        assert row["status"] == "ok"
        assert row["pull rows/s"] > 0
        assert row["push GB/s"] > 0
        assert (row["error"] == 0) == (row["dtype"] == "float32")


def test_a_history_that_loses_rows_is_reported_as_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceStore, "write", lambda *_: None)
    report = benchmarks.history.main(tiny(), CPU, repeats=1, folder=tmp_path)
    assert {row["status"] for row in report.rows} == {"wrong"}
    assert all(row["pull rows/s"] is None for row in report.rows)
