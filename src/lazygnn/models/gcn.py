"""The graph convolutional network, over the whole graph or, with histories, over parts of it (GNNAutoScale)."""

import torch
from torch import Tensor, nn

from lazygnn.inference import by_rows, multiply
from lazygnn.models.layers import check_columns
from lazygnn.models.parameters import glorot
from lazygnn.models.stack import Layer, Stack
from lazygnn.ops import Adjacency, Csr, aggregate


class GCNLayer(Layer):
    """`A x W + b` for dense or sparse `x`; `x W` is computed first, since it is narrower."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.weight = glorot(in_channels, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        """Computes the rows of `adj`."""
        return aggregate(adj, self.transform(x)) + self.bias

    def infer(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        """Computes every row in bounded memory."""
        x = multiply(adj, by_rows(self.transform, adj.device, x))
        return x.add_(self.bias.to(x.device))

    def transform(self, x: Tensor | Csr) -> Tensor:
        """Returns `x W`; sparse rows are never made dense."""
        check_columns(x, len(self.weight))
        return aggregate(x, self.weight) if isinstance(x, Csr) else x @ self.weight


class GCN(Stack):
    """`num_layers` convolutions `A x W + b` with normalization, ReLU and dropout between them; see `Stack`.

    Kipf & Welling, ICLR 2017, https://arxiv.org/abs/1609.02907.
    """

    layer = GCNLayer
