"""The choice of a loader: parts of the graph, sampled neighbors, or random subgraphs."""

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt

from lazygnn.batch import Loader
from lazygnn.graph import Graph
from lazygnn.loader import FrozenNeighborLoader, FrozenSaintLoader
from lazygnn.methods.base import Cut, MethodOptions, Place
from lazygnn.methods.options import ClusterOptions, NeighborOptions, SubgraphOptions
from lazygnn.partitioning import Partition


class LoaderOptions(ClusterOptions, NeighborOptions, SubgraphOptions):
    """Batches for lazy propagation, which works with any sampler (Section 4.1 of the paper)."""

    loader: Literal["cluster", "neighbor", "saint"] = Field(
        "cluster",
        description="batches: parts or the whole graph, nodes with sampled neighbors, or the subgraphs of GraphSAINT",
    )
    batch_size: int | None = Field(None, ge=1, description="nodes in a batch of `loader=neighbor`; empty means all")
    num_neighbors: list[Literal[-1] | PositiveInt] = Field(
        [10, 5],
        min_length=1,
        description="neighbors sampled in each hop; the last entry is the hop next to the nodes of the batch, the "
        "nodes of the first keep their stored rows",
    )

    @property
    def full_batch(self) -> bool:
        """Returns whether the whole graph is the only batch."""
        return self.loader == "cluster" and self.num_parts == 1

    def ignored(self) -> dict[str, str]:
        """Adds the options of the other loaders."""
        found = super().ignored()
        for loader, names in _OWNED.items():
            if loader == self.loader:
                continue
            for name in names:
                found.pop(name, None)
                if self.differs(name):
                    value = str(getattr(self, name)).lower()
                    found[name] = (
                        f"`{name}` is {value}, but `loader` is {self.loader}; set `loader={loader}`, or omit `{name}`"
                    )
        return found

    def find_parts(self, graph: Graph, cache: Path | None) -> Partition | None:
        """Partitions the graph for a loader of parts."""
        return super().find_parts(graph, cache) if self.loader == "cluster" else None

    def load(self, cut: Cut, place: Place, num_layers: int, *, label_step: bool = False) -> Loader:
        """Builds the loader that was chosen; for resolved options."""
        if self.loader == "neighbor":
            return FrozenNeighborLoader(
                cut.graph, num_layers, self.num_neighbors, batch_size=self.batch_size, seed=cut.seed
            )
        if self.loader == "saint":
            return self.draw_subgraphs(FrozenSaintLoader, cut, num_layers)
        return super().load(cut, place, num_layers, label_step=label_step)


def _own(options: type[MethodOptions]) -> list[str]:
    return [name for name in options.model_fields if name not in MethodOptions.model_fields]


# the options that a single loader has; where features are stored matters to each
_OWNED: dict[str, list[str]] = {
    "cluster": [name for name in _own(ClusterOptions) if name != "features"],
    "neighbor": _own(NeighborOptions),
    "saint": _own(SubgraphOptions),
}
