"""Contenders train and are checked."""

from pathlib import Path
from typing import Any

import pytest
import torch

import benchmarks.contenders
import benchmarks.epoch
import benchmarks.trained
from tests.benchmarks.helpers import CARRIED, CPU, invoke, read_result, tiny


def test_every_contender_trains_and_is_checked(tmp_path: Path) -> None:
    words = ("--shape", "tiny", "--device", "cpu", "--repeats", "2", "--warmup", "3", "--out", str(tmp_path / "out"))
    outcome = invoke("epoch", *words)
    assert outcome.exit_code == 0, outcome.output
    result, page = read_result(tmp_path / "out")
    assert result.keys() >= CARRIED
    rows = {row["contender"]: row for row in result["rows"]}
    assert {"ours", "ours-full", "paper", "gas", "gas-our-kernels", "appnp", "graphsage", "cluster-gcn"} <= rows.keys()
    assert {"appnp-pyg-edge_index", "appnp-pyg-csr", "appnp-pyg-EdgeIndex", "appnp-our-kernels"} <= rows.keys()
    assert {"deep", "deep-narrow", "gcnii-gas-our-kernels", "gcn-gas-our-kernels"} <= rows.keys()
    unchecked = ("graphsage", "cluster-gcn", "gcnii-gas-our-kernels", "gcn-gas-our-kernels")
    for name, row in rows.items():
        assert row["status"] == "ok", row
        assert row["seconds"] > 0
        assert len(row["all_seconds"]) == 2
        assert {"resident MiB", "step peak MiB"} <= row.keys()
        assert row["accuracy"] > 1 / 5
        assert (row["error"] is None) == (name in unchecked)
        assert row["settings"] in page
        assert row["config"]["trainer"]["epochs"] == 6
    assert rows["paper"]["batches"] == "2 of 4"
    assert rows["ours"]["batches"] == "4 of 4"


@pytest.mark.usefixtures("wrong_kernels")
def test_an_epoch_with_a_wrong_kernel_is_wrong_and_other_contenders_are_not(tmp_path: Path) -> None:
    names = ["ours", "ours-full", "appnp-our-kernels", "appnp", "appnp-pyg-csr"]
    report = benchmarks.epoch.main(tiny(), CPU, only=names, repeats=1, folder=tmp_path)
    status = {row["contender"]: row["status"] for row in report.rows}
    assert status == dict(zip(names, ["wrong", "wrong", "wrong", "ok", "ok"], strict=True))
    assert report.rows[0]["seconds"] is None
    assert report.rows[0]["reason"] == "fails: propagation equals float64"
    assert " - | " in read_result(tmp_path)[1].splitlines()[-5]


def test_a_contender_that_learns_nothing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim.Adam, "step", lambda _: None)
    values = {**benchmarks.contenders.contenders(tiny(), CPU)["appnp"].values, "dropout": 0.0}
    still = benchmarks.trained.Contender("learns nothing", "appnp", values)
    monkeypatch.setattr(benchmarks.epoch, "contenders", lambda *_: {"still": still})
    report = benchmarks.epoch.main(tiny(), CPU, repeats=1, folder=tmp_path)
    assert report.rows[0]["reason"] == "fails: the loss decreases"


def test_a_contender_that_fails_does_not_prevent_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    epoch, measure = benchmarks.epoch, benchmarks.trained.measure

    def fail(contender: Any, *rest: Any, **options: Any) -> Any:
        if contender.method == "appnp-gas":
            raise torch.OutOfMemoryError("out of memory")
        if contender.method == "graphsage":
            raise RuntimeError("broken")
        return measure(contender, *rest, **options)

    monkeypatch.setattr(epoch, "measure", fail)
    report = epoch.main(tiny(), CPU, only=["gas", "graphsage", "cluster-gcn"], repeats=1, folder=tmp_path)
    assert [row["status"] for row in report.rows] == ["out of memory", "failed", "ok"]
    assert report.rows[1]["reason"] == "RuntimeError: broken"
    assert "broken" in capsys.readouterr().err
    assert len(read_result(tmp_path)[0]["rows"]) == 3
