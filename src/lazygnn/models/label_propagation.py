"""Label propagation: the labels of the training nodes spread over the graph, without weights."""

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.fixed_point import check_alpha, solve
from lazygnn.graph import Graph
from lazygnn.inference import by_columns
from lazygnn.model import Model

# weight of the training nodes' mean label beside what reaches a node: what a node gets that nothing reaches
_PRIOR = 1e-9


class LabelPropagation(Model):
    """`F = alpha (I - (1 - alpha) A)^-1 Y` (Zhou et al., NeurIPS 2003), `Y` zero but for the training nodes.

    `A` is the library's, self-loops included; `alpha` is one minus theirs. What comes out is `F` relative to the same
    propagation of the training mask, a mean of labels: as logits for classes, as it is for numbers.

    Args:
        alpha: Weight of the labels in every step, in (0, 1].
        tolerance: Relative error of the solution.
        class_mass: Whether every class is scaled to the share of all that it has among the training nodes (Zhu et al.,
            ICML 2003, Section 4), so that well-connected labels do not take the rest.
    """

    def __init__(self, alpha: float, *, tolerance: float = 1e-6, class_mass: bool = False) -> None:
        super().__init__()
        check_alpha(alpha)
        self.alpha, self.tolerance, self.class_mass = alpha, tolerance, class_mass
        # says where the model is, which has no weights to say so
        self.register_buffer("place", torch.empty(0), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where labels are propagated."""
        return self.get_buffer("place").device

    def forward(self, batch: Batch) -> Tensor:  # noqa: ARG002
        """There is nothing to learn."""
        raise ConfigError("`label-propagation` has no weights to train; set `epochs=0`")

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Outputs of every node, [N, C]; of all labels it reads those of the training nodes alone."""
        self.check_task(graph)
        labels, train = _training_labels(graph)
        adj = graph.adj.to(self.device)

        def propagate(columns: Tensor) -> Tensor:
            return solve(adj, columns, self.alpha, tolerance=self.tolerance).x

        spread = by_columns(propagate, torch.cat((labels, train[:, None]), dim=1), self.device)
        mean = labels.sum(dim=0) / train.sum()
        # neither can spread to less than zero, but for the error of the solution
        spread, mass = spread[:, :-1], spread[:, -1:].clamp(min=0)
        if self.class_mass:
            spread = spread.clamp(min=0)
            spread = spread * (mean * spread.sum() / spread.sum(dim=0).clamp(min=_PRIOR))
            mass = spread.sum(dim=1, keepdim=True)
        mean = (spread + _PRIOR * mean) / (mass + _PRIOR)
        if graph.task.kind == "single-label":
            return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()
        return mean.logit(eps=1e-6) if graph.task.kind == "multi-label" else mean

    def check_task(self, graph: Graph) -> None:
        """Refuses to share out among classes where there are none."""
        if self.class_mass and graph.task.kind != "single-label":
            raise ConfigError(
                f"`class_mass` shares all out among classes, the task is {graph.task.kind}; leave `class_mass` out"
            )

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """None."""
        return []


def _training_labels(graph: Graph) -> tuple[Tensor, Tensor]:
    """`Y`, [N, C], and the training mask as numbers, [N]."""
    dtype, num_train = graph.adj.value.dtype, graph.num_train
    mask = graph.masks["train"]
    known = graph.y[mask]
    if graph.task.kind == "single-label":
        known = nn.functional.one_hot(known, graph.task.num_outputs)
    labels = torch.zeros(graph.num_nodes, graph.task.num_outputs, dtype=dtype, device=graph.device)
    labels[mask] = known.to(dtype).view(num_train, -1)
    return labels, mask.to(dtype)
