"""The share of a rank in a graph: the rows of its parts, read from a memory-mapped folder.

`N` nodes of the graph, `P` parts, `R` ranks, `T` nodes of a part, `H` around it, `E` stored entries of its rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lazygnn.data.folder import map_folder, read_entries
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.matrix import Part, ShardedMatrix
from lazygnn.distributed.plan import make_plan
from lazygnn.distributed.traffic import Traffic
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph, select_rows
from lazygnn.ops import Csr, index_dtype, to_tensor

# entries of the adjacency that are read at a time
_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class LocalGraph(Graph):
    """The nodes of one rank. Numbers of nodes of a split are those of the whole graph, so that losses add up.

    Attributes:
        adj: A `ShardedMatrix`.
        whole: The whole graph, mapped into memory and not read.
    """

    whole: Graph | None = None

    def count(self, split: str) -> int:
        """Returns the number of nodes of a split over all ranks."""
        assert self.whole is not None
        return self.whole.count(split)

    def training_labels(self) -> Tensor:
        """Returns the labels of the training nodes of all ranks."""
        assert self.whole is not None
        return self.whole.training_labels()


@dataclass(frozen=True, eq=False)
class Shard:
    """The share of one rank.

    Attributes:
        graph: Its nodes.
        bounds: Rank `r` owns the nodes `bounds[r]` to `bounds[r + 1]`, [R + 1].
        halo: The nodes around its parts, in rising order; also those of another part of the same rank.
        num_parts: The number of parts of all ranks.
        traffic: Counts what this rank sends.
    """

    graph: LocalGraph
    bounds: Sequence[int]
    halo: Tensor
    num_parts: int
    traffic: Traffic

    @property
    def matrix(self) -> ShardedMatrix:
        """Returns the matrix of this rank."""
        assert isinstance(self.graph.adj, ShardedMatrix)
        return self.graph.adj

    def halo_features(self) -> Tensor | Csr:
        """Reads the features of the nodes around the parts."""
        assert self.graph.whole is not None
        return select_rows(self.graph.whole.x, self.halo.long())


def open_shard(folder: Path, ranks: Ranks, *, ptr: Tensor | None = None, with_edges: bool = True) -> Shard:
    """Reads the rows of this rank; every rank calls this function.

    Args:
        folder: A graph sorted by its partition, as `lazygnn prepare --out` writes it.
        ptr: Bounds of the parts, [P + 1]; those of the folder by default.
        ranks: All ranks; a rank owns a run of consecutive parts.
        with_edges: Whether edges are needed; an MLP needs none.

    Raises:
        ConfigError: There are more ranks than parts.
        GraphError: The folder is not sorted by a partition.
    """
    whole = map_folder(folder)
    found = whole.part_ptr if ptr is None else ptr
    if found is None:
        raise GraphError(
            f"`{folder}` is not sorted by a partition; write it with `lazygnn prepare GRAPH --out {folder}`"
        )
    bounds_of_parts = found.tolist()
    num_parts = len(bounds_of_parts) - 1
    if ranks.size > num_parts:
        raise ConfigError(
            f"{ranks.size} ranks share {num_parts} parts, and a rank needs one at least; start at most {num_parts}, "
            f"or prepare the graph with `num_parts={ranks.size}` or more"
        )
    first_parts = [rank * num_parts // ranks.size for rank in range(ranks.size + 1)]
    bounds = [bounds_of_parts[part] for part in first_parts]
    own = range(first_parts[ranks.rank], first_parts[ranks.rank + 1])
    first_row, last_row = bounds[ranks.rank], bounds[ranks.rank + 1]
    cut = [
        _read_part(folder, whole, bounds_of_parts[p], bounds_of_parts[p + 1])
        if with_edges
        else _edgeless(whole, bounds_of_parts[p + 1] - bounds_of_parts[p])
        for p in own
    ]
    halo = torch.cat([around for _, around in cut]).unique()
    small = index_dtype(len(halo)) == torch.int32
    parts = [
        Part(
            p,
            bounds_of_parts[p] - first_row,
            bounds_of_parts[p + 1] - first_row,
            adj,
            torch.searchsorted(halo, around, out_int32=small),
        )
        for p, (adj, around) in zip(own, cut, strict=True)
    ]
    del cut
    traffic = Traffic()
    empty = whole.adj.rowptr[:0]
    adj = ShardedMatrix(
        rowptr=empty,
        col=empty,
        value=whole.adj.value[:0].clone(),
        num_cols=whole.num_nodes,
        parts=parts,
        num_slots=len(halo),
        first_row=first_row,
        plan=make_plan(ranks, bounds, halo, torch.arange(len(halo))),
        ranks=ranks,
        traffic=traffic,
    )
    rows = slice(first_row, last_row)
    graph = LocalGraph(
        x=whole.x[rows] if isinstance(whole.x, Tensor) else whole.x.select(torch.arange(first_row, last_row)),
        y=whole.y[rows],
        adj=adj,
        degree=whole.degree[rows],
        task=whole.task,
        masks={split: mask[rows] for split, mask in whole.masks.items()},
        node_ids=None if whole.node_ids is None else whole.node_ids[rows],
        class_names=whole.class_names,
        name=whole.name,
        whole=whole,
    )
    return Shard(graph, bounds, halo, num_parts, traffic)


def _read_part(folder: Path, whole: Graph, start: int, stop: int) -> tuple[Csr, Tensor]:
    """Returns the rows of a part with local columns, [T, T + H], and the nodes around it in rising order, [H]."""
    rowptr = whole.adj.rowptr[start : stop + 1].long()
    first, last, size = int(rowptr[0]), int(rowptr[-1]), stop - start
    index = index_dtype(last - first, whole.num_nodes)
    col = torch.empty(last - first, dtype=index)
    around = torch.empty(0, dtype=torch.int64)
    for _, block in _columns(folder, first, last):
        outside = block[(block < start) | (block >= stop)]
        around = torch.cat((around, outside.long())).unique()
    for at, block in _columns(folder, first, last):
        inside = (block >= start) & (block < stop)
        local = torch.searchsorted(around, block.long()).add_(size)
        col[at : at + len(block)] = torch.where(inside, block - start, local.to(block.dtype))
    value = whole.adj.value[first:last]
    return Csr((rowptr - first).to(index), col, value, size + len(around)), around


def _columns(folder: Path, first: int, last: int) -> Iterator[tuple[int, Tensor]]:
    for start in range(first, last, _ENTRIES):
        yield start - first, to_tensor(read_entries(folder, "col", start, min(start + _ENTRIES, last)))


def _edgeless(whole: Graph, size: int) -> tuple[Csr, Tensor]:
    empty = torch.empty(0, dtype=torch.int32)
    rowptr = torch.zeros(size + 1, dtype=torch.int32)
    return Csr(rowptr, empty, whole.adj.value[:0], size), torch.empty(0, dtype=torch.int64)
