import torch

from lazygnn.graph import Graph
from lazygnn.loader.local import LocalIndex


def test_nodes_are_numbered_in_the_order_they_are_added(block_graph: Graph) -> None:
    local = LocalIndex(block_graph)
    local.add(torch.tensor([7, 3]))
    assert local.add_missing(torch.tensor([9, 3, 1, 9])).tolist() == [1, 9]
    assert local[torch.tensor([7, 3, 1, 9, 0])].tolist() == [0, 1, 2, 3, -1]
    assert local[torch.tensor([7])].dtype == block_graph.adj.col.dtype
    assert local.clear().tolist() == [7, 3, 1, 9]


def test_a_cleared_index_starts_again(block_graph: Graph) -> None:
    local = LocalIndex(block_graph)
    local.add(torch.tensor([7, 3]))
    local.clear()
    assert local[torch.arange(60)].unique().tolist() == [-1]
    local.add(torch.tensor([3]))
    assert local[torch.tensor([3])].tolist() == [0]
    assert local.clear().tolist() == [3]
