"""A GCN on parts of the graph with histories that follow the batches around them (GraphFM).

`V` nodes of a batch, `T` targets among them (the first rows), `C` outputs.
"""

from collections.abc import Sequence
from typing import Any, Unpack, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.history import History
from lazygnn.inference import evaluating
from lazygnn.models.gcn import GCN, GCNLayer
from lazygnn.models.layers import drop, dropout
from lazygnn.models.stack import LayerArguments
from lazygnn.ops import Adjacency, aggregate, spmm
from lazygnn.propagation import layer_matrices
from lazygnn.propagation.momentum import MomentumMemory


class GraphFM(GCN):
    """A GCN with histories (GNNAutoScale) that updates the halo too: the variant GraphFM-OB, out of the batch.

    The batch estimates each layer's output for its halo, from the neighbors in the batch alone. The stored row moves
    towards the estimate by `momentum`, before it is read. The estimate misses the neighbors outside, and the node
    itself, so the momentum is small. Yu et al., ICML 2022, https://arxiv.org/abs/2206.07161

    Differences to the released code: a norm of `none` is none in training too, where the released code applies batch
    norm in training alone. Histories in host memory are read after their update, not before it.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of outputs.
        num_layers: Number of layers.
        histories: One for each layer but the last, for batches with a halo.
        momentum: Weight of an estimate, in [0, 1]; 0 gives GNNAutoScale.
        shared: `norm`, `dropout` and `input_dropout`, as for `Stack`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int,
        histories: Sequence[History] = (),
        momentum: float = 0.1,
        **shared: Unpack[LayerArguments],
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers=num_layers, **shared)
        self.memory: MomentumMemory = MomentumMemory(num_layers, histories, momentum=momentum)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        adjs = layer_matrices(batch, len(self.layers))
        x: Any = drop(batch.x, self.input_dropout, self.training)
        *hidden, last = cast(list[GCNLayer], list(self.layers))
        for index, layer in enumerate(hidden):
            sent = layer.transform(x)
            x = aggregate(adjs[index], sent) + layer.bias
            x = F.relu(self.norms[index](x))
            x = self.memory(index, x, batch, self._estimate(index, sent, batch))
            x = dropout(x, self.dropout, self.training)
        return cast(Tensor, last(x, adjs[-1]))

    @torch.no_grad()
    def _estimate(self, index: int, sent: Tensor, batch: Batch) -> Tensor | None:
        """Returns the output of a layer for the halo, from the neighbors in the batch alone, [V - T, C]."""
        if len(batch.nodes) == batch.num_targets or not self.training:
            return None
        layer, norm = cast(GCNLayer, self.layers[index]), self.norms[index]
        x = _to_halo(batch.adjs[index], sent[: batch.num_targets].detach()) + layer.bias
        # batch norm has the running statistics, which its own rows do not change
        with evaluating(norm):
            return F.relu(norm(x))


def _to_halo(adj: Adjacency, x: Tensor) -> Tensor:
    """Returns the messages of the targets to the halo; the matrix is symmetric, so its transpose has them."""
    return spmm(adj.T, x)[adj.num_rows :]
