"""Every benchmark runs on a tiny graph and says whether its answers are right; no time is tested."""

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from lazygnn import ops
from lazygnn.graph import Graph, normalized_adjacency
from lazygnn.history.device import DeviceStore

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
CARRIED = {"commit", "date", "machine", "torch", "torch_geometric", "python", "triton", "facts", "rows"}


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    monkeypatch.syspath_prepend(str(ROOT))
    # no file of a real data set is to be read
    monkeypatch.setenv("LAZYGNN_DATA", str(tmp_path))


def module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


def tiny(**changes: Any) -> Any:
    return replace(module("shapes").find_shape("tiny"), **changes)


@pytest.fixture
def wrong_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library chooses by itself is off by one in a hundred; plain PyTorch is right."""

    def spoil(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def spoilt(*args: Any, **options: Any) -> Tensor:
            plain = os.environ.get("LAZYGNN_KERNELS") == "reference"
            return function(*args, **options) * (1.0 if plain else 0.99)

        return spoilt

    for name in ("step", "run_steps"):
        monkeypatch.setattr(ops, name, spoil(getattr(ops, name)))


def read(folder: Path) -> tuple[dict[str, Any], str]:
    """The only result of a folder, as JSON and as Markdown."""
    (file,) = folder.glob("*.json")
    return json.loads(file.read_text()), file.with_suffix(".md").read_text()


def invoke(*words: str) -> Any:
    return CliRunner().invoke(module("cli").app, list(words))


@pytest.fixture(scope="module")
def drawn() -> Graph:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        graph: Graph = module("shapes").draw(tiny(num_nodes=6000, degree=20.0), CPU)
    return graph


def test_a_drawn_graph_is_symmetric_and_normalised_like_any_other(drawn: Graph) -> None:
    adj = drawn.adj
    row, col = adj.row_index(), adj.col.long()
    assert torch.equal(adj.T.col, adj.col)
    assert torch.equal(adj.T.rowptr, adj.rowptr)
    assert int((row == col).sum()) == drawn.num_nodes
    expected, degree = normalized_adjacency(torch.stack((row, col)), None, drawn.num_nodes)
    assert torch.equal(adj.rowptr, expected.rowptr)
    assert torch.equal(adj.col, expected.col)
    torch.testing.assert_close(adj.value, expected.value)
    assert torch.equal(drawn.degree, degree)
    assert adj.col.dtype == torch.int32


def test_a_drawn_graph_has_the_density_and_the_cut_edges_it_was_asked_for(drawn: Graph) -> None:
    assert drawn.part_ptr is not None
    assert drawn.part_ptr.tolist() == [0, 1500, 3000, 4500, 6000]
    part, row = torch.repeat_interleave(drawn.part_ptr.diff()), drawn.adj.row_index()
    neighbours = len(drawn.adj.col) - drawn.num_nodes
    assert neighbours / drawn.num_nodes == pytest.approx(20, rel=0.01)
    assert int((part[row] != part[drawn.adj.col]).sum()) / neighbours == pytest.approx(0.13, rel=0.02)


def test_a_drawn_graph_has_hubs_anywhere_in_a_part(drawn: Graph) -> None:
    degree = drawn.degree
    assert float(degree.max()) > 10 * float(degree.median())
    hubs = degree.topk(100).indices % 1500
    assert 500 < float(hubs.double().mean()) < 1000
    even = module("shapes").draw(tiny(skew=1.0), CPU)
    assert float(even.degree.max()) < 4 * float(even.degree.median())


def test_a_drawn_graph_is_the_same_for_the_same_seed() -> None:
    draw = module("shapes").draw
    first, second, other = (draw(tiny(), CPU, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.adj.col, second.adj.col)
    assert torch.equal(first.x, second.x)
    assert not torch.equal(first.x, other.x)
    assert sorted(first.masks) == ["test", "train", "val"]
    assert int(sum(mask.int() for mask in first.masks.values()).sum()) == first.num_nodes
    one_part = draw(tiny(num_parts=1), CPU)
    assert one_part.part_ptr.tolist() == [0, 2000]


def test_a_file_is_taken_before_a_drawn_graph(tmp_path: Path, block_arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "tiny.npz", **block_arrays)
    graph = module("shapes").load(tiny(num_parts=3), CPU, str(tmp_path))
    assert graph.num_nodes == 60
    assert len(graph.part_ptr) == 4


def test_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module("step"), "COLUMNS", (16, 47))
    monkeypatch.setattr(module("measure"), "_COPIED", {"cpu": 2**20})
    outcome = invoke("step", "--shape", "tiny", "--device", "cpu", "--repeats", "2", "--out", str(tmp_path / "out"))
    assert outcome.exit_code == 0, outcome.output
    result, page = read(tmp_path / "out")
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
    monkeypatch.setattr(module("step"), "COLUMNS", (47,))
    monkeypatch.setattr(module("measure"), "_COPIED", {"cpu": 2**20})
    report = module("step").main(tiny(), CPU, repeats=1, folder=tmp_path)
    wrong = [row for row in report.rows if row["status"] == "wrong"]
    # a kernel in bfloat16 may be off by more than that
    assert [(row["contender"], row["dtype"], row["milliseconds"]) for row in wrong] == [("ours", "float32", None)]
    assert report.failed()


def test_history(tmp_path: Path) -> None:
    outcome = invoke("history", "--shape", "tiny", "--device", "cpu", "--repeats", "2", "--out", str(tmp_path / "out"))
    assert outcome.exit_code == 0, outcome.output
    result, _ = read(tmp_path / "out")
    assert result.keys() >= CARRIED
    tiers, dtypes = ("device", "host", "pinned", "disk"), ("float32", "bfloat16", "int8")
    assert [(row["tier"], row["dtype"]) for row in result["rows"]] == [(t, d) for t in tiers for d in dtypes]
    for row in result["rows"]:
        assert row["status"] == "ok"
        assert row["pull rows/s"] > 0
        assert row["push GB/s"] > 0
        assert (row["error"] == 0) == (row["dtype"] == "float32")


def test_a_history_that_forgets_is_reported_as_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceStore, "write", lambda *_: None)
    report = module("history").main(tiny(), CPU, repeats=1, folder=tmp_path)
    assert {row["status"] for row in report.rows} == {"wrong"}
    assert all(row["pull rows/s"] is None for row in report.rows)


def test_propagation(tmp_path: Path) -> None:
    outcome = invoke("propagation", "--shape", "tiny", "--device", "cpu", "--repeats", "2", "--out", str(tmp_path))
    assert outcome.exit_code == 0, outcome.output
    result, _ = read(tmp_path)
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
    # inputs take the room of the gradients
    two_tensors = 2 * 2000 * 5 * 4 / 2**20
    assert [row["history MiB"] for row in rows.values()] == [0] + [pytest.approx(two_tensors)] * 6
    assert all(row["status"] == "ok" and row["milliseconds"] > 0 for row in rows.values())


@pytest.mark.usefixtures("wrong_kernels")
def test_a_wrong_propagation_is_reported_as_wrong(tmp_path: Path) -> None:
    names = "exact,ours,ours-plain"
    words = ["--shape", "tiny", "--device", "cpu", "--repeats", "1", "--only", names, "--out", str(tmp_path)]
    assert invoke("propagation", *words).exit_code == 1
    rows = read(tmp_path)[0]["rows"]
    assert [(row["status"], row["milliseconds"]) for row in rows] == [("wrong", None)] * 3


def test_epoch(tmp_path: Path) -> None:
    words = ("--shape", "tiny", "--device", "cpu", "--repeats", "2", "--warmup", "3", "--out", str(tmp_path / "out"))
    outcome = invoke("epoch", *words)
    assert outcome.exit_code == 0, outcome.output
    result, page = read(tmp_path / "out")
    assert result.keys() >= CARRIED
    rows = {row["contender"]: row for row in result["rows"]}
    assert {"ours", "ours-full", "paper", "gas", "gas-our-kernels", "appnp", "graphsage", "cluster-gcn"} <= rows.keys()
    assert {"appnp-pyg-edge_index", "appnp-pyg-csr", "appnp-pyg-EdgeIndex", "appnp-our-kernels"} <= rows.keys()
    for name, row in rows.items():
        assert row["status"] == "ok", row
        assert row["seconds"] > 0
        assert len(row["all_seconds"]) == 2
        assert {"resident MiB", "step peak MiB"} <= row.keys()
        assert row["accuracy"] > 1 / 5
        assert (row["error"] is None) == (name in ("graphsage", "cluster-gcn"))
        assert row["settings"] in page
        assert row["config"]["trainer"]["epochs"] == 6
    assert rows["paper"]["batches"] == "2 of 4"
    assert rows["ours"]["batches"] == "4 of 4"


@pytest.mark.parametrize(
    "name",
    [
        "ours-bf16",
        "ours-full-bf16",
        "ours-host-tf32",
        "ours-host-all-tf32",
        "ours-host-gradients-tf32",
        "gas-our-kernels",
        "appnp-our-kernels",
    ],
)
def test_contenders_of_a_gpu_are_right_on_a_cpu_too(name: str) -> None:
    contender = module("contenders").contenders(tiny(), torch.device("cuda"))[name]
    row = module("trained").measure(contender, "default", module("shapes").draw(tiny(), CPU), CPU, 1, 4)
    assert row["status"] == "ok", row
    assert (row["error"] > 1e-4) == ("tf32" not in name)


@pytest.mark.usefixtures("wrong_kernels")
def test_an_epoch_with_a_wrong_kernel_is_wrong_and_peers_are_not(tmp_path: Path) -> None:
    names = ["ours", "ours-full", "appnp-our-kernels", "appnp", "appnp-pyg-csr"]
    report = module("epoch").main(tiny(), CPU, only=names, repeats=1, folder=tmp_path)
    status = {row["contender"]: row["status"] for row in report.rows}
    assert status == dict(zip(names, ["wrong", "wrong", "wrong", "ok", "ok"], strict=True))
    assert report.rows[0]["seconds"] is None
    assert report.rows[0]["reason"] == "not so: propagation is that of float64"
    assert " - | " in read(tmp_path)[1].splitlines()[-5]


def test_a_contender_that_learns_nothing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim.Adam, "step", lambda _: None)
    values = {**module("contenders").contenders(tiny(), CPU)["appnp"].values, "dropout": 0.0}
    still = module("trained").Contender("learns nothing", "appnp", values)
    monkeypatch.setattr(module("epoch"), "contenders", lambda *_: {"still": still})
    report = module("epoch").main(tiny(), CPU, repeats=1, folder=tmp_path)
    assert report.rows[0]["reason"] == "not so: the loss falls"


def test_a_contender_without_memory_or_luck_does_not_keep_the_others_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    epoch, measure = module("epoch"), module("trained").measure

    def fail(contender: Any, *rest: Any) -> Any:
        if contender.method == "appnp-gas":
            raise torch.OutOfMemoryError("no room")
        if contender.method == "graphsage":
            raise RuntimeError("no luck")
        return measure(contender, *rest)

    monkeypatch.setattr(epoch, "measure", fail)
    report = epoch.main(tiny(), CPU, only=["gas", "graphsage", "cluster-gcn"], repeats=1, folder=tmp_path)
    assert [row["status"] for row in report.rows] == ["out of memory", "failed", "ok"]
    assert report.rows[1]["reason"] == "RuntimeError: no luck"
    assert "no luck" in capsys.readouterr().err
    assert len(read(tmp_path)[0]["rows"]) == 3


def test_scaling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module("scaling"), "AXES", {"nodes": (0.5, 1), "edges": (0.5, 1), "steps": (1, 4), "parts": (1, 2)}
    )
    words = ("--shape", "tiny", "--device", "cpu", "--repeats", "1", "--out", str(tmp_path / "out"))
    outcome = invoke("scaling", *words)
    assert outcome.exit_code == 0, outcome.output
    result, _ = read(tmp_path / "out")
    assert result.keys() >= CARRIED
    assert [(row["axis"], row["status"]) for row in result["rows"]] == [
        (axis, "ok") for axis in ("nodes", "edges", "steps", "parts") for _ in range(2)
    ]
    assert [row["entries"] for row in result["rows"][2:4]] == [14_000, 26_000]
    assert len(list((tmp_path / "out").glob("*.png"))) == 1


def test_results_of_one_commit_are_kept_together_and_those_of_another_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = module("report")
    made_by = {"commit": "a", "date": "2026-01-01", "machine": "some"}
    monkeypatch.setattr(report, "provenance", lambda: made_by)

    def write(name: str, seconds: float) -> list[Any]:
        made = report.Report("some", CPU, ("name",), ("seconds",), {"name": "name"}, tmp_path)
        made.run({"name": name}, lambda: {"seconds": seconds})
        # kept as soon as it is measured
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


def test_plain_kernels_are_used_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = module("kernels").kernels
    monkeypatch.delenv("LAZYGNN_KERNELS", raising=False)
    with kernels(plain=True):
        assert os.environ["LAZYGNN_KERNELS"] == "reference"
        with kernels(plain=False):
            assert os.environ["LAZYGNN_KERNELS"] == "auto"
        assert os.environ["LAZYGNN_KERNELS"] == "reference"
    assert "LAZYGNN_KERNELS" not in os.environ


def test_memory_of_a_step_is_counted_over_what_is_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    measure, held, most = module("measure"), [500, 100, 110, 110, 900], [900, 400, 330, 350, 990]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: held.pop(0) * 2**20)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: most.pop(0) * 2**20)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    memory = measure.Memory(torch.device("cuda"))
    for _ in range(5):
        memory.look()
    assert memory.summary(slice(2, -1)) == {"resident MiB": 110.0, "step peak MiB": 240.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["step", "--shape", "huge"], "unknown shape `huge`; choose one of: products, arxiv, tiny"),
        (["step", "--shape", "tiny", "--only", "dgl"], "unknown contender `dgl`; choose one of: ours, ours-narrow"),
        (["epoch", "--shape", "tiny", "--only", "ours,dgl"], "unknown contender `dgl`; choose one of: ours-full, ours"),
        (["scaling", "--shape", "tiny", "--only", "time"], "unknown axis `time`; choose one of: nodes, edges"),
        (["scaling", "--shape", "tiny", "--contender", "dgl"], "unknown contender `dgl`"),
        (["history", "--shape", "tiny", "--device", "tpu"], "unknown device `tpu`; choose auto, cpu or cuda"),
    ],
)
def test_unknown_names_are_one_line_and_a_status(words: list[str], message: str) -> None:
    outcome = invoke(*words)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(f"error: {message}")
    assert outcome.stderr.count("\n") == 1


def test_results_that_cannot_be_written_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in ("file", "file/folder"):
        done = invoke("epoch", "--shape", "tiny", "--device", "cpu", "--only", "ours", "--out", str(tmp_path / out))
        assert done.exit_code == 2
        assert "give a folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_results_carry_the_commit_of_the_code_and_not_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAZYGNN_COMMIT", raising=False)
    monkeypatch.syspath_prepend(str(ROOT))
    provenance = importlib.import_module("experiments.provenance").provenance
    expected = provenance()["commit"]
    monkeypatch.chdir(tmp_path)
    assert provenance()["commit"] == expected
