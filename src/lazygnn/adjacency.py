"""Makes the symmetrically normalized adjacency of a graph from its edges, in little more memory than it takes."""

import logging

import torch
from torch import Tensor

from lazygnn.errors import GraphError
from lazygnn.ops import Adjacency, index_dtype

# `without_warnings` silences it
logger = logging.getLogger("lazygnn.graph")

_ENTRIES_AT_ONCE = 1 << 18


def normalized_adjacency(edges: Tensor, weight: Tensor | None, num_nodes: int) -> tuple[Adjacency, Tensor]:
    """Computes `D^-1/2 (A + I) D^-1/2` and the degrees; mirrors directed edges and adds missing self-loops."""
    # an entry in row `i` and column `j` has the key `i * num_nodes + j`
    key, value = _symmetric(edges, num_nodes) if weight is None else _symmetric_weighted(edges, weight, num_nodes)
    rowptr = torch.searchsorted(key, torch.arange(num_nodes + 1) * num_nodes)
    degree = rowptr.diff().double() if value is None else _weighted_degree(key, value, num_nodes)
    _check_degree(degree)
    # a node of degree zero has a row of zeros
    scale = degree.rsqrt().nan_to_num(posinf=0.0)
    index = index_dtype(len(key), num_nodes)
    col, normalized = torch.empty(len(key), dtype=index), torch.empty(len(key))
    for start in range(0, len(key), _ENTRIES_AT_ONCE):
        at = slice(start, start + _ENTRIES_AT_ONCE)
        row = key[at] // num_nodes
        one = key[at] - row * num_nodes
        col[at] = one
        normalized[at] = (scale[row] * scale[one] if value is None else scale[row] * value[at] * scale[one]).float()
    return Adjacency(rowptr.to(index), col, normalized, num_nodes), degree.float()


def _symmetric(edges: Tensor, num_nodes: int) -> tuple[Tensor, None]:
    """Returns the keys of the edges in both directions and of all self-loops, sorted, each once."""
    key = _keys(edges, num_nodes)
    count, loops = _distinct(key), 0
    both = torch.empty(2 * count + num_nodes, dtype=key.dtype)
    both[:count] = key[:count]
    for start in range(0, count, _ENTRIES_AT_ONCE):
        one = key[start : min(start + _ENTRIES_AT_ONCE, count)]
        both[count + start : count + start + len(one)] = one % num_nodes * num_nodes + one // num_nodes
        loops += int((one % (num_nodes + 1) == 0).sum())
    # memory that the next sort and the result need
    del key
    both[2 * count :] = torch.arange(num_nodes) * (num_nodes + 1)
    found = _distinct(both)
    # what was not given is a self-loop, or the mirror image of an edge without one
    _tell_of_directions(found - count - (num_nodes - loops), count, 0)
    return both[:found], None


def _keys(edges: Tensor, num_nodes: int) -> Tensor:
    key = torch.empty(edges.shape[1], dtype=torch.int64)
    for start in range(0, len(key), _ENTRIES_AT_ONCE):
        row, col = edges[:, start : start + _ENTRIES_AT_ONCE].long()
        key[start : start + _ENTRIES_AT_ONCE] = row * num_nodes + col
    return key


def _symmetric_weighted(edges: Tensor, weight: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Returns the keys likewise, and the largest weight of each."""
    key, value = _largest(_keys(edges, num_nodes), weight.to(torch.float64))
    mirrored = key % num_nodes * num_nodes + key // num_nodes
    back = torch.searchsorted(key, mirrored).clamp(max=len(key) - 1)
    undirected = key[back] == mirrored
    uneven = undirected & (value[back] != value)
    if not bool(undirected.all()) or bool(uneven.any()):
        _tell_of_directions(int((~undirected).sum()), len(key), int(uneven.sum()) // 2)
        key, value = _largest(torch.cat((key, mirrored)), torch.cat((value, value)))
    return _with_loops(key, value, num_nodes)


def _with_loops(key: Tensor, value: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Adds a self-loop of weight 1 to every node without one."""
    missing = torch.ones(num_nodes, dtype=torch.bool)
    missing[key[key % (num_nodes + 1) == 0] // (num_nodes + 1)] = False
    loops = missing.nonzero()[:, 0] * (num_nodes + 1)
    key, order = torch.cat((key, loops)).sort()
    return key, torch.cat((value, torch.ones(len(loops), dtype=torch.float64)))[order]


def _distinct(key: Tensor) -> int:
    """Sorts keys in place, moves each to the front once, and returns their number."""
    key.numpy().sort()
    count, last = 0, -1
    for start in range(0, len(key), _ENTRIES_AT_ONCE):
        piece = key[start : start + _ENTRIES_AT_ONCE]
        first = torch.ones(len(piece), dtype=torch.bool)
        torch.ne(piece[1:], piece[:-1], out=first[1:])
        first[0] = int(piece[0]) != last
        last, kept = int(piece[-1]), piece[first]
        key[count : count + len(kept)] = kept
        count += len(kept)
    return count


def _largest(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts the keys and keeps each once, with the largest of its values."""
    unique, inverse = key.unique(return_inverse=True)
    return unique, torch.zeros(len(unique), dtype=value.dtype).scatter_reduce_(0, inverse, value, "amax")


def _weighted_degree(key: Tensor, value: Tensor, num_nodes: int) -> Tensor:
    return torch.zeros(num_nodes, dtype=torch.float64).index_add_(0, key // num_nodes, value)


def _check_degree(degree: Tensor) -> None:
    """Refuses degrees that cannot be divided by."""
    largest = float(degree.max())
    if not largest <= torch.finfo(torch.float32).max:
        raise GraphError(
            f"`edge_weight` sums to {largest:.3g} at node {int(degree.argmax())}, more than float32 can hold; "
            "scale the weights down"
        )
    if largest == 0:
        raise GraphError("`edge_weight` is 0 for all edges and self-loops; give some of them a weight")


def _tell_of_directions(directed: int, num_edges: int, uneven: int) -> None:
    if directed:
        logger.info("made %s of %s edges undirected", f"{directed:,}", f"{num_edges:,}")
    if uneven:
        logger.warning(
            f"took the larger of two weights for {uneven:,} of the edges; to silence this, give both directions equal "
            "weights, or call `logging.getLogger('lazygnn').setLevel('ERROR')`"
        )
