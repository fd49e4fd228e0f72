"""Transforms of a graph before training, each from a graph to a graph: features scaled or propagated, edges added.

`N` nodes, `D` features, `E` stored entries of the adjacency, `K` hops.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn import ops
from lazygnn.adjacency import normalized_adjacency
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph, without_warnings
from lazygnn.ops import Adjacency, Csr

# memory for the features, or the similarities, that are computed at a time
_BLOCK_BYTES = 2**28


def row_normalize(graph: Graph) -> Graph:
    """Scales every feature row so that its absolute values sum to one; a row of zeros stays as it is."""
    if isinstance(graph.x, Csr):
        row = graph.x.row_index()
        total = graph.x.value.new_zeros(len(graph.x)).index_add_(0, row, graph.x.value.abs())
        return replace(graph, x=graph.x.with_value(graph.x.value / total[row].clamp(min=1e-12)), schema=None)
    return replace(graph, x=graph.x / graph.x.abs().sum(dim=1, keepdim=True).clamp(min=1e-12), schema=None)


def smooth_features(graph: Graph, num_layers: int) -> Graph:
    """Replaces the features by `A^K x` (SGC).

    They become dense, [N, D]: `4 N D` bytes, which is 1.4 GiB for nell and 15 MiB for cora.
    """
    x = torch.empty(graph.num_nodes, graph.in_channels, dtype=graph.adj.value.dtype, device=graph.device)
    for start, block in _columns(graph.x):
        for _ in range(num_layers):
            block = ops.spmm(graph.adj, block)
        x[:, start : start + block.shape[1]] = block
    return replace(graph, x=x, schema=None)


def stack_features(graph: Graph, num_layers: int) -> Graph:
    """Replaces the features by `[x, A x, ..., A^K x]` (SIGN).

    They become dense, [N, (K + 1) D]: `4 N (K + 1) D` bytes.
    """
    width, dtype = graph.in_channels, graph.adj.value.dtype
    x = torch.empty(graph.num_nodes, (num_layers + 1) * width, dtype=dtype, device=graph.device)
    for start, block in _columns(graph.x):
        for hop in range(num_layers + 1):
            block = block if hop == 0 else ops.spmm(graph.adj, block)
            x[:, hop * width + start : hop * width + start + block.shape[1]] = block
    return replace(graph, x=x, schema=None)


def link_similar(graph: Graph, num_neighbors: int, weight: float) -> Graph:
    """Adds edges from every node to the nodes with the most similar features.

    A new edge weighs `weight` times the cosine of the two feature rows. Where the graph already has the edge, the
    larger weight counts. All pairs of nodes are compared, so the time is quadratic in the number of nodes.

    Args:
        graph: Its features must not all be zero.
        num_neighbors: Number of nodes that every node is linked to; it may receive more links from others.
        weight: Weight of an edge between nodes with the same features.
    """
    if not 0 < num_neighbors < graph.num_nodes:
        raise ConfigError(
            f"`feature_neighbors` must be at least 1 and less than the number of nodes, {graph.num_nodes}, "
            f"got {num_neighbors}"
        )
    row, col, cosine = (torch.cat(parts) for parts in zip(*_nearest(_unit_rows(graph.x), num_neighbors), strict=True))
    edges, weights = weighted_edges(graph.adj, graph.degree)
    edges, weights = torch.cat((edges, torch.stack((row, col))), dim=1), torch.cat((weights, weight * cosine))
    # links are one-way until they are mirrored here, which is intended
    with without_warnings():
        adj, degree = normalized_adjacency(edges, weights, graph.num_nodes)
    return replace(graph, adj=adj.to(graph.device), degree=degree.to(graph.device))


def weighted_edges(adj: Adjacency, degree: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the edges of a graph, [2, E], and their weights before normalization, [E]."""
    scale, row, col = degree.double().sqrt(), adj.row_index(), adj.col.long()
    return torch.stack((row, col)).cpu(), (adj.value.double() * scale[row] * scale[col]).cpu()


def _columns(x: Tensor | Csr) -> Iterator[tuple[int, Tensor]]:
    """Yields a few columns of the features at a time, dense, with the index of the first."""
    width = max(_BLOCK_BYTES // (4 * max(len(x), 1)), 1)
    for start in range(0, x.shape[1], width):
        stop = min(start + width, x.shape[1])
        if isinstance(x, Csr):
            yield start, x.T.select(torch.arange(start, stop, device=x.device)).to_dense().T.contiguous()
        else:
            yield start, x[:, start:stop].contiguous()


def _nearest(x: Tensor | Csr, num_neighbors: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yields nodes, their nearest nodes and the cosines, block by block; only positive cosines are kept."""
    num_rows = x.shape[0]
    for rows in torch.arange(num_rows, device=x.device).split(max(_BLOCK_BYTES // (4 * num_rows), 1)):
        cosine = _products(x, rows)
        cosine[torch.arange(len(rows), device=x.device), rows] = 0
        largest, col = cosine.topk(num_neighbors, dim=1)
        related = largest > 0
        row = rows.unsqueeze(1).expand_as(col)
        yield row[related].cpu(), col[related].cpu(), largest[related].double().cpu()


def _products(x: Tensor | Csr, rows: Tensor) -> Tensor:
    """Returns `x[rows] @ x.T`."""
    if isinstance(x, Tensor):
        return x[rows] @ x.T
    return ops.spmm(x, x.select(rows).to_dense().T.contiguous()).T


def _unit_rows(x: Tensor | Csr) -> Tensor | Csr:
    """Scales every row to length one; a row of zeros stays as it is."""
    if isinstance(x, Tensor):
        return F.normalize(x, dim=1)
    row = x.row_index()
    length = torch.zeros(x.num_rows, dtype=x.value.dtype, device=x.device).index_add_(0, row, x.value**2).sqrt()
    return x.with_value(x.value / length.clamp(min=torch.finfo(length.dtype).tiny)[row])
