"""Adds new rows of a table to the graph that a model was trained on, encoded as that graph was.

`N` nodes of the graph, `V` new ones.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.adjacency import normalized_adjacency
from lazygnn.errors import GraphError
from lazygnn.graph import Graph, without_warnings
from lazygnn.ops import Csr
from lazygnn.tables.columns import show
from lazygnn.tables.describing import note_features
from lazygnn.tables.encoding import encode_columns, read_nodes
from lazygnn.tables.linking import Edges, NodeIndex, ids_of, index_nodes, read_edges
from lazygnn.tables.reading import Source, open_table
from lazygnn.tables.roles import EdgeRoles
from lazygnn.tables.schema import Schema
from lazygnn.tables.structural import structural_features
from lazygnn.transforms import weighted_edges


@dataclass(frozen=True, eq=False)
class Extended:
    """A graph with new nodes at its end.

    Attributes:
        whole: All nodes; the old ones first, with their labels.
        new: The new nodes alone, with the edges among them.
        notes: What was done, a sentence each.
    """

    whole: Graph
    new: Graph
    notes: tuple[str, ...]


def extend_graph(
    graph: Graph, nodes: str | Path | Any, edges: str | Path | Any | None = None, *, drop_unknown: bool = False
) -> Extended:
    """Adds new nodes to a graph that was imported from tables.

    Args:
        graph: The graph, with its schema.
        nodes: A table of new nodes with the columns of features that the graph was imported with; needs no labels.
        edges: A table of edges between new nodes, or of new nodes with old ones; without it, they have none.
        drop_unknown: Drops edges of nodes that are neither in the graph nor new.
    """
    schema, features = graph.schema, graph.x
    if schema is None or isinstance(features, Csr):
        raise GraphError(
            f"graph `{graph.name}` has no schema, since it was not imported from tables, so that new rows cannot be "
            "encoded; import its tables with `lazygnn import` and train again, or give a whole graph with `--graph`"
        )
    source = open_table(nodes, "nodes")
    wanted = [schema.id, *(column.name for column in schema.columns)]
    _require(source, wanted)
    index = index_nodes(source, read_nodes(source, [schema.id]), schema.id)
    known = ids_of(graph)
    _refuse_known(source, schema.id, index, NodeIndex(known, source.name))
    encoded = encode_columns(source, schema.columns, len(index))
    linked = _read_edges(edges, schema, NodeIndex(pa.concat_arrays([known, index.texts]), "the graph"), drop_unknown)
    new_x = torch.from_numpy(encoded.x)
    adj, degree = _joined(graph, linked, len(index))
    if schema.structural is not None:
        ids = [*known.to_pylist(), *index.texts.to_pylist()]
        own = structural_features(ids, adj, degree, schema.structural)[graph.num_nodes :]
        new_x = torch.cat((new_x, own), dim=1)
    new_x = new_x.to(features.dtype)
    new = _new_nodes(graph, new_x, linked, index)
    whole = replace(
        graph,
        x=torch.cat((features.cpu(), new_x)),
        y=torch.cat((graph.y.cpu(), _unlabeled(graph, len(index)))),
        adj=adj.to(features.dtype),
        degree=degree,
        masks={split: F.pad(mask.cpu(), (0, len(index))) for split, mask in graph.masks.items()},
        node_ids=np.array([*known.to_pylist(), *index.texts.to_pylist()], dtype=np.str_),
        part_ptr=None,
        part_engine=None,
    )
    told = note_features(schema, encoded.missing, encoded.unknown)
    notes = [f"{len(index):,} new nodes from {source.name}", *told[1:]]
    isolated = int((adj.rowptr.diff()[graph.num_nodes :] == 1).sum())
    if isolated:
        notes.append(f"{isolated:,} of them have no edge, so that their own features alone count")
    if linked.num_unknown:
        notes.append(f"{linked.num_unknown:,} edges name an unknown node, and are dropped")
    return Extended(whole, new, tuple(notes))


def _require(source: Source, columns: list[str]) -> None:
    for column in columns:
        if column not in source.columns:
            raise GraphError(
                f"{source.name} has no column `{column}`, which the graph was imported with; add it, and leave values "
                "empty that are not known"
            )


def _refuse_known(source: Source, column: str, index: NodeIndex, known: NodeIndex) -> None:
    old = known.positions(index.texts) >= 0
    if old.any():
        row = int(old.argmax())
        raise GraphError(
            f"{source.place(row)}, column `{column}`: {show(index.texts[row].as_py())} is a node of the graph already "
            f"({int(old.sum()):,} such rows); remove the row, or import all rows anew with `lazygnn import --like`"
        )


def _read_edges(edges: Any, schema: Schema, index: NodeIndex, drop_unknown: bool) -> Edges:
    if edges is None:
        weight = None if schema.weight is None else np.zeros(0, dtype=np.float32)
        return Edges(np.zeros((2, 0), dtype=np.int32), weight, 0, 0, 0)
    source = open_table(edges, "edges")
    wanted = [schema.source, schema.destination, *([] if schema.weight is None else [schema.weight])]
    _require(source, wanted)
    roles = EdgeRoles(schema.source, schema.destination, schema.weight, (), ())
    return read_edges(source, roles, index, drop_unknown=drop_unknown)


def _joined(graph: Graph, linked: Edges, num_new: int) -> Any:
    """Returns the adjacency and the degrees of all nodes."""
    old, weight = weighted_edges(graph.adj, graph.degree)
    edges = torch.cat((old, torch.from_numpy(linked.index).long()), dim=1)
    weights = None
    # without weights, they are ones, which the normalized values tell but for rounding
    if linked.weight is not None:
        weights = torch.cat((weight, torch.from_numpy(linked.weight).double()))
    with without_warnings():
        return normalized_adjacency(edges, weights, graph.num_nodes + num_new)


def _new_nodes(graph: Graph, x: Tensor, linked: Edges, index: NodeIndex) -> Graph:
    first = graph.num_nodes
    among = (linked.index >= first).all(axis=0)
    weight = None if linked.weight is None else linked.weight[among]
    with without_warnings():
        new = Graph.from_edges(linked.index[:, among] - first, x, edge_weight=weight, name=f"{graph.name} (new rows)")
    return replace(
        new,
        x=x,
        y=_unlabeled(graph, len(index)),
        task=graph.task,
        class_names=graph.class_names,
        node_ids=index.node_ids(),
        schema=graph.schema,
    )


def _unlabeled(graph: Graph, count: int) -> Tensor:
    unknown = float("nan") if graph.task.kind == "regression" else -1
    return torch.full((count, *graph.y.shape[1:]), unknown, dtype=graph.y.dtype)
