"""Divides the nodes of a graph into parts: with METIS, at random, or along the node order.

`N` nodes, `E` stored entries of the adjacency, `P` parts.
"""

import hashlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from lazygnn.checks import rises
from lazygnn.errors import ConfigError
from lazygnn.files import replaced
from lazygnn.graph import Graph, check_graph, is_permutation
from lazygnn.ops import Adjacency, row_chunks
from lazygnn.untrusted.arrays import open_archive

logger = logging.getLogger(__name__)

PartitionMethod = Literal["metis", "random", "contiguous"]
_FORMAT_VERSION = 1
# one bit of a word represents one part
_WORD = 64
_MAX_DESCRIBED = 8 * _WORD
# per entry, measured on graphs of 12 to 126 million entries with 64-bit indices
_METIS_BYTES = 120
_OTHERWISE = 'choose `partition = "random"` or `partition = "contiguous"`'


@dataclass(frozen=True, eq=False)
class Partition:
    """Assigns every node to one part; no part is empty, and the nodes of a part are in rising order."""

    order: Tensor  # [N] int64: nodes part by part, the argument of `Graph.permute`
    ptr: Tensor  # [P + 1] int64: part p is order[ptr[p]:ptr[p + 1]]

    @property
    def num_parts(self) -> int:
        """Returns the number of parts."""
        return len(self.ptr) - 1

    def part_of(self) -> Tensor:
        """Returns the part of every node before the permutation, [N]."""
        part_of = torch.empty_like(self.order)
        part_of[self.order] = torch.repeat_interleave(self.ptr.diff())
        return part_of

    def edge_cut(self, adj: Adjacency) -> float:
        """Returns the share of undirected edges between different parts; `adj` is not permuted."""
        part_of, cut = self.part_of().int(), 0
        for rows, rowptr, cols in _row_blocks(adj):
            cut += int((torch.repeat_interleave(part_of[rows], rowptr.diff()) != part_of[cols]).sum())
        num_edges = len(adj.col) - adj.num_rows
        return cut / num_edges if num_edges else 0.0


@dataclass(frozen=True)
class PartitionSummary:
    """What a partition costs in training.

    The halo of a part is the set of nodes within some hops of it. Its size is relative to the size of the part. With
    more than 512 parts, the halos are those of 512 evenly spaced parts.
    """

    num_parts: int
    smallest_part: int
    largest_part: int
    edge_cut: float  # share of the undirected edges
    mean_halo: float  # one hop
    max_halo: float  # one hop
    num_layers: int
    mean_deep_halo: float  # `num_layers` hops


def partition(
    graph: Graph,
    num_parts: int,
    *,
    method: PartitionMethod = "metis",
    seed: int = 0,
    cache: Path | None = None,
) -> Partition:
    """Divides the nodes of a graph into parts; the same seed gives the same parts.

    Args:
        graph: The graph; weights of edges are ignored.
        num_parts: Number of parts, from 1 to the number of nodes.
        method: `metis` keeps neighbors together, in parts of about equal size. `random` draws parts of equal size.
            `contiguous` slices the node order: into the parts of a prepared graph if their number is the same, and
            otherwise evenly.
        seed: Seed of `metis` and `random`.
        cache: Folder that caches the results of METIS, such as `default_cache()`.

    Examples:
        >>> from lazygnn import partition
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> parts = partition(graph, 3)
        >>> len(parts.order), len(parts.ptr)
        (300, 4)
    """
    check_graph(graph)
    if method not in get_args(PartitionMethod):
        raise ConfigError(f"`partition` is `{method}`; choose one of: {', '.join(get_args(PartitionMethod))}")
    if not 1 <= num_parts <= graph.num_nodes:
        raise ConfigError(
            f"`num_parts` is {num_parts}, but graph `{graph.name}` has {graph.num_nodes} nodes; "
            f"choose from 1 to {graph.num_nodes}"
        )
    if num_parts == 1 or method == "contiguous":
        ptr = graph.part_ptr
        if ptr is None or len(ptr) != num_parts + 1:
            ptr = equal_slices(graph.num_nodes, num_parts)
        return Partition(torch.arange(graph.num_nodes), ptr)
    if method == "random":
        return _from_parts(_random_parts(graph.num_nodes, num_parts, seed), num_parts)
    if cache is None:
        return _from_parts(_metis_parts(graph.adj, num_parts, seed), num_parts)
    file = cache / f"partition-{_cache_key(graph.adj, method, num_parts, seed)}.npz"
    found = _read(file, graph.num_nodes, num_parts)
    if found is None:
        found = _from_parts(_metis_parts(graph.adj, num_parts, seed), num_parts)
        _write(file, found)
    return found


def default_cache() -> Path:
    """Returns the folder in the environment variable `LAZYGNN_CACHE`, or `~/.cache/lazygnn`."""
    folder = os.environ.get("LAZYGNN_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "lazygnn"


def equal_slices(num_nodes: int, num_parts: int) -> Tensor:
    """Returns the bounds of equal slices of the node order, [P + 1]; their sizes differ by at most one."""
    return torch.arange(num_parts + 1) * num_nodes // num_parts


def describe(graph: Graph, partition: Partition, num_layers: int) -> PartitionSummary:
    """Measures a partition: the edges cut, and the halos of one and of `num_layers` hops.

    Args:
        graph: The graph before it is permuted.
        partition: Its parts.
        num_layers: Hops of the deeper halo.
    """
    if num_layers < 0:
        raise ValueError(f"`num_layers` must not be negative, got {num_layers}")
    sizes = partition.ptr.diff()
    chosen = equal_slices(partition.num_parts, min(partition.num_parts, _MAX_DESCRIBED))[:-1]
    one_hop, deep = [], []
    for parts in chosen.split(_WORD):
        halos = _halos(graph.adj, partition, parts.tolist(), max(num_layers, 1))
        one_hop.append(halos[1])
        deep.append(halos[num_layers])
    return PartitionSummary(
        num_parts=partition.num_parts,
        smallest_part=int(sizes.min()),
        largest_part=int(sizes.max()),
        edge_cut=partition.edge_cut(graph.adj),
        mean_halo=float(np.concatenate(one_hop).mean()),
        max_halo=float(np.concatenate(one_hop).max()),
        num_layers=num_layers,
        mean_deep_halo=float(np.concatenate(deep).mean()),
    )


def _halos(adj: Adjacency, partition: Partition, parts: list[int], num_hops: int) -> list[np.ndarray]:
    """Returns the sizes of the halos after 0, 1, ... hops relative to the parts, for at most 64 parts.

    Bit `i` of a node's word is set if part `parts[i]` reaches the node. A hop is the union over its neighbors.
    """
    bounds = partition.ptr.tolist()
    members = [partition.order[bounds[part] : bounds[part + 1]].numpy() for part in parts]
    sizes = np.array([len(nodes) for nodes in members])
    reached = np.zeros(adj.num_rows, dtype=np.uint64)
    for bit, nodes in enumerate(members):
        reached[nodes] = np.uint64(1 << bit)
    halos = [np.zeros(len(parts))]
    for _ in range(num_hops):
        reached = _union_of_neighbors(adj, reached)
        total = [int((reached >> np.uint64(bit) & np.uint64(1)).sum()) for bit in range(len(parts))]
        halos.append((np.array(total) - sizes) / sizes)
    return halos


def _union_of_neighbors(adj: Adjacency, words: np.ndarray) -> np.ndarray:
    union = np.empty_like(words)
    for rows, rowptr, cols in _row_blocks(adj):
        # no row is empty, since each has a self-loop
        union[rows] = np.bitwise_or.reduceat(words[cols.numpy()], rowptr[:-1].numpy())
    return union


def _row_blocks(adj: Adjacency) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yields a matrix a few million entries at a time: rows, row pointers from 0, columns."""
    rowptr = adj.rowptr.cpu().long()
    for start, stop in row_chunks(rowptr):
        first, last = int(rowptr[start]), int(rowptr[stop])
        yield slice(start, stop), rowptr[start : stop + 1] - first, adj.col[first:last].cpu()


def _from_parts(part_of: Tensor, num_parts: int) -> Partition:
    ptr = torch.zeros(num_parts + 1, dtype=torch.long)
    torch.cumsum(torch.bincount(part_of, minlength=num_parts), 0, out=ptr[1:])
    return Partition(torch.argsort(part_of, stable=True), ptr)


def _random_parts(num_nodes: int, num_parts: int, seed: int) -> Tensor:
    shuffled = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    return Partition(shuffled, equal_slices(num_nodes, num_parts)).part_of()


def _metis_parts(adj: Adjacency, num_parts: int, seed: int) -> Tensor:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            "`partition = \"metis\"` needs `pymetis`; install it with `pip install 'pymetis>=2025.2'`, or "
            f"{_OTHERWISE}, which need no package"
        ) from error
    # METIS needs a symmetric pattern without self-loops; the adjacency of a graph is symmetric
    neighbors = pymetis.CSRAdjacency(*_without_loops(adj, pymetis.zero_copy_dtype()))
    try:
        found = pymetis.part_graph(num_parts, neighbors, options=pymetis.Options(seed=seed % 2**31))
    except (MemoryError, RuntimeError) as error:
        size = len(adj.col) * _METIS_BYTES / 1e9
        raise ConfigError(
            f"METIS could not divide the graph into {num_parts} parts ({error}); it needs about {size:.1f} GB of "
            f"memory for {len(adj.col)} entries: free memory, or {_OTHERWISE}"
        ) from error
    return _fill_empty(torch.from_numpy(np.array(found.vertex_part, dtype=np.int64)), num_parts)


def _without_loops(adj: Adjacency, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    if len(adj.col) > np.iinfo(dtype).max:
        raise ConfigError(
            f"the graph has {len(adj.col)} entries, too many for this build of METIS ({dtype} indices); {_OTHERWISE}"
        )
    rowptr, col = np.zeros(adj.num_rows + 1, dtype=dtype), np.empty(len(adj.col), dtype=dtype)
    end = 0
    for rows, block_ptr, cols in _row_blocks(adj):
        row = torch.repeat_interleave(block_ptr.diff())
        others = cols != row + rows.start
        kept = cols[others].numpy()
        rowptr[rows.start + 1 : rows.stop + 1] = torch.bincount(row[others], minlength=len(block_ptr) - 1).numpy()
        col[end : end + len(kept)] = kept
        end += len(kept)
    return rowptr.cumsum(dtype=dtype), col[:end]


def _fill_empty(part_of: Tensor, num_parts: int) -> Tensor:
    """Moves the last node of the largest part to each empty part in turn."""
    sizes = torch.bincount(part_of, minlength=num_parts).numpy()
    empty = np.flatnonzero(sizes == 0).tolist()
    if not empty:
        return part_of
    found = _from_parts(part_of, num_parts)
    for part in empty:
        largest = int(sizes.argmax())
        sizes[largest] -= 1
        sizes[part] = 1
        part_of[found.order[found.ptr[largest] + sizes[largest]]] = part
    return part_of


def _cache_key(adj: Adjacency, method: str, num_parts: int, seed: int) -> str:
    digest = hashlib.blake2b(f"{_FORMAT_VERSION} {method} {num_parts} {seed}".encode(), digest_size=16)
    for array in (adj.rowptr, adj.col):
        digest.update(array.cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _read(file: Path, num_nodes: int, num_parts: int) -> Partition | None:
    """Reads a cached partition; returns `None` if it is missing or corrupt."""
    if not file.is_file():
        return None
    try:
        with open_archive(file) as arrays:
            order, ptr = torch.from_numpy(arrays.read("order")), torch.from_numpy(arrays.read("ptr"))
        _check(order, ptr, num_nodes, num_parts)
    # a corrupt archive can fail in zip, zlib or numpy's header parser
    except Exception as error:
        logger.warning("the cached partition `%s` is corrupt (%s) and is computed again", file, error)
        return None
    return Partition(order, ptr)


def _check(order: Tensor, ptr: Tensor, num_nodes: int, num_parts: int) -> None:
    if order.dtype != torch.int64 or ptr.dtype != torch.int64 or len(ptr) != num_parts + 1:
        raise ValueError(f"{len(ptr) - 1} parts, of type {order.dtype} and {ptr.dtype}")
    if not rises(ptr, num_nodes, by=1):
        raise ValueError(f"parts that do not rise from 0 to {num_nodes}")
    if not is_permutation(order, num_nodes):
        raise ValueError("an order that does not hold every node once")


def _write(file: Path, found: Partition) -> None:
    try:
        with replaced(file) as unfinished, unfinished.open("wb") as stream:
            np.savez(stream, order=found.order.numpy(), ptr=found.ptr.numpy())
    except OSError as error:
        logger.warning("the partition cannot be cached in `%s` (%s)", file.parent, error)
