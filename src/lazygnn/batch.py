"""`Batch`: what one training step sees, whatever loader made it.

`V` nodes of the batch, `T` targets among them (the first rows), `F` rows the transform runs on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.ops import Adjacency, Csr


@dataclass(frozen=True, eq=False)
class Batch:
    """Targets first, then the halo; `adjs[l]` maps one layer's nodes to the next."""

    x: Tensor | Csr  # [F, D]
    y: Tensor  # [T] or [T, C]
    weight: Tensor  # [T], num_batches / num_train on training targets and 0 elsewhere
    nodes: Tensor  # [V] ids in the graph
    num_targets: int
    adjs: Sequence[Adjacency]

    @property
    def targets(self) -> Tensor:
        """Ids of the nodes this batch is about, [T]."""
        return self.nodes[: self.num_targets]

    @staticmethod
    def full(graph: Graph, num_layers: int) -> "Batch":
        """The whole graph as one batch: every node a target, the same matrix at every layer."""
        return Batch(
            x=graph.x,
            y=graph.y,
            weight=loss_weight(graph),
            nodes=torch.arange(graph.num_nodes, device=graph.device),
            num_targets=graph.num_nodes,
            adjs=[graph.adj] * num_layers,
        )


def loss_weight(graph: Graph, num_batches: int = 1) -> Tensor:
    """Weight of every node's loss, [N]: a constant of the run, so that gradients stored by different batches mix."""
    num_train = graph.num_train
    return graph.masks["train"] * (num_batches / num_train)
