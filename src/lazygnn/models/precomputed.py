"""Models whose features are propagated once, before training: SGC and SIGN. Training then sees rows and no edges.

`N` nodes, `T` targets, `D` features, `K` hops, `C` outputs.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazygnn import ops
from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.inference import by_rows, evaluating
from lazygnn.model import Model
from lazygnn.models.layers import MLP, Linear, NormKind, make_norm, relu_dropout
from lazygnn.ops import Csr

# memory for the columns that are propagated at a time, beside the result
_BLOCK_BYTES = 2**28


def smooth_features(graph: Graph, num_layers: int) -> Graph:
    """The same graph with the features `A^K x`.

    They are dense, [N, D], whatever they were before: `4 N D` bytes, which is 1.4 GiB for nell and 15 MiB for cora.
    """
    x = torch.empty(graph.num_nodes, graph.in_channels, dtype=graph.adj.value.dtype, device=graph.device)
    for start, block in _columns(graph.x):
        for _ in range(num_layers):
            block = ops.spmm(graph.adj, block)
        x[:, start : start + block.shape[1]] = block
    return replace(graph, x=x)


def stack_features(graph: Graph, num_layers: int) -> Graph:
    """The same graph with the features `[x, A x, ..., A^K x]` side by side.

    They are dense, [N, (K + 1) D], whatever they were before: `4 N (K + 1) D` bytes.
    """
    width, dtype = graph.in_channels, graph.adj.value.dtype
    x = torch.empty(graph.num_nodes, (num_layers + 1) * width, dtype=dtype, device=graph.device)
    for start, block in _columns(graph.x):
        for hop in range(num_layers + 1):
            block = block if hop == 0 else ops.spmm(graph.adj, block)
            x[:, hop * width + start : hop * width + start + block.shape[1]] = block
    return replace(graph, x=x)


class SGC(Model):
    """Softmax regression on `A^K x` (Wu et al., ICML 2019); https://arxiv.org/abs/1902.07153.

    Batches and graphs hold the features of `smooth_features`.

    Args:
        in_channels: Width of the features.
        out_channels: Number of outputs.
    """

    replayable = True

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = Linear(in_channels, out_channels)

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the targets, [T, C]."""
        return cast(Tensor, self.linear(batch.x))

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Outputs of every node, [N, C]."""
        return by_rows(self.linear, self.device, graph.x)

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """The weights of the only layer."""
        return [list(self.linear.parameters())]


class SIGN(Model):
    """`mlp(relu([x W_0, A x W_1, ..., A^K x W_K]))` (Frasca, Rossi et al., 2020); https://arxiv.org/abs/2004.11198.

    Batches and graphs hold the features of `stack_features`.

    Args:
        in_channels: Width of the features of a hop, `D`.
        hidden_channels: Width of the branch of a hop, and of the MLP.
        out_channels: Number of outputs.
        num_layers: Hops beside the features themselves.
        mlp_layers: Depth of the MLP behind the branches.
        norm: Normalisation of the branches and within the MLP.
        dropout: Share of hidden units dropped in training.
        input_dropout: Share of input entries dropped in training.
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
        """Outputs of the targets, [T, C]."""
        return self._outputs(cast(Tensor, batch.x))

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Outputs of every node, [N, C]."""
        with evaluating(self):
            return by_rows(self._outputs, self.device, graph.x)

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """The branches as one layer, then the MLP."""
        return [[*self.branches.parameters(), *self.norm.parameters()], *self.mlp.layer_parameters()]

    def _outputs(self, x: Tensor) -> Tensor:
        hops = F.dropout(x, self.input_dropout, self.training).split(self.in_channels, dim=1)
        h = torch.cat([branch(hop) for branch, hop in zip(self.branches, hops, strict=True)], dim=1)
        h = relu_dropout(self.norm(h), self.dropout, self.training)
        return cast(Tensor, self.mlp(h))


def _columns(x: Tensor | Csr) -> Iterator[tuple[int, Tensor]]:
    """A few columns of the features at a time, dense, with the number of the first."""
    width = max(_BLOCK_BYTES // (4 * max(len(x), 1)), 1)
    for start in range(0, x.shape[1], width):
        stop = min(start + width, x.shape[1])
        if isinstance(x, Csr):
            yield start, x.T.select(torch.arange(start, stop, device=x.device)).to_dense().T.contiguous()
        else:
            yield start, x[:, start:stop].contiguous()
