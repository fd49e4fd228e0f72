"""`Graph`: features, targets, splits and the symmetrically normalized adjacency of one graph, checked on entry.

`N` nodes, `D` input features, `E` stored entries of the adjacency, `C` outputs.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.adjacency import normalized_adjacency
from lazygnn.checks import (
    WITHOUT_FEATURES,
    Array,
    check_class_names,
    check_edges,
    check_features,
    check_ids,
    check_masks,
    check_targets,
    check_weights,
    listed,
    naming,
)
from lazygnn.checks import logger as checks_logger
from lazygnn.errors import ConfigError, GraphError, wrong_type
from lazygnn.ops import Adjacency, Csr
from lazygnn.task import Task

if TYPE_CHECKING:
    from lazygnn.tables.schema import Schema

logger = logging.getLogger(__name__)

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph with features; build one with `from_edges`, `from_tables`, `from_data` or `load_graph`."""

    x: Tensor | Csr  # [N, D]
    y: Tensor  # [N] int64, or [N, C] float
    adj: Adjacency  # [N, N], D^-1/2 (A + I) D^-1/2
    degree: Tensor  # [N] weighted, with the self-loop
    task: Task
    masks: Mapping[str, Tensor]  # split name -> [N] bool; holds only the splits that exist
    node_ids: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    name: str = "graph"
    part_ptr: Tensor | None = None  # [P + 1] starts of the parts, if the nodes are sorted by a partition
    part_engine: str | None = None  # package and version that found these parts
    schema: "Schema | None" = None  # how the columns of tables became the features

    @staticmethod
    def from_edges(
        edges: Array,
        x: Array | Csr,
        y: Array | None = None,
        *,
        train_mask: Array | None = None,
        val_mask: Array | None = None,
        test_mask: Array | None = None,
        edge_weight: Array | None = None,
        num_classes: int | None = None,
        task: str = "auto",
        node_ids: np.ndarray | list[str] | None = None,
        class_names: tuple[str, ...] | None = None,
        name: str = "graph",
    ) -> "Graph":
        """Builds a graph from arrays and raises a `GraphError` for impossible values.

        Args:
            edges: Integers, [2, M]. One-way edges are made undirected, which is logged at the level INFO. Repeated
                edges count once, with the largest of their weights. An array [2, 2] is two rows, too.
            x: Features, [N, D], dense or sparse; stored as float32. Call `to(torch.float64)` for products in double
                precision; training has single precision.
            y: Labels, [N] integers with -1 for unknown; [N, C] of 0 and 1 for several labels; floats for regression.
                Floats that are all whole numbers need `task="regression"`, and so do integers [N, C] beyond 0 and 1.
            train_mask: Training nodes, [N] bool. The three masks must not overlap.
            val_mask: Validation nodes, [N] bool.
            test_mask: Test nodes, [N] bool.
            edge_weight: Non-negative weights, [M].
            num_classes: Number of classes; by default one more than the largest label. Of several labels, or numbers,
                the columns of `y` are counted.
            task: `single-label`, `multi-label`, `regression`, or `auto` to infer it from `y`.
            node_ids: An id for every node, [N]. If `edges` has the same type, it holds ids instead of indices.
            class_names: A name for every class.
            name: Appears in logs and results.

        Examples:
            Three nodes in a row; the last one has no label:

            >>> import numpy as np
            >>> from lazygnn import Graph
            >>> edges = np.array([[0, 1], [1, 2]])
            >>> train = np.array([True, True, False])
            >>> graph = Graph.from_edges(edges, np.eye(3), np.array([0, 1, -1]), train_mask=train)
            >>> graph.num_nodes, graph.num_edges, graph.task.num_outputs
            (3, 2, 2)
        """
        if not isinstance(name, str):
            raise GraphError(wrong_type("name", name, "give a text"))
        features = check_features(x)
        num_nodes = len(features)
        ids = None if node_ids is None else check_ids(node_ids, num_nodes)
        edge_index = check_edges(edges, num_nodes, ids)
        weight = None if edge_weight is None else check_weights(edge_weight, edge_index.shape[1])
        adj, degree = normalized_adjacency(edge_index, weight, num_nodes)
        target, checked_task = check_targets(y, num_nodes, num_classes, task)
        if num_classes is None and checked_task.kind == "single-label":
            _warn_of_gaps(target, checked_task.num_outputs)
        given = zip(SPLITS, (train_mask, val_mask, test_mask), strict=True)
        masks = check_masks({split: mask for split, mask in given if mask is not None}, target, checked_task)
        names = None if class_names is None else check_class_names(class_names, checked_task.num_outputs)
        if num_classes is not None and num_classes != checked_task.num_outputs:
            raise GraphError(
                f"`num_classes` is {num_classes}, but `y` has {checked_task.num_outputs} columns, one for each output "
                f"of a {checked_task.kind} task; omit `num_classes`"
            )
        return Graph(features, target, adj, degree, checked_task, masks, ids, names, name)

    @staticmethod
    def from_data(data: Any, *, name: str = "graph", **rest: Any) -> "Graph":
        """Converts a PyG `Data` object (`x`, `edge_index`, `y`, the three masks, one-dimensional `edge_weight`).

        Args:
            data: The object.
            name: Appears in logs and results.
            rest: Other arguments of `from_edges`: `task`, `num_classes`, `class_names`, `node_ids`.
        """
        if not hasattr(data, "to_dict"):
            raise GraphError(wrong_type("data", data, "give a PyG `Data` object, or arrays to `Graph.from_edges`"))
        fields: dict[str, Any] = data.to_dict()
        sparse = "; `data.adj_t` is not read: leave out `ToSparseTensor`" if fields.get("adj_t") is not None else ""
        for field, hint in (("edge_index", sparse), ("x", f"; {WITHOUT_FEATURES}")):
            if fields.get(field) is None:
                raise GraphError(f"`data.{field}` is missing; `Graph.from_data` needs `x` and `edge_index`{hint}")
        y: Any = fields.get("y")
        if len(shape := _shape(y)) == 2 and shape[1] == 1:
            y = y[:, 0]
        masks: dict[str, Any] = {f"{split}_mask": fields.get(f"{split}_mask") for split in SPLITS}
        for field, mask in masks.items():
            if len(shape := _shape(mask)) > 1:
                raise GraphError(f"`data.{field}` has shape {shape}; choose one split, such as `mask[:, 0]`")
        weight, attributes = fields.get("edge_weight"), fields.get("edge_attr")
        if attributes is not None:
            _warn_of_attributes(_shape(attributes), weighted=weight is not None)
        with naming("edges", "edge_index"):
            return Graph.from_edges(
                fields["edge_index"], fields["x"], y, **{"edge_weight": weight, "name": name, **masks, **rest}
            )

    @staticmethod
    def from_tables(nodes: Any, edges: Any, *, name: str = "graph", **options: Any) -> "Graph":
        """Builds a graph from a table of nodes and a table of edges; needs the extra `tables`.

        Args:
            nodes: A row for every node: a data frame of pandas or polars, an Arrow table, a dict of columns, or the
                path of a CSV or Parquet file.
            edges: A row for every edge, likewise.
            name: Appears in logs and results.
            options: Fields of `TableOptions`, such as `label="churned"`; what is omitted is guessed from the names.
        """
        from lazygnn.tables import require_arrow

        require_arrow()
        from lazygnn.tables.building import import_tables
        from lazygnn.tables.options import as_arguments, naming_arguments, read_table_options

        with naming_arguments():
            imported = import_tables(nodes, edges, read_table_options(options), name=name)
        for note in imported.notes:
            logger.info(as_arguments(note))
        return imported.graph

    @staticmethod
    def from_networkx(graph: Any, *, name: str = "graph", **options: Any) -> "Graph":
        """Converts a NetworkX graph; see `lazygnn.data.convert.from_networkx`."""
        from lazygnn.data.convert import from_networkx

        return from_networkx(graph, name=name, **options)

    @staticmethod
    def from_scipy(adjacency: Any, x: Array | Csr, y: Array | None = None, **rest: Any) -> "Graph":
        """Converts a sparse adjacency matrix of SciPy; `rest` are arguments of `from_edges`."""
        from lazygnn.data.convert import from_scipy

        return from_scipy(adjacency, x, y, **rest)

    def to_pyg(self) -> Any:
        """Converts the graph to a PyG `Data` object; see `lazygnn.data.convert.to_pyg`."""
        from lazygnn.data.convert import to_pyg

        return to_pyg(self)

    def save(self, path: str | Path) -> None:
        """Writes the graph for `load_graph`: a file if the name ends in `.npz`, or else a folder of arrays."""
        from lazygnn.data.folder import save_folder
        from lazygnn.data.npz import write_npz

        (write_npz if Path(path).suffix == ".npz" else save_folder)(self, path)

    def __repr__(self) -> str:
        return (
            f"Graph(name={self.name!r}, num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"in_channels={self.in_channels}, task={self.task.kind!r}, num_outputs={self.task.num_outputs}, "
            f"splits={list(self.masks)}, device={str(self.device)!r})"
        )

    @property
    def num_nodes(self) -> int:
        """Returns the number of nodes."""
        return self.adj.num_rows

    @property
    def num_edges(self) -> int:
        """Returns the number of undirected edges without self-loops."""
        return (len(self.adj.col) - self.num_nodes) // 2

    @property
    def in_channels(self) -> int:
        """Returns the number of input features."""
        return self.x.shape[1]

    @property
    def device(self) -> torch.device:
        """Returns the device of the adjacency."""
        return self.adj.device

    @property
    def num_train(self) -> int:
        """Returns the number of training nodes; raises a `GraphError` if it is zero."""
        found = self.count("train")
        if found == 0:
            raise GraphError(f"graph `{self.name}` has no training nodes; give it labels `y` and a `train_mask`")
        return found

    def count(self, split: str) -> int:
        """Returns the number of nodes of a split; zero if the graph does not have it."""
        return int(self.masks[split].sum()) if split in self.masks else 0

    def training_labels(self) -> Tensor:
        """Returns the labels of the training nodes, [T] or [T, C]."""
        return self.y[self.masks["train"]]

    def to(self, target: torch.device | torch.dtype | str) -> "Graph":
        """Moves everything to a device, or converts features and adjacency to a dtype."""
        if isinstance(target, torch.dtype):
            return replace(self, x=self.x.to(target), adj=self.adj.to(target))
        return replace(
            self,
            x=self.x.to(target),
            y=self.y.to(target),
            adj=self.adj.to(target),
            degree=self.degree.to(target),
            masks={split: mask.to(target) for split, mask in self.masks.items()},
        )

    def permute(self, order: Tensor) -> "Graph":
        """Sorts the nodes, so that node `order[i]` gets position `i`; returns the graph itself for the identity."""
        order = order.cpu().long()
        if not is_permutation(order, self.num_nodes):
            raise ValueError(
                f"`order`, of shape {tuple(order.shape)}, must hold every node from 0 to {self.num_nodes - 1} once"
            )
        if torch.equal(order, torch.arange(self.num_nodes)):
            return self

        def take(tensor: Tensor) -> Tensor:
            return tensor[order.to(tensor.device)]

        return replace(
            self,
            x=select_rows(self.x, order.to(self.x.device)),
            y=take(self.y),
            adj=self.adj.permute(order.to(self.device)),
            degree=take(self.degree),
            masks={split: take(mask) for split, mask in self.masks.items()},
            node_ids=None if self.node_ids is None else self.node_ids[order.numpy()],
            part_ptr=None,
            part_engine=None,
        )


def select_rows(x: Tensor | Csr, rows: Tensor) -> Tensor | Csr:
    """Selects rows of dense or sparse features."""
    return x.select(rows) if isinstance(x, Csr) else x[rows]


def training_targets(graph: Graph) -> Tensor:
    """Returns the targets of the training nodes, [T, C], one-hot for single labels; reads no other labels."""
    num_train, task = graph.num_train, graph.task
    known = graph.training_labels()
    if task.kind == "single-label":
        if known.dim() == 1 and not known.is_floating_point() and 0 <= known.min() <= known.max() < task.num_outputs:
            return F.one_hot(known, task.num_outputs)
    elif known.shape == (num_train, task.num_outputs) and bool(task.labeled(known).all()):
        return known
    raise GraphError(
        f"the training labels of graph `{graph.name}`, of shape {tuple(known.shape)}, do not fit a {task.kind} task "
        f"with {task.num_outputs} outputs; give it labels of that task"
    )


def is_permutation(order: Tensor, size: int) -> bool:
    """Returns whether `order` holds every index from 0 to `size - 1` once."""
    return order.shape == (size,) and torch.equal(order.sort().values, torch.arange(size))


def check_graph(graph: object) -> None:
    """Refuses an argument that is not a graph."""
    if not isinstance(graph, Graph):
        remedy = "make a graph with `load_graph`, `Graph.from_edges` or `Graph.from_data`"
        raise GraphError(wrong_type("graph", graph, remedy))


def check_num_nodes(given: int, num_nodes: int) -> None:
    """Refuses a model that was built for another number of nodes."""
    if given != num_nodes:
        raise ConfigError(
            f"`num_nodes` is {given}, but the graph has {num_nodes} nodes; build the model with `num_nodes={num_nodes}`"
        )


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silences warnings about a graph, such as one that is loaded again."""
    levels = {one: one.level for one in (logger, checks_logger)}
    for one in levels:
        one.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for one, level in levels.items():
            one.setLevel(level)


def _warn_of_gaps(y: Tensor, num_classes: int) -> None:
    found = torch.bincount(y[y >= 0], minlength=num_classes)
    gaps = (found == 0).nonzero()[:, 0].tolist()
    # a graph without any label has one class by definition
    if gaps and len(gaps) < num_classes:
        have = "has" if len(gaps) == 1 else "have"
        logger.warning(
            f"{len(gaps)} of the {num_classes} classes from 0 to {num_classes - 1} {have} no node: {listed(gaps)}; "
            f"number the classes without gaps, or give `num_classes={num_classes}` if all of them exist"
        )


def _shape(array: Any) -> tuple[int, ...]:
    """Returns the shape of a tensor or an array; that of anything else is empty."""
    return tuple(array.shape) if isinstance(array, Tensor | np.ndarray) else ()


def _warn_of_attributes(shape: tuple[int, ...], *, weighted: bool) -> None:
    remedy = "weights are taken from `edge_weight`"
    if not weighted:
        column = "data.edge_attr" if len(shape) == 1 else "data.edge_attr[:, 0]"
        remedy = f"set `data.edge_weight = {column}` if that is a weight, or remove `edge_attr`"
    logger.warning(f"edge attributes are dropped: `edge_attr` of shape {shape} is not used; {remedy}")
