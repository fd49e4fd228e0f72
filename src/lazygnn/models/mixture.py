"""Models trained side by side; validation chooses how to average them. Ours; not in the paper.

`T` targets of a batch, `N` nodes of the graph, `C` outputs, `M` models.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError, wrong_type
from lazygnn.graph import Graph
from lazygnn.history import on_disk
from lazygnn.inference import by_rows
from lazygnn.model import Model, largest_error
from lazygnn.task import Task

# validation chooses among all averages whose weights are multiples of one over this number
STEPS = 4


class Mixture(Model):
    """The outputs are a weighted average of those of several models.

    Each model has a loss of its own, so none changes the training of another. The weights are chosen on validation at
    every evaluation, like the best epoch. Of averages that are equally good, one with more of the last model is taken.
    Before any validation all weights are equal.

    Args:
        models: Two or more, with the same outputs; the one that overfits least is the last.
        names: Of the models, for reports; numbers by default.
        scratch: Folder for the embeddings of all nodes, if these do not fit in memory.
    """

    weights: Tensor

    def __init__(
        self, models: Sequence[Model], *, names: Sequence[str] | None = None, scratch: Path | None = None
    ) -> None:
        super().__init__()
        if not isinstance(models, Sequence) or len(models) < 2 or not all(isinstance(each, Model) for each in models):
            raise ConfigError(wrong_type("models", models, "give a list of two or more `Model`"))
        if names is not None and len(set(names)) != len(models):
            raise ConfigError(f"`names` is {names} for {len(models)} models; give each a name of its own")
        self.models = nn.ModuleList(models)
        self.names = [str(number) for number in range(len(models))] if names is None else list(names)
        self.scratch = scratch
        self.replayable = all(model.replayable for model in models)
        self.register_buffer("weights", torch.full((len(models),), 1 / len(models)))

    def __iter__(self) -> Iterator[Model]:
        """Returns the models in order."""
        return iter(cast(list[Model], list(self.models)))

    def forward(self, batch: Batch) -> Tensor:
        """Returns the averaged outputs of the targets, [T, C]."""
        outputs = [model(batch) for model in self]
        # under autocast models may differ in type
        dtype = outputs[0].dtype
        return torch.stack([w.to(dtype) * out.to(dtype) for w, out in zip(self.weights, outputs, strict=True)]).sum(0)

    def loss(self, batch: Batch, task: Task) -> Tensor:
        """Returns the sum of the losses of the models; it does not depend on their weights."""
        return torch.stack([model.loss(batch, task) for model in self]).sum()

    def fill(self, batch: Batch) -> None:
        """Initializes the histories of the targets of a batch, in every model."""
        for model in self:
            model.fill(batch)

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the averaged outputs of every node, [N, C]; a model of weight 0 is skipped."""
        weights = self.weights.tolist()
        return _average([model.infer(graph) if w else None for w, model in zip(weights, self, strict=True)], weights)

    @torch.no_grad()
    def select(self, graph: Graph, score: Callable[[Tensor], float]) -> Tensor:
        """Chooses the weights on validation, and returns the averaged outputs of every node, [N, C]."""
        outputs = [model.infer(graph) for model in self]
        rows = [each[graph.masks["val"]] for each in outputs]
        best = max(_averages(len(outputs)), key=lambda weights: score(_average(rows, weights)))
        self.weights.copy_(torch.tensor(best))
        return _average(outputs, best)

    @property
    def shares(self) -> dict[str, float]:
        """Returns the weight of every model by name."""
        return dict(zip(self.names, self.weights.tolist(), strict=True))

    @property
    def reads_labels(self) -> bool:
        """Returns whether a model that counts reads the labels of training nodes."""
        return any(w > 0 and model.reads_labels for w, model in zip(self.weights.tolist(), self, strict=True))

    @torch.no_grad()
    def embed(self, graph: Graph) -> Tensor:
        """Returns the values that the last layers read, side by side, [N, H]; a model of weight 0 is skipped."""
        parts = [model.embed(graph) for w, model in zip(self.weights.tolist(), self, strict=True) if w]
        if len(parts) == 1:
            return parts[0]

        def beside(*rows: Tensor) -> Tensor:
            return torch.cat(rows, dim=1)

        return by_rows(beside, parts[0].device, *parts, allocate=on_disk(self.scratch, "mixture"))

    @torch.no_grad()
    def diagnose(self, graph: Graph) -> dict[str, float]:
        """Returns the largest error of a stored solution over all models."""
        return largest_error(model.diagnose(graph) for model in self)

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer, model by model."""
        return [layer for model in self for layer in model.layer_parameters()]


def _averages(num_models: int) -> list[tuple[float, ...]]:
    """Returns all weights to choose from; those of the last model alone are the first."""
    counts = product(range(STEPS + 1), repeat=num_models)
    found = [tuple(count / STEPS for count in each) for each in counts if sum(each) == STEPS]
    return sorted(found, key=lambda weights: -weights[-1])


def _average(outputs: Sequence[Tensor | None], weights: Sequence[float]) -> Tensor:
    """Returns the weighted sum; an output of weight 0 is not read, and one of weight 1 is returned as it is."""
    used = [(w, out) for w, out in zip(weights, outputs, strict=True) if w and out is not None]
    (first, total), *rest = used
    total = total if first == 1 else first * total
    for w, out in rest:
        total.add_(out, alpha=w)
    return total
