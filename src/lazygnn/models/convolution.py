"""`Convolution`: a block that reads the sum over neighbors alone. Ours, after GCN (Kipf and Welling, ICLR 2017).

`T` targets of a batch, `N` nodes of the graph, `H` hidden channels.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.history import History
from lazygnn.inference import by_rows, evaluating, multiply
from lazygnn.models.layers import Linear, NormKind, gelu_dropout, make_norm
from lazygnn.ops import Adjacency, aggregate
from lazygnn.propagation.historical import add_halo


class Convolution(nn.Module):
    """`dropout(gelu(norm(W A h)))`: a node is read as part of the sum over its neighbors alone.

    Args:
        channels: Width of `h`.
        history: Stores `h` of every node, for batches with a halo; `None` for the whole graph.
        norm: Normalization before the activation.
        dropout: Fraction of hidden units dropped in training.
    """

    def __init__(
        self, channels: int, history: History | None = None, *, norm: NormKind = "batch", dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.linear = Linear(channels, channels, bias=norm != "batch")
        self.norm = make_norm(norm, channels)
        self.history = history
        self.dropout = dropout

    def forward(self, h: Tensor, batch: Batch) -> Tensor:
        """Computes the targets of a batch, [T, H] -> [T, H]; the halo is read from the history."""
        adj = batch.adjs[0]
        if self.training and self.history is not None:
            h = add_halo(self.history, h, batch)
        if len(h) != adj.num_cols:
            raise ConfigError(
                f"the input has {len(h)} rows for {adj.num_cols} nodes; a halo needs a history in training: evaluate "
                "with `infer` or `Batch.full`"
            )
        return self._combine(aggregate(adj, h)[: batch.num_targets])

    @torch.no_grad()
    def infer(self, h: Tensor, adj: Adjacency, *, scratch: Path | None = None) -> Tensor:  # noqa: ARG002
        """Computes all nodes in bounded device memory, [N, H] -> [N, H]; the result overwrites `h`."""
        with evaluating(self):
            near = multiply(adj, h, in_place=True)
            return by_rows(self._combine, adj.device, near, allocate=lambda *_: near)

    def diagnose(self, adj: Adjacency) -> dict[str, float]:  # noqa: ARG002
        """Returns nothing: the history has rows of a layer, and no solution."""
        return {}

    def _combine(self, near: Tensor) -> Tensor:
        return gelu_dropout(self.norm(self.linear(near)), self.dropout, self.training)
