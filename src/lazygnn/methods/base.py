"""What a method is made of: its options, its model, its loader; and the options that several methods share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from lazygnn.batch import Loader
from lazygnn.config import Options
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory, open_history
from lazygnn.history.warmstart import WarmStart
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.model import Model


class MethodOptions(Options):
    """What every method has."""

    normalize_features: bool = Field(False, description="scale the rows of the features to sum one")


class ClusterOptions(Options):
    """How a graph is cut into batches, and where what does not fit is kept."""

    num_parts: int = Field(1, ge=1, description="parts the graph is cut into; 1 means full batch")
    parts_per_batch: int = Field(1, ge=1, description="parts drawn together")
    partition: Literal["metis", "random", "contiguous"] = Field("metis", description="how the graph is cut")
    partition_seed: int = Field(0, ge=0, description="seed of the partition, the same for every seed of the run")
    halo: Literal["frozen", "paper", "features", "none"] = Field("frozen", description="neighbours around a batch")
    features: Literal["device", "host"] = Field("device", description="where features stay between batches")
    edges: Literal["device", "host"] | None = Field(
        None, description="where edges stay between batches; empty is where the features stay"
    )
    keep_batches: bool = Field(True, description="keep in memory what a batch of one part sees of the graph")

    def ignored(self) -> dict[str, str]:
        """How to cut and what to put around a part, of a graph that is not cut."""
        found = super().ignored()
        if self.num_parts == 1:
            for name in ("parts_per_batch", "partition", "partition_seed", "halo", "keep_batches"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    found[name] = self.needs_parts(name)
        return found

    def needs_parts(self, name: str) -> str:
        """Why an option has no effect in a full batch, and what to do."""
        value = str(getattr(self, name)).lower()
        return f"`{name}` is {value}, `num_parts` 1, which is a full batch; set `num_parts` too, or leave `{name}` out"


class HistoryOptions(Options):
    """Where histories are kept, and how."""

    history: Literal["device", "host", "pinned", "disk"] = Field("device", description="where the histories are kept")
    history_dtype: Literal["float32", "bfloat16", "float16", "int8"] = Field("float32", description="their type")

    def open(self, graph: Graph, channels: int, start: WarmStart, place: "Place", name: str) -> StoredHistory:
        """An empty history for every node of a graph."""
        return open_history(
            graph.num_nodes,
            channels,
            start,
            tier=self.history,
            dtype=getattr(torch, self.history_dtype),
            device=place.device,
            compute_dtype=place.compute_dtype,
            folder=place.folder,
            name=name,
        )


@dataclass(frozen=True)
class Place:
    """Where a run lives: its device, a folder for what goes to disk, and whether histories are needed at all.

    Attributes:
        compute_dtype: Type of what is propagated in training.
    """

    device: torch.device
    folder: Path | None = None
    training: bool = True
    compute_dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Cut:
    """What a loader starts from: the graph, permuted and placed; its parts, [P + 1]; the seed of the run."""

    graph: Graph
    ptr: Tensor
    seed: int


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes:
        summary: One line for `lazygnn list`.
        paper: Where it comes from.
        options: Its options; a subclass of `ClusterOptions` is trained in parts where `num_parts` is above one.
        model: Makes the model for a graph.
        loader: Makes the batches.
        prepare: Changes the graph before model and loader see it, in training and in inference.
    """

    summary: str
    paper: str
    options: type[MethodOptions]
    model: Callable[[Any, Graph, Place], Model]
    loader: Callable[[Any, Cut, Place], Loader]
    prepare: Callable[[Any, Graph], Graph] = lambda _, graph: graph


def make_loader(options: MethodOptions, cut: Cut, place: Place, num_layers: int, *, label_step: bool = False) -> Loader:
    """The whole graph as one batch, or whole parts of it with the halo the options name."""
    if not isinstance(options, ClusterOptions):
        return FullLoader(cut.graph, num_layers)
    edges = place.device if (options.features, options.edges) == ("host", "device") else None
    if len(cut.ptr) == 2:
        return FullLoader(cut.graph, num_layers, label_step=label_step, edges=edges)
    far = options.features == "host" and place.device.type == "cuda"
    # what stays in host memory is moved by the trainer, which knows when, in the type that it is multiplied in
    return ClusterLoader(
        cut.graph,
        cut.ptr,
        num_layers,
        parts_per_batch=options.parts_per_batch,
        halo=options.halo,
        seed=cut.seed,
        keep=options.keep_batches,
        pin=place.device.type == "cuda",
        edges=edges,
        dtype=torch.bfloat16 if far and place.compute_dtype == torch.bfloat16 else None,
    )
