"""What a graph may be made of: arrays of a user's own, checked before any work is done.

Each check gives back what it was given in the form the library uses, or refuses it with a `GraphError` that names
field, value and remedy.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lazygnn.errors import GraphError
from lazygnn.ops import Csr, to_tensor
from lazygnn.task import METRICS, Task

Array = np.ndarray | Tensor


def rises(ptr: Array, stop: int, *, by: int = 0) -> bool:
    """Returns whether pointers rise from 0 to `stop`, by at least `by` each time."""
    if ptr.ndim != 1 or len(ptr) < 2 or int(ptr[0]) != 0 or int(ptr[-1]) != stop:
        return False
    return bool((ptr[1:] >= ptr[:-1] + by).all())


def first_outside(indices: Array, stop: int) -> int | None:
    """Returns an index that is not in `[0, stop)`: the smallest if negative, or else the largest."""
    if 0 in indices.shape:
        return None
    low, high = int(indices.min()), int(indices.max())
    if low < 0:
        return low
    return high if high >= stop else None


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


def check_features(x: Array | Csr) -> Tensor | Csr:
    """Features as float32, [N, D]."""
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
    if not rises(x.rowptr, len(x.col)) or len(x.col) != len(x.value):
        raise GraphError("the row pointers of sparse `x` do not fit its entries; they must rise from 0 to their number")
    if (wrong := first_outside(x.col, x.num_cols)) is not None:
        raise GraphError(f"sparse `x` has column {wrong}, but {x.num_cols} columns; fix the indices or the shape")


def _check_finite(values: Tensor, field: str) -> None:
    finite = values.isfinite()
    if not bool(finite.all()):
        bad = float(values[~finite][0])
        count = int((~finite).sum())
        raise GraphError(f"`{field}` holds {bad} ({count} such values); replace or remove what is not finite")


def check_ids(node_ids: np.ndarray | list[str], num_nodes: int) -> np.ndarray:
    """Ids as an array of distinct integers or strings, [N]."""
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


def check_edges(edges: Array, num_nodes: int, ids: np.ndarray | None) -> Tensor:
    """Edges as positions, [2, M]."""
    array = edges.detach().cpu().numpy() if isinstance(edges, Tensor) else _array(edges, "edge_index")
    if array.ndim != 2 or array.shape[0] != 2:
        raise GraphError(f"`edge_index` has shape {array.shape}; give two rows, sources and targets: [2, num_edges]")
    if ids is not None and array.dtype.kind in "iuU" and (array.dtype.kind == "U") == (ids.dtype.kind == "U"):
        array = _positions(array, ids)
    if array.dtype.kind not in "iu":
        raise GraphError(f"`edge_index` has type {array.dtype}; node indices must be integers, so convert them first")
    edge_index = torch.from_numpy(array.astype(np.int64))
    if (wrong := first_outside(edge_index, num_nodes)) is not None:
        raise GraphError(
            f"`edge_index` holds {wrong}, but `x` has {num_nodes} rows; indices go from 0 to {num_nodes - 1}"
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


def check_weights(edge_weight: Array, num_edges: int) -> Tensor:
    """Weights, [M]."""
    weight = _tensor(edge_weight, "edge_weight")
    if tuple(weight.shape) != (num_edges,):
        raise GraphError(f"`edge_weight` has shape {tuple(weight.shape)}; give one weight per edge, [{num_edges}]")
    _check_finite(weight, "edge_weight")
    if num_edges and float(weight.min()) < 0:
        raise GraphError(f"`edge_weight` holds {float(weight.min())}; weights must not be negative, shift or drop them")
    return weight


def check_targets(y: Array | None, num_nodes: int, num_classes: int | None, task: str) -> tuple[Tensor, Task]:
    """Targets and the task they make."""
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
    guessed_number = task == "auto" and target.dim() == 1 and target.is_floating_point()
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
    known = target[~target.isnan()]
    if guessed_number and len(known) and torch.equal(known, known.round()):
        raise GraphError(
            f"`y` holds whole numbers as floats, such as {float(known[0])}; give classes as integers, -1 for unknown, "
            'or say `task="regression"` to predict them as numbers'
        )
    return target, Task("regression", target.shape[1])


def _check_labels(target: Tensor, num_classes: int | None) -> tuple[Tensor, Task]:
    if target.dim() != 1 or target.is_floating_point():
        raise GraphError(
            f"`y` has shape {tuple(target.shape)} and type {target.dtype}; single labels are integers, [num_nodes]"
        )
    target = target.long()
    found = int(target.max()) + 1 if len(target) else 0
    if num_classes is None and found > max(len(target), 1):
        raise GraphError(
            f"`y` holds label {found - 1} for {len(target)} nodes; number the classes from 0, or give `num_classes`"
        )
    classes = max(found, 1) if num_classes is None else num_classes
    if found > classes or (len(target) and int(target.min()) < -1):
        worst = found - 1 if found > classes else int(target.min())
        raise GraphError(f"`y` holds label {worst}; labels go from 0 to {classes - 1}, and -1 means unknown")
    return target, Task("single-label", classes)


def check_masks(masks: dict[str, Any], y: Tensor, task: Task) -> dict[str, Tensor]:
    """The masks that have a node in them, by split."""
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
