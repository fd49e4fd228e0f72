"""Where a model errs: nodes grouped by degree, by distance to the nearest training node, by agreement with neighbors.

`N` nodes of the graph, `T` nodes of a split, `E` stored entries of the adjacency.
"""

from typing import Any

import torch
from torch import Tensor

from lazygnn.graph import Graph

# degrees from this one on are one group, and so are distances
_MAX_DEGREE, _MAX_DISTANCE = 64, 5
_SHARES = 5


def by_degree(graph: Graph, nodes: Tensor, values: Tensor) -> list[dict[str, Any]]:
    """Returns the mean of `values` over nodes with a similar number of neighbors.

    Args:
        graph: The graph.
        nodes: Ids of the judged nodes, [T].
        values: A number for each of them, [T].
    """
    # a node is its own neighbor in the adjacency
    degree = (graph.adj.rowptr.diff() - 1)[nodes].clamp(min=0, max=_MAX_DEGREE)
    # 0, 1, 2 to 3, 4 to 7, ...
    group = torch.where(degree > 0, degree.double().clamp(min=1).log2().floor() + 1, 0.0).long()
    names = ["none", "1"]
    names += [f"{2**power} to {2 ** (power + 1) - 1}" for power in range(1, _MAX_DEGREE.bit_length() - 1)]
    return _means(group, values, [*names, f"{_MAX_DEGREE} or more"])


def by_distance(graph: Graph, nodes: Tensor, values: Tensor) -> list[dict[str, Any]]:
    """Returns the mean of `values` over nodes with the same number of steps to the nearest training node."""
    distance = _distances(graph)[nodes]
    names = [str(steps) for steps in range(_MAX_DISTANCE)]
    return _means(distance, values, [*names, f"{_MAX_DISTANCE} or more, or none in reach"])


def by_agreement(graph: Graph, nodes: Tensor, values: Tensor) -> list[dict[str, Any]]:
    """Returns the mean of `values` over nodes with a similar share of labeled neighbors that have the same label."""
    row, col = graph.adj.row_index().long(), graph.adj.col.long()
    counted = (row != col) & (graph.y[col] >= 0)
    row, col = row[counted], col[counted]
    known, same = (
        torch.zeros(graph.num_nodes, dtype=torch.long, device=row.device).index_add_(0, row, ones)
        for ones in (torch.ones_like(row), (graph.y[row] == graph.y[col]).long())
    )
    known, same = known[nodes], same[nodes]
    share = torch.where(known > 0, (same * _SHARES) // known.clamp(min=1), -1).clamp(max=_SHARES - 1) + 1
    step = 100 // _SHARES
    return _means(
        share, values, ["no labeled neighbor", *(f"{at * step} to {(at + 1) * step} %" for at in range(_SHARES))]
    )


def _distances(graph: Graph) -> Tensor:
    """Returns the steps from every node to the nearest training node, [N], at most `_MAX_DISTANCE`."""
    reached = graph.masks["train"].clone()
    distance = torch.full((graph.num_nodes,), _MAX_DISTANCE, device=graph.device)
    distance[reached] = 0
    row, col = graph.adj.row_index().long(), graph.adj.col.long()
    for steps in range(1, _MAX_DISTANCE):
        fresh = torch.zeros_like(reached)
        fresh[row[reached[col]]] = True
        fresh &= ~reached
        distance[fresh] = steps
        reached |= fresh
    return distance


def _means(group: Tensor, values: Tensor, names: list[str]) -> list[dict[str, Any]]:
    """Returns `group`, `nodes` and `mean` of every group that has nodes."""
    count = torch.bincount(group, minlength=len(names)).tolist()
    total = torch.zeros(len(names), dtype=torch.float64).index_add_(0, group, values.double()).tolist()
    rows = zip(names, count, total, strict=True)
    return [{"group": name, "nodes": nodes, "mean": summed / nodes} for name, nodes, summed in rows if nodes]
