"""Layer by layer over the graph: GCN and GCNII, and with historical embeddings (GNNAutoScale) GCN, GCNII and APPNP."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.history import History
from lazygnn.history.warmstart import Mix
from lazygnn.methods.base import ClusterOptions, Cut, HistoryOptions, Method, MethodOptions, Place, make_loader
from lazygnn.methods.decoupled import APPNPOptions, channels_of, transform_and
from lazygnn.model import Model
from lazygnn.models import GCN, GCNII
from lazygnn.propagation import HistoricalPropagation


class GCNOptions(MethodOptions):
    """Convolutions with normalisation and dropout between them."""

    hidden_channels: int = Field(64, ge=1, description="width of the hidden layers")
    num_layers: int = Field(2, ge=1, description="convolutions")
    norm: Literal["batch", "layer", "none"] = Field("none", description="normalisation between the layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="share of hidden units dropped in training")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="share of input entries dropped in training")


class GCNIIOptions(GCNOptions):
    """Convolutions that keep hold of their input."""

    num_layers: int = Field(16, ge=1, description="convolutions")
    alpha: float = Field(0.1, ge=0, le=1, description="weight of the transformed features in every layer")
    theta: float = Field(0.5, gt=0, description="how far a layer may be from the identity")
    shared_weights: bool = Field(True, description="one matrix for neighbours and input; two make GCNII*")


class GASOptions(ClusterOptions, HistoryOptions):
    """Parts of the graph with a halo of one hop, and a history after each layer but the last."""

    halo: Literal["features"] = Field("features", description="one hop, with features; there is no other choice")

    def open_layers(self, graph: Graph, channels: int, num_layers: int, place: Place) -> Sequence[History]:
        """The histories of a model; none where there is nothing to remember: in inference, and in full batch."""
        if not place.training or self.num_parts == 1:
            return ()
        # targets are computed, not warm-started
        return [self.open(graph, channels, Mix(1.0), place, f"layer-{layer}") for layer in range(1, num_layers)]


class GCNGASOptions(GCNOptions, GASOptions):
    """GCN with historical embeddings."""


class GCNIIGASOptions(GCNIIOptions, GASOptions):
    """GCNII with historical embeddings."""


class APPNPGASOptions(APPNPOptions, GASOptions):
    """APPNP with historical embeddings."""


def _gcn(options: GCNOptions, graph: Graph, place: Place) -> Model:
    return GCN(
        graph.in_channels,
        options.hidden_channels,
        graph.task.num_outputs,
        num_layers=options.num_layers,
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
        histories=_histories(options, graph, place),
    )


def _gcnii(options: GCNIIOptions, graph: Graph, place: Place) -> Model:
    return GCNII(
        graph.in_channels,
        options.hidden_channels,
        graph.task.num_outputs,
        num_layers=options.num_layers,
        alpha=options.alpha,
        theta=options.theta,
        shared_weights=options.shared_weights,
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
        histories=_histories(options, graph, place),
    )


def _appnp(options: APPNPGASOptions, graph: Graph, place: Place) -> Model:
    histories = options.open_layers(graph, channels_of(options, graph), options.num_layers, place)
    return transform_and(HistoricalPropagation(options.alpha, options.num_layers, histories), options, graph)


def _histories(options: GCNOptions, graph: Graph, place: Place) -> Sequence[History]:
    if not isinstance(options, GASOptions):
        return ()
    return options.open_layers(graph, options.hidden_channels, options.num_layers, place)


def _layers(options: GCNOptions | APPNPGASOptions, cut: Cut, place: Place) -> Loader:
    return make_loader(options, cut, place, options.num_layers)


GCN_FULL = Method(
    "convolutions over the whole graph",
    "Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017",
    GCNOptions,
    _gcn,
    _layers,
)
GCNII_FULL = Method(
    "deep convolutions that keep hold of their input, over the whole graph",
    "Chen et al., Simple and Deep Graph Convolutional Networks, ICML 2020",
    GCNIIOptions,
    _gcnii,
    _layers,
)
_GAS = "Fey et al., GNNAutoScale, ICML 2021"
GCN_GAS = Method("GCN in parts, with a history per layer", _GAS, GCNGASOptions, _gcn, _layers)
GCNII_GAS = Method("GCNII in parts, with a history per layer", _GAS, GCNIIGASOptions, _gcnii, _layers)
APPNP_GAS = Method("APPNP in parts, with a history per step", _GAS, APPNPGASOptions, _appnp, _layers)
