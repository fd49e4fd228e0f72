"""Reads and writes graphs as `.npz` files: edges, labels, masks, and dense or sparse features; never unpickles."""

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lazygnn.checks import first_outside, naming
from lazygnn.data.convert import plain_edges
from lazygnn.errors import GraphError, reason
from lazygnn.files import replaced
from lazygnn.graph import SPLITS, Graph
from lazygnn.ops import Csr
from lazygnn.tables.schema import Schema, parse_schema

# the first bytes of an archive, and of an empty archive
_ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")
_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_OPTIONAL = ("y", "train_mask", "val_mask", "test_mask", "edge_weight", "node_ids", "class_name", "task", "schema")


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
        with naming("edges", "edge_index"):
            graph = Graph.from_edges(
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
        return graph if "schema" not in fields else replace(graph, schema=_schema(fields["schema"], graph))
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def write_npz(graph: Graph, path: str | Path) -> None:
    """Writes a graph as an `.npz` file, which appears when it is complete.

    Edges are stored in both directions, and weights to about seven digits.
    """
    path = Path(path)
    labeled = bool(graph.task.labeled(graph.y).any())
    if labeled and "train" not in graph.masks:
        raise GraphError(f"graph `{graph.name}` has labels but no training nodes; save it as a folder instead")
    edge_index, edge_weight = plain_edges(graph)
    edges, weight = edge_index.numpy(), None if edge_weight is None else edge_weight.numpy()
    x, ids = graph.x.to("cpu"), graph.node_ids
    # integers beside integer ids are read as ids
    fields: dict[str, Any] = {"edge_index": edges if ids is None or ids.dtype.kind == "U" else ids[edges]}
    if isinstance(x, Csr):
        fields |= {"x_indptr": x.rowptr.numpy(), "x_indices": x.col.numpy(), "x_data": x.value.numpy()}
        fields["x_shape"] = np.array(x.shape)
    else:
        fields["x"] = x.numpy()
    optional: dict[str, Any] = {"edge_weight": weight, "node_ids": ids}
    optional |= {f"{split}_mask": mask.cpu().numpy() for split, mask in graph.masks.items()}
    if labeled:
        optional |= {"y": graph.y.cpu().numpy(), "task": np.array(graph.task.kind)}
    if graph.class_names is not None or (labeled and graph.task.kind == "single-label"):
        optional["class_name"] = np.array(graph.class_names or [str(one) for one in range(graph.task.num_outputs)])
    if graph.schema is not None:
        optional["schema"] = np.array(graph.schema.model_dump_json())
    fields |= {name: array for name, array in optional.items() if array is not None}
    try:
        with replaced(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **fields)
    except OSError as error:
        raise GraphError(f"could not write `{path}`: {reason(error)}; free the space or choose another file") from error


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


def _schema(field: np.ndarray, graph: Graph) -> Schema:
    if field.shape != () or field.dtype.kind != "U":
        raise GraphError(f"field `schema` has shape {field.shape} and type {field.dtype}; give one string of JSON")
    schema = parse_schema(str(field), "field `schema`")
    schema.check_width(graph.in_channels, "field `schema`")
    return schema


def _check_labels_and_masks(fields: dict[str, np.ndarray]) -> None:
    names = ("y", *(f"{split}_mask" for split in SPLITS))
    present = [name for name in names if name in fields]
    for name in ("y", "train_mask"):
        if present and name not in fields:
            raise GraphError(
                f"field `{name}` is missing, but `{present[0]}` is there; store labels and masks together, or neither"
            )
