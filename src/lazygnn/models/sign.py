"""SIGN: an MLP on the features of several hops, propagated once, before training, so that training needs no edges.

`T` targets of a batch, `N` nodes of the graph, `D` features, `K` hops, `C` outputs.
"""

from typing import cast

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.inference import by_rows, evaluating
from lazygnn.model import Model
from lazygnn.models.layers import MLP, Linear, NormKind, dropout, make_norm, relu_dropout


class SIGN(Model):
    """`mlp(relu([x W_0, A x W_1, ..., A^K x W_K]))`, Frasca, Rossi et al., 2020; https://arxiv.org/abs/2004.11198.

    Batches and graphs hold `[x, A x, ..., A^K x]`, from `transforms.stack_features`.

    Args:
        in_channels: Width of the features of one hop, `D`.
        hidden_channels: Width of the branch of one hop, and of the MLP.
        out_channels: Number of outputs.
        num_layers: Number of hops `K`.
        mlp_layers: Depth of the MLP after the branches.
        norm: Normalization of the branches and within the MLP.
        dropout: Fraction of hidden units dropped in training.
        input_dropout: Fraction of input entries dropped in training.
    """

    replayable = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int,
        mlp_layers: int = 1,
        norm: NormKind = "none",
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_channels, self.dropout, self.input_dropout = in_channels, dropout, input_dropout
        self.branches = nn.ModuleList(Linear(in_channels, hidden_channels) for _ in range(num_layers + 1))
        width = (num_layers + 1) * hidden_channels
        self.norm = make_norm(norm, width)
        self.mlp = MLP(width, hidden_channels, out_channels, mlp_layers=mlp_layers, norm=norm, dropout=dropout)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        return self._outputs(cast(Tensor, batch.x))

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C]."""
        with evaluating(self):
            return by_rows(self._outputs, self.device, graph.x)

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights of the branches as one layer, then those of the MLP."""
        return [[*self.branches.parameters(), *self.norm.parameters()], *self.mlp.layer_parameters()]

    def _outputs(self, x: Tensor) -> Tensor:
        hops = dropout(x, self.input_dropout, self.training).split(self.in_channels, dim=1)
        h = torch.cat([branch(hop) for branch, hop in zip(self.branches, hops, strict=True)], dim=1)
        h = relu_dropout(self.norm(h), self.dropout, self.training)
        return cast(Tensor, self.mlp(h))
