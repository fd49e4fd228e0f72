"""`SaintLoader`: random subgraphs as batches (GraphSAINT).

`N` nodes of the graph, `E` stored entries of its matrix, `V` nodes of a subgraph, `S` subgraphs drawn beforehand.
"""

import math
from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph, select_rows
from lazygnn.loader.draws import column_squares, draw
from lazygnn.loader.local import LocalIndex
from lazygnn.loader.sampled import SampledLoader
from lazygnn.ops import Adjacency, Csr

Sampler = Literal["node", "edge", "walk"]


class Counts(NamedTuple):
    """How often nodes and entries of the matrix were in subgraphs that were drawn beforehand."""

    num_subgraphs: int
    nodes: Tensor  # [N]
    entries: Tensor  # [E]


class SaintLoader(SampledLoader):
    """Batches of the nodes that a sampler draws, with all edges between them; every node is a target.

    Subgraphs drawn before training count how often a node `v` and an edge `(v, u)` are in a subgraph, `C_v` and `C_vu`.
    The entry `(v, u)` of the matrix is multiplied by `C_v / C_vu`, and the loss of `v` by `S / C_v`, so that a sum over
    neighbors and the mean loss have the right expectation. Zeng et al., ICLR 2020, https://arxiv.org/abs/1907.04931.

    This follows the paper. The authors' code differs: it draws nodes in proportion to their degree, multiplies an edge
    that was never counted by 10,000, and first trains on the subgraphs that it counted. Here, a node or an edge that
    was never counted counts as seen once, which is in the batch at hand. Their code trains on the graph of the training
    nodes; here, subgraphs are those of the whole graph, and training nodes alone have a loss.

    Args:
        graph: The graph to sample, on its own device.
        num_layers: Matrices of a batch, which are all the same.
        sampler: `node`: draws nodes with replacement, in proportion to the squared length of their columns.
            `edge`: draws edges with replacement, in proportion to `1 / degree` summed over both ends.
            `walk`: draws roots uniformly with replacement and walks from each to random neighbors.
        num_samples: Nodes, edges or roots drawn for a batch.
        walk_length: Steps of a walk.
        coverage: How often subgraphs that are drawn beforehand hold a node, on average.
        seed: Seed of all draws.

    Attributes:
        weights_edges: Whether edges are counted beforehand, so that batches can weight them.

    Raises:
        ConfigError: The sampler draws edges, and the graph has none.
    """

    weights_edges: ClassVar[bool] = True

    def __init__(
        self,
        graph: Graph,
        num_layers: int,
        *,
        sampler: Sampler = "walk",
        num_samples: int = 1000,
        walk_length: int = 2,
        coverage: int = 50,
        seed: int = 0,
    ) -> None:
        super().__init__(graph, seed=seed)
        if sampler not in get_args(Sampler):
            raise ValueError(f"`sampler` must be one of {', '.join(get_args(Sampler))}, got `{sampler}`")
        for name, value in {"num_samples": num_samples, "walk_length": walk_length, "coverage": coverage}.items():
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}")
        if sampler == "edge" and graph.num_edges == 0:
            raise ConfigError(f"graph `{graph.name}` has no edges to draw; set `sampler=node`")
        self.num_layers, self.sampler, self.num_samples = num_layers, sampler, num_samples
        self.walk_length, self.coverage = walk_length, coverage
        self._train = graph.masks["train"] * (1 / graph.num_train)
        self._local = LocalIndex(graph)
        adj = graph.adj
        # the value of an entry is its index
        self._entries = Csr(adj.rowptr, adj.col, torch.arange(len(adj.col), device=adj.device), adj.num_cols)
        self._neighbors = _without_loops(adj) if sampler != "node" else None
        self._cumulative = self._probabilities().cumsum(0)
        self._counts: tuple[int, Counts] | None = None

    def __len__(self) -> int:
        """Returns the number of subgraphs with as many nodes as the graph, if all nodes drawn were different."""
        per_sample = nodes_per_sample(self.sampler, self.walk_length)
        return math.ceil(self.graph.num_nodes / (self.num_samples * per_sample))

    def draw(self, position: int, generator: torch.Generator) -> Batch:  # noqa: ARG002
        """Draws a subgraph and weights its edges and its loss."""
        return self.make(self.sample(generator))

    def make(self, nodes: Tensor) -> Batch:
        """Makes the batch of the nodes of a subgraph."""
        counts = self.counts
        row, col, entries = self._induce(nodes)
        seen = counts.nodes[nodes].clamp(min=1)
        value = self.graph.adj.value[entries]
        value = value * (seen[row] / counts.entries[entries].clamp(min=1)).to(value.dtype)
        adj = Adjacency.from_sorted(row, col, value, (len(nodes), len(nodes)))
        return self._batch(nodes, len(nodes), adj)

    def sweep(self) -> Iterator[Batch]:
        """Yields the whole graph; leaves epoch and position unchanged."""
        yield Batch.full(self.graph, self.num_layers)

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draws the nodes of a subgraph, [V], in rising order."""
        drawn = draw(self._cumulative, self.num_samples, generator)
        if self.sampler == "edge":
            assert self._neighbors is not None
            drawn = torch.cat((self._neighbors.value[drawn], self._neighbors.col[drawn].long()))
        elif self.sampler == "walk":
            drawn = self._walk(drawn, generator)
        nodes: Tensor = drawn.unique()
        return nodes

    @property
    def counts(self) -> Counts:
        """Returns the counts of the subgraphs drawn beforehand, computed once for a seed."""
        if self._counts is None or self._counts[0] != self.seed:
            nodes = torch.zeros(self.graph.num_nodes, device=self.graph.device)
            entries = torch.zeros(len(self.graph.adj.col), device=self.graph.device)
            num_subgraphs = 0
            for drawn in self.presample():
                nodes[drawn] += 1
                if self.weights_edges:
                    entries[self._induce(drawn)[2]] += 1
                num_subgraphs += 1
            self._counts = self.seed, Counts(num_subgraphs, nodes, entries)
        return self._counts[1]

    def presample(self) -> Iterator[Tensor]:
        """Draws the nodes of subgraphs until they hold a node `coverage` times on average; depends on the seed only."""
        # epochs count from 0, so these random numbers are used for nothing else
        generator, left = self._generator(0, epoch=-1), self.coverage * self.graph.num_nodes
        while left > 0:
            nodes = self.sample(generator)
            left -= len(nodes)
            yield nodes

    def _batch(self, nodes: Tensor, num_targets: int, adj: Adjacency) -> Batch:
        """Builds a batch with the features of the targets and a loss that is weighted by their counts."""
        targets = nodes[:num_targets]
        return Batch(
            x=select_rows(self.graph.x, targets),
            y=self.graph.y[targets],
            weight=self._train[targets] * (self.counts.num_subgraphs / self.counts.nodes[targets].clamp(min=1)),
            nodes=nodes,
            num_targets=num_targets,
            adjs=[adj] * self.num_layers,
        )

    def _probabilities(self) -> Tensor:
        """Returns weights to draw with: of nodes, of entries without self-loops, or of roots."""
        if self.sampler == "edge":
            assert self._neighbors is not None
            # both directions of an edge have half of its probability
            inverse = self._neighbors.rowptr.diff().double().reciprocal()
            return inverse[self._neighbors.value] + inverse[self._neighbors.col]
        if self.sampler == "walk":
            return torch.ones(self.graph.num_nodes, dtype=torch.float64, device=self.graph.device)
        return column_squares(self.graph.adj.value, self.graph.adj.col, self.graph.num_nodes)

    def _walk(self, roots: Tensor, generator: torch.Generator) -> Tensor:
        """Returns the nodes that walks meet, roots among them; a walk stays at a node without neighbors."""
        assert self._neighbors is not None
        rowptr, col = self._neighbors.rowptr.long(), self._neighbors.col
        met, at = [roots], roots
        for _ in range(self.walk_length):
            count = rowptr[at + 1] - rowptr[at]
            random = torch.rand(len(at), dtype=torch.float64, generator=generator, device=at.device)
            step, moves = rowptr[at] + (random * count).long(), count > 0
            at = at.masked_scatter(moves, col[step[moves]].long())
            met.append(at)
        return torch.cat(met)

    def _induce(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns rows, columns and indices of the entries between some nodes."""
        self._local.add(nodes)
        block = self._entries.select(nodes)
        col = self._local[block.col]
        self._local.clear()
        inside = col >= 0
        return block.row_index()[inside], col[inside], block.value[inside]


def nodes_per_sample(sampler: str, walk_length: int) -> int:
    """Returns the nodes that one draw of a sampler adds, if all are different."""
    return {"node": 1, "edge": 2}.get(sampler, 1 + walk_length)


def _without_loops(adj: Adjacency) -> Csr:
    """Returns the pattern without self-loops; the value of an entry is its row."""
    row = adj.row_index()
    other = adj.col != row
    return Csr.from_sorted(row[other], adj.col[other], row[other], adj.shape)
