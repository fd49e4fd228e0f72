"""LADIES: a GCN with nodes drawn for each layer among the neighbors of the next; https://arxiv.org/abs/1911.07323."""

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import LadiesLoader
from lazygnn.methods.base import Cut, Method, Place
from lazygnn.methods.fastgcn import adapt
from lazygnn.methods.gcn import GCNOptions, make_gcn
from lazygnn.methods.options import LayerDrawOptions
from lazygnn.model import Model


class LadiesOptions(GCNOptions, LayerDrawOptions):
    """Convolutions with nodes drawn for each layer."""

    released: bool = Field(False, description="draw as the authors' code does, with a bias and less variance")


def make_model(options: LadiesOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds a GCN; the weights of sampled edges are those of the batch."""
    return make_gcn(options, graph)


def make_loader(options: LadiesOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of training nodes with drawn layers."""
    return LadiesLoader(
        cut.graph,
        options.num_layers,
        num_samples=options.num_samples,
        released=options.released,
        batch_size=options.batch_size,
        seed=cut.seed,
    )


METHOD = Method(
    "GCN with nodes drawn for each layer among the neighbors of the next layer",
    "Zou et al., Layer-Dependent Importance Sampling (LADIES), NeurIPS 2019",
    LadiesOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
