"""Reads graphs in the format of GraphSAINT (flickr, reddit, yelp): two numpy files and two JSON files.

Features are not standardized.
"""

from pathlib import Path
from typing import Any

import numpy as np

from lazygnn.checks import rises
from lazygnn.data.raw import check_finite, check_nodes, unreadable
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.untrusted.arrays import open_archive
from lazygnn.untrusted.budget import check_claim
from lazygnn.untrusted.text import parse_json

_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
_ROLES = ("tr", "va", "te")
_ROWS_AT_ONCE = 4096
# memory for each of several labels while they are checked
_LABEL_BYTES = 8


def read_saint(folder: Path, name: str) -> Graph:
    """Reads `adj_full.npz`, `feats.npy`, `class_map.json` and `role.json`.

    Every stored entry of the adjacency is an edge, whatever its value. A node without an entry in `class_map.json` has
    no label, and `role.json` must not name it.

    Args:
        folder: Folder of the files, or the parent of a folder `raw` with them.
        name: Name of the graph.
    """
    if not any((folder / file).is_file() for file in _FILES):
        folder = folder / "raw"
    adj_full, feats, class_map, role = (folder / file for file in _FILES)
    x = _read_features(feats)
    edges = _read_edges(adj_full, len(x))
    y = _read_labels(class_map, len(x))
    train, val, test = _read_roles(role, y)
    return Graph.from_edges(edges, x, y, train_mask=train, val_mask=val, test_mask=test, name=name)


def _read_features(path: Path) -> np.ndarray:
    try:
        stored = np.lib.format.open_memmap(path, mode="r")
    # a corrupt header can fail in any way, even as `tokenize.TokenError`
    except Exception as error:
        raise unreadable(path, error) from error
    if stored.dtype.kind not in "biuf" or stored.ndim != 2 or 0 in stored.shape:
        raise GraphError(
            f"`{path}` holds {stored.dtype} of shape {stored.shape}, not numbers of shape [num_nodes, num_features]; "
            "download it again"
        )
    # a number too large for float32 becomes infinite, which the next check reports
    with np.errstate(over="ignore"):
        x = stored.astype(np.float32)
    check_finite(path, x)
    return x


def _read_edges(path: Path, num_nodes: int) -> np.ndarray:
    try:
        with open_archive(path) as archive:
            form = archive.read("format").item() if "format" in archive else b"csr"
            for field in ("shape", "indptr", "indices"):
                if field not in archive:
                    raise GraphError(f"it lacks the array `{field}`; write it with `scipy.sparse.save_npz`")
            shape, indptr, indices = (archive.read(field) for field in ("shape", "indptr", "indices"))
    except FileNotFoundError as error:
        raise unreadable(path, error) from error
    except GraphError as error:
        raise GraphError(f"`{path}` cannot be read ({error}); download it again") from None
    if form not in (b"csr", "csr"):
        raise GraphError(f"`{path}` has format {form!r}; convert the matrix with `.tocsr()` and save it again")
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu" or indices.ndim != 1:
        raise GraphError(
            f"`{path}` has indices of type {indices.dtype} and {indptr.dtype}; both must be lists of integers"
        )
    if shape.tolist() != [num_nodes, num_nodes] or indptr.shape != (num_nodes + 1,):
        raise GraphError(
            f"`{path}` has shape {shape.tolist()} and {indptr.size} row pointers, but `feats.npy` has {num_nodes} "
            "rows; take both from the same release"
        )
    indptr = indptr.astype(np.int64)
    if not rises(indptr, len(indices)):
        raise GraphError(f"`{path}` has row pointers that do not rise from 0 to {len(indices)}; download it again")
    check_nodes(path, indices, num_nodes)
    edges = np.empty((2, len(indices)), dtype=np.int32 if num_nodes < 2**31 else np.int64)
    edges[0] = np.repeat(np.arange(num_nodes, dtype=edges.dtype), np.diff(indptr))
    edges[1] = indices
    return edges


def _read_labels(path: Path, num_nodes: int) -> np.ndarray:
    class_map = _read_json(path)
    if not class_map:
        raise GraphError(f"`{path}` is empty; download it again")
    nodes = _to_nodes(path, list(class_map), num_nodes)
    labels = list(class_map.values())
    if isinstance(labels[0], list):
        return _multi_label(path, nodes, labels, num_nodes)
    for node, label in class_map.items():
        if type(label) is not int or not -1 <= label < 2**31:
            raise GraphError(f"`{path}` gives node {node} the class {label!r}; give integers from 0, or -1 for unknown")
    y = np.full(num_nodes, -1, dtype=np.int64)
    y[nodes] = labels
    return y


def _multi_label(path: Path, nodes: np.ndarray, labels: list[Any], num_nodes: int) -> np.ndarray:
    width = len(labels[0])
    for node, label in zip(nodes, labels, strict=True):
        if not isinstance(label, list) or len(label) != width or not width:
            raise GraphError(
                f"`{path}` does not give node {node} a list of {width} labels, like the first node; download it again"
            )
    remedy = "take it and `feats.npy` from the same release"
    check_claim(f"`{path}`", num_nodes * width * _LABEL_BYTES, path.stat().st_size, remedy)
    y = np.full((num_nodes, width), -1, dtype=np.int8)
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        chunk = slice(start, start + _ROWS_AT_ONCE)
        for node, label in zip(nodes[chunk], labels[chunk], strict=True):
            if label.count(0) + label.count(1) != width:
                wrong = next(value for value in label if value not in (0, 1))
                raise GraphError(f"`{path}` gives node {node} the label {wrong!r}; the entries of a list are 0 or 1")
        y[nodes[chunk]] = labels[chunk]
    return y


def _read_roles(path: Path, y: np.ndarray) -> list[np.ndarray]:
    roles = _read_json(path)
    labeled = y >= 0 if y.ndim == 1 else y[:, 0] >= 0
    taken = np.zeros(len(y), dtype=bool)
    masks = []
    for role in _ROLES:
        if not isinstance(roles.get(role), list):
            raise GraphError(f"`{path}` has no list `{role}`; it must name the nodes of `tr`, `va` and `te`")
        mask = np.zeros(len(y), dtype=bool)
        mask[_to_nodes(path, roles[role], len(y))] = True
        for wrong, why in ((mask & taken, "is in two roles"), (mask & ~labeled, "has no label in `class_map.json`")):
            if wrong.any():
                raise GraphError(f"`{path}` names node {int(wrong.argmax())} in `{role}`, but it {why}; fix the files")
        taken |= mask
        masks.append(mask)
    return masks


def _to_nodes(path: Path, given: list[Any], num_nodes: int) -> np.ndarray:
    """Converts node indices to integers; the keys of a JSON object are strings."""
    nodes = np.empty(len(given), dtype=np.int64)
    for i, node in enumerate(given):
        number = int(node) if isinstance(node, str) and node.isascii() and node.isdigit() and len(node) < 19 else node
        if type(number) is not int or not 0 <= number < num_nodes:
            raise GraphError(f"`{path}` names node {node!r}; nodes go from 0 to {num_nodes - 1}; download it again")
        nodes[i] = number
    return nodes


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not isinstance(content, dict):
        raise GraphError(f"`{path}` holds a JSON `{type(content).__name__}`, not an object; download it again")
    return content
