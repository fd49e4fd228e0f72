"""Inference in bounded memory: blocks of nodes, blocks of columns, memory or disk; always the same outputs."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from lazygnn import inference
from lazygnn.data.synthetic import block_graph
from lazygnn.graph import Graph
from lazygnn.history import NoHistory
from lazygnn.inference import by_columns, multiply
from lazygnn.methods import build_model, resolve
from lazygnn.methods.base import Place
from lazygnn.ops import Csr, spmm
from lazygnn.propagation import LazyPropagation


@pytest.fixture(scope="module")
def graph() -> Graph:
    return block_graph(400, 4, degree=6, in_channels=5, num_classes=7, seed=0)


def outputs(graph: Graph, folder: Path, **settings: object) -> Tensor:
    torch.manual_seed(0)
    config = resolve("lazygnn", "block", {"hidden_channels": 16, "eval_tolerance": 1e-6, **settings})
    model = build_model(config, graph, Place(torch.device("cpu"), folder, training=False))
    return model.eval().infer(graph)


def test_disk_and_memory_give_the_same_outputs(graph: Graph, tmp_path: Path) -> None:
    in_memory = outputs(graph, tmp_path)
    stored = outputs(graph, tmp_path, eval_storage="disk")
    assert torch.equal(in_memory, stored)
    # the rows are in a file without a name
    assert f"{tmp_path}/inference-" in Path("/proc/self/maps").read_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_place", [False, True])
def test_a_product_takes_a_few_columns_at_a_time(graph: Graph, in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(400, 7)
    expected, given = spmm(graph.adj, x), x.clone()
    widths: list[int] = []

    def counted(matrix: Csr, columns: Tensor) -> Tensor:
        widths.append(columns.shape[1])
        return spmm(matrix, columns)

    monkeypatch.setattr(inference, "spmm", counted)
    monkeypatch.setattr(inference, "INFERENCE_BYTES", 5 * 400 * 4 * 3)
    out = multiply(graph.adj, x, in_place=in_place)
    assert widths == [3, 3, 1]
    torch.testing.assert_close(out, expected)
    assert (out is x) == in_place
    assert torch.equal(x, given) != in_place


def test_blocks_of_columns_and_nodes_change_nothing_but_rounding(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = outputs(graph, tmp_path)
    monkeypatch.setattr(inference, "INFERENCE_BYTES", 5 * 400 * 4 * 2)
    monkeypatch.setattr(inference, "INFERENCE_ROWS", 37)
    torch.testing.assert_close(outputs(graph, tmp_path), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(outputs(graph, tmp_path, eval_storage="disk"), whole, rtol=1e-4, atol=1e-5)


def test_no_more_than_the_allowed_columns_are_propagated_at_a_time(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "INFERENCE_BYTES", 5 * 400 * 4 * 3)
    widths: list[int] = []

    def propagate(x: Tensor) -> Tensor:
        widths.append(x.shape[1])
        return 2 * x

    x = torch.randn(400, 7)
    assert torch.equal(by_columns(propagate, x, x.device), 2 * x)
    assert widths == [3, 3, 1]


def test_the_input_is_left_alone_unless_given_away(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    prop = LazyPropagation(0.1, NoHistory())
    for num_bytes in (2**30, 5 * 400 * 4):
        monkeypatch.setattr(inference, "INFERENCE_BYTES", num_bytes)
        x = torch.randn(400, 7)
        kept = x.clone()
        out = prop.infer(x, graph.adj)
        assert torch.equal(x, kept)
        assert prop.infer(x, graph.adj, in_place=True) is x
        torch.testing.assert_close(x, out)


def test_the_rows_of_all_processes_choose_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    # two columns of ten rows, or one of twenty
    monkeypatch.setattr(inference, "INFERENCE_BYTES", 2 * 5 * 10 * 4)
    widths: dict[int | None, list[int]] = {}

    def run(num_rows: int | None) -> None:
        def propagate(x: Tensor) -> Tensor:
            widths.setdefault(num_rows, []).append(x.shape[1])
            return x

        by_columns(propagate, torch.ones(10, 4), torch.device("cpu"), num_rows=num_rows)

    run(None)
    run(20)
    assert widths == {None: [2, 2], 20: [1, 1, 1, 1]}
