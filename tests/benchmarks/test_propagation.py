"""Propagation reaches what it must."""

from pathlib import Path

import pytest

from tests.benchmarks.helpers import invoke, read_result


def test_every_propagation_is_measured_and_checked(tmp_path: Path) -> None:
    outcome = invoke("propagation", "--shape", "tiny", "--device", "cpu", "--repeats", "2", "--out", str(tmp_path))
    assert outcome.exit_code == 0, outcome.output
    result, _ = read_result(tmp_path)
    rows = {row["contender"]: row for row in result["rows"]}
    assert list(rows) == [
        "exact",
        "paper",
        "ours",
        "ours-no-labels",
        "ours-one-step",
        "ours-one-no-labels",
        "ours-plain",
    ]
    # inputs take as much memory as gradients
    two_tensors = 2 * 2000 * 5 * 4 / 2**20
    assert [row["history MiB"] for row in rows.values()] == [0] + [pytest.approx(two_tensors)] * 6
    assert all(row["status"] == "ok" and row["milliseconds"] > 0 for row in rows.values())


@pytest.mark.usefixtures("wrong_kernels")
def test_a_wrong_propagation_is_reported_as_wrong(tmp_path: Path) -> None:
    names = "exact,ours,ours-plain"
    words = ["--shape", "tiny", "--device", "cpu", "--repeats", "1", "--only", names, "--out", str(tmp_path)]
    assert invoke("propagation", *words).exit_code == 1
    rows = read_result(tmp_path)[0]["rows"]
    assert [(row["status"], row["milliseconds"]) for row in rows] == [("wrong", None)] * 3
