import torch

from lazygnn.graph import Graph
from lazygnn.loader.local import LocalIndex, stack_rows, transpose_among_targets
from lazygnn.ops import Csr


def test_nodes_are_numbered_in_the_order_they_are_added(block_graph: Graph) -> None:
    local = LocalIndex(block_graph)
    local.add(torch.tensor([7, 3]))
    assert local.add_missing(torch.tensor([9, 3, 1, 9])).tolist() == [1, 9]
    assert local[torch.tensor([7, 3, 1, 9, 0])].tolist() == [0, 1, 2, 3, -1]
    assert local[torch.tensor([7])].dtype == block_graph.adj.col.dtype
    assert len(local) == 4
    assert local.clear().tolist() == [7, 3, 1, 9]


def test_a_cleared_index_starts_again(block_graph: Graph) -> None:
    local = LocalIndex(block_graph)
    local.add(torch.tensor([7, 3]))
    local.clear()
    assert len(local) == 0
    assert local[torch.arange(60)].unique().tolist() == [-1]
    local.add(torch.tensor([3]))
    assert local[torch.tensor([3])].tolist() == [0]
    assert local.clear().tolist() == [3]


def test_rows_are_stacked_without_the_columns_outside_the_batch(block_graph: Graph) -> None:
    local, dense = LocalIndex(block_graph), block_graph.adj.to_dense()
    nodes = torch.tensor([7, 3, 59, 1])
    local.add(nodes)
    stacked = stack_rows([block_graph.adj.select(nodes[:1]), block_graph.adj.select(nodes[1:])], local, len(local))
    assert torch.equal(stacked.to_dense(), dense[nodes][:, nodes])


def test_the_block_of_targets_is_transposed_and_the_halo_stays() -> None:
    row, col = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 2])
    adj = Csr.from_sorted(row, col, torch.tensor([1.0, 2.0, 3.0, 4.0]), (2, 3))
    assert transpose_among_targets(adj).to_dense().tolist() == [[1, 0, 0], [2, 3, 4]]
