"""Graphs in float64 and with sparse features."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.ops import Csr


@pytest.fixture
def graph(block_graph: Graph) -> Graph:
    return block_graph.to(torch.float64)


@pytest.fixture
def make_sparse() -> Callable[[Graph], Graph]:
    """Stores the features of a graph as a sparse matrix."""

    def convert(graph: Graph) -> Graph:
        assert isinstance(graph.x, Tensor)
        row, col = graph.x.nonzero(as_tuple=True)
        return replace(graph, x=Csr.from_sorted(row, col, graph.x[row, col], (len(graph.x), graph.x.shape[1])))

    return convert
