"""SIGN: an MLP on the features of several hops, propagated before training; https://arxiv.org/abs/2004.11198."""

from typing import Annotated, Any

from pydantic import Field

from lazygnn.graph import Graph
from lazygnn.methods.base import Facts, Method, Place
from lazygnn.methods.options import LayerOptions
from lazygnn.methods.sgc import SGCOptions, make_loader
from lazygnn.model import Model
from lazygnn.models import SIGN
from lazygnn.transforms import stack_features
from lazygnn.tunable import Range


class SIGNOptions(SGCOptions, LayerOptions):
    """A branch for each hop, and the MLP behind them."""

    mlp_layers: Annotated[int, Range(1, 3)] = Field(
        1, ge=1, le=10_000, description="depth of the MLP behind the branches"
    )


def make_model(options: SIGNOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds the branches and the MLP."""
    return SIGN(
        # the prepared graph holds the features of all hops side by side
        graph.in_channels // (options.num_layers + 1),
        options.hidden_channels,
        graph.task.num_outputs,
        num_layers=options.num_layers,
        mlp_layers=options.mlp_layers,
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
    )


def prepare(options: SIGNOptions, graph: Graph) -> Graph:
    """Replaces the features with those of all hops, side by side."""
    return stack_features(graph, options.num_layers)


def adapt(facts: Facts) -> dict[str, Any]:
    """Takes three hops, with batch normalization where labels are plentiful."""
    return {"num_layers": 3, "norm": facts.norm, "dropout": 0.5}


METHOD = Method(
    "an MLP on the features of several hops, propagated before training",
    "Frasca, Rossi et al., SIGN: Scalable Inception Graph Neural Networks, 2020",
    SIGNOptions,
    make_model,
    make_loader,
    prepare,
    adapt=adapt,
)
