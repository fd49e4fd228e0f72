"""Graphs of other packages: from NetworkX and SciPy, and to PyG."""

from collections.abc import Hashable
from dataclasses import replace
from types import NoneType
from typing import Any

import numpy as np
import torch

from lazygnn.errors import ConfigError, GraphError, wrong_type
from lazygnn.graph import Graph, without_warnings
from lazygnn.ops import Csr
from lazygnn.transforms import weighted_edges


def from_networkx(graph: Any, *, name: str = "graph", **options: Any) -> Graph:
    """Converts a NetworkX graph; the attributes of its nodes are the columns of a table.

    A list of numbers becomes several columns: `x` of two numbers is `x_0` and `x_1`.

    Args:
        graph: A graph or digraph. The attribute `weight` of its edges is their weight.
        name: Name of the graph.
        options: As for `Graph.from_tables`, such as `label="club"`.
    """
    if not all(hasattr(graph, method) for method in ("nodes", "edges", "is_directed")):
        raise GraphError(wrong_type("graph", graph, "give a NetworkX graph"))
    rows = [dict(attributes) for _, attributes in graph.nodes(data=True)]
    names = list(dict.fromkeys(str(attribute) for row in rows for attribute in row))
    column = next((one for one in ("id", "node", "node_id") if one not in names), None)
    if column is None:
        raise GraphError("the nodes have the attributes `id`, `node` and `node_id`; rename one of them")
    nodes: dict[str, list[Any]] = {column: _ids(graph.nodes)}
    for attribute in names:
        for spread, values in _spread(attribute, [_plain(row.get(attribute)) for row in rows]).items():
            if spread in nodes:
                raise GraphError(f"two attributes become the column `{spread}`; rename one of them")
            nodes[spread] = values
    links = list(graph.edges(data="weight"))
    edges: dict[str, list[Any]] = {
        "source": _ids(first for first, _, _ in links),
        "target": _ids(second for _, second, _ in links),
    }
    if any(weight is not None for _, _, weight in links):
        edges["weight"] = [1.0 if weight is None else weight for _, _, weight in links]
    return Graph.from_tables(nodes, edges, name=name, **{"id": column, **options})


def from_scipy(adjacency: Any, x: Any, y: Any = None, **rest: Any) -> Graph:
    """Converts a sparse adjacency matrix of SciPy.

    Args:
        adjacency: Square and sparse; its entries are the weights of the edges. Zeros are not edges.
        x: Features, as for `Graph.from_edges`.
        y: Labels, as for `Graph.from_edges`.
        rest: Other arguments of `Graph.from_edges`.
    """
    if not type(adjacency).__module__.startswith("scipy.sparse"):
        raise GraphError(wrong_type("adjacency", adjacency, "give a sparse matrix of SciPy"))
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise GraphError(f"`adjacency` has shape {tuple(adjacency.shape)}; give a row and a column for every node")
    if "edge_weight" in rest:
        raise GraphError("`edge_weight` is in the entries of `adjacency`; omit it")
    matrix = adjacency.tocoo(copy=True)
    # an entry that is stored several times is their sum
    matrix.sum_duplicates()
    stored = matrix.data != 0
    edges = np.stack((matrix.row[stored], matrix.col[stored])).astype(np.int64)
    weight = matrix.data[stored]
    node_ids = rest.pop("node_ids", None)
    if (weight != 1).any():
        rest["edge_weight"] = weight
    graph = Graph.from_edges(edges, x, y, **rest)
    if graph.num_nodes != adjacency.shape[0]:
        raise GraphError(
            f"`adjacency` has {adjacency.shape[0]} rows, but `x` has {graph.num_nodes}; give a row for every node"
        )
    # the edges are positions, even if the ids are integers, too
    return graph if node_ids is None else with_ids(graph, node_ids)


def to_pyg(graph: Graph) -> Any:
    """Converts a graph to a PyG `Data` object.

    It has `x`, `edge_index`, `y`, the masks, `node_ids`, and `edge_weight` if the weights are not all 1. Both
    directions of an edge are there. Self-loops of weight 1 are left out, since PyG adds them where they are needed.
    """
    try:
        from torch_geometric.data import Data
    except ImportError as error:
        raise ConfigError("`to_pyg` needs `torch_geometric`; install `lazygnn[pyg]`") from error
    edges, weight = plain_edges(graph)
    x = graph.x.tensor if isinstance(graph.x, Csr) else graph.x
    data = Data(x=x, edge_index=edges, y=graph.y)
    for split, mask in graph.masks.items():
        data[f"{split}_mask"] = mask
    if weight is not None:
        data.edge_weight = weight
    if graph.node_ids is not None:
        data.node_ids = graph.node_ids.tolist()
    return data.to(graph.device)


def plain_edges(graph: Graph) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns the edges in both directions, [2, M], and their weights, [M] float32, or `None` if all are 1.

    Weights come from the normalized matrix, to about seven digits. Self-loops of weight 1 are left out.
    """
    edges, weight = weighted_edges(graph.adj, graph.degree)
    one = (weight - 1).abs() < 1e-5
    kept = (edges[0] != edges[1]) | ~one
    edges, weight = edges[:, kept], torch.where(one, 1.0, weight)[kept].float()
    return edges, None if bool((weight == 1).all()) else weight


def with_ids(graph: Graph, node_ids: Any) -> Graph:
    """Gives the nodes ids, which are checked."""
    with without_warnings():
        checked = Graph.from_edges(np.zeros((2, 0), dtype=np.int64), np.ones((graph.num_nodes, 1)), node_ids=node_ids)
    return replace(graph, node_ids=checked.node_ids)


def _ids(nodes: Any) -> list[str]:
    found: list[Hashable] = list(nodes)
    return [str(one) for one in found]


def _plain(value: Any) -> Any:
    """Returns numbers of NumPy as those of Python."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _spread(attribute: str, values: list[Any]) -> dict[str, list[Any]]:
    """Returns a column for every number of an attribute that is a list, and others as they are."""
    lengths = {len(value) for value in values if isinstance(value, list | tuple)}
    if not lengths:
        return {attribute: values}
    if len(lengths) > 1 or not all(isinstance(value, list | tuple | NoneType) for value in values):
        raise GraphError(
            f"the attribute `{attribute}` is a list for some nodes, but not of the same length for all; give every "
            "node as many numbers, or none"
        )
    (length,) = lengths
    return {
        f"{attribute}_{index}": [None if value is None else value[index] for value in values] for index in range(length)
    }
