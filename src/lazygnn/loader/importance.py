"""`ImportanceLoader`: training nodes drawn by the norms of their gradients, with a halo (MVS-GNN).

`K` training nodes, `T` targets of a batch, `V` nodes of it.
"""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph, select_rows
from lazygnn.loader.draws import draw_systematic
from lazygnn.loader.local import LocalIndex
from lazygnn.loader.sampled import SampledLoader
from lazygnn.ops import Adjacency
from lazygnn.task import Task


class NormSource(Protocol):
    """A model that measures gradient norms and stores them."""

    def measure(self, batch: Batch, task: Task) -> None:
        """Measures and stores the norms of the targets of a batch with exact neighborhoods."""

    def stored_norms(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the norms of some nodes at their last measurement, and whether they were ever measured."""


class ImportanceLoader(SampledLoader):
    """Batches of training nodes that are drawn more often the larger their gradient, with a halo of one hop.

    A node has the probability `p = min(1, g / t)`, with `t` such that the probabilities sum to the batch size, and `g`
    from the norm of its gradient. Its loss is divided by `p`, so the loss is unbiased, and the variance is minimal for
    these `g`. Cong et al., KDD 2020, https://arxiv.org/abs/2006.13866. The model measures norms before every
    `refresh_every`-th batch, on training nodes with exact neighborhoods.

    The authors' code differs in two ways. Between two measurements it never draws a node that was not measured. Here,
    such a node keeps its last norm, or has the mean of the others, and a share of `g` is the same for all nodes. Their
    code draws nodes independently, so that the size of a batch varies. Here, draws are systematic, with the same
    probabilities and a fixed size.

    Args:
        graph: The graph to sample, on its own device.
        num_layers: Layers of the model.
        batch_size: Training nodes per batch; `None` takes all of them.
        refresh_every: Batches between two measurements.
        refresh_share: Share of the training nodes that are measured at a time.
        uniform_share: Share of `g` that does not depend on the norms, above 0.
        seed: Seed of all draws.
    """

    def __init__(
        self,
        graph: Graph,
        num_layers: int,
        *,
        batch_size: int | None = None,
        refresh_every: int = 10,
        refresh_share: float = 1.0,
        uniform_share: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(graph, seed=seed)
        for name, value in {"batch_size": batch_size, "refresh_every": refresh_every}.items():
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}")
        for name, share in {"refresh_share": refresh_share, "uniform_share": uniform_share}.items():
            if not 0 < share <= 1:
                raise ValueError(f"`{name}` must be above 0 and at most 1, got {share}")
        self.num_layers, self.refresh_every = num_layers, refresh_every
        self.refresh_share, self.uniform_share = refresh_share, uniform_share
        self.batch_size = min(batch_size or graph.num_train, graph.num_train)
        # without a model, all nodes are drawn alike
        self.source: NormSource | None = None
        self._task = graph.task
        self._train = graph.masks["train"].nonzero()[:, 0]
        self._local = LocalIndex(graph)

    def __len__(self) -> int:
        return -(-len(self._train) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches that are left of the current epoch, each drawn after the step on the last one."""
        while self.position < len(self):
            batch = self.draw(self.position, self._generator(1 + self.position))
            self._advance()
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def upcoming(self) -> Batch | None:
        """Returns `None`, since the next batch depends on the weights after the current step."""
        return None

    def draw_by(self, task: Task) -> None:
        """Draws by the gradients of the loss of a task; that of the graph until then."""
        self._task = task

    def draw(self, position: int, generator: torch.Generator) -> Batch:
        """Measures gradient norms if it is time to, and draws training nodes by them."""
        if (self.epoch * len(self) + position) % self.refresh_every == 0:
            self.refresh(generator)
        p = self.probabilities()
        drawn = draw_systematic(p, generator)
        targets = self._train[drawn]
        weight = (1 / (p[drawn] * len(self._train))).to(self.graph.degree.dtype)
        return self._with_halo(targets, weight)

    def refresh(self, generator: torch.Generator) -> None:
        """Lets the model measure gradient norms of some training nodes."""
        if self.source is not None:
            count = max(1, round(self.refresh_share * len(self._train)))
            order = torch.randperm(len(self._train), generator=generator, device=self._train.device)
            self.source.measure(self.exact_batch(self._train[order[:count].sort().values]), self._task)

    def probabilities(self) -> Tensor:
        """Returns the probability of every training node to be in a batch, [K]; they sum to the batch size."""
        norms = torch.ones(len(self._train), dtype=torch.float64, device=self._train.device)
        if self.source is not None:
            found, known = self.source.stored_norms(self._train)
            mean = float(found[known].double().mean()) if bool(known.any()) else 0.0
            if mean > 0:
                norms = torch.where(known, found.double() / mean, norms)
        return inclusion(torch.lerp(norms, torch.ones_like(norms), self.uniform_share), self.batch_size)

    def exact_batch(self, targets: Tensor) -> Batch:
        """Makes a batch with all neighbors that its targets need, hop by hop."""
        nodes, adjs = self._grow(targets, self.num_layers)
        return self._make(nodes, torch.zeros(len(targets), device=nodes.device), adjs)

    def sweep(self) -> Iterator[Batch]:
        """Yields batches of all nodes in node order; leaves epoch and position unchanged."""
        for targets in torch.arange(self.graph.num_nodes, device=self.graph.device).split(self.batch_size):
            yield self._with_halo(targets, torch.zeros(len(targets), device=targets.device))

    def _with_halo(self, targets: Tensor, weight: Tensor) -> Batch:
        nodes, adjs = self._grow(targets, 1)
        return self._make(nodes, weight, adjs * self.num_layers)

    def _grow(self, targets: Tensor, num_hops: int) -> tuple[Tensor, list[Adjacency]]:
        """Adds neighbors hop by hop; returns all nodes, and the matrices from the farthest hop to the targets."""
        local, nodes, adjs = self._local, targets, list[Adjacency]()
        local.add(targets)
        for _ in range(num_hops):
            block = self.graph.adj.select(nodes)
            nodes = torch.cat((nodes, local.add_missing(block.col)))
            adjs.append(Adjacency(block.rowptr, local[block.col], block.value, len(nodes)))
        local.clear()
        return nodes, adjs[::-1]

    def _make(self, nodes: Tensor, weight: Tensor, adjs: list[Adjacency]) -> Batch:
        return Batch(
            x=select_rows(self.graph.x, nodes),
            y=self.graph.y[nodes[: len(weight)]],
            weight=weight,
            nodes=nodes,
            num_targets=len(weight),
            adjs=adjs,
        )


def inclusion(norms: Tensor, size: int) -> Tensor:
    """Returns `min(1, norms / t)` with `t` such that the sum is `size`, [K]; all ones for `size` nodes or fewer."""
    if size >= len(norms):
        return torch.ones_like(norms)
    largest = norms.sort(descending=True).values
    rest = largest.flip(0).cumsum(0).flip(0)
    # if the `k` largest norms have probability 1, the others share `size - k`
    certain = torch.arange(size, device=norms.device)
    threshold = rest[:size] / (size - certain)
    # the first `k` for which no other norm is above the threshold
    first = int((largest[:size] <= threshold).to(torch.int8).argmax())
    return (norms / threshold[first]).clamp(max=1)
