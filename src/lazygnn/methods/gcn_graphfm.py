"""GCN on parts of the graph with histories that follow the batches around them (GraphFM-OB).

https://arxiv.org/abs/2206.07161
"""

from typing import ClassVar

from pydantic import Field

from lazygnn.graph import Graph
from lazygnn.methods.base import Method, Place
from lazygnn.methods.gcn import GCNOptions, adapt
from lazygnn.methods.options import GASOptions, load_parts
from lazygnn.model import Model
from lazygnn.models import GraphFM


class GCNGraphFMOptions(GCNOptions, GASOptions):
    """A GCN with a history after each layer but the last."""

    for_parts: ClassVar[tuple[str, ...]] = (*GASOptions.for_parts, "momentum")

    momentum: float = Field(
        0.1, ge=0, le=1, description="weight of a batch's estimate in the stored rows of its halo; 0 means gcn-gas"
    )


def make_model(options: GCNGraphFMOptions, graph: Graph, place: Place) -> Model:
    """Builds a GCN with histories as wide as its hidden layers."""
    return options.build(
        GraphFM,
        graph,
        num_layers=options.num_layers,
        histories=options.open_layers(graph, options.hidden_channels, options.num_layers, place),
        momentum=options.momentum,
    )


METHOD = Method(
    "GCN on parts, with histories that follow the batches around them",
    "Yu et al., GraphFM: Improving Large-Scale GNN Training via Feature Momentum, ICML 2022",
    GCNGraphFMOptions,
    make_model,
    load_parts,
    adapt=adapt,
)
