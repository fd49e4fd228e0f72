"""What a partition costs in training: cut edges and halos.

`N` nodes, `P` parts.
"""

from dataclasses import dataclass

import numpy as np

from lazygnn.graph import Graph
from lazygnn.ops import Adjacency
from lazygnn.partitioning.base import Partition, equal_slices, row_blocks

# one bit of a word represents one part
_WORD = 64
_MAX_DESCRIBED = 8 * _WORD


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
    for rows, rowptr, cols in row_blocks(adj):
        # no row is empty, since each has a self-loop
        union[rows] = np.bitwise_or.reduceat(words[cols.numpy()], rowptr[:-1].numpy())
    return union
