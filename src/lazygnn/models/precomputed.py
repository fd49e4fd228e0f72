"""A GCN with a first product that is computed before training, since it is the same in every pass.

`T` targets of a batch, `N` nodes of the graph, `C` outputs.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.inference import by_rows, evaluating
from lazygnn.model import Model
from lazygnn.models.gcn import GCN
from lazygnn.models.layers import Linear, NormKind, drop, make_norm, relu_dropout


class PrecomputedGCN(Model):
    """`num_layers` convolutions on features that hold `A x` already, so that the first layer is `x W + b`.

    Chen et al., FastGCN, ICLR 2018, and Chen et al., VR-GCN, ICML 2018, train this way: a sampler has one layer less.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of outputs.
        num_layers: Number of convolutions, at least 2.
        norm: Normalization after every layer but the last.
        dropout: Fraction of hidden units dropped in training.
        input_dropout: Fraction of input entries dropped in training.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int,
        norm: NormKind = "none",
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_layers < 2:
            raise ValueError(f"`num_layers` must be at least 2, got {num_layers}")
        self.first, self.norm = Linear(in_channels, hidden_channels), make_norm(norm, hidden_channels)
        self.gcn = GCN(
            hidden_channels, hidden_channels, out_channels, num_layers=num_layers - 1, norm=norm, dropout=dropout
        )
        self.dropout, self.input_dropout = dropout, input_dropout

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]; a batch has a matrix for every layer but the first."""
        x = self.norm(self.first(drop(batch.x, self.input_dropout, self.training)))
        x = relu_dropout(x, self.dropout, self.training)
        out: Tensor = self.gcn(replace(batch, x=x))
        return out

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C], on the device of the graph, from features that hold `A x`."""
        with evaluating(self):
            x = by_rows(nn.Sequential(self.first, self.norm, nn.ReLU()), self.device, graph.x)
            return self.gcn.infer(replace(graph, x=x))

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer; a norm belongs to the layer before it."""
        return [[*self.first.parameters(), *self.norm.parameters()], *self.gcn.layer_parameters()]
