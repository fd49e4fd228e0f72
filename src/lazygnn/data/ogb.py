"""Reads node-classification graphs in the CSV layout of OGB (ogbn-arxiv, ogbn-products), block by block.

Arrow parses the files if it is installed, numpy if not, with equal results.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from lazygnn.data.raw import check_finite, check_nodes, unreadable
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.untrusted.budget import check_claim

_SPLITS = ("time", "sales_ranking")
_SPLIT_FILES = ("train", "valid", "test")
_BLOCK_BYTES = 4 << 20
_MAX_LINE = 4 << 20
_FREE_EDGES = 1 << 20


def read_ogb(folder: Path, name: str) -> Graph:
    """Reads `raw/*.csv.gz` and `split/<time|sales_ranking>/*.csv.gz`, or the same files without `.gz`.

    A label `nan` becomes -1, and its node is left out of the splits, as in OGB's evaluation.

    Args:
        folder: Folder with the subfolders `raw` and `split`.
        name: Name of the graph.
    """
    raw = folder / "raw"
    num_nodes = _read_count(raw, "num-node-list")
    x = _read_features(raw, num_nodes)
    edges = _read_edges(raw, num_nodes)
    y = _read_labels(raw, num_nodes)
    train, val, test = _read_masks(folder / "split", y)
    return Graph.from_edges(edges, x, y, train_mask=train, val_mask=val, test_mask=test, name=name)


def _read_count(folder: Path, stem: str) -> int:
    path = _find(folder, stem)
    counts = np.concatenate([*_blocks(path, np.int64, 1, most=2), np.empty((0, 1), dtype=np.int64)])[:, 0]
    if len(counts) != 1 or not 0 < counts[0] < 2**31:
        raise GraphError(f"`{path}` holds {counts[:3].tolist()}; it must hold one positive number, for the one graph")
    return int(counts[0])


def _read_features(folder: Path, num_nodes: int) -> np.ndarray:
    path = _find(folder, "node-feat")
    width = _count_columns(path)
    check_claim(f"`{path}`", 4 * num_nodes * width, path.stat().st_size, "download the data set again")
    x = np.empty((num_nodes, width), dtype=np.float32)
    done = 0
    for block in _blocks(path, np.float64, width, most=num_nodes):
        with np.errstate(over="ignore"):
            x[done : done + len(block)] = block
        done += len(block)
    _check_length(path, done, num_nodes)
    check_finite(path, x)
    return x


def _read_edges(folder: Path, num_nodes: int) -> np.ndarray:
    path = _find(folder, "edge")
    blocks = [np.empty((0, 2), dtype=np.int32)]
    # a line of a packed file takes more than three bytes; a graph takes about fifty for it
    for block in _blocks(path, np.int64, 2, most=path.stat().st_size * 5 // 16 + _FREE_EDGES):
        check_nodes(path, block, num_nodes)
        blocks.append(block.astype(np.int32))
    edges = np.concatenate(blocks).T
    if any((folder / f"num-edge-list.csv{ending}").is_file() for ending in ("", ".gz")):
        _check_length(path, edges.shape[1], _read_count(folder, "num-edge-list"))
    return edges


def _read_labels(folder: Path, num_nodes: int) -> np.ndarray:
    path = _find(folder, "node-label")
    columns = _count_columns(path)
    if columns != 1:
        raise GraphError(f"`{path}` has {columns} columns; OGB files must have one class per node")
    label = np.concatenate([*_blocks(path, np.float64, 1, most=num_nodes)])[:, 0]
    _check_length(path, len(label), num_nodes)
    y = np.where(np.isnan(label), -1, label)
    wrong = (y != np.floor(y)) | (y < -1) | (y >= 2**31)
    if wrong.any():
        row = int(wrong.argmax())
        raise GraphError(f"`{path}` has label {y[row]} in row {row}; labels are integers from 0, or `nan` for unknown")
    return y.astype(np.int64)


def _read_masks(folder: Path, y: np.ndarray) -> list[np.ndarray]:
    found = [split for split in _SPLITS if (folder / split).is_dir()]
    if len(found) != 1:
        raise GraphError(f"`{folder}` has {found or 'no split'}; it must have one folder of: {', '.join(_SPLITS)}")
    taken = np.zeros(len(y), dtype=bool)
    masks = []
    for stem in _SPLIT_FILES:
        path = _find(folder / found[0], stem)
        mask = np.zeros(len(y), dtype=bool)
        for block in _blocks(path, np.int64, 1, most=len(y)):
            check_nodes(path, block, len(y))
            mask[block[:, 0]] = True
        if (mask & taken).any():
            node = int((mask & taken).argmax())
            raise GraphError(f"`{path}` names node {node}, which is in another split too; download the data set again")
        taken |= mask
        masks.append(mask & (y >= 0))
    return masks


def _check_length(path: Path, found: int, expected: int) -> None:
    if found != expected:
        raise GraphError(f"`{path}` has {found} rows, {expected} were expected; download the data set again")


def _find(folder: Path, stem: str) -> Path:
    for ending in (".csv.gz", ".csv"):
        if (folder / f"{stem}{ending}").is_file():
            return folder / f"{stem}{ending}"
    raise unreadable(folder / f"{stem}.csv.gz", FileNotFoundError())


def _open(path: Path) -> gzip.GzipFile | io.BufferedReader:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _count_columns(path: Path) -> int:
    try:
        with _open(path) as file:
            line = file.readline(_MAX_LINE)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error
    if not line.strip():
        raise GraphError(f"`{path}` is empty; download the data set again")
    if len(line) == _MAX_LINE:
        raise unreadable(path, _long_line())
    return line.count(b",") + 1


def _blocks(path: Path, dtype: type[np.int64] | type[np.float64], columns: int, most: int) -> Iterator[np.ndarray]:
    """Yields the rows of a CSV file of numbers in blocks, [rows, columns]; more than `most` rows are an error."""
    parse = _numpy_parse if find_spec("pyarrow") is None else _arrow_parse
    done = 0
    try:
        for lines in _lines(path):
            block = parse(lines, dtype, columns)
            done += len(block)
            if done > most:
                raise GraphError(f"`{path}` has more than {most} rows; download the data set again")
            yield block
    except GraphError:
        raise
    # the errors of Arrow have these types too
    except (OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        raise unreadable(path, error) from error


def _lines(path: Path) -> Iterator[bytes]:
    """Yields the content of a file in blocks of whole lines."""
    with _open(path) as file:
        rest = b""
        while chunk := file.read(_BLOCK_BYTES):
            lines, _, rest = (rest + chunk).rpartition(b"\n")
            if len(rest) > _MAX_LINE:
                raise _long_line()
            if lines and not lines.isspace():
                yield lines
        if rest and not rest.isspace():
            yield rest


def _long_line() -> ValueError:
    return ValueError(f"a line has more than {_MAX_LINE} bytes")


def _arrow_parse(lines: bytes, dtype: type[np.int64] | type[np.float64], columns: int) -> np.ndarray:
    import pyarrow
    from pyarrow import csv

    names = [str(i) for i in range(columns)]
    types = dict.fromkeys(names, pyarrow.from_numpy_dtype(dtype))
    table = csv.read_csv(
        pyarrow.BufferReader(lines),
        read_options=csv.ReadOptions(column_names=names),
        parse_options=csv.ParseOptions(quote_char=False),
        convert_options=csv.ConvertOptions(column_types=types, null_values=[]),
    )
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def _numpy_parse(lines: bytes, dtype: type[np.int64] | type[np.float64], columns: int) -> np.ndarray:
    block = np.loadtxt(io.BytesIO(lines), dtype=dtype, delimiter=",", comments=None, ndmin=2, encoding="ascii")
    if block.shape[1] != columns:
        raise ValueError(f"{block.shape[1]} columns, {columns} were expected")
    return block
