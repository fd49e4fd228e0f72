"""Cluster-GCN: a GCN on batches without a halo; the matrix is normalized again within each batch."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.model import Model
from lazygnn.models.gcn import GCN
from lazygnn.ops import Adjacency


class ClusterGCN(Model):
    """A GCN with `A' + lambda diag(A')`, Eq. (11) of Chiang et al., KDD 2019; https://arxiv.org/abs/1905.07953.

    `A' = (D + I)^-1 (A + I)` has the degrees of the batch in training and those of the graph in inference.

    Args:
        gcn: The layers.
        diag_lambda: Extra weight of the node itself; 0 gives the plain mean.
    """

    replayable = True

    def __init__(self, gcn: GCN, *, diag_lambda: float = 0.0) -> None:
        super().__init__()
        if diag_lambda < 0:
            raise ValueError(f"`diag_lambda` must not be negative, got {diag_lambda}")
        self.gcn = gcn
        self.diag_lambda = diag_lambda

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]; every layer uses the same square matrix."""
        adj = batch.adjs[0]
        if adj.num_rows != adj.num_cols:
            raise ValueError(
                f"Cluster-GCN needs batches without a halo, got a matrix of shape {adj.shape}; "
                'build the loader with `halo="none"`'
            )
        # `with_value` shares the cached transpose of the pattern between visits of a batch
        mean = adj.with_value(enhanced_mean(adj, self.diag_lambda))
        out: Tensor = self.gcn(replace(batch, adjs=[mean] * len(batch.adjs)))
        return out

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C], over the whole graph."""
        adj = graph.adj
        mean = Adjacency(adj.rowptr, adj.col, enhanced_mean(adj, self.diag_lambda), adj.num_cols)
        return self.gcn.infer(replace(graph, adj=mean))

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer."""
        return self.gcn.layer_parameters()


def enhanced_mean(adj: Adjacency, diag_lambda: float) -> Tensor:
    """Returns `A' + lambda diag(A')` at the stored entries of a square matrix with self-loops, [E].

    All edges count the same, whatever their weight.
    """
    row = adj.row_index()
    mean = adj.rowptr.diff().to(adj.value.dtype).clamp(min=1).reciprocal()[row]
    return torch.where(adj.col == row, (1 + diag_lambda) * mean, mean)
