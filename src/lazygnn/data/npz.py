"""Reads and writes graphs as `.npz` files: edges, labels, masks, and dense or sparse features; never unpickles."""

import logging
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from lazygnn.checks import WITHOUT_FEATURES, first_outside, naming
from lazygnn.data.convert import plain_edges
from lazygnn.errors import GraphError, reason
from lazygnn.files import replaced
from lazygnn.graph import SPLITS, Graph
from lazygnn.ops import Csr
from lazygnn.tables.schema import Schema, parse_schema
from lazygnn.untrusted.arrays import open_archive
from lazygnn.untrusted.budget import check_width

logger = logging.getLogger(__name__)

# memory for each end of an edge while the adjacency is made
_EDGE_BYTES = 20
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
    if graph.class_names is not None:
        optional["class_name"] = np.array(graph.class_names)
    elif labeled and graph.task.kind == "single-label" and int(graph.y.max()) + 1 < graph.task.num_outputs:
        # the labels alone would make fewer classes
        optional["class_name"] = np.array([str(one) for one in range(graph.task.num_outputs)])
    if graph.schema is not None:
        optional["schema"] = np.array(graph.schema.model_dump_json())
    fields |= {name: array for name, array in optional.items() if array is not None}
    try:
        with replaced(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **fields)
    except OSError as error:
        raise GraphError(f"could not write `{path}`: {reason(error)}; free the space or choose another file") from error


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    known = ("edge_index", "x", *_SPARSE, *_OPTIONAL)
    try:
        with open_archive(path) as archive:
            for name in archive.names:
                if name not in known and (meant := get_close_matches(name, known, n=1, cutoff=0.8)):
                    logger.warning("%s: field `%s` is not read; did you mean `%s`?", path, name, meant[0])
            return {
                name: archive.read(name, _EDGE_BYTES if name == "edge_index" else 4)
                for name in archive.names
                if name in known
            }
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def _features(fields: dict[str, np.ndarray]) -> np.ndarray | Csr:
    if "x" in fields:
        return fields["x"]
    missing = [name for name in _SPARSE if name not in fields]
    if len(missing) == len(_SPARSE):
        raise GraphError(f"field `x` is missing; store features, [N, D]; {WITHOUT_FEATURES}")
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
    check_width("the number of columns in `x_shape`", int(shape[1]), len(data))
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
