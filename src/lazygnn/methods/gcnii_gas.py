"""GCNII on parts of the graph with historical embeddings (GNNAutoScale); https://arxiv.org/abs/2106.05609."""

from lazygnn.graph import Graph
from lazygnn.methods.base import Method, Place
from lazygnn.methods.gcnii import GCNIIOptions, adapt, make_gcnii
from lazygnn.methods.options import GASOptions, load_parts
from lazygnn.model import Model


class GCNIIGASOptions(GCNIIOptions, GASOptions):
    """A GCNII with a history after each layer but the last."""


def make_model(options: GCNIIGASOptions, graph: Graph, place: Place) -> Model:
    """Builds a GCNII with histories as wide as its hidden layers."""
    return make_gcnii(options, graph, options.open_layers(graph, options.hidden_channels, options.num_layers, place))


METHOD = Method(
    "GCNII on parts, with a history per layer",
    "Fey et al., GNNAutoScale, ICML 2021",
    GCNIIGASOptions,
    make_model,
    load_parts,
    adapt=adapt,
)
