"""GCN: graph convolutions over the whole graph; https://arxiv.org/abs/1609.02907."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.history import History
from lazygnn.loader import FullLoader
from lazygnn.methods.base import Cut, Facts, Method, Place
from lazygnn.methods.options import LayerOptions
from lazygnn.model import Model
from lazygnn.models import GCN
from lazygnn.tunable import Range


class GCNOptions(LayerOptions):
    """A stack of convolutions."""

    num_layers: Annotated[int, Range(1, 5)] = Field(2, ge=1, le=10_000, description="convolutions")


def make_gcn(options: GCNOptions, graph: Graph, histories: Sequence[History] = ()) -> GCN:
    """Builds the convolutions, with a history after each but the last where they have one."""
    return options.build(
        GCN,
        graph,
        num_layers=options.num_layers,
        histories=histories,
    )


def make_model(options: GCNOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds a GCN without histories."""
    return make_gcn(options, graph)


def make_loader(options: GCNOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of the whole graph."""
    return FullLoader(cut.graph, options.num_layers)


def adapt(facts: Facts) -> dict[str, Any]:
    """Adds a layer and batch normalization where labels are plentiful."""
    return {"num_layers": 3 if facts.plentiful else 2, "norm": facts.norm}


METHOD = Method(
    "convolutions over the whole graph",
    "Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017",
    GCNOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
