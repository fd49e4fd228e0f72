"""GCN on parts of the graph with compensated values and gradients (LMC); https://arxiv.org/abs/2302.00924."""

from typing import ClassVar, Literal

from pydantic import Field

from lazygnn.graph import Graph
from lazygnn.methods.base import Method, Place
from lazygnn.methods.gcn import GCNOptions, adapt
from lazygnn.methods.options import FOR_HISTORIES, ClusterOptions, HistoryOptions, load_parts
from lazygnn.model import Model
from lazygnn.models import LMC
from lazygnn.propagation import Mix
from lazygnn.propagation.compensation import Compensation


class GCNLMCOptions(GCNOptions, ClusterOptions, HistoryOptions):
    """A GCN with histories of values and gradients."""

    for_parts: ClassVar[tuple[str, ...]] = (*ClusterOptions.for_parts, *FOR_HISTORIES, "beta", "score")

    halo: Literal["induced"] = Field("induced", description="one hop of neighbors with their edges in the batch")
    beta: float = Field(
        0.5, ge=0, le=1, description="largest weight of computed rows of the halo; stored ones have the rest"
    )
    score: Literal["constant", "linear", "concave", "convex"] = Field(
        "linear", description="how that weight rises with the share of a node's neighbors that is in the batch"
    )


def make_model(options: GCNLMCOptions, graph: Graph, place: Place) -> Model:
    """Builds a GCN, with histories in mini-batch training alone."""
    outputs, widths = graph.task.num_outputs, [options.hidden_channels] * (options.num_layers - 1)
    compensation = None
    if place.training and options.num_parts > 1:
        # targets are computed, not warm-started
        start = Mix(1.0)
        features = [
            options.open(graph, width, start, place, f"layer-{index + 1}")
            for index, width in enumerate([*widths, outputs])
        ]
        gradients = [
            options.open(graph, width, start, place, f"gradient-{index + 2}") for index, width in enumerate(widths[1:])
        ]
        compensation = Compensation(features, gradients, beta=options.beta, score=options.score)
    return options.build(LMC, graph, num_layers=options.num_layers, compensation=compensation)


METHOD = Method(
    "GCN on parts, with stored values and gradients of the halo",
    "Shi et al., LMC: Fast Training of GNNs via Subgraph Sampling with Provable Convergence, ICLR 2023",
    GCNLMCOptions,
    make_model,
    load_parts,
    adapt=adapt,
)
