"""`Graph`: features, targets, splits and the symmetrically normalised adjacency of one graph, checked on entry.

`N` nodes, `D` input features, `E` stored entries of the adjacency, `C` outputs.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lazygnn.errors import GraphError
from lazygnn.ops import Adjacency, Csr, to_tensor
from lazygnn.task import METRICS, Task

logger = logging.getLogger(__name__)

Array = np.ndarray | Tensor
SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph with node features; build one with `from_edges`, `from_data` or `load_graph`."""

    x: Tensor | Csr  # [N, D]
    y: Tensor  # [N] int64, or [N, C] float
    adj: Adjacency  # [N, N], D^-1/2 (A + I) D^-1/2
    degree: Tensor  # [N] weighted, the self-loop counted
    task: Task
    masks: Mapping[str, Tensor]  # split name -> [N] bool; a split that does not exist is missing
    node_ids: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    name: str = "graph"
    part_ptr: Tensor | None = None  # [P + 1] where the parts begin that the node order was sorted by, if it was

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
        """Builds a graph from arrays of a user's own and refuses what cannot be right.

        Args:
            edges: Integers, [2, M]. A directed graph is made symmetric; of several weights the largest counts.
            x: Features, [N, D], dense or sparse; kept as float32, which `to(torch.float64)` widens.
            y: Labels, [N] with -1 for unknown; [N, C] of 0 and 1 for several labels; floats for regression.
            train_mask: Nodes to learn from, [N] bool; likewise `val_mask` and `test_mask`. They must not overlap.
            edge_weight: Non-negative weights, [M].
            num_classes: Number of classes, if larger than the labels show.
            task: `single-label`, `multi-label`, `regression`, or `auto` to read it off `y`.
            node_ids: A name for every node, [N]. If its type is the type of `edges`, then `edges` holds such names.
            class_names: A name for every class.
            name: Appears in logs and results.
        """
        features = _check_features(x)
        num_nodes = len(features)
        ids = None if node_ids is None else _check_ids(node_ids, num_nodes)
        edge_index = _check_edges(edges, num_nodes, ids)
        weight = None if edge_weight is None else _check_weights(edge_weight, edge_index.shape[1])
        adj, degree = normalized_adjacency(edge_index, weight, num_nodes)
        target, what = _check_targets(y, num_nodes, num_classes, task)
        given = zip(SPLITS, (train_mask, val_mask, test_mask), strict=True)
        masks = _check_masks({k: m for k, m in given if m is not None}, target, what)
        if class_names is not None and len(class_names) != what.num_outputs:
            raise GraphError(
                f"`class_names` has {len(class_names)} names for {what.num_outputs} classes; give one name per class"
            )
        return Graph(features, target, adj, degree, what, masks, ids, class_names, name)

    @staticmethod
    def from_data(data: Any, *, name: str = "graph") -> "Graph":
        """Takes a PyG `Data` object (`x`, `edge_index`, `y`, the three masks, one-dimensional `edge_weight`)."""
        fields: dict[str, Any] = data.to_dict()
        for field in ("x", "edge_index"):
            if fields.get(field) is None:
                raise GraphError(f"`data.{field}` is missing; `Graph.from_data` needs `x` and `edge_index`")
        y = fields.get("y")
        if y is not None and y.dim() == 2 and y.shape[1] == 1:
            y = y[:, 0]
        masks: dict[str, Any] = {f"{split}_mask": fields.get(f"{split}_mask") for split in SPLITS}
        for field, mask in masks.items():
            if mask is not None and mask.dim() != 1:
                raise GraphError(
                    f"`data.{field}` has shape {tuple(mask.shape)}; choose one split, such as `mask[:, 0]`"
                )
        weight = fields.get("edge_weight")
        return Graph.from_edges(fields["edge_index"], fields["x"], y, edge_weight=weight, name=name, **masks)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.adj.num_rows

    @property
    def num_edges(self) -> int:
        """Number of undirected edges, self-loops not counted."""
        return (len(self.adj.col) - self.num_nodes) // 2

    @property
    def in_channels(self) -> int:
        """Width of the features."""
        return self.x.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the adjacency lives."""
        return self.adj.device

    @property
    def num_train(self) -> int:
        """Number of training nodes; a graph without any cannot be trained on."""
        if "train" not in self.masks:
            raise GraphError(f"graph `{self.name}` has no training nodes; give it labels `y` and a `train_mask`")
        return int(self.masks["train"].sum())

    def to(self, target: torch.device | torch.dtype | str) -> "Graph":
        """Moves everything to a device, or features and adjacency to a dtype."""
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
        """The same graph with node `order[i]` at position `i`; the identity gives the graph itself."""
        identity = torch.arange(self.num_nodes)
        if order.shape != identity.shape or not torch.equal(order.cpu().long().sort().values, identity):
            raise ValueError(
                f"`order`, of shape {tuple(order.shape)}, must hold every node from 0 to {self.num_nodes - 1} once"
            )
        order = order.cpu().long()
        if torch.equal(order, identity):
            return self

        def take(rows: Tensor) -> Tensor:
            return rows[order.to(rows.device)]

        return replace(
            self,
            x=self.x.select(order.to(self.x.device)) if isinstance(self.x, Csr) else take(self.x),
            y=take(self.y),
            adj=self.adj.permute(order.to(self.device)),
            degree=take(self.degree),
            masks={split: take(mask) for split, mask in self.masks.items()},
            node_ids=None if self.node_ids is None else self.node_ids[order.numpy()],
            part_ptr=None,
        )

    def row_normalized(self) -> "Graph":
        """The same graph with the absolute values of every feature row summing to one; empty rows stay empty."""
        if isinstance(self.x, Csr):
            row = self.x.row_index()
            total = self.x.value.new_zeros(len(self.x)).index_add_(0, row, self.x.value.abs())
            return replace(self, x=self.x.with_value(self.x.value / total[row].clamp(min=1e-12)))
        return replace(self, x=self.x / self.x.abs().sum(dim=1, keepdim=True).clamp(min=1e-12))


def normalized_adjacency(edges: Tensor, weight: Tensor | None, num_nodes: int) -> tuple[Adjacency, Tensor]:
    """`D^-1/2 (A + I) D^-1/2` and the degrees; directed edges are mirrored, self-loops added where missing."""
    row, col, value = _symmetric(edges, weight, num_nodes)
    degree = torch.zeros(num_nodes, dtype=torch.float64).index_add_(0, row, value)
    # a node whose only edges weigh nothing keeps its (zero) row
    scale = degree.rsqrt().nan_to_num(posinf=0.0)
    normalized = (scale[row] * value * scale[col]).to(torch.float32)
    return Adjacency.from_sorted(row, col, normalized, (num_nodes, num_nodes)), degree.to(torch.float32)


def _symmetric(edges: Tensor, weight: Tensor | None, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    ones = torch.ones(edges.shape[1], dtype=torch.float64)
    given = ones if weight is None else weight.to(torch.float64)
    key, value = _largest(edges[0] * num_nodes + edges[1], given)
    row, col = key // num_nodes, key % num_nodes
    mirrored = (col * num_nodes + row).sort().values
    if not torch.equal(mirrored, key) or (weight is not None and not _same_both_ways(row, col, value, num_nodes)):
        logger.warning("the edges are directed: made symmetric, and of two weights the larger counts")
        key, value = _largest(torch.cat((key, col * num_nodes + row)), torch.cat((value, value)))
        row, col = key // num_nodes, key % num_nodes
    missing = torch.ones(num_nodes, dtype=torch.bool)
    missing[row[row == col]] = False
    loops = missing.nonzero()[:, 0] * (num_nodes + 1)
    key, order = torch.cat((key, loops)).sort()
    value = torch.cat((value, torch.ones(len(loops), dtype=torch.float64)))[order]
    return key // num_nodes, key % num_nodes, value


def _largest(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts the keys and keeps each once, with the largest of its values."""
    unique, inverse = key.unique(return_inverse=True)
    return unique, torch.zeros(len(unique), dtype=value.dtype).scatter_reduce_(0, inverse, value, "amax")


def _same_both_ways(row: Tensor, col: Tensor, value: Tensor, num_nodes: int) -> bool:
    return torch.equal(value[(col * num_nodes + row).argsort()], value)


def _tensor(array: Any, field: str) -> Tensor:
    if isinstance(array, Tensor):
        if array.layout != torch.strided or array.is_complex():
            raise GraphError(f"`{field}` has layout {array.layout} and type {array.dtype}; give dense real numbers")
        return array.detach().cpu()
    array = _array(array, field)
    if array.dtype.kind not in "biuf":
        raise GraphError(f"`{field}` has type {array.dtype}; give numbers")
    return to_tensor(array)


def _array(values: Any, field: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise GraphError(f"`{field}` is not an array, its rows differ in length; give rows of one length") from error
    # bytes and text do not compare
    return np.char.decode(array, "utf-8", "backslashreplace") if array.dtype.kind == "S" else array


def _check_features(x: Array | Csr) -> Tensor | Csr:
    if isinstance(x, Tensor) and x.layout == torch.sparse_csr:
        parts = (x.crow_indices(), x.col_indices(), x.values())
        indptr, indices, data = (_tensor(part, "x").numpy() for part in parts)
        x = Csr.from_arrays(indptr, indices, data, x.shape[1])
    if type(x).__module__.startswith("scipy.sparse"):
        rows: Any = x
        rows = rows.tocsr()
        x = Csr.from_arrays(rows.indptr, rows.indices, rows.data, rows.shape[1])
    if isinstance(x, Csr):
        _check_csr(x)
        values, shape = x.value, tuple[int, ...](x.shape)
    else:
        values = _tensor(x, "x").to(torch.float32)
        shape, x = tuple(values.shape), values
    if len(shape) != 2 or 0 in shape:
        raise GraphError(f"`x` has shape {tuple(shape)}; give one row of features per node, [num_nodes, num_features]")
    _check_finite(values, "x")
    return x


def _check_csr(x: Csr) -> None:
    ordered = x.rowptr.dim() == 1 and len(x.rowptr) > 1 and bool((x.rowptr.diff() >= 0).all())
    if not ordered or int(x.rowptr[0]) != 0 or int(x.rowptr[-1]) != len(x.col) or len(x.col) != len(x.value):
        raise GraphError("the row pointers of sparse `x` do not fit its entries; they must rise from 0 to their number")
    if len(x.col) and (int(x.col.min()) < 0 or int(x.col.max()) >= x.num_cols):
        worst = int(x.col.min()) if int(x.col.min()) < 0 else int(x.col.max())
        raise GraphError(f"sparse `x` has column {worst}, but {x.num_cols} columns; fix the indices or the shape")


def _check_finite(values: Tensor, field: str) -> None:
    finite = values.isfinite()
    if not bool(finite.all()):
        bad = float(values[~finite][0])
        count = int((~finite).sum())
        raise GraphError(f"`{field}` holds {bad} ({count} such values); replace or remove what is not finite")


def _check_ids(node_ids: np.ndarray | list[str], num_nodes: int) -> np.ndarray:
    ids = _array(node_ids, "node_ids")
    if ids.ndim != 1 or len(ids) != num_nodes or ids.dtype.kind not in "iuU":
        raise GraphError(
            f"`node_ids` has shape {ids.shape} and type {ids.dtype}; give {num_nodes} integers or strings, one per node"
        )
    unique, count = np.unique(ids, return_counts=True)
    if len(unique) != num_nodes:
        twice = unique[count > 1][0].item()
        raise GraphError(f"`node_ids` holds {twice!r} more than once; every node needs an id of its own")
    return ids


def _check_edges(edges: Array, num_nodes: int, ids: np.ndarray | None) -> Tensor:
    array = edges.detach().cpu().numpy() if isinstance(edges, Tensor) else _array(edges, "edge_index")
    if array.ndim != 2 or array.shape[0] != 2:
        raise GraphError(f"`edge_index` has shape {array.shape}; give two rows, sources and targets: [2, num_edges]")
    if ids is not None and array.dtype.kind in "iuU" and (array.dtype.kind == "U") == (ids.dtype.kind == "U"):
        array = _positions(array, ids)
    if array.dtype.kind not in "iu":
        raise GraphError(f"`edge_index` has type {array.dtype}; node indices must be integers, so convert them first")
    edge_index = torch.from_numpy(array.astype(np.int64))
    if array.size and (int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes):
        worst = int(edge_index.min()) if int(edge_index.min()) < 0 else int(edge_index.max())
        raise GraphError(
            f"`edge_index` holds {worst}, but `x` has {num_nodes} rows; indices go from 0 to {num_nodes - 1}"
        )
    return edge_index


def _positions(edges: np.ndarray, ids: np.ndarray) -> np.ndarray:
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids, edges, sorter=order), len(ids) - 1)
    positions: np.ndarray = order[at]
    unknown = ids[positions] != edges
    if unknown.any():
        raise GraphError(
            f"`edge_index` names node {edges[unknown][0].item()!r}, which is not in `node_ids`; add it or drop the edge"
        )
    return positions


def _check_weights(edge_weight: Array, num_edges: int) -> Tensor:
    weight = _tensor(edge_weight, "edge_weight")
    if tuple(weight.shape) != (num_edges,):
        raise GraphError(f"`edge_weight` has shape {tuple(weight.shape)}; give one weight per edge, [{num_edges}]")
    _check_finite(weight, "edge_weight")
    if num_edges and float(weight.min()) < 0:
        raise GraphError(f"`edge_weight` holds {float(weight.min())}; weights must not be negative, shift or drop them")
    return weight


def _check_targets(y: Array | None, num_nodes: int, num_classes: int | None, task: str) -> tuple[Tensor, Task]:
    if task != "auto" and task not in METRICS:
        raise GraphError(f"`task` is `{task}`; choose one of: auto, {', '.join(METRICS)}")
    if num_classes is not None and num_classes < 1:
        raise GraphError(f"`num_classes` is {num_classes}; there must be at least one class")
    if y is None:
        return torch.full((num_nodes,), -1), Task("single-label", num_classes or 1)
    target = _tensor(y, "y")
    if target.dim() not in (1, 2) or len(target) != num_nodes or 0 in target.shape:
        raise GraphError(
            f"`y` has shape {tuple(target.shape)}; give one label per node, [{num_nodes}] or [{num_nodes}, C]"
        )
    if task == "auto":
        single = target.dim() == 1 and not target.is_floating_point()
        binary = target.dim() == 2 and bool(((target == 0) | (target == 1) | (target == -1)).all())
        task = "single-label" if single else "multi-label" if binary else "regression"
    if task == "single-label":
        return _check_labels(target, num_classes)
    target = target.to(torch.float32).reshape(num_nodes, -1)
    if task == "multi-label":
        strange = target[(target != 0) & (target != 1) & (target != -1)]
        if len(strange):
            raise GraphError(f"`y` holds {float(strange[0])}; a multi-label target is 0, 1, or a row of -1 for unknown")
        return target, Task("multi-label", target.shape[1])
    if bool(target.isinf().any()):
        raise GraphError("`y` holds an infinite value; use NaN for a node without a target")
    return target, Task("regression", target.shape[1])


def _check_labels(target: Tensor, num_classes: int | None) -> tuple[Tensor, Task]:
    if target.dim() != 1 or target.is_floating_point():
        raise GraphError(
            f"`y` has shape {tuple(target.shape)} and type {target.dtype}; single labels are integers, [num_nodes]"
        )
    target = target.long()
    found = int(target.max()) + 1 if len(target) else 0
    classes = max(found, 1) if num_classes is None else num_classes
    if found > classes or (len(target) and int(target.min()) < -1):
        worst = found - 1 if found > classes else int(target.min())
        raise GraphError(f"`y` holds label {worst}; labels go from 0 to {classes - 1}, and -1 means unknown")
    return target, Task("single-label", classes)


def _check_masks(masks: dict[str, Any], y: Tensor, task: Task) -> dict[str, Tensor]:
    labelled = task.labelled(y)
    taken = torch.zeros(len(y), dtype=torch.int8)
    checked = {}
    for split, given in masks.items():
        mask = _tensor(given, f"{split}_mask")
        if mask.dtype != torch.bool or tuple(mask.shape) != (len(y),):
            raise GraphError(
                f"`{split}_mask` has shape {tuple(mask.shape)} and type {mask.dtype}; give a bool per node, [{len(y)}]"
            )
        if bool((taken[mask] > 0).any()):
            node = int((mask & (taken > 0)).nonzero()[0])
            raise GraphError(f"`{split}_mask` overlaps an earlier mask at node {node}; a node belongs to one split")
        if not bool(labelled[mask].all()):
            node = int((mask & ~labelled).nonzero()[0])
            raise GraphError(
                f"`{split}_mask` has node {node}, whose label is unknown; take it out of the mask or label it"
            )
        taken += mask
        if bool(mask.any()):
            checked[split] = mask
        elif split == "train":
            raise GraphError("`train_mask` is empty; mark at least one labelled node to learn from")
    return checked
