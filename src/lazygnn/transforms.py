"""Edges between nodes with similar features, for methods that look at edges alone."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph, normalized_adjacency, without_warnings
from lazygnn.ops import Adjacency, Csr

# memory for the similarities that are looked at together
_BLOCK_BYTES = 2**28


def link_similar(graph: Graph, num_neighbors: int, weight: float) -> Graph:
    """The same graph with edges between every node and those whose features have the largest cosine with its own.

    Such an edge has `weight` times the cosine, beside the edges of the graph with the weights they have; where there is
    one already, the larger counts. All pairs of nodes are compared, which takes time in the square of their number.

    Args:
        graph: Its features must not all be zero.
        num_neighbors: Nodes that every node is linked to; others may link to it besides.
        weight: Of a link between nodes with the same features.
    """
    if not 0 < num_neighbors < graph.num_nodes:
        raise ConfigError(
            f"`feature_neighbors` is {num_neighbors}, the graph has {graph.num_nodes} nodes; give fewer than that, "
            "and at least 1"
        )
    row, col, cosine = (torch.cat(parts) for parts in zip(*_nearest(_unit_rows(graph.x), num_neighbors), strict=True))
    edges, weights = _weighted_edges(graph.adj, graph.degree)
    edges, weights = torch.cat((edges, torch.stack((row, col))), dim=1), torch.cat((weights, weight * cosine))
    # a link goes both ways, whoever made it
    with without_warnings():
        adj, degree = normalized_adjacency(edges, weights, graph.num_nodes)
    return replace(graph, adj=adj.to(graph.device), degree=degree.to(graph.device))


def _nearest(x: Tensor | Csr, num_neighbors: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Every node, another one and their cosine, block by block; pairs with nothing in common are left out."""
    num_rows = x.shape[0]
    for rows in torch.arange(num_rows, device=x.device).split(max(_BLOCK_BYTES // (4 * num_rows), 1)):
        cosine = _products(x, rows)
        cosine[torch.arange(len(rows), device=x.device), rows] = 0
        largest, col = cosine.topk(num_neighbors, dim=1)
        related = largest > 0
        row = rows.unsqueeze(1).expand_as(col)
        yield row[related].cpu(), col[related].cpu(), largest[related].double().cpu()


def _products(x: Tensor | Csr, rows: Tensor) -> Tensor:
    """`x[rows] @ x.T`."""
    if isinstance(x, Tensor):
        return x[rows] @ x.T
    return ops.spmm(x, x.select(rows).to_dense().T.contiguous()).T


def _unit_rows(x: Tensor | Csr) -> Tensor | Csr:
    """Rows of length one; what is zero stays so."""
    if isinstance(x, Tensor):
        return torch.nn.functional.normalize(x, dim=1)
    row = x.row_index()
    length = torch.zeros(x.num_rows, dtype=x.value.dtype, device=x.device).index_add_(0, row, x.value**2).sqrt()
    return x.with_value(x.value / length.clamp(min=torch.finfo(length.dtype).tiny)[row])


def _weighted_edges(adj: Adjacency, degree: Tensor) -> tuple[Tensor, Tensor]:
    """The edges of a graph, [2, E], and the weights they had before they were normalised."""
    scale, row, col = degree.double().sqrt(), adj.row_index(), adj.col.long()
    return torch.stack((row, col)).cpu(), (adj.value.double() * scale[row] * scale[col]).cpu()
