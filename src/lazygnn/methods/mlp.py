"""A multi-layer perceptron on the features; methods that propagate its output build on this file."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader
from lazygnn.methods.base import Cut, Facts, Method, MethodOptions, Place
from lazygnn.methods.options import LayerOptions
from lazygnn.model import Model
from lazygnn.models import MLP, Decoupled
from lazygnn.models.layers import Linear
from lazygnn.propagation import NoPropagation, Propagation
from lazygnn.tunable import Range


class MLPOptions(LayerOptions):
    """The MLP that transforms the features."""

    mlp_layers: Annotated[int, Range(1, 4)] = Field(2, ge=1, le=10_000, description="depth of the MLP")
    prop_channels: int | None = Field(
        None, ge=1, description="width of the propagated values; empty means the number of outputs"
    )

    def channels(self, graph: Graph) -> int:
        """Returns the width of the propagated values."""
        return self.prop_channels or graph.task.num_outputs


def transform_and(propagation: Propagation, options: MLPOptions, graph: Graph, *, scratch: Path | None = None) -> Model:
    """Builds the MLP with a propagation behind it, and a head if the propagated width is not that of the outputs."""
    channels = options.channels(graph)
    transform = MLP(
        graph.in_channels,
        options.hidden_channels,
        channels,
        mlp_layers=options.mlp_layers,
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
    )
    head = None if options.prop_channels is None else Linear(channels, graph.task.num_outputs)
    return Decoupled(transform, propagation, head, scratch=scratch)


def make_model(options: MLPOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds the MLP alone."""
    return transform_and(NoPropagation(), options, graph)


def make_loader(options: MethodOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of all nodes, without edges."""
    return FullLoader(cut.graph, num_layers=0)


def adapt(facts: Facts) -> dict[str, Any]:
    """Adds a layer and batch normalization where labels are plentiful."""
    return {"mlp_layers": 3 if facts.plentiful else 2, "norm": facts.norm}


METHOD = Method(
    "a multi-layer perceptron that does not use the edges",
    "-",
    MLPOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
