"""Propagation that training does not see: SGC and SIGN do it beforehand, label propagation does nothing else."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader, RowLoader
from lazygnn.methods.base import Cut, Method, MethodOptions, Place
from lazygnn.model import Model
from lazygnn.models import SGC, SIGN, LabelPropagation
from lazygnn.transforms import link_similar, smooth_features, stack_features


class SGCOptions(MethodOptions):
    """Rows of propagated features."""

    num_layers: int = Field(2, ge=0, description="hops the features are propagated, before training")
    batch_size: int | None = Field(None, ge=1, description="training nodes of a batch; empty means all")


class SIGNOptions(SGCOptions):
    """An MLP on the features of every hop."""

    hidden_channels: int = Field(64, ge=1, description="width of every hop's branch and of the MLP")
    mlp_layers: int = Field(1, ge=1, description="depth of the MLP behind the branches")
    norm: Literal["batch", "layer", "none"] = Field("none", description="normalisation between the layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="share of hidden units dropped in training")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="share of input entries dropped in training")


class LabelPropagationOptions(MethodOptions):
    """The labels, and edges between similar nodes if asked for."""

    alpha: float = Field(0.1, gt=0, le=1, description="weight of the training labels in every step")
    class_mass: bool = Field(False, description="scale every class to its share among the training nodes")
    feature_neighbors: int = Field(0, ge=0, description="nodes of most similar features that each is linked to")
    feature_hops: int = Field(0, ge=0, description="hops the features are propagated before they are compared")
    feature_weight: float = Field(0.3, gt=0, description="weight of such a link, times the cosine; an edge has 1")
    eval_tolerance: float = Field(1e-6, gt=0, lt=1, description="relative error of the fixed point")

    def ignored(self) -> dict[str, str]:
        """How to link what is not linked."""
        found = super().ignored()
        for name in ("feature_hops", "feature_weight"):
            if self.feature_neighbors == 0 and (value := getattr(self, name)) != type(self).model_fields[name].default:
                found[name] = (
                    f"`{name}` is {value}, `feature_neighbors` 0, so that nodes are not compared; set it too, or leave "
                    f"`{name}` out"
                )
        return found


def _sgc(options: SGCOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    return SGC(graph.in_channels, graph.task.num_outputs)


def _smooth(options: SGCOptions, graph: Graph) -> Graph:
    return smooth_features(graph, options.num_layers)


def _sign(options: SIGNOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    return SIGN(
        # the graph holds the features of all hops side by side
        graph.in_channels // (options.num_layers + 1),
        options.hidden_channels,
        graph.task.num_outputs,
        num_layers=options.num_layers,
        mlp_layers=options.mlp_layers,
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
    )


def _stack(options: SIGNOptions, graph: Graph) -> Graph:
    return stack_features(graph, options.num_layers)


def _rows(options: SGCOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    return RowLoader(cut.graph, options.batch_size, seed=cut.seed)


def _label_propagation(options: LabelPropagationOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    model = LabelPropagation(options.alpha, tolerance=options.eval_tolerance, class_mass=options.class_mass)
    model.check_task(graph)
    return model


def _link(options: LabelPropagationOptions, graph: Graph) -> Graph:
    if options.feature_neighbors == 0:
        return graph
    compared = smooth_features(graph, options.feature_hops) if options.feature_hops else graph
    linked = link_similar(compared, options.feature_neighbors, options.feature_weight)
    return replace(graph, adj=linked.adj, degree=linked.degree)


def _whole(options: LabelPropagationOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    return FullLoader(cut.graph, num_layers=0)


SGC_ROWS = Method(
    "softmax regression on features propagated beforehand",
    "Wu et al., Simplifying Graph Convolutional Networks, ICML 2019",
    SGCOptions,
    _sgc,
    _rows,
    _smooth,
)
SIGN_ROWS = Method(
    "an MLP on the features of several hops, propagated beforehand",
    "Frasca, Rossi et al., SIGN: Scalable Inception Graph Neural Networks, 2020",
    SIGNOptions,
    _sign,
    _rows,
    _stack,
)
LABEL_PROPAGATION = Method(
    "the training labels, propagated; nothing is learned",
    "Zhou et al., Learning with Local and Global Consistency, NeurIPS 2003",
    LabelPropagationOptions,
    _label_propagation,
    _whole,
    _link,
)
