"""Steps are compared with float64."""

from pathlib import Path

import pytest

import benchmarks.step
import common.measure
from tests.benchmarks.helpers import CARRIED, CPU, invoke, read_result, tiny


def test_every_step_is_measured_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks.step, "COLUMNS", (16, 47))
    monkeypatch.setattr(common.measure, "_COPIED", {"cpu": 2**20})
    outcome = invoke("step", "--shape", "tiny", "--device", "cpu", "--repeats", "2", "--out", str(tmp_path / "out"))
    assert outcome.exit_code == 0, outcome.output
    result, page = read_result(tmp_path / "out")
    assert result.keys() >= CARRIED
    assert result["benchmark"] == "step-tiny"
    assert result["facts"]["copy bandwidth, GB/s"] > 0
    assert len(result["rows"]) == (3 + 4) * 2
    for row in result["rows"]:
        assert row["status"] == "ok"
        assert row["milliseconds"] > 0
        assert row["share of copy"] > 0
        assert 0 < row["error"] < (1e-6 if row["dtype"] == "float32" else 1e-2)
    assert "| pyg-messages | 47 | bfloat16 |" in page
    assert "commit: " in page


@pytest.mark.usefixtures("wrong_kernels")
def test_a_wrong_kernel_is_reported_as_wrong_and_not_as_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks.step, "COLUMNS", (47,))
    monkeypatch.setattr(common.measure, "_COPIED", {"cpu": 2**20})
    report = benchmarks.step.main(tiny(), CPU, repeats=1, folder=tmp_path)
    wrong = [row for row in report.rows if row["status"] == "wrong"]
    # a kernel in bfloat16 may be off by more than that
    assert [(row["contender"], row["dtype"], row["milliseconds"]) for row in wrong] == [("ours", "float32", None)]
    assert report.failed()
