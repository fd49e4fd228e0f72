"""The layer loop that GCN, GraphSAGE and Cluster-GCN share: one layer and one matrix at a time.

`T` targets of a batch, `N` nodes of the graph, `C` outputs.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, TypedDict, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import History
from lazygnn.inference import by_rows, evaluating
from lazygnn.model import Model
from lazygnn.models.layers import NormKind, drop, dropout, make_norm
from lazygnn.models.parameters import parameters_by_layer
from lazygnn.ops import Adjacency, Csr
from lazygnn.propagation import LayerMemory, layer_matrices


class LayerArguments(TypedDict, total=False):
    """What all models of layers take, and subclasses of them pass on."""

    norm: NormKind
    dropout: float
    input_dropout: float


class Layer(nn.Module):
    """One layer of a `Stack`.

    Args:
        in_channels: Width of its input.
        out_channels: Width of its output.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:  # noqa: ARG002
        super().__init__()

    @abstractmethod
    def forward(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        """Computes the rows of `adj` from the rows of `x`, one for each column of `adj`."""

    @abstractmethod
    def infer(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        """Computes the layer for a whole graph in bounded memory; `x` may be on another device than the weights."""


class Stack(Model):
    """`x <- layer(x, adj)` once for each matrix of the batch, with norm, ReLU and dropout between the layers.

    A subclass sets `layer`. With histories, a batch may have a halo: the output of every layer but the last is stored
    for the targets and read for the halo (GNNAutoScale, Fey et al., ICML 2021, https://arxiv.org/abs/2106.05609).

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of outputs.
        num_layers: Number of layers.
        norm: Normalization after every layer but the last.
        dropout: Fraction of hidden units dropped in training.
        input_dropout: Fraction of input entries dropped in training; for sparse features, of the stored entries.
        histories: One for each layer but the last, for batches with a halo.
    """

    layer: ClassVar[type[Layer]]
    replayable = True

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
        histories: Sequence[History] = (),
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(self.layer(*widths) for widths in pairwise(sizes))
        self.norms = nn.ModuleList(make_norm(norm, hidden_channels) for _ in range(num_layers - 1))
        self.memory = LayerMemory(num_layers, histories)
        self.dropout = dropout
        self.input_dropout = input_dropout

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        adjs = layer_matrices(batch, len(self.layers))
        x: Any = drop(batch.x, self.input_dropout, self.training)
        for index, (layer, adj) in enumerate(zip(self.layers, adjs, strict=True)):
            x = x if index == 0 else self.activate(index - 1, x, batch)
            x = layer(x, adj)
        return cast(Tensor, x)

    def activate(self, index: int, x: Tensor, batch: Batch) -> Tensor:
        """Turns the output of layer `index` into the input of the next; histories are stored before dropout."""
        x = self.memory(index, F.relu(self.norms[index](x)), batch)
        return dropout(x, self.dropout, self.training)

    def fill(self, batch: Batch) -> None:
        """Stores the output of every layer but the last for the targets."""
        with torch.no_grad():
            self(batch)

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C], on the device of the graph, layer by layer."""
        adj = graph.adj.to(self.device)
        with evaluating(self):
            return cast(Layer, self.layers[-1]).infer(self._before_last(graph, adj), adj)

    @torch.no_grad()
    def embed(self, graph: Graph) -> Tensor:
        """Returns the input of the last layer for every node, [N, H], on the device of the graph."""
        if len(self.layers) == 1:
            raise ConfigError("the model has one layer, so there is no hidden layer to return; train with 2 or more")
        with evaluating(self):
            x = self._before_last(graph, graph.adj.to(self.device))
        assert isinstance(x, Tensor)
        return x

    def _before_last(self, graph: Graph, adj: Adjacency) -> Tensor | Csr:
        x: Tensor | Csr = graph.x
        for layer, norm in zip(cast(list[Layer], list(self.layers[:-1])), self.norms, strict=True):
            x = by_rows(nn.Sequential(norm, nn.ReLU()), self.device, layer.infer(x, adj))
        return x

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer; a norm belongs to the layer before it."""
        return parameters_by_layer(self.layers, self.norms)
