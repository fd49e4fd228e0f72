"""Random graphs of a shape."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import common.shapes
from lazygnn.adjacency import normalized_adjacency
from lazygnn.graph import Graph
from tests.benchmarks.helpers import CPU, tiny


@pytest.fixture(scope="module")
def drawn() -> Graph:
    return common.shapes.draw(tiny(num_nodes=6000, degree=20.0), CPU)


def test_a_drawn_graph_is_symmetric_and_normalized_like_any_other(drawn: Graph) -> None:
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


def test_a_drawn_graph_has_the_requested_density_and_share_of_cut_edges(drawn: Graph) -> None:
    assert drawn.part_ptr is not None
    assert drawn.part_ptr.tolist() == [0, 1500, 3000, 4500, 6000]
    part, row = torch.repeat_interleave(drawn.part_ptr.diff()), drawn.adj.row_index()
    neighbors = len(drawn.adj.col) - drawn.num_nodes
    assert neighbors / drawn.num_nodes == pytest.approx(20, rel=0.01)
    assert int((part[row] != part[drawn.adj.col]).sum()) / neighbors == pytest.approx(0.13, rel=0.02)


def test_a_drawn_graph_has_hubs_at_random_positions_of_a_part(drawn: Graph) -> None:
    degree = drawn.degree
    assert float(degree.max()) > 10 * float(degree.median())
    hubs = degree.topk(100).indices % 1500
    assert 500 < float(hubs.double().mean()) < 1000
    even = common.shapes.draw(tiny(skew=1.0), CPU)
    assert float(even.degree.max()) < 4 * float(even.degree.median())


def test_a_drawn_graph_is_the_same_for_the_same_seed() -> None:
    draw = common.shapes.draw
    first, second, other = (draw(tiny(), CPU, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.adj.col, second.adj.col)
    dense = [graph.x.to_dense() for graph in (first, second, other)]
    assert torch.equal(dense[0], dense[1])
    assert not torch.equal(dense[0], dense[2])
    assert sorted(first.masks) == ["test", "train", "val"]
    assert sum(int(mask.sum()) for mask in first.masks.values()) == first.num_nodes
    one_part = draw(tiny(num_parts=1), CPU)
    assert one_part.part_ptr is not None
    assert one_part.part_ptr.tolist() == [0, 2000]


def test_a_file_is_preferred_to_a_drawn_graph(tmp_path: Path, block_arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "tiny.npz", **block_arrays)
    graph = common.shapes.load(tiny(num_parts=3), CPU, str(tmp_path))
    assert graph.num_nodes == 60
    assert graph.part_ptr is not None
    assert len(graph.part_ptr) == 4
