"""GraphSAGE: layers over sampled neighbors; https://arxiv.org/abs/1706.02216."""

from typing import Any

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import NeighborLoader
from lazygnn.methods.base import Cut, Facts, Method, Place
from lazygnn.methods.options import LayerOptions, NeighborOptions
from lazygnn.model import Model
from lazygnn.models import SAGE

# nodes up to which a pass over all neighbors is faster than sampling
_WHOLE = 300_000


class SAGEOptions(LayerOptions, NeighborOptions):
    """As many layers as `num_neighbors` has entries."""


def make_model(options: SAGEOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds the layers."""
    return options.build(SAGE, graph, num_layers=len(options.num_neighbors))


def make_loader(options: SAGEOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of training nodes with sampled neighbors."""
    return NeighborLoader(cut.graph, options.num_neighbors, batch_size=options.batch_size, seed=cut.seed)


def adapt(facts: Facts) -> dict[str, Any]:
    """Adds a layer and batch normalization where labels are plentiful; samples neighbors of a large graph alone."""
    depth = 3 if facts.plentiful else 2
    shared = {"norm": facts.norm, "dropout": 0.5}
    if facts.num_nodes <= _WHOLE:
        return shared | {"num_neighbors": [-1] * depth}
    # a batch at a time updates the weights far more often than a pass over the whole graph
    often = {"batch_size": 8192, "epochs": 30, "warmup_epochs": 1, "eval_every": 1, "lr": 0.003}
    return shared | often | {"num_neighbors": [5, 10, 15][-depth:]}


METHOD = Method(
    "means over sampled neighbors, beside the node itself",
    "Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017",
    SAGEOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
