"""Correct and Smooth: improves predictions after training, with the labels of the training nodes.

Huang et al., Combining Label Propagation and Simple Models Out-performs Graph Neural Networks, ICLR 2021;
https://arxiv.org/abs/2010.13993. Nothing is learned, and both steps are fixed points of the library's propagation.

`N` nodes, `C` outputs.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lazygnn.errors import ConfigError, GraphError, check_number, wrong_type
from lazygnn.fixed_point import check_products, solve
from lazygnn.graph import Graph, check_graph, training_targets
from lazygnn.inference import by_columns
from lazygnn.task import Task

# a row that would be enlarged by more than this is hardly reached by any error and is not enlarged
_LARGEST_SCALE = 1000.0
# how far rounding may take a probability out of [0, 1]
_SLACK = 1e-3


@dataclass(frozen=True)
class CorrectAndSmooth:
    """Corrects probabilities by the errors on training nodes, then smooths them together with the training labels.

    Only the labels of training nodes are read. A training node's own label enters its result, so the score on the
    training nodes says nothing.

    Attributes:
        correct_alpha: Weight of the training errors in each step that spreads them, in (0, 1]; 1 spreads nothing.
        smooth_alpha: Weight of the corrected probabilities in each step that smooths them, in (0, 1]; 1 keeps them.
        scaling: Factor of the spread errors. `auto` gives every row the mean L1 norm of the training errors.
        tolerance: Relative error of both fixed points, in (0, 1).

    Examples:
        >>> import torch
        >>> from lazygnn import CorrectAndSmooth
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> undecided = torch.full((300, 3), 1 / 3)
        >>> better = CorrectAndSmooth()(undecided, graph)
        >>> hits = better.argmax(dim=1) == graph.y
        >>> bool(hits[graph.masks["test"]].float().mean() > 0.5)
        True
    """

    correct_alpha: float = 0.2
    smooth_alpha: float = 0.2
    scaling: float | Literal["auto"] = "auto"
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("correct_alpha", "smooth_alpha"):
            check_number(name, value := getattr(self, name))
            if not 0 < value <= 1:
                raise ConfigError(f"`{name}` is {value}; give a number above 0 and at most 1")
        if self.scaling != "auto":
            if isinstance(self.scaling, str):
                raise ConfigError(f"`scaling` is `{self.scaling}`; give `auto` or a positive number")
            check_number("scaling", self.scaling)
            if not 0 < self.scaling < math.inf:
                raise ConfigError(f"`scaling` is {self.scaling}; give `auto` or a positive number")
        check_number("tolerance", self.tolerance)
        if not 0 < self.tolerance < 1:
            raise ConfigError(f"`tolerance` is {self.tolerance}; give a number between 0 and 1")
        for name in ("correct_alpha", "smooth_alpha"):
            check_products(name, getattr(self, name), self.tolerance)

    def __call__(self, probabilities: Tensor, graph: Graph, *, device: torch.device | None = None) -> Tensor:
        """Returns the corrected and smoothed probabilities, [N, C].

        Args:
            probabilities: Of every node, [N, C]; `graph.task.activate(logits)`.
            graph: Its edges, its training mask and the labels there are read.
            device: Where to propagate, a few columns at a time; by default the device of the graph.
        """
        return self._smooth(self.correct(probabilities, graph, device=device), graph, device)

    @torch.no_grad()
    def correct(self, probabilities: Tensor, graph: Graph, *, device: torch.device | None = None) -> Tensor:
        """Adds the errors on training nodes, spread over the graph and scaled; takes the arguments of a call."""
        x, train = self._check_input(probabilities, graph), graph.masks["train"]
        errors = torch.zeros_like(x)
        errors[train] = training_targets(graph).to(x.dtype) - x[train]
        mean_norm = torch.linalg.vector_norm(errors, ord=1) / graph.num_train
        spread = self._spread(errors, graph, self.correct_alpha, device)
        if self.scaling == "auto":
            scale = mean_norm / torch.linalg.vector_norm(spread, ord=1, dim=1, keepdim=True)
            # a comparison with NaN, from a row without errors, is false
            spread.mul_(torch.where(scale <= _LARGEST_SCALE, scale, 1.0))
        else:
            spread.mul_(self.scaling)
        return _to_probabilities(spread.add_(x), graph.task)

    def smooth(self, probabilities: Tensor, graph: Graph, *, device: torch.device | None = None) -> Tensor:
        """Replaces the training rows by their labels and smooths all rows; takes the arguments of a call.

        The result is a weighted mean of probabilities and labels.
        """
        return self._smooth(self._check_input(probabilities, graph).clone(), graph, device)

    def apply_to_logits(self, logits: Tensor, graph: Graph, *, device: torch.device | None = None) -> Tensor:
        """Returns logits for the logits of a model, [N, C], as metrics and prediction tables take them."""
        self.check(graph)
        return to_logits(self(graph.task.activate(logits), graph, device=device), graph.task)

    def check(self, graph: Graph) -> None:
        """Raises an error for a regression task, and for a graph without training labels that fit its task."""
        check_graph(graph)
        if graph.task.kind == "regression":
            raise ConfigError(
                f"graph `{graph.name}` has a regression task, but Correct and Smooth needs classes; leave it out"
            )
        training_targets(graph)

    def _check_input(self, probabilities: Tensor, graph: Graph) -> Tensor:
        """Returns the probabilities, [N, C], in the number format of the graph; does not copy if they have it."""
        self.check(graph)
        remedy = "give the probabilities of every node, such as `graph.task.activate(logits)`"
        if not isinstance(probabilities, Tensor) or not probabilities.is_floating_point():
            raise GraphError(wrong_type("probabilities", probabilities, remedy))
        if probabilities.shape != (graph.num_nodes, graph.task.num_outputs):
            raise GraphError(
                f"`probabilities` has shape {tuple(probabilities.shape)}, but the graph has {graph.num_nodes} nodes "
                f"and {graph.task.num_outputs} outputs; {remedy}"
            )
        low, high = (float(bound) for bound in probabilities.aminmax())
        if not (low >= -_SLACK and high <= 1 + _SLACK):
            raise GraphError(f"`probabilities` has values from {low:g} to {high:g}; {remedy}")
        return probabilities.to(graph.device, graph.adj.value.dtype)

    @torch.no_grad()
    def _smooth(self, x: Tensor, graph: Graph, device: torch.device | None) -> Tensor:
        """Overwrites `x` by its smoothed rows and returns it."""
        x[graph.masks["train"]] = training_targets(graph).to(x.dtype)
        x = self._spread(x, graph, self.smooth_alpha, device)
        if graph.task.kind == "multi-label":
            # the rows of `A` do not sum to one; single labels need no more than their order within a row
            x.div_(self._spread(x.new_ones(len(x), 1), graph, self.smooth_alpha, device))
        return _to_probabilities(x, graph.task)

    def _spread(self, x: Tensor, graph: Graph, alpha: float, device: torch.device | None) -> Tensor:
        """Overwrites `x` by its fixed point and returns it."""
        device = graph.device if device is None else device
        adj = graph.adj.to(device)
        return by_columns(
            lambda columns: solve(adj, columns, alpha, tolerance=self.tolerance).x, x, device, in_place=True
        )


def to_logits(probabilities: Tensor, task: Task) -> Tensor:
    """Returns finite logits that the task's activation maps to `probabilities`, [N, C].

    Order is kept: a larger probability has a larger logit, up to rounding.
    """
    tiny = torch.finfo(probabilities.dtype).tiny
    log = probabilities.clamp(min=tiny).log()
    return log if task.kind == "single-label" else log - (1 - probabilities).clamp(min=tiny).log()


def _to_probabilities(x: Tensor, task: Task) -> Tensor:
    """Clamps `x` in place: to a distribution in every row for single labels, to [0, 1] otherwise."""
    if task.kind == "multi-label":
        return x.clamp_(0, 1)
    x.clamp_(min=0)
    return x.div_(x.sum(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny))
