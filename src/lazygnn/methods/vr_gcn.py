"""VR-GCN: a GCN on a few sampled neighbors, with histories as control variates; https://arxiv.org/abs/1710.10568."""

from typing import Any

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import ControlLoader
from lazygnn.methods import gcn
from lazygnn.methods.base import Cut, Facts, Method, Place
from lazygnn.methods.fastgcn import PrecomputedOptions, prepare
from lazygnn.methods.options import BatchOptions, HistoryOptions
from lazygnn.model import Model
from lazygnn.models import VRGCN


class VRGCNOptions(PrecomputedOptions, BatchOptions, HistoryOptions):
    """Convolutions on sampled neighbors, with a history before each but the first."""

    num_neighbors: int = Field(2, ge=1, description="neighbors sampled for a node in each layer, beside itself")


def make_model(options: VRGCNOptions, graph: Graph, place: Place) -> Model:
    """Builds the layers with histories as wide as the hidden layers; inference needs none."""
    return options.build(
        VRGCN,
        graph,
        num_layers=options.num_layers,
        histories=options.open_layers(graph, options.hidden_channels, options.num_layers, place),
    )


def make_loader(options: VRGCNOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of training nodes with sampled neighbors."""
    return ControlLoader(
        cut.graph,
        options.num_layers - 1,
        num_neighbors=options.num_neighbors,
        batch_size=options.batch_size,
        seed=cut.seed,
    )


def adapt(facts: Facts) -> dict[str, Any]:
    """Samples two neighbors; takes the layers of a GCN."""
    return gcn.adapt(facts) | {"num_neighbors": 2}


METHOD = Method(
    "GCN on a few sampled neighbors, with histories of all as control variates",
    "Chen et al., Stochastic Training of Graph Convolutional Networks with Variance Reduction, ICML 2018",
    VRGCNOptions,
    make_model,
    make_loader,
    prepare,
    adapt=adapt,
)
