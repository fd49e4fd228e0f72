"""VR-GCN: a GCN on sampled neighbors, with stored activations of all neighbors as control variates.

`T` targets of a batch, `V` nodes of it, `R` rows and `U` columns of a layer's sampled matrix, `H` hidden channels.
"""

from collections.abc import Sequence
from typing import Unpack, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.batch import Batch, ControlBatch
from lazygnn.history import History
from lazygnn.models.gcn import GCNLayer
from lazygnn.models.layers import drop, dropout
from lazygnn.models.precomputed import PrecomputedGCN
from lazygnn.models.stack import LayerArguments
from lazygnn.ops import aggregate, spmm
from lazygnn.propagation import layer_matrices


class VRGCN(PrecomputedGCN):
    """`A_s (mu - stored) + A stored + R_s (h - mu)` in place of `A h`, Chen et al., ICML 2018.

    `h` is the activation with dropout and `mu` that of the same layers without any. `A_s` has the sampled neighbors
    with the right expectation. `stored` holds the last `mu` of every node. `R_s` weighs sampled neighbors such that the
    noise of dropout keeps its variance. The estimate of `A mu` is unbiased, and has no variance where `stored` is
    exact. https://arxiv.org/abs/1710.10568

    This is the variant CVD of the paper, with the first product computed beforehand (PP). Without dropout it is CV. The
    authors' code differs: no gradient flows through `mu`, and a node's own noise is scaled like that of a sampled
    neighbor. Here, a node itself is never sampled, so its noise has the weight of the matrix.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of outputs.
        num_layers: Number of convolutions, at least 2.
        histories: One before each layer but the first, with a warm start that ignores the stored rows, `Mix(1.0)`.
            Without any, sampled sums have no control variate.
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
        **shared: Unpack[LayerArguments],
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers=num_layers, **shared)
        if len(histories) not in (0, num_layers - 1):
            raise ValueError(f"{num_layers} layers need {num_layers - 1} histories or none, got {len(histories)}")
        self.histories = list(histories)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        if not self.training or not self.histories or not isinstance(batch, ControlBatch):
            return super().forward(batch)
        layers = cast(list[GCNLayer], list(self.gcn.layers))
        layer_matrices(batch, len(layers))
        noisy = self.dropout > 0 or self.input_dropout > 0
        x = self.norm(self.first(batch.x))
        dropped = self.norm(self.first(drop(batch.x, self.input_dropout, self.training))) if noisy else x
        for index, layer in enumerate(layers):
            if index > 0:
                norm = self.gcn.norms[index - 1]
                x, dropped = norm(x), norm(dropped) if noisy else x
            mean = F.relu(x)
            total = self.estimate(index, mean, batch)
            x = layer.transform(total) + layer.bias
            if noisy:
                noise = dropout(F.relu(dropped), self.dropout, self.training) - mean
                dropped = layer.transform(total + aggregate(batch.noise[index], noise)) + layer.bias
        return cast(Tensor, dropped if noisy else x)

    def estimate(self, index: int, mean: Tensor, batch: ControlBatch) -> Tensor:
        """Estimates the sum over neighbors of activations without dropout, [U, H] -> [R, H], and stores these."""
        adj, history, num_fresh = batch.adjs[index], self.histories[index], len(mean)
        # reads every row; none has a fresh value to start from
        stored = history.start(batch.nodes, 0, mean[:0].detach()).x
        with torch.no_grad():
            known = spmm(batch.complete.rows(adj.num_rows), stored)
        history.push(batch.nodes[:num_fresh], mean.detach(), mean.detach())
        return aggregate(adj, mean - stored[:num_fresh]) + known

    def fill(self, batch: Batch) -> None:
        """Stores the input of every layer but the first for the nodes of a batch that are computed."""
        with torch.no_grad():
            self(batch)
