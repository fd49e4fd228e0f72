"""Transform, then propagate: MLP, APPNP and LazyGNN are one model with different propagation.

`F` rows of a batch the transform runs on, `T` targets, `N` nodes of the graph, `C` outputs.
"""

from pathlib import Path
from typing import Self, cast

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch, check_batch
from lazygnn.graph import Graph, check_graph
from lazygnn.history import on_disk, open_history
from lazygnn.history.warmstart import WarmStart
from lazygnn.inference import by_rows, evaluating
from lazygnn.model import Model
from lazygnn.models.layers import MLP, Linear
from lazygnn.propagation import Drift, LazyPropagation, Propagation

DEFAULT_START = Drift(0.1)


class Decoupled(Model):
    """`head(propagate(transform(x)))`, Eqs. (2)-(4) or (5)-(7).

    Args:
        transform: The MLP; its output is propagated.
        propagation: None, exact or lazy.
        head: Maps the propagated values to the outputs, if the two differ in width.
        scratch: Folder for the rows of all nodes during inference; `None` keeps them in memory.
    """

    replayable = True

    def __init__(
        self, transform: MLP, propagation: Propagation, head: Linear | None = None, *, scratch: Path | None = None
    ) -> None:
        super().__init__()
        self.scratch = scratch
        self.transform = transform
        self.propagation = propagation
        self.head = head

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        check_batch(batch)
        x_in = self.transform(batch.x, batch.num_targets)  # Eq. (15)
        return self._output(self.propagation(x_in, batch))

    def fill(self, batch: Batch) -> None:
        """Initializes the histories of the targets of a batch, in a pass without gradients."""
        with torch.no_grad():
            self.propagation.fill(self.transform(batch.x, batch.num_targets), batch)

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C], on the device of the graph; exact, without histories.

        Hidden activations exist for a block of nodes at a time, so the outputs need most of the memory.
        """
        propagated = self._propagated(graph)
        return propagated if self.head is None else by_rows(self.head, self.device, propagated)

    @torch.no_grad()
    def embed(self, graph: Graph) -> Tensor:
        """Returns the propagated values of every node that the last layer reads.

        These are the input of the head, or without one the propagated hidden layer of the MLP.
        """
        if self.head is not None:
            return self._propagated(graph)
        with evaluating(self.transform):
            hidden = by_rows(self.transform.hidden, self.device, graph.x, allocate=on_disk(self.scratch, "inference"))
        return self.propagation.infer(hidden, graph.adj.to(self.device), in_place=True)

    @torch.no_grad()
    def diagnose(self, graph: Graph) -> dict[str, float]:
        """Returns the error of the stored solution, and the cosine and length of the last gradient, against exact ones.

        A history that stores no inputs is compared with the current inputs, without dropout.
        """
        return self.propagation.diagnose(graph.adj.to(self.device), lambda: self._transform_all(graph))

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer, the head last."""
        head = [] if self.head is None else [list(self.head.parameters())]
        return self.transform.layer_parameters() + head

    def _propagated(self, graph: Graph) -> Tensor:
        return self.propagation.infer(self._transform_all(graph), graph.adj.to(self.device), in_place=True)

    def _transform_all(self, graph: Graph) -> Tensor:
        """Transforms every node, block by block and without dropout, [N, C] on the device of the graph."""
        with evaluating(self.transform):
            return by_rows(self.transform, self.device, graph.x, allocate=on_disk(self.scratch, "inference"))

    def _output(self, x: Tensor) -> Tensor:
        return x if self.head is None else cast(Tensor, self.head(x))


class LazyGNN(Decoupled):
    """An MLP with lazy propagation, ready for your own training loop; https://arxiv.org/abs/2302.01503.

    The number of steps a pass takes is that of the batch: `Batch.full(graph, num_layers=2)`.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the MLP.
        out_channels: Number of outputs.
        num_nodes: Number of nodes, the rows of the history.
        mlp_layers: Depth of the MLP.
        dropout: Share of hidden units dropped in training.
        alpha: Weight of the transformed features in every step.
        start: Warm start of the forward pass, our drift by default; the paper's is `Mix(0.5)`.
        gradient_start: Warm start of the backward pass; `None` stores no gradients. The paper's is `Mix(0.5)`.
        device: Device of the history; `.to(device)` moves the model, but not its history.

    Examples:
        >>> from lazygnn import Batch, LazyGNN
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> model = LazyGNN(8, 16, 3, num_nodes=300)
        >>> batch = Batch.full(graph, num_layers=2)
        >>> model.loss(batch, graph.task).backward()
        >>> model(batch).shape
        torch.Size([300, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_nodes: int,
        mlp_layers: int = 2,
        dropout: float = 0.5,
        alpha: float = 0.1,
        start: WarmStart = DEFAULT_START,
        gradient_start: WarmStart | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        features = open_history(num_nodes, out_channels, start, device=device)
        gradients = (
            None if gradient_start is None else open_history(num_nodes, out_channels, gradient_start, device=device)
        )
        propagation = LazyPropagation(alpha, features, gradients)
        super().__init__(
            MLP(in_channels, hidden_channels, out_channels, mlp_layers=mlp_layers, dropout=dropout), propagation
        )
        self.propagation: LazyPropagation = propagation

    def fit_response(self, graph: Graph, num_layers: int, *, label_step: bool = False) -> Self:
        """Fits the steps of a pass to a graph before training, as the method `lazygnn` does; plain steps otherwise.

        Args:
            graph: The graph to train on.
            num_layers: Steps of a pass, as in `Batch.full(graph, num_layers)`.
            label_step: Whether batches take one more step on labeled rows.
        """
        check_graph(graph)
        self.propagation.fit(graph.adj, num_layers, label_step=label_step)
        return self
