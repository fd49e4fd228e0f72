"""Label propagation: the labels of the training nodes, propagated over the graph, without weights."""

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.fixed_point import check_alpha, check_products, solve
from lazygnn.graph import Graph, training_targets
from lazygnn.inference import by_columns
from lazygnn.model import Model

# weight of the mean label of the training nodes, which decides where no label reaches a node
_PRIOR = 1e-9


class LabelPropagation(Model):
    """`F = alpha (I - (1 - alpha) A)^-1 Y`, Zhou et al., NeurIPS 2003; `Y` is zero except on training nodes.

    `A` includes self-loops; `alpha` is one minus theirs. The output is `F` divided by the same propagation of the
    training mask, which is a weighted mean of labels: as logits for classes, as it is for regression.

    Args:
        alpha: Weight of the labels in every step, in (0, 1].
        tolerance: Relative error of the solution.
        class_mass: Whether the total of every class is scaled to its fraction of the training nodes (Zhu et al.,
            ICML 2003, Section 4), so that classes with many edges do not dominate.
    """

    def __init__(self, alpha: float, *, tolerance: float = 1e-6, class_mass: bool = False) -> None:
        super().__init__()
        check_alpha(alpha)
        check_products("alpha", alpha, tolerance)
        self.alpha, self.tolerance, self.class_mass = alpha, tolerance, class_mass
        # `.to(device)` moves it, so that a model without weights has a device
        self.register_buffer("anchor", torch.empty(0), persistent=False)

    @property
    def reads_labels(self) -> bool:
        """Returns that labels are read; they are the only input beside the graph."""
        return True

    @property
    def device(self) -> torch.device:
        """Returns the device on which labels are propagated."""
        return self.get_buffer("anchor").device

    def forward(self, batch: Batch) -> Tensor:  # noqa: ARG002
        """Raises an error, since the model has no weights to train."""
        raise ConfigError("`label-propagation` has no weights to train; set `epochs=0`")

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C]; reads the labels of the training nodes only."""
        self.check_task(graph)
        labels, train = _training_labels(graph)
        adj = graph.adj.to(self.device)

        def propagate(columns: Tensor) -> Tensor:
            return solve(adj, columns, self.alpha, tolerance=self.tolerance).x

        spread = by_columns(propagate, torch.cat((labels, train[:, None]), dim=1), self.device)
        mean = labels.sum(dim=0) / train.sum()
        # both are non-negative, except for the error of the solution
        spread, mass = spread[:, :-1], spread[:, -1:].clamp(min=0)
        if self.class_mass:
            spread = spread.clamp(min=0)
            spread = spread * (mean * spread.sum() / spread.sum(dim=0).clamp(min=_PRIOR))
            mass = spread.sum(dim=1, keepdim=True)
        mean = (spread + _PRIOR * mean) / (mass + _PRIOR)
        if graph.task.kind == "single-label":
            return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()
        if graph.task.kind == "multi-label":
            return mean.logit(eps=1e-6)
        # far from all labels, the error of the solution is larger than the mass
        known = labels[train > 0]
        return mean.clamp(known.amin(dim=0), known.amax(dim=0))

    def check_task(self, graph: Graph) -> None:
        """Raises an error if `class_mass` is set for a task without classes."""
        if self.class_mass and graph.task.kind != "single-label":
            raise ConfigError(
                f"`class_mass` needs a single-label task, the graph has a {graph.task.kind} task; remove `class_mass`"
            )

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns no layers."""
        return []


def _training_labels(graph: Graph) -> tuple[Tensor, Tensor]:
    """Returns `Y`, [N, C], and the training mask as floats, [N]."""
    dtype, known = graph.adj.value.dtype, training_targets(graph)
    mask = graph.masks["train"]
    labels = torch.zeros(graph.num_nodes, graph.task.num_outputs, dtype=dtype, device=graph.device)
    labels[mask] = known.to(dtype)
    return labels, mask.to(dtype)
