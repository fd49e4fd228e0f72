from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.ops import Csr, row_chunks
from lazygnn.partitioning import Partition, PartitionMethod, partition
from lazygnn.partitioning.base import fill_empty, neighbor_blocks
from tests.partitioning.helpers import graph_of


def test_empty_parts_get_the_last_nodes_of_the_largest() -> None:
    part = fill_empty(torch.tensor([2, 2, 2, 0, 0, 2]), 5)
    assert part.tolist() == [2, 2, 3, 0, 4, 1]


@pytest.mark.parametrize("method", ["metis", "random", "contiguous"])
def test_edge_cut_by_hand(method: PartitionMethod) -> None:
    graph = graph_of([(0, 1), (1, 2), (2, 3), (0, 3), (4, 5)], 6)
    found = Partition(torch.tensor([0, 1, 4, 2, 3, 5]), torch.tensor([0, 3, 6]))
    assert found.part_of().tolist() == [0, 0, 1, 1, 0, 1]
    assert found.edge_cut(graph.adj) == pytest.approx(3 / 5)
    assert partition(graph_of([], 3), 3, method=method).edge_cut(graph_of([], 3).adj) == 0


@pytest.mark.parametrize("entries", [1, 3, 100])
def test_neighbors_come_without_self_loops(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazygnn.ops.csr._ENTRIES_AT_ONCE", entries)
    blocks = list(neighbor_blocks(graph_of([(0, 1), (1, 2), (3, 3)], 4).adj))
    assert [row for rows, _, _ in blocks for row in range(rows.start, rows.stop)] == [0, 1, 2, 3]
    assert np.concatenate([counts for _, counts, _ in blocks]).tolist() == [1, 2, 1, 0]
    assert np.concatenate([neighbors for _, _, neighbors in blocks]).tolist() == [1, 0, 2, 1]


# `Graph.permute` turns parts into slices


def shuffled(num_nodes: int, seed: int = 0) -> Tensor:
    return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("entries", [1, 7, 1 << 22])
@pytest.mark.parametrize("sparse", [False, True])
def test_permute_renames_rows_and_columns(sparse: bool, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazygnn.ops.csr._ENTRIES_AT_ONCE", entries)
    rng = np.random.default_rng(0)
    x: Any = (rng.random((40, 5)) * (rng.random((40, 5)) < 0.4)).astype(np.float32)
    matrix = scipy.sparse.csr_matrix(x)
    features = Csr.from_arrays(matrix.indptr, matrix.indices, matrix.data, 5) if sparse else x
    graph = Graph.from_edges(
        rng.integers(0, 40, (2, 90)),
        features,
        rng.integers(0, 3, 40),
        edge_weight=rng.random(90),
        train_mask=np.arange(40) < 20,
        test_mask=np.arange(40) > 30,
        node_ids=[f"node {i}" for i in range(40)],
    )
    order = shuffled(40)
    moved = graph.permute(order)
    assert torch.equal(moved.adj.to_dense(), graph.adj.to_dense()[order][:, order])
    for row in range(40):
        cols = moved.adj.col[int(moved.adj.rowptr[row]) : int(moved.adj.rowptr[row + 1])]
        assert bool((cols.diff() > 0).all())
    assert (moved.adj.rowptr.dtype, moved.adj.col.dtype) == (graph.adj.rowptr.dtype, graph.adj.col.dtype)
    dense = moved.x.to_dense() if isinstance(moved.x, Csr) else moved.x
    assert isinstance(moved.x, Csr) == sparse
    assert torch.equal(dense, torch.from_numpy(x)[order])
    assert torch.equal(moved.y, graph.y[order])
    assert torch.equal(moved.degree, graph.degree[order])
    assert {split: mask.tolist() for split, mask in moved.masks.items()} == {
        split: mask[order].tolist() for split, mask in graph.masks.items()
    }
    assert moved.node_ids is not None
    assert moved.node_ids.tolist() == [f"node {i}" for i in order.tolist()]
    assert (moved.name, moved.task) == (graph.name, graph.task)
    back = moved.permute(order.argsort())
    for a, b in ((back.adj.rowptr, graph.adj.rowptr), (back.adj.col, graph.adj.col), (back.adj.value, graph.adj.value)):
        assert torch.equal(a, b)


def test_parts_of_a_permuted_graph_are_slices(blocks: Graph) -> None:
    found = partition(blocks, 6)
    moved = blocks.permute(found.order)
    again = Partition(torch.arange(600), found.ptr)
    assert again.edge_cut(moved.adj) == found.edge_cut(blocks.adj)


def test_the_identity_gives_the_graph_itself(blocks: Graph) -> None:
    assert blocks.permute(torch.arange(600)) is blocks
    assert blocks.permute(torch.arange(600, dtype=torch.int32)) is blocks


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4], [-1, 0, 1, 2], [[0, 1, 2, 3]]])
def test_an_order_that_is_not_a_permutation_is_refused(path_graph: Graph, order: Any) -> None:
    with pytest.raises(ValueError, match=r"`order`, of shape \(.*\), must hold every node from 0 to 3 once"):
        path_graph.permute(torch.tensor(order))


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 20))
def test_row_chunks_cover_all_rows(counts: list[int], entries: int) -> None:
    rowptr = torch.tensor([0, *counts]).cumsum(0).int()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lazygnn.ops.csr._ENTRIES_AT_ONCE", entries)
        chunks = list(row_chunks(rowptr))
    assert [row for start, stop in chunks for row in range(start, stop)] == list(range(len(counts)))
    for start, stop in chunks:
        assert stop == start + 1 or int(rowptr[stop] - rowptr[start]) <= entries
