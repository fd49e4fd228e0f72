"""GCN on parts of the graph with historical embeddings (GNNAutoScale); https://arxiv.org/abs/2106.05609."""

from lazygnn.graph import Graph
from lazygnn.methods.base import Method, Place
from lazygnn.methods.gcn import GCNOptions, adapt, make_gcn
from lazygnn.methods.options import GASOptions, load_parts
from lazygnn.model import Model


class GCNGASOptions(GCNOptions, GASOptions):
    """A GCN with a history after each layer but the last."""


def make_model(options: GCNGASOptions, graph: Graph, place: Place) -> Model:
    """Builds a GCN with histories as wide as its hidden layers."""
    return make_gcn(options, graph, options.open_layers(graph, options.hidden_channels, options.num_layers, place))


METHOD = Method(
    "GCN on parts, with a history per layer",
    "Fey et al., GNNAutoScale, ICML 2021",
    GCNGASOptions,
    make_model,
    load_parts,
    adapt=adapt,
)
