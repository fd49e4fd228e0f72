import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lazygnn.data import load_graph
from lazygnn.data.synthetic import block_graph, write_block_folder
from lazygnn.graph import Graph
from lazygnn.partitioning import equal_slices, partition

SMALL: dict[str, Any] = {"degree": 8.0, "in_channels": 6, "num_classes": 4}


def tensors(graph: Graph) -> dict[str, Tensor]:
    assert isinstance(graph.x, Tensor)
    masks = {f"{split}_mask": mask for split, mask in graph.masks.items()}
    adj = graph.adj
    return {
        "rowptr": adj.rowptr,
        "col": adj.col,
        "value": adj.value,
        "degree": graph.degree,
        "x": graph.x,
        "y": graph.y,
        **masks,
    }


def assert_same(a: Graph, b: Graph) -> None:
    left, right = tensors(a), tensors(b)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype, name
        assert torch.equal(tensor, right[name]), name


def rebuilt(graph: Graph) -> Graph:
    """The same edges and arrays through `Graph.from_edges`."""
    edges = torch.stack((graph.adj.row_index(), graph.adj.col.long()))
    upper = edges[:, edges[0] < edges[1]]
    masks: dict[str, Any] = {f"{split}_mask": mask for split, mask in graph.masks.items()}
    both = torch.cat((upper, upper.flip(0)), dim=1)
    return Graph.from_edges(both, graph.x, graph.y, num_classes=graph.task.num_outputs, **masks)


@settings(max_examples=40, deadline=None)
@given(
    num_nodes=st.integers(1, 60),
    data=st.data(),
    degree=st.floats(0, 100),
    mixing=st.floats(0, 1),
    skew=st.sampled_from([1.0, 1.5, 3.0]),
    num_classes=st.integers(1, 5),
)
def test_any_sizes_give_a_normalized_symmetric_graph(
    num_nodes: int, data: st.DataObject, degree: float, mixing: float, skew: float, num_classes: int
) -> None:
    num_blocks = data.draw(st.integers(1, num_nodes))
    graph = block_graph(
        num_nodes, num_blocks, degree=degree, in_channels=3, num_classes=num_classes, mixing=mixing, skew=skew
    )
    # differs if the graph is not symmetric, has a repeated pair or lacks a self-loop
    assert_same(graph, rebuilt(graph))
    assert graph.num_train >= 1


@pytest.mark.parametrize("skew", [1.0, 2.0])
@pytest.mark.parametrize("num_blocks", [1, 7])
def test_the_folder_holds_the_same_graph(skew: float, num_blocks: int, tmp_path: Path) -> None:
    options = {**SMALL, "skew": skew, "seed": 5, "mixing": 0.2}
    graph = block_graph(501, num_blocks, **options)
    write_block_folder(tmp_path / "g", 501, num_blocks, **options)
    loaded = load_graph(tmp_path / "g")
    assert_same(loaded, graph)
    assert_same(loaded, rebuilt(loaded))
    assert (loaded.task, loaded.name) == (graph.task, graph.name)


def test_a_graph_too_small_for_all_splits(tmp_path: Path) -> None:
    write_block_folder(tmp_path / "g", 1, 1, **SMALL)
    loaded = load_graph(tmp_path / "g")
    assert list(loaded.masks) == ["train"]
    assert_same(loaded, block_graph(1, 1, **SMALL))


@pytest.mark.parametrize("mixing", [0.0, 0.13, 0.5, 1.0])
@pytest.mark.parametrize("skew", [1.0, 2.0])
def test_edges_and_mixing_follow_the_options(mixing: float, skew: float) -> None:
    graph = block_graph(3000, 5, degree=12, in_channels=2, num_classes=3, mixing=mixing, skew=skew)
    assert graph.num_edges == 18_000
    found = partition(graph, 5, method="contiguous")
    assert found.edge_cut(graph.adj) == pytest.approx(mixing, abs=1e-3)
    assert torch.equal(found.ptr, equal_slices(3000, 5))


def test_skew_makes_a_heavy_tail() -> None:
    even, heavy = (block_graph(5000, 5, **SMALL, skew=skew).degree for skew in (1.0, 2.0))
    assert float(even.mean()) == pytest.approx(float(heavy.mean()))
    assert float(even.max()) < 4 * float(even.mean())
    assert float(heavy.max()) > 10 * float(heavy.mean())
    assert float(heavy.median()) < float(even.median())


def test_the_graph_depends_on_the_seed(tmp_path: Path) -> None:
    first = block_graph(300, 3, **SMALL, seed=1)
    assert_same(first, block_graph(300, 3, **SMALL, seed=1))
    other = tensors(block_graph(300, 3, **SMALL, seed=2))
    assert not any(torch.equal(tensor, other[name]) for name, tensor in tensors(first).items())


def test_the_split_is_sixty_twenty_twenty() -> None:
    masks = block_graph(500, 5, **SMALL).masks
    assert {split: int(mask.sum()) for split, mask in masks.items()} == {"train": 300, "val": 100, "test": 100}
    assert torch.stack(list(masks.values())).sum(dim=0).unique().tolist() == [1]


def accuracy(graph: Graph, x: Tensor) -> float:
    """The test accuracy of a linear model fitted by least squares."""
    train, test = graph.masks["train"], graph.masks["test"]
    one_hot = torch.nn.functional.one_hot(graph.y, graph.task.num_outputs).float()
    inputs = torch.cat((x, torch.ones(len(x), 1)), dim=1)
    weight = torch.linalg.lstsq(inputs[train], one_hot[train]).solution
    return float(((inputs @ weight).argmax(dim=1) == graph.y)[test].float().mean())


@pytest.mark.parametrize("skew", [1.0, 2.0])
def test_neighbors_predict_the_label(skew: float) -> None:
    graph = block_graph(4000, 8, degree=12, in_channels=24, num_classes=6, skew=skew)
    x = graph.x
    assert isinstance(x, Tensor)
    alone = accuracy(graph, x)
    for _ in range(3):
        x = graph.adj.tensor @ x
    assert 1 / 6 + 0.1 < alone < 0.6
    assert accuracy(graph, x) > alone + 0.25
    assert len(graph.y.unique()) == 6


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_blocks", 0, r"`num_blocks` must be in \[1, 50\], got 0"),
        ("num_blocks", 51, r"`num_blocks` must be in \[1, 50\], got 51"),
        ("mixing", 1.1, r"`mixing` must be in \[0, 1\], got 1.1"),
        ("degree", -1, "`degree` must be at least 0, got -1"),
        ("degree", float("nan"), "`degree` must be at least 0, got nan"),
        ("in_channels", 0, "`in_channels` must be at least 1, got 0"),
        ("num_classes", 0, "`num_classes` must be at least 1, got 0"),
        ("skew", 0.5, "`skew` must be at least 1, got 0.5"),
        ("seed", -1, "`seed` must be at least 0, got -1"),
    ],
)
def test_impossible_options_are_refused(field: str, value: Any, message: str, tmp_path: Path) -> None:
    options = {"num_nodes": 50, "num_blocks": 5, **SMALL, field: value}
    with pytest.raises(ValueError, match=message):
        block_graph(**options)
    with pytest.raises(ValueError, match=message):
        write_block_folder(tmp_path / "g", **options)
    assert list(tmp_path.iterdir()) == []


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """Blocks are written one at a time: no array holds all edges or all features."""
    tracemalloc.start()
    write_block_folder(tmp_path / "g", 20_000, 20, degree=40, in_channels=64, num_classes=4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(file.stat().st_size for file in (tmp_path / "g").iterdir())
    assert peak < 0.5 * size
    assert np.load(tmp_path / "g" / "x.npy", mmap_mode="r").shape == (20_000, 64)
