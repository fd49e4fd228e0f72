"""Cluster-GCN: a GCN on batches without a halo, whose matrix is normalised anew among the nodes of the batch."""

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

    `A' = (D + I)^-1 (A + I)` with the degrees of the batch in training and those of the graph in inference.

    Args:
        gcn: The layers.
        diag_lambda: How much more a node counts for itself; 0 leaves the plain mean.
    """

    replayable = True

    def __init__(self, gcn: GCN, *, diag_lambda: float = 0.0) -> None:
        super().__init__()
        if diag_lambda < 0:
            raise ValueError(f"`diag_lambda` must not be negative, got {diag_lambda}")
        self.gcn = gcn
        self.diag_lambda = diag_lambda

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the targets, [T, C]; the batch needs a square matrix, the same at every layer."""
        adj = batch.adjs[0]
        if adj.num_rows != adj.num_cols:
            raise ValueError(f"Cluster-GCN takes batches without a halo, got a matrix of shape {adj.shape}")
        # the pattern keeps what it knows about its transpose from one visit of a batch to the next
        mean = adj.with_value(enhanced_mean(adj, self.diag_lambda))
        out: Tensor = self.gcn(replace(batch, adjs=[mean] * len(batch.adjs)))
        return out

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Outputs of every node, [N, C], over the whole graph."""
        adj = graph.adj
        mean = Adjacency(adj.rowptr, adj.col, enhanced_mean(adj, self.diag_lambda), adj.num_cols)
        return self.gcn.infer(replace(graph, adj=mean))

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """The weights layer by layer."""
        return self.gcn.layer_parameters()


def enhanced_mean(adj: Adjacency, diag_lambda: float) -> Tensor:
    """`A' + lambda diag(A')` at the stored entries of a square matrix with self-loops; edges count alike, [E]."""
    row = adj.row_index()
    mean = adj.rowptr.diff().to(adj.value.dtype).clamp(min=1).reciprocal()[row]
    return torch.where(adj.col == row, (1 + diag_lambda) * mean, mean)
