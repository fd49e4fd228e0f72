"""Random edges between blocks of nodes, drawn on the device: heavy-tailed degrees, groups within the blocks.

`N` nodes, `P` blocks.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lazygnn.ops import Adjacency

_GROUPS = 8
_COHESION = 0.7
_LABEL_NOISE = 0.1
# pairs of hubs are drawn repeatedly; an almost complete graph may remain a few edges short
_ROUNDS = 16


class Blocks:
    """Draws the ends of edges by rank within a block; low ranks have many edges, and rank modulo 8 is the group."""

    def __init__(self, ptr: Tensor, skew: float, generator: torch.Generator) -> None:
        self.ptr, self.skew, self.generator = ptr, skew, generator
        self.size = ptr.diff()  # [P]
        self.block = torch.repeat_interleave(self.size)  # [N]
        # the node at every rank, block by block
        self.nodes = (self.block + self._random(len(self.block)).double()).argsort()  # [N]

    def inside(self, count: int) -> Tensor:
        """Returns edges within blocks, each as one number."""
        block = self._integers(len(self.size), count)
        rank = self._ranks(self.size[block])
        group = rank % _GROUPS
        mate = group + _GROUPS * self._ranks((self.size[block] - group + _GROUPS - 1) // _GROUPS)
        other = torch.where(self._random(count) < _COHESION, mate, self._ranks(self.size[block]))
        return self._key(self.ptr[block] + rank, self.ptr[block] + other)

    def across(self, count: int) -> Tensor:
        """Returns edges between blocks, each as one number."""
        block = self._integers(len(self.size), count)
        other = (block + 1 + self._integers(len(self.size) - 1, count)) % len(self.size)
        return self._key(
            self.ptr[block] + self._ranks(self.size[block]), self.ptr[other] + self._ranks(self.size[other])
        )

    def labels(self, num_classes: int) -> Tensor:
        """Returns the class of every node, [N]; one in ten is random."""
        groups = torch.randperm(len(self.size) * _GROUPS, generator=self.generator, device=self.ptr.device)
        rank = torch.arange(len(self.nodes), device=self.ptr.device) - self.ptr[self.block]
        labels = torch.empty_like(self.nodes)
        labels[self.nodes] = groups[self.block * _GROUPS + rank % _GROUPS] % num_classes
        wrong = self._random(len(labels)) < _LABEL_NOISE
        return torch.where(wrong, self._integers(num_classes, len(labels)), labels)

    def _key(self, position: Tensor, other: Tensor) -> Tensor:
        u, v = self.nodes[position], self.nodes[other]
        return (torch.minimum(u, v) * len(self.nodes) + torch.maximum(u, v))[u != v]

    def _ranks(self, size: Tensor) -> Tensor:
        return torch.minimum((size * self._random(len(size)) ** self.skew).long(), size - 1)

    def _integers(self, end: int, count: int) -> Tensor:
        return torch.randint(end, (count,), generator=self.generator, device=self.ptr.device)

    def _random(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.generator, device=self.ptr.device)


def distinct(wanted: int, draw_edges: Callable[[int], Tensor]) -> Tensor:
    """Draws edges until `wanted` distinct ones are found, or almost as many."""
    key: Tensor = draw_edges(wanted).unique()
    for _ in range(_ROUNDS):
        if len(key) == wanted:
            break
        key = torch.cat((key, draw_edges(wanted - len(key)))).unique()
    return key


def normalized(key: Tensor, num_nodes: int) -> tuple[Adjacency, Tensor]:
    """Returns `D^-1/2 (A + I) D^-1/2` and the degrees, from undirected edges, each given once."""
    loops = torch.arange(num_nodes, device=key.device) * (num_nodes + 1)
    key = torch.cat((key, key % num_nodes * num_nodes + key // num_nodes, loops)).sort().values
    row, col = key // num_nodes, key % num_nodes
    degree = torch.bincount(row, minlength=num_nodes)
    scale = degree.double().rsqrt()
    value = (scale[row] * scale[col]).float()
    return Adjacency.from_sorted(row, col, value, (num_nodes, num_nodes)), degree.float()
