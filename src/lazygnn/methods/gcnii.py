"""GCNII: deep graph convolutions that add their input in each layer; https://arxiv.org/abs/2007.02133."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from lazygnn.graph import Graph
from lazygnn.history import History
from lazygnn.methods.base import Facts, Method, Place
from lazygnn.methods.gcn import GCNOptions, make_loader
from lazygnn.model import Model
from lazygnn.models import GCNII
from lazygnn.tunable import Choices, Range


class GCNIIOptions(GCNOptions):
    """Convolutions with initial residual and identity mapping."""

    num_layers: Annotated[int, Choices((4, 8, 16, 32))] = Field(16, ge=1, le=10_000, description="convolutions")
    alpha: Annotated[float, Range(0.05, 0.9, log=True)] = Field(
        0.1, ge=0, le=1, description="weight of the transformed features in each layer"
    )
    theta: Annotated[float, Range(0.1, 2.0, log=True)] = Field(
        0.5, gt=0, description="share of the weights in layer l, beside the identity, is log(theta / l + 1)"
    )
    shared_weights: bool = Field(True, description="one weight matrix for neighbors and input; two make GCNII*")


def make_gcnii(options: GCNIIOptions, graph: Graph, histories: Sequence[History] = ()) -> GCNII:
    """Builds the convolutions, with a history after each but the last where they have one."""
    return options.build(
        GCNII,
        graph,
        num_layers=options.num_layers,
        alpha=options.alpha,
        theta=options.theta,
        shared_weights=options.shared_weights,
        histories=histories,
    )


def make_model(options: GCNIIOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds a GCNII without histories."""
    return make_gcnii(options, graph)


def adapt(facts: Facts) -> dict[str, Any]:
    """Takes eight layers, with batch normalization where labels are plentiful and many.

    With fewer labels, eight layers with batch normalization may learn in training and fail in evaluation.
    """
    return {"num_layers": 8, "norm": "batch" if facts.many else "none"}


METHOD = Method(
    "deep convolutions that add their input in each layer, over the whole graph",
    "Chen et al., Simple and Deep Graph Convolutional Networks, ICML 2020",
    GCNIIOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
