"""GraphSAINT: a GCN on random subgraphs, with edges and loss weighted; https://arxiv.org/abs/1907.04931."""

from typing import Any

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import SaintLoader
from lazygnn.methods import gcn
from lazygnn.methods.base import Cut, Facts, Method, Place
from lazygnn.methods.gcn import GCNOptions, make_gcn
from lazygnn.methods.options import SubgraphOptions
from lazygnn.model import Model


class SaintOptions(GCNOptions, SubgraphOptions):
    """Convolutions on a random subgraph."""


def make_model(options: SaintOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds a GCN; the weights of sampled edges are those of the batch."""
    return make_gcn(options, graph)


def make_loader(options: SaintOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of subgraphs."""
    return options.draw_subgraphs(SaintLoader, cut, options.num_layers)


def adapt(facts: Facts) -> dict[str, Any]:
    """Draws walks that meet a quarter of the nodes at most; takes the layers of a GCN."""
    return gcn.adapt(facts) | {"num_samples": max(facts.num_nodes // 12, 1)}


METHOD = Method(
    "GCN on random subgraphs, weighted by how often nodes and edges are drawn",
    "Zeng et al., GraphSAINT, ICLR 2020",
    SaintOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
