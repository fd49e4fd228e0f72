"""Reads graphs from `.npz` files: edges, labels, masks, and dense or sparse features; never unpickles."""

import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lazygnn.checks import first_outside
from lazygnn.errors import GraphError
from lazygnn.graph import SPLITS, Graph
from lazygnn.ops import Csr

# the first bytes of an archive, and of an empty archive
_ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")
_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_OPTIONAL = ("y", "train_mask", "val_mask", "test_mask", "edge_weight", "node_ids", "class_name", "task")


def read_npz(path: Path) -> Graph:
    """Reads a graph; without labels and masks it can only be predicted on."""
    fields = _read_arrays(path)
    try:
        if "edge_index" not in fields:
            raise GraphError("field `edge_index` is missing; store the edges as integers, [2, num_edges]")
        features = _features(fields)
        _check_labels_and_masks(fields)
        names = fields.get("class_name")
        if names is not None and names.ndim != 1:
            raise GraphError(f"field `class_name` has shape {names.shape}; give one name per class")
        return Graph.from_edges(
            fields["edge_index"],
            features,
            fields.get("y"),
            **{f"{split}_mask": fields.get(f"{split}_mask") for split in SPLITS},
            edge_weight=fields.get("edge_weight"),
            task=str(fields.get("task", "auto")),
            node_ids=fields.get("node_ids"),
            num_classes=None if names is None else len(names),
            class_names=None if names is None else tuple(str(name) for name in names),
            name=path.stem,
        )
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    wanted = {"edge_index", "x", *_SPARSE, *_OPTIONAL}
    try:
        # numpy would not close a corrupt file
        with path.open("rb") as stream:
            _check_archive(stream)
            file = np.load(stream, allow_pickle=False)
            fields = {name: file[name] for name in file.files if name in wanted}
            # numpy returns members that are not arrays as bytes
            for name, array in fields.items():
                if not isinstance(array, np.ndarray):
                    raise GraphError(f"field `{name}` is not an array; store arrays with `numpy.savez`")
            return fields
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None
    # a corrupt archive can fail in zip, zlib or numpy's header parser
    except Exception as error:
        # numpy's message recommends `allow_pickle`, and a pickle can run any code
        if "allow_pickle" in str(error):
            what = "Python objects" if "Object arrays" in str(error) else "too many named columns"
            raise GraphError(
                f"{path}: an array holds {what}, which are never read; store plain numbers or text"
            ) from None
        raise GraphError(f"{path}: not a readable .npz file ({error}); write it again") from error


def _check_archive(stream: BinaryIO) -> None:
    """Refuses other files than archives, since numpy reads any unknown file as a pickle."""
    start = stream.read(len(np.lib.format.MAGIC_PREFIX))
    if start == np.lib.format.MAGIC_PREFIX:
        raise GraphError("this is a single array; store several named arrays with `numpy.savez`")
    if not start.startswith(_ARCHIVE) or not zipfile.is_zipfile(stream):
        raise GraphError("not an .npz file (not a zip archive, or truncated); write it again with `numpy.savez`")
    stream.seek(0)


def _features(fields: dict[str, np.ndarray]) -> np.ndarray | Csr:
    if "x" in fields:
        return fields["x"]
    missing = [name for name in _SPARSE if name not in fields]
    if missing:
        raise GraphError(f"field `{missing[0]}` is missing; store features as `x`, or sparse as {', '.join(_SPARSE)}")
    indptr, indices, data, shape = (fields[name] for name in _SPARSE)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or min(shape.tolist()) < 1:
        raise GraphError(f"field `x_shape` is {shape.tolist()}; give two positive integers, rows and columns")
    for name, array, kinds in (("x_indptr", indptr, "iu"), ("x_indices", indices, "iu"), ("x_data", data, "biuf")):
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise GraphError(
                f"field `{name}` has shape {array.shape} and type {array.dtype}; give a flat array of numbers"
            )
    if len(indptr) != int(shape[0]) + 1:
        raise GraphError(f"field `x_indptr` has {len(indptr)} entries; {int(shape[0])} rows need {int(shape[0]) + 1}")
    if int(shape[1]) >= 2**31:
        raise GraphError(f"field `x_shape` is {shape.tolist()}; at most 2^31 - 1 columns are supported")
    for name, array, stop in (("x_indptr", indptr, len(data) + 1), ("x_indices", indices, int(shape[1]))):
        if (wrong := first_outside(array, stop)) is not None:
            raise GraphError(f"field `{name}` holds {wrong}; its entries go from 0 to {stop - 1}")
    return Csr.from_arrays(indptr, indices, data, int(shape[1]))


def _check_labels_and_masks(fields: dict[str, np.ndarray]) -> None:
    names = ("y", *(f"{split}_mask" for split in SPLITS))
    present = [name for name in names if name in fields]
    for name in ("y", "train_mask"):
        if present and name not in fields:
            raise GraphError(
                f"field `{name}` is missing, but `{present[0]}` is there; store labels and masks together, or neither"
            )
