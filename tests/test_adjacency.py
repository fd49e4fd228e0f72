"""The adjacency by itself; tests/test_graph.py tests it through `Graph.from_edges`."""

import numpy as np
import pytest
import torch

from lazygnn import adjacency
from lazygnn.adjacency import normalized_adjacency
from lazygnn.errors import GraphError


def dense(edges: np.ndarray, weight: np.ndarray | None, num_nodes: int) -> np.ndarray:
    """Computes the same with a dense matrix."""
    matrix = np.zeros((num_nodes, num_nodes))
    loops = np.zeros(num_nodes, dtype=bool)
    for number, (a, b) in enumerate(edges.T):
        value = 1.0 if weight is None else weight[number]
        matrix[a, b] = matrix[b, a] = max(matrix[a, b], value)
        loops[a] |= a == b
    matrix[np.arange(num_nodes), np.arange(num_nodes)] += ~loops
    degree = matrix.sum(1)
    scale = np.divide(1, np.sqrt(degree), where=degree > 0, out=np.zeros(num_nodes))
    normalized: np.ndarray = scale[:, None] * matrix * scale
    return normalized


@pytest.mark.parametrize("seed", range(8))
def test_random_edges_give_the_matrix_of_a_dense_computation(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # several pieces
    monkeypatch.setattr(adjacency, "_ENTRIES_AT_ONCE", 7)
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 9, (2, 5 * seed))
    weight: np.ndarray | None = np.array(rng.uniform(0, 2, edges.shape[1])) if seed % 2 else None
    adj, degree = normalized_adjacency(torch.from_numpy(edges), None if weight is None else torch.from_numpy(weight), 9)
    torch.testing.assert_close(adj.to_dense().double(), torch.from_numpy(dense(edges, weight, 9)), rtol=0, atol=1e-6)
    assert adj.rowptr.dtype == adj.col.dtype == torch.int32
    assert len(degree) == 9


def test_the_edges_that_are_given_stay_as_they_are() -> None:
    edges = torch.tensor([[3, 0, 3], [1, 2, 1]])
    normalized_adjacency(edges, None, 4)
    assert edges.tolist() == [[3, 0, 3], [1, 2, 1]]


def test_degrees_that_overflow_are_refused() -> None:
    edges, weight = torch.tensor([[0, 0], [1, 2]]), torch.tensor([3e38, 3e38], dtype=torch.float64)
    with pytest.raises(GraphError, match=r"`edge_weight` sums to 6e\+38 at node 0, more than float32 can hold; scale"):
        normalized_adjacency(edges, weight, 3)


def test_an_adjacency_of_zeros_is_refused() -> None:
    edges = torch.tensor([[0, 1, 0], [0, 1, 1]])
    with pytest.raises(
        GraphError, match=r"`edge_weight` is 0 for all edges and self-loops; give some of them a weight"
    ):
        normalized_adjacency(edges, torch.zeros(3), 2)
    adj, _ = normalized_adjacency(edges, torch.zeros(3), 3)
    assert adj.to_dense()[2, 2] == 1
