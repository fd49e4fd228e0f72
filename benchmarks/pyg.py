"""PyG's APPNP, with the three forms in which it accepts a graph; the counterpart of exact propagation.

`N` nodes, `C` columns, `E` stored entries of the adjacency.
"""

import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.methods.appnp import APPNPOptions
from lazygnn.model import Model
from lazygnn.ops import Adjacency, Csr
from lazygnn.propagation import Propagation

Form = Literal["edge_index", "csr", "EdgeIndex"]


class PygAPPNP(Model):
    """PyG's MLP and its `APPNP`, over the whole graph; features are dense, as its layers require."""

    def __init__(self, config: Config, graph: Graph, form: Form) -> None:
        from torch_geometric.nn import MLP

        super().__init__()
        options = config.model
        assert isinstance(options, APPNPOptions)
        hidden = [options.hidden_channels] * (options.mlp_layers - 1)
        self.transform = MLP(
            [graph.in_channels, *hidden, graph.task.num_outputs],
            dropout=options.dropout,
            norm=None if options.norm == "none" else f"{options.norm}_norm",
        )
        self.propagation = PygPropagation(graph.adj, options.num_layers, options.alpha, form)
        self.x = graph.x.to_dense()

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of all nodes, [N, C]."""
        out: Tensor = self.propagation(self.transform(self.x), batch)
        return out

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of all nodes, [N, C]."""
        return self.propagation.infer(self.transform(self.x), graph.adj)

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns all weights as one layer."""
        return [list(self.parameters())]


class PygPropagation(Propagation):
    """`torch_geometric.nn.APPNP` on a matrix that is normalized beforehand."""

    def __init__(self, adj: Adjacency, num_layers: int, alpha: float, form: Form) -> None:
        from torch_geometric.nn import APPNP

        super().__init__()
        self.conv = APPNP(num_layers, alpha, normalize=False)
        self.edges, self.weight = pyg_edges(adj, form)

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:  # noqa: ARG002
        """Runs the steps on the whole graph, [N, C]."""
        out: Tensor = self.conv(x_in, self.edges, self.weight)
        return out

    def infer(self, x_in: Tensor, adj: Adjacency, *, in_place: bool = False) -> Tensor:  # noqa: ARG002
        """Runs the same steps."""
        out: Tensor = self.conv(x_in, self.edges, self.weight)
        return out


def pyg_edges(adj: Csr, form: Form) -> tuple[Any, Tensor | None]:
    """Returns the matrix in a form that PyG accepts, with int64 indices, and its weights if they are separate."""
    from torch_geometric import EdgeIndex

    if form == "csr":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
            tensor = torch.sparse_csr_tensor(
                adj.rowptr.long(), adj.col.long(), adj.value, adj.shape, check_invariants=False
            )
        return tensor, None
    edges = torch.stack((adj.col.long(), adj.row_index()))
    if form == "edge_index":
        return edges, adj.value
    sorted_edges = EdgeIndex(edges, sparse_size=adj.shape, sort_order="col", is_undirected=True)
    return sorted_edges.fill_cache_(), adj.value
