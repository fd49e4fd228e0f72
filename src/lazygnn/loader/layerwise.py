"""`FastGCNLoader` and `LadiesLoader`: a fixed number of nodes drawn for each layer as a whole.

`R` nodes of the layer above, `U` nodes drawn for the layer below, `K` nodes that the layer above is connected to.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader.draws import column_squares, draw, draw_distinct
from lazygnn.loader.local import LocalIndex
from lazygnn.loader.nodes import NodeLoader
from lazygnn.ops import Adjacency, Csr


class Drawn(NamedTuple):
    """The nodes of a layer, and what their columns of the matrix are multiplied by."""

    nodes: Tensor  # [U]
    factor: Tensor  # [U]


class LayerLoader(NodeLoader):
    """Batches of training nodes with `num_samples` nodes drawn for each layer; a subclass draws them.

    A node without a neighbor among those drawn has an empty row.

    Args:
        graph: The graph to sample, on its own device.
        num_layers: Layers to draw nodes for.
        num_samples: Draws for a layer.
        batch_size: Training nodes per batch; `None` takes all of them.
        seed: Seed of order and draws.
    """

    def __init__(
        self, graph: Graph, num_layers: int, *, num_samples: int, batch_size: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(graph, batch_size, seed=seed)
        if num_samples < 1:
            raise ValueError(f"`num_samples` must be at least 1, got {num_samples}")
        self.num_layers, self.num_samples = num_layers, num_samples
        self._local = LocalIndex(graph)

    @abstractmethod
    def choose(self, block: Csr, targets: Tensor, generator: torch.Generator) -> Drawn:
        """Draws the nodes below a layer, from the rows of the matrix that belong to the layer, [R, N]."""

    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:
        """Draws the layers below the targets, from the last layer to the first."""
        nodes, adjs = targets, list[Adjacency]()
        for _ in range(self.num_layers):
            block = self.graph.adj.select(nodes)
            nodes, factor = self.choose(block, targets, generator)
            adjs.append(self.weigh(block, self._restrict(block, nodes, factor)))
        return self._batch(targets, len(targets), adjs[::-1], inputs=nodes)

    def weigh(self, block: Csr, sampled: Csr) -> Csr:  # noqa: ARG002
        """Returns the matrix of a layer, [R, U], from the entries in sampled columns."""
        return sampled

    def _restrict(self, block: Csr, nodes: Tensor, factor: Tensor) -> Csr:
        """Returns the columns of some nodes, each times its factor."""
        self._local.add(nodes)
        col = self._local[block.col]
        self._local.clear()
        inside = col >= 0
        row, col = block.row_index()[inside], col[inside]
        value = block.value[inside] * factor[col].to(block.value.dtype)
        return Csr.from_sorted(row, col, value, (block.num_rows, len(nodes)))


class FastGCNLoader(LayerLoader):
    """Draws each layer from all nodes, in proportion to the squared length of their columns.

    With `t` draws with replacement and probability `q(u)`, an entry is `A[v, u] / (t q(u))` for each time that `u` was
    drawn, so a sum over neighbors has the right expectation. Chen et al., ICLR 2018, https://arxiv.org/abs/1801.10247.

    This follows the paper. The authors' code differs: by default it samples nothing; otherwise it draws without
    replacement among neighbors of the batch only, with weights as if it drew among all nodes, which makes sums several
    times too large.
    """

    def __init__(
        self, graph: Graph, num_layers: int, *, num_samples: int, batch_size: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(graph, num_layers, num_samples=num_samples, batch_size=batch_size, seed=seed)
        squares = column_squares(graph.adj.value, graph.adj.col, graph.num_nodes)
        self._probability = squares / squares.sum()
        self._cumulative = self._probability.cumsum(0)

    def choose(self, block: Csr, targets: Tensor, generator: torch.Generator) -> Drawn:  # noqa: ARG002
        """Draws from all nodes, independently of the layer above."""
        return _independent(self._probability, self._cumulative, self.num_samples, generator)


class LadiesLoader(LayerLoader):
    """Draws each layer among the neighbors of the layer above.

    The probability `p(u)` is in proportion to the squared length of column `u` in the rows of the layer above. With `s`
    draws with replacement, an entry is `A[v, u] / (s p(u))` for each time that `u` was drawn, so a sum over neighbors
    has the right expectation. Zou et al., NeurIPS 2019, https://arxiv.org/abs/1911.07323.

    The authors' code differs, and `released` does as it does: it draws without replacement, adds the targets of the
    batch to every layer, divides the columns by `p(u)` and then scales each row to the sum that it has in the whole
    matrix. This is biased, with less variance. The bias falls with the sample, but not to zero, since columns are
    divided by `p(u)` even if all of them are drawn. The authors' matrix has rows that sum to one. Ours is a GCN's.

    Args:
        graph: The graph to sample, on its own device.
        num_layers: Layers to draw nodes for.
        num_samples: Draws for a layer.
        released: Whether to draw as the authors' code does.
        batch_size: Training nodes per batch; `None` takes all of them.
        seed: Seed of order and draws.
    """

    def __init__(
        self,
        graph: Graph,
        num_layers: int,
        *,
        num_samples: int,
        released: bool = False,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(graph, num_layers, num_samples=num_samples, batch_size=batch_size, seed=seed)
        self.released = released

    def choose(self, block: Csr, targets: Tensor, generator: torch.Generator) -> Drawn:
        """Draws from the nodes that the rows have entries for; every target is among them by its self-loop."""
        candidates, at = block.col.long().unique(return_inverse=True)
        squares = column_squares(block.value, at, len(candidates))
        # the rows may be all zero, as those of nodes of degree zero are
        probability = squares / squares.sum().clamp(min=torch.finfo(squares.dtype).tiny)
        if not self.released:
            drawn = _independent(probability, probability.cumsum(0), self.num_samples, generator)
            return drawn._replace(nodes=candidates[drawn.nodes])
        distinct = draw_distinct(probability, self.num_samples, generator)
        kept = torch.cat((distinct, torch.searchsorted(candidates, targets))).unique()
        return Drawn(candidates[kept], _finite(probability[kept].reciprocal()))

    def weigh(self, block: Csr, sampled: Csr) -> Csr:
        """Scales the rows, if this is what the authors' code does."""
        if not self.released:
            return sampled
        whole, part = _row_sums(block), _row_sums(sampled)
        factor = whole / part.clamp(min=torch.finfo(part.dtype).tiny)
        return Csr(sampled.rowptr, sampled.col, sampled.value * factor[sampled.row_index()], sampled.num_cols)


def _independent(probability: Tensor, cumulative: Tensor, count: int, generator: torch.Generator) -> Drawn:
    nodes, times = draw(cumulative, count, generator).unique(return_counts=True)
    return Drawn(nodes, _finite(times / (count * probability[nodes])))


def _finite(factor: Tensor) -> Tensor:
    """Replaces the factors of columns without a probability, which are zero."""
    return factor.nan_to_num(posinf=0.0)


def _row_sums(matrix: Csr) -> Tensor:
    return matrix.value.new_zeros(matrix.num_rows).index_add_(0, matrix.row_index(), matrix.value)
