"""FastGCN: a GCN with nodes drawn for each layer, independently of the others; https://arxiv.org/abs/1801.10247."""

from typing import Annotated, Any

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import FastGCNLoader
from lazygnn.methods import gcn
from lazygnn.methods.base import Cut, Facts, Method, Place
from lazygnn.methods.gcn import GCNOptions
from lazygnn.methods.options import LayerDrawOptions
from lazygnn.model import Model
from lazygnn.models import PrecomputedGCN
from lazygnn.transforms import smooth_features
from lazygnn.tunable import Range


class PrecomputedOptions(GCNOptions):
    """Convolutions of which the first product is computed before training."""

    num_layers: Annotated[int, Range(2, 4)] = Field(
        2, ge=2, le=10_000, description="convolutions; the product of the first is computed before training"
    )


class FastGCNOptions(PrecomputedOptions, LayerDrawOptions):
    """Convolutions with nodes drawn for each layer but the first."""


def make_model(options: FastGCNOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds the layers."""
    return options.build(
        PrecomputedGCN,
        graph,
        num_layers=options.num_layers,
    )


def make_loader(options: FastGCNOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of training nodes with drawn layers."""
    return FastGCNLoader(
        cut.graph,
        options.num_layers - 1,
        num_samples=options.num_samples,
        batch_size=options.batch_size,
        seed=cut.seed,
    )


def prepare(options: PrecomputedOptions, graph: Graph) -> Graph:  # noqa: ARG001
    """Computes the first product, which stores dense features."""
    return smooth_features(graph, 1)


def adapt(facts: Facts) -> dict[str, Any]:
    """Draws a quarter of the nodes for a layer; takes the layers of a GCN."""
    return gcn.adapt(facts) | {"num_samples": max(facts.num_nodes // 4, 1)}


METHOD = Method(
    "GCN with nodes drawn for each layer, by the length of their columns",
    "Chen et al., FastGCN, ICLR 2018",
    FastGCNOptions,
    make_model,
    make_loader,
    prepare,
    adapt=adapt,
)
