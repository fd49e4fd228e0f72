"""APPNP on parts of the graph with historical embeddings (GNNAutoScale); https://arxiv.org/abs/2106.05609."""

from lazygnn.graph import Graph
from lazygnn.methods.appnp import APPNPOptions
from lazygnn.methods.base import Method, Place
from lazygnn.methods.mlp import adapt, transform_and
from lazygnn.methods.options import GASOptions, load_parts
from lazygnn.model import Model
from lazygnn.propagation import HistoricalPropagation


class APPNPGASOptions(APPNPOptions, GASOptions):
    """APPNP with a history after each step but the last."""


def make_model(options: APPNPGASOptions, graph: Graph, place: Place) -> Model:
    """Builds the MLP with steps that read and write histories."""
    histories = options.open_layers(graph, options.channels(graph), options.num_layers, place)
    return transform_and(HistoricalPropagation(options.alpha, options.num_layers, histories), options, graph)


METHOD = Method(
    "APPNP on parts, with a history per step",
    "Fey et al., GNNAutoScale, ICML 2021",
    APPNPGASOptions,
    make_model,
    load_parts,
    adapt=adapt,
)
