"""APPNP: an MLP, then exact propagation in every pass; https://arxiv.org/abs/1810.05997."""

from typing import Annotated

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader
from lazygnn.methods.base import Cut, Method, Place
from lazygnn.methods.mlp import MLPOptions, adapt, transform_and
from lazygnn.model import Model
from lazygnn.propagation import ExactPropagation
from lazygnn.tunable import Choices, Range


class APPNPOptions(MLPOptions):
    """The MLP and the steps after it."""

    alpha: Annotated[float, Range(0.01, 0.9, log=True)] = Field(
        0.1, gt=0, le=1, description="weight of the transformed features in each step"
    )
    num_layers: Annotated[int, Choices((5, 10, 20))] = Field(10, ge=1, le=10_000, description="steps of a pass")


def make_model(options: APPNPOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds the MLP with exact propagation."""
    return transform_and(ExactPropagation(options.alpha, options.num_layers), options, graph)


def make_loader(options: APPNPOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of the whole graph."""
    return FullLoader(cut.graph, options.num_layers)


METHOD = Method(
    "MLP, then exact propagation in every pass",
    "Gasteiger et al., Predict then Propagate, ICLR 2019",
    APPNPOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
