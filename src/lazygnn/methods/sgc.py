"""SGC: softmax regression on features that are propagated once, before training; https://arxiv.org/abs/1902.07153."""

from typing import Annotated, Any

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import RowLoader
from lazygnn.methods.base import Cut, Facts, Method, Place
from lazygnn.methods.options import BatchOptions
from lazygnn.model import Model
from lazygnn.models import SGC
from lazygnn.transforms import smooth_features
from lazygnn.tunable import Range


class SGCOptions(BatchOptions):
    """Batches of rows of propagated features."""

    num_layers: Annotated[int, Range(1, 8)] = Field(
        2, ge=0, le=10_000, description="hops that the features are propagated before training"
    )


def make_model(options: SGCOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds the linear layer."""
    return SGC(graph.in_channels, graph.task.num_outputs)


def make_loader(options: SGCOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of rows without edges."""
    return RowLoader(cut.graph, options.batch_size, seed=cut.seed)


def prepare(options: SGCOptions, graph: Graph) -> Graph:
    """Propagates the features."""
    return smooth_features(graph, options.num_layers)


def adapt(facts: Facts) -> dict[str, Any]:  # noqa: ARG001
    """Learns a linear layer at the larger rate on every graph."""
    return {"num_layers": 2, "lr": 0.01}


METHOD = Method(
    "softmax regression on features propagated before training",
    "Wu et al., Simplifying Graph Convolutional Networks, ICML 2019",
    SGCOptions,
    make_model,
    make_loader,
    prepare,
    adapt=adapt,
)
