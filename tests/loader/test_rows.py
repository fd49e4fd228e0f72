import numpy as np
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.loader import RowLoader
from lazygnn.ops import Csr


def test_a_batch_holds_rows_and_no_edges(block_graph: Graph) -> None:
    assert isinstance(block_graph.x, Tensor)
    for batch in RowLoader(block_graph, 6):
        assert torch.equal(torch.as_tensor(batch.x), block_graph.x[batch.nodes])
        assert torch.equal(batch.y, block_graph.y[batch.nodes])
        assert torch.equal(batch.targets, batch.nodes)
        assert batch.adjs == []


def test_sparse_rows_stay_sparse() -> None:
    x = Csr.from_arrays(np.arange(5), np.array([2, 0, 1, 2]), np.ones(4), 3)
    edges, mask = np.empty((2, 0), dtype=int), np.array([True, False, True, True])
    (batch,) = RowLoader(Graph.from_edges(edges, x, np.zeros(4, dtype=int), train_mask=mask))
    assert isinstance(batch.x, Csr)
    assert torch.equal(batch.x.to_dense(), x.to_dense()[[0, 2, 3]])
