"""Layers on a piece of the graph at a time: GraphSAGE draws neighbours, Cluster-GCN drops the edges between pieces."""

from typing import Literal

from pydantic import Field, PositiveInt

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import NeighborLoader
from lazygnn.methods.base import ClusterOptions, Cut, Method, MethodOptions, Place, make_loader
from lazygnn.methods.layered import GCNOptions
from lazygnn.model import Model
from lazygnn.models import GCN, SAGE, ClusterGCN


class SAGEOptions(MethodOptions):
    """Layers over sampled neighbours; there are as many as fan-outs."""

    hidden_channels: int = Field(64, ge=1, description="width of the hidden layers")
    norm: Literal["batch", "layer", "none"] = Field("none", description="normalisation between the layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="share of hidden units dropped in training")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="share of input entries dropped in training")
    fanout: list[Literal[-1] | PositiveInt] = Field(
        [10, 25], min_length=1, description="neighbours drawn for each layer, the one nearest to the targets last"
    )
    batch_size: int | None = Field(None, ge=1, description="training nodes of a batch; empty means all")


class ClusterGCNOptions(GCNOptions, ClusterOptions):
    """Convolutions within a batch of parts."""

    halo: Literal["none"] = Field("none", description="no neighbours around a batch; there is no other choice")
    diag_lambda: float = Field(0.0, ge=0, description="how much more a node counts for itself, lambda of Eq. 11")


def _sage(options: SAGEOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    return SAGE(
        graph.in_channels,
        options.hidden_channels,
        graph.task.num_outputs,
        num_layers=len(options.fanout),
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
    )


def _neighbours(options: SAGEOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    return NeighborLoader(cut.graph, options.fanout, batch_size=options.batch_size, seed=cut.seed)


def _cluster_gcn(options: ClusterGCNOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    gcn = GCN(
        graph.in_channels,
        options.hidden_channels,
        graph.task.num_outputs,
        num_layers=options.num_layers,
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
    )
    return ClusterGCN(gcn, diag_lambda=options.diag_lambda)


def _parts(options: ClusterGCNOptions, cut: Cut, place: Place) -> Loader:
    return make_loader(options, cut, place, options.num_layers)


GRAPHSAGE = Method(
    "means over sampled neighbours, beside the node itself",
    "Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017",
    SAGEOptions,
    _sage,
    _neighbours,
)
CLUSTER_GCN = Method(
    "GCN on a few parts of the graph at a time, without the edges between batches",
    "Chiang et al., Cluster-GCN, KDD 2019",
    ClusterGCNOptions,
    _cluster_gcn,
    _parts,
)
