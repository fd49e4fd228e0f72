"""Graphs and checks that the tests of partitions share."""

from typing import Any

import numpy as np
import torch

from lazygnn.graph import Graph
from lazygnn.partitioning import Partition


def graph_of(edges: Any, num_nodes: int) -> Graph:
    return Graph.from_edges(np.array(edges, dtype=np.int64).reshape(-1, 2).T, np.ones((num_nodes, 1)))


def check(found: Partition, num_nodes: int, num_parts: int) -> None:
    assert found.num_parts == num_parts
    assert found.order.dtype == found.ptr.dtype == torch.int64
    assert found.order.sort().values.tolist() == list(range(num_nodes))
    assert (int(found.ptr[0]), int(found.ptr[-1])) == (0, num_nodes)
    assert int(found.ptr.diff().min()) >= 1
    for start, stop in zip(found.ptr.tolist(), found.ptr.tolist()[1:], strict=False):
        part = found.order[start:stop]
        assert torch.equal(part, part.sort().values)


def same(a: Partition, b: Partition) -> bool:
    return torch.equal(a.order, b.order) and torch.equal(a.ptr, b.ptr)
