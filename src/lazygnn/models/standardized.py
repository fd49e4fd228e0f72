"""A model that learns standardized regression targets, and whose outputs are in the units of the data.

`N` nodes of the graph, `T` targets of a batch, `C` outputs.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph, training_targets
from lazygnn.model import Model
from lazygnn.models.mvs_gcn import MVSGCN
from lazygnn.task import Task


class Standardized(Model):
    """Wraps a model: its targets have mean 0 and deviation 1 in training, its outputs are scaled back.

    Both buffers are saved with the weights, so that a run predicts with the scale that it was trained with.

    Args:
        model: The model to train.
        center: Mean of every target over the training nodes, [C].
        scale: Standard deviation of every target, [C]; 1 for targets that are all equal.
    """

    target_center: Tensor
    target_scale: Tensor

    def __init__(self, model: Model, center: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.model = model
        self.replayable = model.replayable
        self.register_buffer("target_center", center)
        self.register_buffer("target_scale", scale)

    @staticmethod
    def fit(model: Model, graph: Graph) -> "Standardized":
        """Wraps a model with the scale of the training targets of a graph."""
        known = training_targets(graph).double()
        scale = known.std(dim=0, correction=0)
        # rounding leaves a little deviation of equal numbers
        constant = scale <= 1e-6 * known.abs().amax(dim=0)
        return Standardized(model, known.mean(dim=0).float(), torch.where(constant, 1.0, scale).float())

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets in the units of the data, [T, C]."""
        outputs: Tensor = self.model(self._scaled_batch(batch))
        return self._restored(outputs)

    def loss(self, batch: Batch, task: Task) -> Tensor:
        """Returns the training loss of a batch, in units of the standardized targets."""
        return self.model.loss(self._scaled_batch(batch), task)

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node in the units of the data, [N, C]."""
        return self._restored(self.model.infer(self._scaled_graph(graph)))

    @torch.no_grad()
    def select(self, graph: Graph, score: Callable[[Tensor], float]) -> Tensor:
        """Returns the outputs of every node after choosing what is chosen on validation."""
        return self._restored(self.model.select(self._scaled_graph(graph), lambda out: score(self._restored(out))))

    @property
    def reads_labels(self) -> bool:
        """Returns whether the model reads the labels of training nodes."""
        return self.model.reads_labels

    @property
    def shares(self) -> dict[str, float]:
        """Returns the weights of the models that the outputs are an average of."""
        return self.model.shares

    def embed(self, graph: Graph) -> Tensor:
        """Returns the values of every node that the last layer reads, [N, H]."""
        return self.model.embed(self._scaled_graph(graph))

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer, from input to output."""
        return self.model.layer_parameters()

    def fill(self, batch: Batch) -> None:
        """Initializes the histories of the targets of a batch."""
        self.model.fill(self._scaled_batch(batch))

    def diagnose(self, graph: Graph) -> dict[str, float]:
        """Returns errors of the histories by name."""
        return self.model.diagnose(self._scaled_graph(graph))

    def measure(self, batch: Batch, task: Task) -> None:
        """Lets the model measure gradient norms, of the loss that it is trained with (MVS-GNN)."""
        assert isinstance(self.model, MVSGCN)
        self.model.measure(self._scaled_batch(batch), task)

    def stored_norms(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradient norms of some nodes, and whether they were ever measured."""
        assert isinstance(self.model, MVSGCN)
        return self.model.stored_norms(nodes)

    def _scaled_batch(self, batch: Batch) -> Batch:
        ring = None if batch.ring is None else replace(batch.ring, y=self._scaled(batch.ring.y))
        return replace(batch, y=self._scaled(batch.y), ring=ring)

    def _scaled_graph(self, graph: Graph) -> Graph:
        # a graph to predict on need not have targets like these; some models read those of training nodes
        fits = graph.y.is_floating_point() and graph.y.shape[1:] == self.target_center.shape
        return replace(graph, y=self._scaled(graph.y)) if fits else graph

    def _scaled(self, y: Tensor) -> Tensor:
        return (y - self.target_center.to(y.device)) / self.target_scale.to(y.device)

    def _restored(self, outputs: Tensor) -> Tensor:
        # the sum of a number in bfloat16 and a large center would lose its digits
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        return torch.addcmul(self.target_center.to(outputs), outputs, self.target_scale.to(outputs))
