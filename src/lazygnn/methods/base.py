"""The parts of a method: options, a model, a loader, and an optional transform of the graph."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from lazygnn.batch import Loader
from lazygnn.config import Options
from lazygnn.graph import Graph
from lazygnn.history import MakeStore
from lazygnn.model import Model
from lazygnn.partitioning import Partition
from lazygnn.tunable import Choices

# nodes that an estimate looks at
_SAMPLE = 10_000
# labels from which a wide model does not overfit where they are plentiful beside the features
_MANY = 10_000
# validation nodes below which the loss has a say in the best epoch
_FEW_CHOOSE = 100


@dataclass(frozen=True)
class Place:
    """Where and for which use a model is built.

    Attributes:
        device: The compute device.
        folder: For histories on disk.
        training: Whether histories are needed; inference reads none.
        compute_dtype: Number format of the propagated values in training.
        make_store: Makes the stores of histories, for a process that holds a share of the rows; see `open_history`.
    """

    device: torch.device
    folder: Path | None = None
    training: bool = True
    compute_dtype: torch.dtype = torch.float32
    make_store: MakeStore | None = None


@dataclass(frozen=True)
class Cut:
    """The input of a loader.

    Attributes:
        graph: Permuted by its partition, as `place_graph` returns it.
        ptr: Part `p` holds the nodes `ptr[p]` to `ptr[p + 1]`, [P + 1].
        seed: Seed of the run.
    """

    graph: Graph
    ptr: Tensor
    seed: int


@dataclass(frozen=True)
class Facts:
    """What is known of a graph before training; the defaults of a method follow from it.

    Attributes:
        num_nodes: Number of nodes.
        num_train: Number of training nodes.
        in_channels: Width of the features.
        near_labels: Share of the other nodes that have a training node as a neighbor, estimated on some of them.
        several_labels: Whether a node may have several labels, and a validation split can choose a threshold for them.
        num_val: Number of validation nodes; `None` if they are not known.
    """

    num_nodes: int
    num_train: int
    in_channels: int
    near_labels: float = 0.0
    several_labels: bool = False
    num_val: int | None = None

    @staticmethod
    def of(graph: Graph) -> "Facts":
        """Returns the facts of a graph."""
        return Facts(
            graph.num_nodes,
            graph.num_train,
            graph.in_channels,
            _near_labels(graph),
            can_choose_threshold(graph),
            int(graph.masks["val"].sum()) if "val" in graph.masks else 0,
        )

    @property
    def scarcity(self) -> float:
        """Returns how scarce labels are beside the features, in [0, 1]; 1 means at most ten labels per feature."""
        return min(1.0, 10 * self.in_channels / self.num_train)

    @property
    def plentiful(self) -> bool:
        """Returns whether labels are plentiful beside the features: models get a further layer and a norm."""
        return self.scarcity < 0.5

    @property
    def many(self) -> bool:
        """Returns whether labels are plentiful beside the features, and many: wide models underfit."""
        return self.plentiful and self.num_train >= _MANY

    @property
    def chosen_by_few(self) -> bool:
        """Returns whether there are so few validation nodes that the best score of an epoch is mostly a lucky one."""
        return self.num_val is not None and 0 < self.num_val < _FEW_CHOOSE

    @property
    def norm(self) -> str:
        """Returns the normalization between the layers of a model without one of its own."""
        return "batch" if self.plentiful else "none"


def can_choose_threshold(graph: Graph) -> bool:
    """Returns whether a node of a graph may have several labels, and a validation split can choose a threshold."""
    return graph.task.kind == "multi-label" and "val" in graph.masks


def _near_labels(graph: Graph) -> float:
    train, nodes = graph.masks["train"], torch.arange(min(graph.num_nodes, _SAMPLE))
    if graph.num_nodes > _SAMPLE:
        # drawn, as ids may alternate between kinds of nodes
        nodes = torch.randint(graph.num_nodes, (_SAMPLE,), generator=torch.Generator().manual_seed(0))
    nodes = nodes.to(train.device)
    others = nodes[~train[nodes]]
    if len(others) == 0:
        return 0.0
    rows = graph.adj.select(others)
    # the self-loop of such a node does not count, as the node itself is not in the split
    links = (train[rows.col] & (rows.value != 0)).float()
    labeled = torch.zeros(rows.num_rows, device=rows.device).index_add_(0, rows.row_index(), links)
    return float((labeled > 0).float().mean())


class MethodOptions(Options):
    """The options that every method has, and the methods that `build` calls on all options."""

    normalize_features: Annotated[bool, Choices()] = Field(
        False, description="scale each row of the features to sum to one"
    )

    @property
    def keeps_features_on_host(self) -> bool:
        """Returns whether the graph stays in host memory and batches are moved."""
        return False

    def check(self, device: torch.device) -> None:
        """Raises a `ConfigError` for options that cannot be combined; warns about those without effect on a device."""

    def find_parts(self, graph: Graph, cache: Path | None) -> Partition | None:  # noqa: ARG002
        """Returns the partition that batches are made of; `None` for the whole graph."""
        return None


OptionsT = TypeVar("OptionsT", bound=MethodOptions)


def _unchanged(_: MethodOptions, graph: Graph) -> Graph:
    return graph


def _unlinked(_model: Model, _loader: Loader) -> None:
    """Does nothing: the draws of a loader do not depend on the model."""


@dataclass(frozen=True)
class Method(Generic[OptionsT]):
    """One row of Table 1. All three functions receive resolved options.

    Attributes:
        summary: One line for `lazygnn list`.
        paper: Its source.
        options: Names, types, defaults and help texts of its options.
        model: Builds the model for a graph.
        loader: Builds the loader of the training batches.
        prepare: Changes the graph before model and loader see it, in training and in inference.
        adapt: Returns the values of its own that follow from the facts of a graph, beside those of `rule`; `None` for
            a method without a rule.
        link: Connects the model and the loader of a training, for draws that depend on the model. That of a regression
            is a `Standardized`, unless `standardize_targets` is off.
        lr: The learning rate that `rule` approaches as labels become plentiful beside the features.
        lr_power: With several batches in an epoch, `rule` divides the learning rate by their number to this power, and
            the epochs by their number to the rest of 1/2.
    """

    summary: str
    paper: str
    options: type[OptionsT]
    model: Callable[[OptionsT, Graph, Place], Model]
    loader: Callable[[OptionsT, Cut, Place], Loader]
    prepare: Callable[[OptionsT, Graph], Graph] = _unchanged
    adapt: Callable[[Facts], dict[str, Any]] | None = None
    link: Callable[[Model, Loader], None] = _unlinked
    lr: float = 0.01
    lr_power: float = 0.0
