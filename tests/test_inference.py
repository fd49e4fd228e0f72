"""Inference in bounded memory: blocks of nodes, blocks of columns, memory or disk; always the same outputs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn import commands, inference
from lazygnn.data.synthetic import block_graph
from lazygnn.graph import Graph
from lazygnn.history import NoHistory
from lazygnn.inference import by_columns
from lazygnn.methods import build_model, resolve
from lazygnn.methods.base import Place
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
    assert torch.equal(in_memory, outputs(graph, tmp_path, eval_storage="disk"))
    assert (tmp_path / "inference.rows").stat().st_size == 400 * 7 * 4


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


def test_prepare_writes_a_folder_that_trains_along_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    file = tmp_path / "small.npz"
    split = rng.integers(0, 3, 200)
    np.savez(
        file,
        edge_index=rng.integers(0, 200, (2, 600)),
        x=rng.normal(size=(200, 4)),
        y=rng.integers(0, 3, 200),
        **{f"{name}_mask": split == index for index, name in enumerate(("train", "val", "test"))},
    )
    found = commands.prepare(str(file), 7, "metis", 2, out=tmp_path / "prepared")
    assert found["num_parts"] == 7
    assert found["smallest_part"] < found["largest_part"]
    assert 0 < found["edge_cut"] < 1
    assert 0 < found["mean_halo"] <= found["mean_deep_halo"]
    settings = {"num_parts": 7, "epochs": 3, "hidden_channels": 8, "dropout": 0.0}
    by_metis = commands.train(resolve("lazygnn", str(file), settings, device="cpu"), tmp_path / "a", quiet=True)
    contiguous = settings | {"partition": "contiguous", "features": "host"}
    prepared = commands.train(
        resolve("lazygnn", str(tmp_path / "prepared"), contiguous, device="cpu"), tmp_path / "b", quiet=True
    )
    # the same parts, cut from a memory-mapped graph that needs no permuting
    assert (by_metis["val"], by_metis["test"]) == (prepared["val"], prepared["test"])
