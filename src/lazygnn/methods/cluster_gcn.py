"""Cluster-GCN: a GCN within batches of parts, without the edges between batches; https://arxiv.org/abs/1905.07953."""

from typing import Literal

from pydantic import Field

from lazygnn.graph import Graph
from lazygnn.methods.base import Method, Place
from lazygnn.methods.gcn import GCNOptions, adapt, make_gcn
from lazygnn.methods.options import ClusterOptions, load_parts
from lazygnn.model import Model
from lazygnn.models import ClusterGCN


class ClusterGCNOptions(GCNOptions, ClusterOptions):
    """Convolutions within a batch of parts."""

    halo: Literal["none"] = Field("none", description="no neighbors around a batch")
    diag_lambda: float = Field(0.0, ge=0, description="extra weight of a node itself, lambda of Eq. 11")


def make_model(options: ClusterGCNOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds a GCN with a matrix that is normalized within each batch."""
    return ClusterGCN(make_gcn(options, graph), diag_lambda=options.diag_lambda)


METHOD = Method(
    "GCN on a few parts of the graph at a time, without the edges between batches",
    "Chiang et al., Cluster-GCN, KDD 2019",
    ClusterGCNOptions,
    make_model,
    load_parts,
    adapt=adapt,
)
