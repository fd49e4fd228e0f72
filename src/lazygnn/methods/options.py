"""Groups of options that several methods share."""

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeVar

import torch
from pydantic import Field, PositiveInt

from lazygnn.batch import Loader
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import History, StoredHistory, open_history
from lazygnn.history.warmstart import WarmStart
from lazygnn.loader import ClusterLoader, FullLoader, SaintLoader
from lazygnn.methods.base import Cut, MethodOptions, Place
from lazygnn.model import Model
from lazygnn.partitioning import Balance, Partition, PartitionMethod, partition
from lazygnn.propagation import Mix
from lazygnn.tunable import Choices, Range

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=Model)


class LayerOptions(MethodOptions):
    """Layers with normalization and dropout between them."""

    hidden_channels: Annotated[int, Choices((16, 32, 64, 128, 256, 512))] = Field(
        64, ge=1, description="width of the hidden layers"
    )
    norm: Annotated[Literal["batch", "layer", "none"], Choices()] = Field(
        "none", description="normalization between the layers"
    )
    dropout: Annotated[float, Range(0.0, 0.8, step=0.05)] = Field(
        0.5, ge=0, lt=1, description="share of hidden units dropped in training"
    )
    input_dropout: Annotated[float, Range(0.0, 0.8, step=0.05)] = Field(
        0.0, ge=0, lt=1, description="share of input entries dropped in training"
    )

    def build(self, kind: Callable[..., ModelT], graph: Graph, *, num_layers: int, **own: Any) -> ModelT:
        """Builds a model of layers of one kind; `own` are the arguments that other kinds do not have."""
        return kind(
            graph.in_channels,
            self.hidden_channels,
            graph.task.num_outputs,
            num_layers=num_layers,
            norm=self.norm,
            dropout=self.dropout,
            input_dropout=self.input_dropout,
            **own,
        )


class BatchOptions(MethodOptions):
    """Batches of training nodes."""

    batch_size: int | None = Field(None, ge=1, description="training nodes in a batch; empty means all")


class NeighborOptions(BatchOptions):
    """Batches of nodes with sampled neighbors."""

    num_neighbors: list[Literal[-1] | PositiveInt] = Field(
        [10, 25],
        min_length=1,
        description="neighbors sampled in each layer; the last entry is the layer next to the targets",
    )


class SubgraphOptions(MethodOptions):
    """Batches of random subgraphs (GraphSAINT)."""

    sampler: Literal["node", "edge", "walk"] = Field("walk", description="what is drawn for a subgraph")
    num_samples: int = Field(2000, ge=1, description="nodes, edges or roots of walks drawn for a subgraph")
    walk_length: int = Field(2, ge=1, le=10_000, description="steps of a walk")
    coverage: int = Field(50, ge=1, le=10_000, description="subgraphs per node that are counted before training")

    def ignored(self) -> dict[str, str]:
        """Adds the length of walks where there are none."""
        found = super().ignored()
        if self.sampler != "walk" and self.differs("walk_length"):
            found["walk_length"] = (
                f"`walk_length` is {self.walk_length}, but `sampler` is {self.sampler}; set `sampler=walk`, or omit "
                "`walk_length`"
            )
        return found

    def draw_subgraphs(self, kind: type[SaintLoader], cut: Cut, num_layers: int) -> Loader:
        """Builds a loader of subgraphs of one kind."""
        return kind(
            cut.graph,
            num_layers,
            sampler=self.sampler,
            num_samples=self.num_samples,
            walk_length=self.walk_length,
            coverage=self.coverage,
            seed=cut.seed,
        )


class LayerDrawOptions(BatchOptions):
    """Batches of training nodes with a number of nodes drawn for each layer."""

    num_samples: int = Field(400, ge=1, description="nodes drawn for each layer")


class ClusterOptions(MethodOptions):
    """Batches of parts of the graph, and where features and edges are stored.

    Attributes:
        for_parts: Names of the options that have no effect in full batch.
    """

    for_parts: ClassVar[tuple[str, ...]] = (
        "parts_per_batch",
        "partition",
        "partition_seed",
        "balance",
        "halo",
        "keep_batches",
    )

    num_parts: int = Field(1, ge=1, description="parts the graph is partitioned into; 1 means full batch")
    parts_per_batch: int = Field(1, ge=1, description="parts in a batch")
    partition: PartitionMethod = Field(
        "auto", description="partition algorithm; auto is METIS, or KaMinPar where METIS would not fit in memory"
    )
    partition_seed: int = Field(0, ge=0, description="seed of the partition; the seed of the run does not change it")
    balance: Balance = Field("nodes", description="what the parts have about equal amounts of")
    halo: Literal["frozen", "paper", "features", "induced", "none"] = Field(
        "frozen", description="neighbors around a batch"
    )
    features: Literal["device", "host"] = Field("device", description="where features are stored between batches")
    edges: Literal["device", "host"] | None = Field(
        None, description="where edges are stored between batches; empty means where the features are"
    )
    keep_batches: bool = Field(True, description="cache batches of a single part in memory")

    def resolved(self) -> Self:
        """Fills in `edges`: by default, edges are stored where the features are."""
        return super().resolved().model_copy(update={"edges": self.edges or self.features})

    def ignored(self) -> dict[str, str]:
        """Adds the options that only a partitioned graph needs."""
        found = super().ignored()
        if self.num_parts == 1:
            for name in self.for_parts:
                if self.differs(name):
                    found[name] = self.needs_parts(name)
        elif self.partition in ("random", "contiguous") and self.differs("balance"):
            found["balance"] = (
                f"`balance` is {self.balance}, but `partition` is {self.partition}; set `partition=metis`, or omit "
                "`balance`"
            )
        return found

    def needs_parts(self, name: str) -> str:
        """Returns the message for an option that has no effect in full batch."""
        value = str(getattr(self, name)).lower()
        return f"`{name}` is {value}, but `num_parts` is 1, which means full batch; set `num_parts`, or omit `{name}`"

    @property
    def keeps_features_on_host(self) -> bool:
        """Returns whether features are stored in host memory."""
        return self.features == "host"

    def check(self, device: torch.device) -> None:
        """Refuses edges that leave the device before the features, and batches of more parts than exist."""
        if (self.features, self.edges) == ("device", "host"):
            raise ConfigError(
                "`edges` is host, but `features` is device; edges cannot be in host memory alone: "
                "set `features=host`, or omit `edges`"
            )
        if self.parts_per_batch > self.num_parts > 1:
            raise ConfigError(
                f"`parts_per_batch` is {self.parts_per_batch}, but `num_parts` is {self.num_parts}; "
                f"choose at most {self.num_parts}"
            )
        super().check(device)

    def find_parts(self, graph: Graph, cache: Path | None) -> Partition | None:
        """Partitions the graph, or reads an earlier partition from the cache."""
        if self.num_parts == 1:
            return None
        return partition(
            graph,
            self.num_parts,
            method=self.partition,
            seed=self.partition_seed,
            balance=self.balance,
            cache=cache,
        )

    def load(self, cut: Cut, place: Place, num_layers: int, *, label_step: bool = False) -> Loader:
        """Builds a loader of whole parts with a halo, or of the whole graph; for resolved options."""
        edges = place.device if (self.features, self.edges) == ("host", "device") else None
        if len(cut.ptr) == 2:
            return FullLoader(cut.graph, num_layers, label_step=label_step, edges=edges)
        on_gpu = place.device.type == "cuda"
        # the trainer moves features from host memory, so batches hold them in the format that the GPU multiplies in
        narrow = on_gpu and self.keeps_features_on_host and place.compute_dtype == torch.bfloat16
        return ClusterLoader(
            cut.graph,
            cut.ptr,
            num_layers,
            parts_per_batch=self.parts_per_batch,
            halo=self.halo,
            seed=cut.seed,
            keep=self.keep_batches,
            pin=on_gpu,
            edges=edges,
            dtype=torch.bfloat16 if narrow else None,
        )


class HistoryOptions(MethodOptions):
    """Where histories are stored, and in which number format."""

    history: Literal["device", "host", "pinned", "disk"] = Field("device", description="where histories are stored")
    history_dtype: Literal["float32", "bfloat16", "float16", "int8"] = Field(
        "float32", description="number format of the histories"
    )

    def check(self, device: torch.device) -> None:
        """Warns about pinned histories on a CPU."""
        if self.history == "pinned" and device.type != "cuda":
            logger.warning(
                "`history` is pinned, which is for a GPU; on a CPU it is the same as `device`: set `history=device` to "
                "silence this warning"
            )
        super().check(device)

    def open(
        self,
        graph: Graph,
        channels: int,
        start: WarmStart,
        place: Place,
        name: str,
        *,
        halo_inputs: bool = False,
    ) -> StoredHistory:
        """Opens an empty history with a row for every node."""
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
            halo_inputs=halo_inputs,
            make_store=place.make_store,
        )

    def open_layers(self, graph: Graph, channels: int, num_layers: int, place: Place) -> Sequence[History]:
        """Opens a history after each layer but the last; inference needs none."""
        if not place.training:
            return ()
        # targets are computed, not warm-started
        return [self.open(graph, channels, Mix(1.0), place, f"layer-{layer}") for layer in range(1, num_layers)]


class InferenceOptions(MethodOptions):
    """How far inference propagates, and where it stores its rows."""

    eval_layers: int | None = Field(
        None, ge=0, le=10_000, description="exact steps in inference; empty means the fixed point"
    )
    eval_tolerance: float = Field(1e-4, gt=0, lt=1, description="relative error of that fixed point")
    eval_storage: Literal["memory", "disk"] = Field("memory", description="where inference stores one row per node")

    def scratch(self, place: Place) -> Path | None:
        """Returns the folder for the rows of inference; `None` means memory."""
        return place.folder if self.eval_storage == "disk" else None


# options of histories that full batch does not have
FOR_HISTORIES = ("history", "history_dtype")


def default_beta(num_layers: int) -> float:
    """Returns the weight of fresh features with which lazy steps reach as far as ten exact ones."""
    return 1 - math.pow(0.9, num_layers / 2)


class GASOptions(ClusterOptions, HistoryOptions):
    """Parts with a halo of one hop, and a history after each layer but the last (GNNAutoScale)."""

    for_parts: ClassVar[tuple[str, ...]] = (*ClusterOptions.for_parts, *FOR_HISTORIES)

    halo: Literal["features"] = Field("features", description="one hop of neighbors with their features")

    def open_layers(self, graph: Graph, channels: int, num_layers: int, place: Place) -> Sequence[History]:
        """Opens the histories of a model; inference and full batch need none."""
        return () if self.num_parts == 1 else super().open_layers(graph, channels, num_layers, place)


class LayeredOnParts(Protocol):
    """Options of layers on parts of the graph."""

    @property
    def num_layers(self) -> int:
        """Returns the number of layers."""

    def load(self, cut: Cut, place: Place, num_layers: int) -> Loader:
        """Builds a loader for them."""


def load_parts(options: LayeredOnParts, cut: Cut, place: Place) -> Loader:
    """Builds a loader of parts, or of the whole graph if that is the only part."""
    return options.load(cut, place, options.num_layers)
