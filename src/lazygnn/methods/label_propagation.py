"""Label propagation: the labels of the training nodes spread over the graph; nothing is learned."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from lazygnn.graph import Graph
from lazygnn.methods.base import Method, MethodOptions, Place
from lazygnn.methods.mlp import make_loader
from lazygnn.model import Model
from lazygnn.models import LabelPropagation
from lazygnn.transforms import link_similar, smooth_features
from lazygnn.tunable import Choices, Range


class LabelPropagationOptions(MethodOptions):
    """The propagation, and edges between nodes with similar features."""

    alpha: Annotated[float, Range(0.01, 0.9, log=True)] = Field(
        0.1, gt=0, le=1, description="weight of the training labels in each step"
    )
    class_mass: Annotated[bool, Choices()] = Field(
        False, description="scale each class to its share among the training nodes"
    )
    feature_neighbors: int = Field(0, ge=0, description="nodes with similar features that each node is linked to")
    feature_hops: int = Field(
        0, ge=0, le=10_000, description="hops that features are propagated before they are compared"
    )
    feature_weight: float = Field(0.3, gt=0, description="weight of such a link, times the cosine; an edge has 1")
    eval_tolerance: float = Field(1e-6, gt=0, lt=1, description="relative error of the fixed point")

    def ignored(self) -> dict[str, str]:
        """Adds the options of links if `feature_neighbors` is 0."""
        found = super().ignored()
        for name in ("feature_hops", "feature_weight"):
            if self.feature_neighbors == 0 and self.differs(name):
                found[name] = (
                    f"`{name}` is {getattr(self, name)}, but `feature_neighbors` is 0, so features are not compared; "
                    f"set `feature_neighbors`, or omit `{name}`"
                )
        return found


def make_model(options: LabelPropagationOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds the model, which has no weights."""
    model = LabelPropagation(options.alpha, tolerance=options.eval_tolerance, class_mass=options.class_mass)
    model.check_task(graph)
    return model


def prepare(options: LabelPropagationOptions, graph: Graph) -> Graph:
    """Adds edges between nodes with similar features."""
    if options.feature_neighbors == 0:
        return graph
    compared = smooth_features(graph, options.feature_hops) if options.feature_hops else graph
    linked = link_similar(compared, options.feature_neighbors, options.feature_weight)
    return replace(graph, adj=linked.adj, degree=linked.degree)


METHOD = Method(
    "the training labels, propagated; nothing is learned",
    "Zhou et al., Learning with Local and Global Consistency, NeurIPS 2003",
    LabelPropagationOptions,
    make_model,
    make_loader,
    prepare,
)
