"""Converts mini-batches of PyG's loaders to a `Batch` with a frozen halo.

`T` targets, `V` nodes of the batch, `N` nodes of the graph, `E` edges into targets.
"""

from typing import Any

import torch
from torch import Tensor

from lazygnn.batch import Batch, loss_weight
from lazygnn.checks import first_outside
from lazygnn.errors import GraphError
from lazygnn.graph import Graph, select_rows
from lazygnn.loader.local import transpose_among_targets
from lazygnn.ops import Adjacency


def from_pyg_batch(data: Any, graph: Graph, num_layers: int, *, rescale: bool = False, num_batches: int = 1) -> Batch:
    """Converts a mini-batch of PyG's `NeighborLoader` or `ClusterLoader`.

    The first `data.batch_size` nodes are the targets, or all nodes without that field. Only edges into targets are
    used, and nodes without an edge to a target are dropped. Values and self-loops are those of the whole graph. A
    sample may hold an edge in one direction only, so the backward pass multiplies by the transpose.

    Args:
        data: Holds `edge_index`, [2, edges] of local indices from source to target, and `n_id`, the indices of its
            nodes in the graph. Features come from `data.x` if present, otherwise from the graph.
        graph: The whole graph, in the node order of `n_id`.
        num_layers: Steps per pass.
        rescale: Whether to multiply a node's neighbors by its degree over the number drawn, so that a uniform sample,
            with or without replacement, is unbiased.
        num_batches: Batches per epoch, which weigh the loss.
    """
    n_id = _required(data, "n_id", "for `ClusterLoader`, set `data.n_id = torch.arange(data.num_nodes)` beforehand")
    edges = _required(data, "edge_index", "give a mini-batch of a PyG loader")
    n_id, edges = n_id.to(graph.device).long(), edges.to(graph.device).long()
    given = getattr(data, "batch_size", None)
    num_targets = len(n_id) if given is None else int(given)
    _check(n_id, edges, num_targets, graph)
    edges = edges[:, (edges[1] < num_targets) & (n_id[edges[0]] != n_id[edges[1]])]
    used = torch.zeros(len(n_id), dtype=torch.bool, device=n_id.device)
    used[:num_targets] = True
    used[edges[0]] = True
    nodes, local = n_id[used], used.cumsum(0) - 1
    targets = nodes[:num_targets]
    x = getattr(data, "x", None)
    adj = _sampled_matrix(graph.adj, nodes, num_targets, edges[1], local[edges[0]], rescale)
    return Batch(
        x=select_rows(graph.x, targets) if x is None else x[:num_targets].to(graph.device),
        y=graph.y[targets],
        weight=loss_weight(graph, num_batches)[targets],
        nodes=nodes,
        num_targets=num_targets,
        adjs=[adj] * num_layers,
        transposed=[transpose_among_targets(adj)] * num_layers,
    )


def _sampled_matrix(
    adj: Adjacency, nodes: Tensor, num_targets: int, row: Tensor, col: Tensor, rescale: bool
) -> Adjacency:
    """Takes the entries of the whole matrix at the edges drawn and on the diagonal, [T, V]."""
    key, drawn = (row * len(nodes) + col).unique(return_counts=True)
    row, col = key // len(nodes), key % len(nodes)
    whole = adj.select(nodes[:num_targets])
    scale = torch.ones(len(key), dtype=adj.value.dtype, device=adj.device)
    if rescale:
        degree = whole.rowptr.diff() - 1
        sampled = torch.zeros(num_targets, dtype=torch.long, device=adj.device).index_add_(0, row, drawn)
        scale = (drawn * degree[row] / sampled[row]).to(scale.dtype)
    loops = torch.arange(num_targets, device=adj.device)
    row, col = torch.cat((row, loops)), torch.cat((col, loops))
    order = (row * len(nodes) + col).argsort()
    row, col, scale = row[order], col[order], torch.cat((scale, scale.new_ones(num_targets)))[order]
    value = scale * _entries(whole, row, nodes[col])
    return Adjacency.from_sorted(row, col, value, (num_targets, len(nodes)))


def _entries(matrix: Adjacency, row: Tensor, col: Tensor) -> Tensor:
    """Looks up entries, all of which must be stored."""
    stored, order = (matrix.row_index() * matrix.num_cols + matrix.col).sort()
    wanted = row * matrix.num_cols + col
    at = torch.searchsorted(stored, wanted).clamp(max=len(stored) - 1)
    missing = stored[at] != wanted
    if bool(missing.any()):
        raise GraphError(
            f"the mini-batch has {int(missing.sum())} edges that are not in the graph; `n_id` must hold the indices of "
            "its nodes in the graph"
        )
    return matrix.value[order[at]]


def _required(data: Any, field: str, hint: str) -> Tensor:
    value = getattr(data, field, None)
    if not isinstance(value, Tensor):
        raise GraphError(f"the mini-batch has no `{field}`; {hint}")
    return value


def _check(n_id: Tensor, edges: Tensor, num_targets: int, graph: Graph) -> None:
    if (wrong := first_outside(n_id, graph.num_nodes)) is not None:
        raise GraphError(
            f"`n_id` holds {wrong}, but the graph has {graph.num_nodes} nodes; give the graph sampled from"
        )
    if len(n_id.unique()) != len(n_id):
        raise GraphError("`n_id` holds a node twice; sample without `disjoint=True`")
    if not 0 < num_targets <= len(n_id):
        raise GraphError(
            f"`batch_size` is {num_targets}, but the mini-batch has {len(n_id)} nodes; give 1 to {len(n_id)}"
        )
    if (wrong := first_outside(edges, len(n_id))) is not None:
        raise GraphError(f"`edge_index` holds {wrong}, but the mini-batch has {len(n_id)} nodes; give local indices")
