"""Cuts a graph into parts: by METIS, at random, or along the node order.

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

from lazygnn.errors import ConfigError
from lazygnn.files import replaced
from lazygnn.graph import Graph, check_graph
from lazygnn.ops import Adjacency, row_chunks

logger = logging.getLogger(__name__)

PartitionMethod = Literal["metis", "random", "contiguous"]
_FORMAT_VERSION = 1
# one bit of a word stands for one part
_WORD = 64
_MAX_DESCRIBED = 8 * _WORD
# measured on graphs of 12 to 126 million entries, with 64-bit indices
_METIS_BYTES = 120
_OTHERWISE = 'choose `partition = "random"` or `partition = "contiguous"`'


@dataclass(frozen=True, eq=False)
class Partition:
    """Every node in exactly one part; no part is empty, and within a part the ids rise."""

    order: Tensor  # [N] int64: node ids part by part; new position -> old id, as `Graph.permute` takes it
    ptr: Tensor  # [P + 1] int64: part p is order[ptr[p]:ptr[p + 1]]

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return len(self.ptr) - 1

    def part_of(self) -> Tensor:
        """The part of every node, [N], by old id."""
        part = torch.empty_like(self.order)
        part[self.order] = torch.repeat_interleave(self.ptr.diff())
        return part

    def edge_cut(self, adj: Adjacency) -> float:
        """Share of the undirected edges whose ends lie in different parts; `adj` is in the old order."""
        part, cut = self.part_of().int(), 0
        for rows, rowptr, cols in _row_blocks(adj):
            cut += int((torch.repeat_interleave(part[rows], rowptr.diff()) != part[cols]).sum())
        num_edges = len(adj.col) - adj.num_rows
        return cut / num_edges if num_edges else 0.0


@dataclass(frozen=True)
class PartitionSummary:
    """How a partition suits training part by part.

    Halos are sets of nodes around a part, counted relative to the nodes of the part. With more than 512 parts they are
    those of 512 parts, evenly spaced.
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
    """Cuts a graph into parts; the same seed gives the same parts.

    Args:
        graph: The graph; weights of edges play no role.
        num_parts: Number of parts, from 1 to the number of nodes.
        method: `metis` keeps neighbours together, in parts of about equal size; `random` draws parts of equal size;
            `contiguous` slices the node order, along the parts a prepared graph was sorted by where their number is
            the same, or else evenly.
        seed: Seed of `metis` and `random`.
        cache: Folder in which what METIS found is kept for the next time; `default_cache()` names the usual one.
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
        sorted_by = graph.part_ptr is not None and len(graph.part_ptr) == num_parts + 1
        ptr = graph.part_ptr if sorted_by else equal_slices(graph.num_nodes, num_parts)
        assert ptr is not None
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
    """The folder named by the environment variable `LAZYGNN_CACHE`, or else `~/.cache/lazygnn`."""
    named = os.environ.get("LAZYGNN_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "lazygnn"


def equal_slices(num_nodes: int, num_parts: int) -> Tensor:
    """Where equal slices of the node order begin and end, [P + 1]; their sizes differ by one at most."""
    return torch.arange(num_parts + 1) * num_nodes // num_parts


def describe(graph: Graph, partition: Partition, num_layers: int) -> PartitionSummary:
    """Counts what a partition costs: edges cut, and how many nodes lie within one and `num_layers` hops of a part.

    Args:
        graph: As it was cut, not yet permuted.
        partition: Its parts.
        num_layers: Hops of the deeper halo.
    """
    if num_layers < 0:
        raise ValueError(f"`num_layers` must not be negative, got {num_layers}")
    sizes = partition.ptr.diff()
    chosen = equal_slices(partition.num_parts, min(partition.num_parts, _MAX_DESCRIBED))[:-1]
    near, deep = [], []
    for parts in chosen.split(_WORD):
        halos = _halos(graph.adj, partition, parts.tolist(), max(num_layers, 1))
        near.append(halos[1])
        deep.append(halos[num_layers])
    one_hop = np.concatenate(near)
    return PartitionSummary(
        num_parts=partition.num_parts,
        smallest_part=int(sizes.min()),
        largest_part=int(sizes.max()),
        edge_cut=partition.edge_cut(graph.adj),
        mean_halo=float(one_hop.mean()),
        max_halo=float(one_hop.max()),
        num_layers=num_layers,
        mean_deep_halo=float(np.concatenate(deep).mean()),
    )


def _halos(adj: Adjacency, partition: Partition, parts: list[int], num_hops: int) -> list[np.ndarray]:
    """Size of the halo after 0, 1, ... hops relative to the part, for up to 64 parts at a time.

    Bit `i` of a node's word says that part `parts[i]` reaches the node; a hop is the union over its neighbours.
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
        # no row is empty, each has its self-loop
        union[rows] = np.bitwise_or.reduceat(words[cols.numpy()], rowptr[:-1].numpy())
    return union


def _row_blocks(adj: Adjacency) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Goes through a matrix a few million entries at a time: rows, row pointers from 0, columns."""
    rowptr = adj.rowptr.cpu().long()
    for start, stop in row_chunks(rowptr):
        first, last = int(rowptr[start]), int(rowptr[stop])
        yield slice(start, stop), rowptr[start : stop + 1] - first, adj.col[first:last].cpu()


def _from_parts(part: Tensor, num_parts: int) -> Partition:
    ptr = torch.zeros(num_parts + 1, dtype=torch.long)
    torch.cumsum(torch.bincount(part, minlength=num_parts), 0, out=ptr[1:])
    return Partition(torch.argsort(part, stable=True), ptr)


def _random_parts(num_nodes: int, num_parts: int, seed: int) -> Tensor:
    shuffled = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    part = torch.empty_like(shuffled)
    part[shuffled] = torch.repeat_interleave(equal_slices(num_nodes, num_parts).diff())
    return part


def _metis_parts(adj: Adjacency, num_parts: int, seed: int) -> Tensor:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            "cutting a graph with METIS needs `pymetis`; install it with `pip install 'pymetis>=2025.2'`, or "
            f"{_OTHERWISE}, which need nothing"
        ) from error
    # METIS wants a symmetric pattern without self-loops; that of a graph is symmetric by construction
    neighbors = pymetis.CSRAdjacency(*_without_loops(adj, pymetis.zero_copy_dtype()))
    try:
        found = pymetis.part_graph(num_parts, neighbors, options=pymetis.Options(seed=seed % 2**31))
    except (MemoryError, RuntimeError) as error:
        size = len(adj.col) * _METIS_BYTES / 1e9
        raise ConfigError(
            f"METIS could not cut the graph into {num_parts} parts ({error}); it takes about {size:.1f} GB of memory "
            f"for {len(adj.col)} entries: free as much, or {_OTHERWISE}"
        ) from error
    part = torch.from_numpy(np.array(found.vertex_part, dtype=np.int64))
    return _fill_empty(part, num_parts)


def _without_loops(adj: Adjacency, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    if len(adj.col) > np.iinfo(dtype).max:
        raise ConfigError(
            f"the graph has {len(adj.col)} entries, too many for this build of METIS ({dtype} indices); {_OTHERWISE}"
        )
    rowptr, col = np.zeros(adj.num_rows + 1, dtype=dtype), np.empty(len(adj.col), dtype=dtype)
    end = 0
    for rows, local, cols in _row_blocks(adj):
        row = torch.repeat_interleave(local.diff())
        others = cols != row + rows.start
        kept = cols[others].numpy()
        rowptr[rows.start + 1 : rows.stop + 1] = torch.bincount(row[others], minlength=len(local) - 1).numpy()
        col[end : end + len(kept)] = kept
        end += len(kept)
    return rowptr.cumsum(dtype=dtype), col[:end]


def _fill_empty(part: Tensor, num_parts: int) -> Tensor:
    """Gives every part without a node the last node of a part that is then the largest."""
    sizes = torch.bincount(part, minlength=num_parts).numpy()
    empty = np.flatnonzero(sizes == 0).tolist()
    if not empty:
        return part
    found = _from_parts(part, num_parts)
    for to in empty:
        largest = int(sizes.argmax())
        sizes[largest] -= 1
        sizes[to] = 1
        part[found.order[found.ptr[largest] + sizes[largest]]] = to
    return part


def _cache_key(adj: Adjacency, method: str, num_parts: int, seed: int) -> str:
    digest = hashlib.blake2b(f"{_FORMAT_VERSION} {method} {num_parts} {seed}".encode(), digest_size=16)
    for array in (adj.rowptr, adj.col):
        digest.update(array.cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _read(file: Path, num_nodes: int, num_parts: int) -> Partition | None:
    """What an earlier call has stored; `None` if there is nothing that can be used."""
    if not file.is_file():
        return None
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            order, ptr = arrays["order"], arrays["ptr"]
        _check(order, ptr, num_nodes, num_parts)
    # a broken archive can fail in any of the layers below (zip, zlib, numpy's header parser)
    except Exception as error:
        logger.warning("partition file `%s` cannot be used (%s): the graph is cut again", file, error)
        return None
    return Partition(torch.from_numpy(order), torch.from_numpy(ptr))


def _check(order: np.ndarray, ptr: np.ndarray, num_nodes: int, num_parts: int) -> None:
    if order.dtype != np.int64 or ptr.dtype != np.int64 or order.shape != (num_nodes,) or ptr.shape != (num_parts + 1,):
        raise ValueError(f"arrays of shape {order.shape} and {ptr.shape}, of type {order.dtype} and {ptr.dtype}")
    if ptr[0] != 0 or ptr[-1] != num_nodes or (np.diff(ptr) < 1).any():
        raise ValueError(f"parts that do not rise from 0 to {num_nodes}")
    if (np.sort(order) != np.arange(num_nodes)).any():
        raise ValueError("an order that does not name every node once")


def _write(file: Path, found: Partition) -> None:
    try:
        with replaced(file) as unfinished, unfinished.open("wb") as stream:
            np.savez(stream, order=found.order.numpy(), ptr=found.ptr.numpy())
    except OSError as error:
        logger.warning("the partition cannot be kept in `%s` (%s): it will be worked out again", file.parent, error)
