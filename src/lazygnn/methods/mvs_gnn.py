"""MVS-GNN: a GCN on training nodes that are drawn by their gradients; https://arxiv.org/abs/2006.13866."""

from typing import Any

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.history import open_history
from lazygnn.loader import ImportanceLoader
from lazygnn.methods import gcn
from lazygnn.methods.base import Cut, Facts, Method, Place
from lazygnn.methods.gcn import GCNOptions
from lazygnn.methods.options import BatchOptions, HistoryOptions
from lazygnn.model import Model
from lazygnn.models import MVSGCN, Standardized
from lazygnn.propagation import Mix


class MVSOptions(GCNOptions, BatchOptions, HistoryOptions):
    """Convolutions on drawn training nodes, with a history after each layer but the last."""

    num_layers: int = Field(2, ge=2, le=10_000, description="convolutions")
    refresh_every: int = Field(10, ge=1, description="batches between measurements of the gradients")
    refresh_share: float = Field(1.0, gt=0, le=1, description="share of the training nodes measured at a time")
    uniform_share: float = Field(
        0.1, gt=0, le=1, description="share of the probabilities that does not depend on the gradients"
    )


def make_model(options: MVSOptions, graph: Graph, place: Place) -> Model:
    """Builds a GCN with histories as wide as its hidden layers, and one for gradients; inference needs none."""
    return options.build(
        MVSGCN,
        graph,
        num_layers=options.num_layers,
        histories=options.open_layers(graph, options.hidden_channels, options.num_layers, place),
        gradient_norms=open_history(graph.num_nodes, 1, Mix(1.0), device=place.device) if place.training else None,
    )


def make_loader(options: MVSOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of training nodes; `link` gives it the model."""
    return ImportanceLoader(
        cut.graph,
        options.num_layers,
        batch_size=options.batch_size,
        refresh_every=options.refresh_every,
        refresh_share=options.refresh_share,
        uniform_share=options.uniform_share,
        seed=cut.seed,
    )


def link(model: Model, loader: Loader) -> None:
    """Lets the loader draw by the gradients of the model."""
    assert isinstance(model, MVSGCN | Standardized)
    assert isinstance(loader, ImportanceLoader)
    loader.source = model


def adapt(facts: Facts) -> dict[str, Any]:
    """Makes four batches of the training nodes and measures once in an epoch; takes the layers of a GCN."""
    return gcn.adapt(facts) | {"batch_size": max(-(-facts.num_train // 4), 1), "refresh_every": 4}


METHOD = Method(
    "GCN on training nodes drawn by their gradients, with a history per layer",
    "Cong et al., Minimal Variance Sampling (MVS-GNN), KDD 2020",
    MVSOptions,
    make_model,
    make_loader,
    adapt=adapt,
    link=link,
)
