"""GraphSAINT: a GCN on random subgraphs, with edges and loss weighted; https://arxiv.org/abs/1907.04931."""

from typing import Any, Literal

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import SaintLoader
from lazygnn.methods import gcn
from lazygnn.methods.base import Cut, Facts, Method, Place
from lazygnn.methods.gcn import GCNOptions, make_gcn
from lazygnn.model import Model


class SaintOptions(GCNOptions):
    """Convolutions on a random subgraph."""

    sampler: Literal["node", "edge", "walk"] = Field("walk", description="what is drawn for a subgraph")
    num_samples: int = Field(2000, ge=1, description="nodes, edges or roots of walks drawn for a subgraph")
    walk_length: int = Field(2, ge=1, description="steps of a walk")
    coverage: int = Field(50, ge=1, description="subgraphs per node that are counted before training")

    def ignored(self) -> dict[str, str]:
        """Adds the length of walks where there are none."""
        found = super().ignored()
        if self.sampler != "walk" and self.walk_length != type(self).model_fields["walk_length"].default:
            found["walk_length"] = (
                f"`walk_length` is {self.walk_length}, but `sampler` is {self.sampler}; set `sampler=walk`, or omit "
                "`walk_length`"
            )
        return found


def make_model(options: SaintOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    """Builds a GCN; the weights of sampled edges are those of the batch."""
    return make_gcn(options, graph)


def make_loader(options: SaintOptions, cut: Cut, place: Place) -> Loader:  # noqa: ARG001
    """Builds a loader of subgraphs."""
    return SaintLoader(
        cut.graph,
        options.num_layers,
        sampler=options.sampler,
        num_samples=options.num_samples,
        walk_length=options.walk_length,
        coverage=options.coverage,
        seed=cut.seed,
    )


def adapt(facts: Facts) -> dict[str, Any]:
    """Draws walks that meet a quarter of the nodes at most; takes the layers of a GCN."""
    return gcn.adapt(facts) | {"num_samples": max(facts.num_nodes // 12, 1)}


METHOD = Method(
    "GCN on random subgraphs, weighted by how often nodes and edges are drawn",
    "Zeng et al., GraphSAINT, ICLR 2020",
    SaintOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
