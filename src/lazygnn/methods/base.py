"""The parts of a method: options, a model, a loader, and an optional transform of the graph."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from lazygnn.batch import Loader
from lazygnn.config import Options
from lazygnn.graph import Graph
from lazygnn.model import Model
from lazygnn.partitioning import Partition


@dataclass(frozen=True)
class Place:
    """Where and for which use a model is built.

    Attributes:
        device: The compute device.
        folder: For histories on disk.
        training: Whether histories are needed; inference reads none.
        compute_dtype: Number format of the propagated values in training.
    """

    device: torch.device
    folder: Path | None = None
    training: bool = True
    compute_dtype: torch.dtype = torch.float32


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


class MethodOptions(Options):
    """The options that every method has, and the methods that `build` calls on all options."""

    normalize_features: bool = Field(False, description="scale each row of the features to sum to one")

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
    """

    summary: str
    paper: str
    options: type[OptionsT]
    model: Callable[[OptionsT, Graph, Place], Model]
    loader: Callable[[OptionsT, Cut, Place], Loader]
    prepare: Callable[[OptionsT, Graph], Graph] = _unchanged
