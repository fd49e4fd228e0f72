"""Checks the arrays that users make a graph from.

Each check returns its argument in the form that the library uses, or raises a `GraphError` with the field, the value
and the remedy.

`N` nodes, `D` input features, `M` edges, `C` outputs.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lazygnn.errors import GraphError, wrong_type
from lazygnn.ops import Csr, to_tensor
from lazygnn.task import METRICS, Task

logger = logging.getLogger(__name__)

Array = np.ndarray | Tensor
# the remedy where there are no features
WITHOUT_FEATURES = (
    "if there are none, `lazygnn import --structural` makes some of the edges, and a column of ones is enough for "
    "`label-propagation`"
)
# rows that are checked at a time, since a check takes as much memory as its rows
_BLOCK_ROWS = 65_536

# part of the deviation of targets that rounding to float32 may change
_MOST_ROUNDED = 0.01

# types that torch stores but does not compare
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


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


@contextmanager
def naming(argument: str, field: str) -> Iterator[None]:
    """Names a field of a file or an object in errors about the argument that it becomes."""
    try:
        yield
    except GraphError as error:
        raise GraphError(str(error).replace(f"`{argument}`", f"`{field}`")) from None


def _tensor(array: Any, field: str) -> Tensor:
    if isinstance(array, Tensor):
        return _plain(array, field)
    array = _array(array, field)
    if array.dtype.kind not in "biuf":
        raise GraphError(f"`{field}` has type {array.dtype}; give numbers")
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 2**63:
        raise GraphError(f"`{field}` holds {int(array.max())}, more than int64 can hold; give smaller numbers")
    return to_tensor(array)


def _plain(tensor: Tensor, field: str) -> Tensor:
    """Returns a dense tensor on the CPU, of a type that can be computed with."""
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
        raise GraphError(f"`{field}` has layout {tensor.layout} and type {tensor.dtype}; give dense real numbers")
    if tensor.device.type == "meta":
        raise GraphError(f"`{field}` is on the device `meta`, which holds no numbers; give a tensor with numbers")
    tensor = tensor.detach().cpu()
    if tensor.dtype in _UNSIGNED:
        return _tensor(tensor.numpy(), field)
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def _array(values: Any, field: str) -> np.ndarray:
    if isinstance(values, Tensor):
        values = _plain(values, field)
        values = (values.float() if values.is_floating_point() else values).numpy()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise GraphError(f"`{field}` has rows of different length; give rows of the same length") from error
    # bytes never equal text
    return np.char.decode(array, "utf-8", "backslashreplace") if array.dtype.kind == "S" else array


def check_features(x: Array | Csr) -> Tensor | Csr:
    """Returns features, dense as float32 or sparse, [N, D]."""
    if x is None:
        raise GraphError(f"`x` is None; give features, [N, D]; {WITHOUT_FEATURES}")
    if (sparse := _as_csr(x)) is not None:
        _check_csr(sparse)
        _check_two_dimensions(sparse.shape)
        _check_columns(sparse)
        return sparse
    given = _tensor(x, "x")
    _check_two_dimensions(given.shape)
    converted = given.to(torch.float32)
    _check_range(given, converted, "x")
    _check_columns(converted)
    if len(lost := _rounded_to_constants(given, converted)):
        logger.warning(
            "columns %s of `x` are constant in float32, but not as given: their values are large and differ little; "
            "subtract an offset, such as the mean",
            listed(lost),
        )
    return converted


def _as_csr(x: Any) -> Csr | None:
    """Returns sparse features of torch, scipy or ours; `None` for others."""
    if isinstance(x, Csr):
        return x
    if isinstance(x, Tensor) and x.layout == torch.sparse_coo and x.dim() == 2 and not x.is_complex():
        entries = x.detach().cpu().coalesce()
        rows, columns = entries.indices()
        rowptr = torch.cat((rows.new_zeros(1), torch.bincount(rows, minlength=x.shape[0]).cumsum(0)))
        return Csr.from_arrays(rowptr.numpy(), columns.numpy(), _tensor(entries.values(), "x").numpy(), x.shape[1])
    if isinstance(x, Tensor) and x.layout == torch.sparse_csr:
        arrays = (x.crow_indices(), x.col_indices(), x.values())
        indptr, indices, data = (_tensor(array, "x").numpy() for array in arrays)
        return Csr.from_arrays(indptr, indices, data, x.shape[1])
    if type(x).__module__.startswith("scipy.sparse"):
        matrix = x.tocsr()
        return Csr.from_arrays(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1])
    return None


def _check_two_dimensions(shape: Sequence[int]) -> None:
    if len(shape) != 2 or 0 in shape:
        raise GraphError(f"`x` has shape {tuple(shape)}; give one row of features per node, [num_nodes, num_features]")


def _check_range(given: Tensor, converted: Tensor, field: str) -> None:
    """Refuses finite values that float32 cannot hold."""
    if given.dtype != torch.float64:
        return
    for before, after in zip(given.split(_BLOCK_ROWS), converted.split(_BLOCK_ROWS), strict=True):
        beyond = after.isinf() & before.isfinite()
        if bool(beyond.any()):
            raise GraphError(f"`{field}` holds {float(before[beyond][0])}, more than float32 can hold; scale it down")


def _rounded_to_constants(given: Tensor, converted: Tensor) -> list[int]:
    """Returns the columns whose values differ as given, but not in float32."""
    if given.dtype not in (torch.float64, torch.int64, torch.int32):
        return []
    constant = _is_constant(converted)
    columns = constant.nonzero().flatten()
    return columns[~_is_constant(given, columns)].tolist()


def _is_constant(x: Tensor, columns: Tensor | None = None) -> Tensor:
    """Returns which columns have equal values, [D] bool."""
    first = x[0] if columns is None else x[0, columns]
    constant = torch.ones(len(first), dtype=torch.bool)
    for rows in x.split(_BLOCK_ROWS):
        if not bool(constant.any()):
            break
        constant &= ((rows if columns is None else rows[:, columns]) == first).all(dim=0)
    return constant


def listed(numbers: list[int]) -> str:
    """Returns the first of some numbers as text."""
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")


def _check_csr(x: Csr) -> None:
    if not rises(x.rowptr, len(x.col)) or len(x.col) != len(x.value):
        raise GraphError(
            "the row pointers of sparse `x` do not match its entries; they must rise from 0 to the number of entries"
        )
    if (wrong := first_outside(x.col, x.num_cols)) is not None:
        raise GraphError(f"sparse `x` has column {wrong}, but {x.num_cols} columns; fix the indices or the shape")


def _check_columns(x: Tensor | Csr) -> None:
    values = x.value if isinstance(x, Csr) else x
    if all(bool(rows.isfinite().all()) for rows in values.split(_BLOCK_ROWS)):
        return
    finite = values.isfinite()
    columns = x.col[~finite] if isinstance(x, Csr) else (~finite).nonzero()[:, 1]
    wrong = x.value[~finite] if isinstance(x, Csr) else x[~finite]
    found = columns.unique().tolist()
    raise GraphError(
        f"`x` holds {float(wrong[0])} in column{'s' if len(found) > 1 else ''} {listed(found)} "
        f"({len(wrong)} such values); replace or remove non-finite values"
    )


def _check_finite(values: Tensor, field: str) -> None:
    finite = values.isfinite()
    if not bool(finite.all()):
        wrong = values[~finite]
        raise GraphError(
            f"`{field}` holds {float(wrong[0])} ({len(wrong)} such values); replace or remove non-finite values"
        )


def check_ids(node_ids: np.ndarray | list[str], num_nodes: int) -> np.ndarray:
    """Returns ids as an array of distinct integers or strings, [N]."""
    ids = _array(node_ids, "node_ids")
    if ids.ndim != 1 or len(ids) != num_nodes or ids.dtype.kind not in "iuU":
        raise GraphError(
            f"`node_ids` has shape {ids.shape} and type {ids.dtype}; give {num_nodes} integers or strings, one per node"
        )
    unique, count = np.unique(ids, return_counts=True)
    if len(unique) != num_nodes:
        twice = unique[count > 1][0].item()
        raise GraphError(f"`node_ids` holds {twice!r} more than once; give every node a different id")
    return ids


def check_edges(edges: Array, num_nodes: int, ids: np.ndarray | None) -> Tensor:
    """Returns edges as node indices, [2, M]; edges of the same type as `ids` are ids."""
    array = _array(edges, "edges")
    if array.ndim != 2 or array.shape[0] != 2:
        remedy = "; transpose it" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise GraphError(f"`edges` has shape {array.shape}; give two rows, sources and targets: [2, num_edges]{remedy}")
    if ids is not None and array.dtype.kind in "iuU" and (array.dtype.kind == "U") == (ids.dtype.kind == "U"):
        array = _to_indices(array, ids)
    if array.dtype.kind not in "iu":
        raise GraphError(f"`edges` has type {array.dtype}; convert node indices to integers")
    # torch does not take memory that cannot be written
    small = array.dtype == np.int32 and array.flags.writeable
    edge_index = torch.from_numpy(array if small else array.astype(np.int64))
    if (wrong := first_outside(edge_index, num_nodes)) is not None:
        # the usual mistake
        counted = wrong == num_nodes and int(edge_index.min()) >= 1
        remedy = "; ids start at 1? subtract 1" if counted else ""
        raise GraphError(
            f"`edges` holds {wrong}, but `x` has {num_nodes} rows; indices go from 0 to {num_nodes - 1}{remedy}"
        )
    return edge_index


def _to_indices(edges: np.ndarray, ids: np.ndarray) -> np.ndarray:
    order = np.argsort(ids, kind="stable")
    rank = np.minimum(np.searchsorted(ids, edges, sorter=order), len(ids) - 1)
    indices: np.ndarray = order[rank]
    unknown = ids[indices] != edges
    if unknown.any():
        raise GraphError(
            f"`edges` names node {edges[unknown][0].item()!r}, which is not in `node_ids`; add it or drop the edge"
        )
    return indices


def check_weights(edge_weight: Array, num_edges: int) -> Tensor:
    """Returns weights, [M]."""
    weight = _tensor(edge_weight, "edge_weight")
    if tuple(weight.shape) != (num_edges,):
        raise GraphError(f"`edge_weight` has shape {tuple(weight.shape)}; give one weight per edge, [{num_edges}]")
    _check_finite(weight, "edge_weight")
    if num_edges and float(weight.min()) < 0:
        raise GraphError(f"`edge_weight` holds {float(weight.min())}; weights must not be negative; shift or drop them")
    return weight


def _is_one_hot(target: Tensor) -> bool:
    """Returns whether every row with known labels has a single 1, as codes of classes have."""
    known = target[target[:, 0] >= 0]
    return target.shape[1] > 1 and len(known) > 1 and bool((known.sum(dim=1) == 1).all())


def check_targets(y: Array | None, num_nodes: int, num_classes: int | None, task: str) -> tuple[Tensor, Task]:
    """Returns targets, [N] or [N, C], and their task."""
    if not isinstance(task, str) or task not in ("auto", *METRICS):
        raise GraphError(f"`task` is `{task}`; choose one of: auto, {', '.join(METRICS)}")
    if num_classes is not None:
        if isinstance(num_classes, bool) or not isinstance(num_classes, Integral):
            raise GraphError(wrong_type("num_classes", num_classes, "give a whole number"))
        if not 1 <= num_classes < 2**31:
            raise GraphError(f"`num_classes` is {num_classes}; give at least 1 and less than 2^31")
        num_classes = int(num_classes)
    if y is None:
        return torch.full((num_nodes,), -1), Task("single-label", num_classes or 1)
    target = _tensor(y, "y")
    if target.dim() not in (1, 2) or len(target) != num_nodes or 0 in target.shape:
        raise GraphError(
            f"`y` has shape {tuple(target.shape)}; give one label per node, [{num_nodes}] or [{num_nodes}, C]"
        )
    ambiguous = task == "auto" and target.dim() == 1 and target.is_floating_point()
    if task == "auto" and target.dim() == 1:
        task = "regression" if target.is_floating_point() else "single-label"
    elif task == "auto":
        wrong = _beyond_labels(target)
        if len(wrong) and not target.is_floating_point():
            raise GraphError(
                f"`y` has shape {tuple(target.shape)} and holds {int(wrong[0])}; give one class per node as integers, "
                f'[{num_nodes}], several labels as 0 and 1, or pass `task="regression"` to predict numbers'
            )
        if len(wrong) and bool(wrong.isnan().all()):
            raise GraphError(
                f"`y` has shape {tuple(target.shape)} and holds 0 and 1, but also NaN; give a row of -1 to each node "
                'with unknown labels, or pass `task="regression"` to predict numbers'
            )
        task = "regression" if len(wrong) else "multi-label"
        if task == "multi-label" and _is_one_hot(target):
            logger.warning(
                f"`y` has shape {tuple(target.shape)} and a single 1 in every row, and is read as several labels of a "
                "node; if a node has one class, give its number: `y.argmax(1)`"
            )
    if task == "single-label":
        return _check_labels(target, num_classes)
    given = target.reshape(num_nodes, -1)
    target = given.to(torch.float32)
    if task == "multi-label":
        if len(wrong := _beyond_labels(target)):
            raise GraphError(f"`y` holds {float(wrong[0])}; a multi-label target is 0, 1, or a row of -1 for unknown")
        return target, Task("multi-label", target.shape[1])
    _check_range(given, target, "y")
    if bool(target.isinf().any()):
        raise GraphError("`y` holds an infinite value; use NaN for a node without a target")
    known = given[~given.isnan()]
    if ambiguous and len(known) and float(known.abs().max()) < 2**31 and torch.equal(known, known.round()):
        raise GraphError(
            f"`y` holds whole numbers as floats, such as {float(known[0])}; give classes as integers, -1 for unknown, "
            'or pass `task="regression"` to predict them as numbers'
        )
    for column in given.T:
        _check_precision(column[~column.isnan()])
    return target, Task("regression", target.shape[1])


def _check_precision(known: Tensor) -> None:
    """Refuses targets whose differences float32 rounds away."""
    exact = known.double()
    if len(exact) == 0 or bool((exact == exact[0]).all()):
        return
    spread = float(exact.std(correction=0))
    if float((known.float().double() - exact).abs().max()) > _MOST_ROUNDED * spread:
        raise GraphError(
            f"`y` holds numbers around {float(exact.mean()):.6g} that differ by about {spread:.3g}, which float32 "
            "rounds away; subtract an offset, such as the mean, and add it to the predictions"
        )


def _beyond_labels(target: Tensor) -> Tensor:
    """Returns the entries of a target that are neither 0, 1 nor -1, which means unknown."""
    return target[(target != 0) & (target != 1) & (target != -1)]


def _check_labels(target: Tensor, num_classes: int | None) -> tuple[Tensor, Task]:
    if target.dim() != 1 or target.is_floating_point():
        raise GraphError(
            f"`y` has shape {tuple(target.shape)} and type {target.dtype}; single labels are integers, [num_nodes]"
        )
    target = target.long()
    found = int(target.max()) + 1
    if num_classes is None and found > len(target):
        raise GraphError(
            f"`y` holds label {found - 1} for {len(target)} nodes; number the classes from 0, or give `num_classes`"
        )
    classes = max(found, 1) if num_classes is None else num_classes
    if found > classes or int(target.min()) < -1:
        wrong = found - 1 if found > classes else int(target.min())
        raise GraphError(f"`y` holds label {wrong}; labels go from 0 to {classes - 1}, and -1 means unknown")
    return target, Task("single-label", classes)


def check_class_names(names: Sequence[str], num_outputs: int) -> tuple[str, ...]:
    """Returns names of classes, which are distinct texts."""
    if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
        raise GraphError(wrong_type("class_names", names, "give one name per class"))
    if len(names) != num_outputs:
        raise GraphError(f"`class_names` has {len(names)} names for {num_outputs} classes; give one name per class")
    found: dict[str, None] = {}
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise GraphError(wrong_type(f"class_names[{index}]", name, "give a text"))
        if name in found:
            raise GraphError(f"`class_names` holds {str(name)!r} more than once; give every class a different name")
        found[str(name)] = None
    return tuple(found)


def check_masks(masks: dict[str, Any], y: Tensor, task: Task) -> dict[str, Tensor]:
    """Returns the masks that are not empty, by split."""
    labeled = task.labeled(y)
    taken = torch.zeros(len(y), dtype=torch.int8)
    checked = {}
    for split, given in masks.items():
        mask = _tensor(given, f"{split}_mask")
        if mask.dtype != torch.bool or tuple(mask.shape) != (len(y),):
            found = f"shape {tuple(mask.shape)} and type {str(mask.dtype).removeprefix('torch.')}"
            convert = "; `astype(bool)` converts 0 and 1" if tuple(mask.shape) == (len(y),) else ""
            raise GraphError(f"`{split}_mask` has {found}; give a bool per node, [{len(y)}]{convert}")
        if bool((taken[mask] > 0).any()):
            node = int((mask & (taken > 0)).nonzero()[0])
            raise GraphError(f"`{split}_mask` overlaps an earlier mask at node {node}; a node belongs to one split")
        if not bool(labeled[mask].all()):
            node = int((mask & ~labeled).nonzero()[0])
            missing = "no label" if bool(task.unknown(y[node]).all()) else "no value in some columns of `y`"
            raise GraphError(
                f"`{split}_mask` has node {node}, which has {missing}; remove it from the mask or give it a label"
            )
        taken += mask
        if bool(mask.any()):
            checked[split] = mask
        elif split == "train":
            raise GraphError("`train_mask` is empty; mark at least one labeled node")
    return checked
