"""SGC: softmax regression on features that were propagated once, before training, so that training needs no edges.

`T` targets of a batch, `N` nodes of the graph, `C` outputs.
"""

from typing import cast

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.inference import by_rows
from lazygnn.model import Model
from lazygnn.models.layers import Linear


class SGC(Model):
    """`A^K x W + b`, Wu et al., ICML 2019; https://arxiv.org/abs/1902.07153.

    Batches and graphs hold `A^K x`, from `transforms.smooth_features`.

    Args:
        in_channels: Width of the features.
        out_channels: Number of outputs.
    """

    replayable = True

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = Linear(in_channels, out_channels)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        return cast(Tensor, self.linear(batch.x))

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C]."""
        return by_rows(self.linear, self.device, graph.x)

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights of the only layer."""
        return [list(self.linear.parameters())]
