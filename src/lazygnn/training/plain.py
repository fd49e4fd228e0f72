"""Any `nn.Module` as a model: `forward` takes a batch, and inference takes the whole graph as one batch.

`N` nodes of the graph, `T` targets of a batch, `C` outputs.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError, wrong_type
from lazygnn.graph import Graph
from lazygnn.model import Model, weighted_loss
from lazygnn.task import Task

# where a module keeps its threshold
_KEPT = "_lazygnn_threshold"


class PlainModel(Model):
    """Gives a module what training and inference need, with the weights of the module.

    Args:
        module: Its `forward` takes a `Batch` and returns the outputs of the targets, [T, C]. Its attribute `num_layers`
            is the number of matrices of `batch.adjs` that it reads.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.num_layers = _num_layers(module)
        self.train(module.training)
        if (threshold := module.__dict__.get(_KEPT)) is not None:
            super().set_threshold(threshold)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        outputs: Any = self.module(batch)
        if not isinstance(outputs, Tensor):
            raise ConfigError(wrong_type(f"{self._name}(batch)", outputs, "return a tensor, a row for every target"))
        if outputs.dim() != 2 or len(outputs) != batch.num_targets:
            raise ConfigError(
                f"`{self._name}.forward` returns shape {tuple(outputs.shape)} for {batch.num_targets} targets; return "
                "a row for each of them, `outputs[:batch.num_targets]`"
            )
        return outputs

    def loss(self, batch: Batch, task: Task) -> Tensor:
        """Returns the training loss of a batch: that of its outputs, weighted by node."""
        outputs = self(batch)
        task.check(outputs, f"`{self._name}.forward`")
        return weighted_loss(outputs, batch.y, batch.weight, task)

    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C], from one batch of the whole graph."""
        outputs: Tensor = self(Batch.full(graph, self.num_layers).to(self.device))
        graph.task.check(outputs, f"`{self._name}.forward`")
        return outputs.to(graph.device)

    @torch.no_grad()
    def fill(self, batch: Batch) -> None:
        """Initializes the histories that the module has for the targets of a batch, by a pass without gradients."""
        self(batch)

    def set_threshold(self, threshold: float | None) -> None:
        """Sets the threshold; the module keeps it, so that the next model that it is wrapped into has it, too."""
        super().set_threshold(threshold)
        # beside the attributes of the module, so that it is in none of its tensors
        self.module.__dict__[_KEPT] = threshold

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns all weights as one layer: the order of a module's layers is not known."""
        return [list(self.module.parameters())]

    @property
    def device(self) -> torch.device:
        """Returns the device of the weights; that of a module without weights is the CPU."""
        return next((weight.device for weight in self.module.parameters()), torch.device("cpu"))

    @property
    def _name(self) -> str:
        return type(self.module).__name__


def as_model(module: nn.Module) -> Model:
    """Returns a model as it is, and wraps any other module; refuses one that lacks what training needs."""
    if isinstance(module, Model):
        _check_methods(module)
        return module
    if not isinstance(module, nn.Module):
        raise ConfigError(wrong_type("model", module, "give a model of `build`, or an `nn.Module` of your own"))
    return PlainModel(module)


def _check_methods(model: Model) -> None:
    for name in ("forward", "infer", "layer_parameters"):
        method: Callable[..., Any] = getattr(type(model), name)
        if getattr(method, "__isabstractmethod__", False):
            kind = type(model).__name__
            raise ConfigError(
                f"`{kind}` has no method `{name}`, which a `Model` must have; define it, or derive `{kind}` from "
                "`nn.Module`, which needs `forward(batch)` and `num_layers` alone"
            )


def _num_layers(module: nn.Module) -> int:
    kind = type(module).__name__
    try:
        inspect.signature(module.forward).bind(None)
    except TypeError:
        taken = ", ".join(inspect.signature(module.forward).parameters)
        raise ConfigError(
            f"`{kind}.forward` takes ({taken}); give it one argument, a `Batch` with features `x` and matrices `adjs`"
        ) from None
    found = getattr(module, "num_layers", None)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ConfigError(
            f"`{kind}` has no whole number `num_layers`; set it to the number of matrices of `batch.adjs` that its "
            "`forward(batch)` reads, such as `num_layers = 2`"
        )
    return found
