"""`Batch`: the input of one training step, whatever loader made it.

`V` nodes of the batch, `T` targets among them (the first rows), `F` rows the transform runs on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from lazygnn.errors import ConfigError, GraphError, wrong_type
from lazygnn.graph import Graph, check_graph
from lazygnn.ops import Adjacency, Csr, find_device
from lazygnn.task import Task


@dataclass(frozen=True, eq=False)
class Labeled:
    """The `K` targets that the loss depends on, for one more step on these rows alone."""

    rows: Tensor  # [K], indices among the targets
    adj: Adjacency  # [K, V]
    transposed: Adjacency  # [V, K]
    same_loss: bool = False  # whether every step has the same loss, so that checking its gradient once is enough
    # not empty once a gradient was checked; shared with copies on other devices
    checks: list[bool] = field(default_factory=list, repr=False)

    def map(self, move: Callable[[Any], Any]) -> "Labeled":
        """Returns the same rows with `move` applied to each part."""
        return replace(self, rows=move(self.rows), adj=move(self.adj), transposed=move(self.transposed))


@dataclass(frozen=True, eq=False)
class Ring:
    """What is known of the `V - T` nodes of the halo, for methods that also learn from them."""

    y: Tensor  # [V - T] or [V - T, C]
    weight: Tensor  # [V - T], as for the targets
    coverage: Tensor  # [V - T], share of each node's neighbors that is in the batch; a node is its own neighbor

    def map(self, move: Callable[[Any], Any]) -> "Ring":
        """Returns the same rows with `move` applied to each part."""
        return Ring(move(self.y), move(self.weight), move(self.coverage))


@dataclass(frozen=True, eq=False)
class Batch:
    """Targets first, then the halo; `adjs[l]` maps one layer's nodes to the next."""

    x: Tensor | Csr  # [F, D]
    y: Tensor  # [T] or [T, C]
    weight: Tensor  # [T], num_batches / num_train on training targets and 0 elsewhere
    nodes: Tensor  # [V] ids in the graph
    num_targets: int
    adjs: Sequence[Adjacency]
    whole: bool = False  # whether this is the whole graph; the matrices of a part do not show it
    lasting: bool = False  # whether the loader returns the same object again, so that a step on it can be replayed
    labeled: Labeled | None = None  # for a pass that takes one step more
    transposed: Sequence[Adjacency] | None = None  # matrices of the backward pass, where `adjs` are not symmetric
    ring: Ring | None = None  # for a loss on the halo

    @property
    def backward_adjs(self) -> Sequence[Adjacency]:
        """Returns the matrices that a gradient is multiplied by."""
        return self.adjs if self.transposed is None else self.transposed

    @property
    def targets(self) -> Tensor:
        """Returns the ids of the targets, [T]."""
        return self.nodes[: self.num_targets]

    def to(self, device: torch.device) -> "Batch":
        """Returns the batch on a device; a matrix that several layers share is copied once.

        A batch on that device is returned as it is, with the caches of its matrices.
        """
        device = find_device(device)
        if {self.x.device, self.nodes.device} == {device}:
            return self
        # nothing on a CPU waits for a copy from an accelerator
        return self._map(lambda part: part.to(device, non_blocking=device.type != "cpu"))

    def rest_to(self, device: torch.device) -> "Batch":
        """Returns the batch with all but its features on a device."""
        return self._map(lambda part: part if part is self.x else part.to(device))

    def pin(self) -> "Batch":
        """Returns the batch with all host memory page-locked, so that an accelerator copies it by itself."""
        return self._map(lambda part: part.pin_memory() if part.device.type == "cpu" else part)

    def tensors(self) -> Iterator[Tensor]:
        """Yields all tensors of the batch."""
        last = () if self.labeled is None else (self.labeled.rows, self.labeled.adj, self.labeled.transposed)
        ring = () if self.ring is None else (self.ring.y, self.ring.weight, self.ring.coverage)
        for part in (self.x, self.y, self.weight, self.nodes, *self.adjs, *(self.transposed or ()), *last, *ring):
            yield from tensors_of(part)

    def _map(self, move: Callable[[Any], Any]) -> "Batch":
        moved = {id(adj): move(adj) for adj in (*self.adjs, *(self.transposed or ()))}
        return replace(
            self,
            x=move(self.x),
            y=move(self.y),
            weight=move(self.weight),
            nodes=move(self.nodes),
            adjs=[moved[id(adj)] for adj in self.adjs],
            labeled=None if self.labeled is None else self.labeled.map(move),
            transposed=None if self.transposed is None else [moved[id(adj)] for adj in self.transposed],
            ring=None if self.ring is None else self.ring.map(move),
        )

    def __repr__(self) -> str:
        return (
            f"Batch(num_targets={self.num_targets}, num_nodes={len(self.nodes)}, num_layers={len(self.adjs)}, "
            f"in_channels={self.x.shape[1]}, whole={self.whole}, device={str(self.nodes.device)!r}"
            f"{'' if self.labeled is None else ', label_step=True'})"
        )

    @staticmethod
    def full(graph: Graph, num_layers: int, *, label_step: bool = False) -> "Batch":
        """Makes one batch of the whole graph: every node is a target, with the same matrix at every layer.

        With `label_step`, a pass takes one step more on the training nodes; the loss must depend on these alone.
        """
        check_graph(graph)
        if not isinstance(num_layers, Integral) or num_layers < 0:
            raise ConfigError(f"`num_layers` is {num_layers!r}; give the number of steps of a pass, 0 or more")
        return Batch(
            x=graph.x,
            y=graph.y,
            # without training nodes the caller computes the loss
            weight=loss_weight(graph) if "train" in graph.masks else torch.zeros(graph.num_nodes, device=graph.device),
            nodes=torch.arange(graph.num_nodes, device=graph.device),
            num_targets=graph.num_nodes,
            adjs=[graph.adj] * num_layers,
            whole=True,
            lasting=True,
            labeled=_labeled(graph) if label_step else None,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ControlBatch(Batch):
    """A batch with sampled neighbors, and all neighbors to read stored values of (VR-GCN).

    The nodes of `adjs` come first, then the other neighbors; `x` covers the columns of the first matrix.
    """

    complete: Adjacency  # [R, V], all entries of the rows of the first matrix; the rows of the others come first
    noise: Sequence[Adjacency]  # as `adjs`, scaled such that a sum of independent noise keeps its variance

    def tensors(self) -> Iterator[Tensor]:
        """Yields all tensors of the batch."""
        yield from super().tensors()
        for part in (self.complete, *self.noise):
            yield from tensors_of(part)

    def _map(self, move: Callable[[Any], Any]) -> "ControlBatch":
        moved = super()._map(move)
        assert isinstance(moved, ControlBatch)
        return replace(moved, complete=move(self.complete), noise=[move(adj) for adj in self.noise])


def _labeled(graph: Graph) -> Labeled:
    # a graph without any is refused here
    num_train = graph.num_train
    rows = graph.masks["train"].nonzero()[:, 0]
    assert len(rows) == num_train
    adj = graph.adj.select(rows)
    return Labeled(rows, adj, adj.T)


def tensors_of(part: Tensor | Csr) -> tuple[Tensor, ...]:
    """Returns the tensors that a part of a batch consists of."""
    return (part.rowptr, part.col, part.value) if isinstance(part, Csr) else (part,)


class Loader(Protocol):
    """An iterable over the batches of an epoch, which can be resumed at any batch."""

    def __len__(self) -> int:
        """Returns the number of batches of an epoch."""

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches that are left of this epoch."""

    def upcoming(self) -> Batch | None:
        """Returns the batch that comes next, so that it can be prefetched; `None` if unknown."""

    def sweep(self) -> Iterator[Batch]:
        """Yields batches that cover every node once; the position in the epoch does not change."""

    def state_dict(self) -> dict[str, int]:
        """Returns the position of the loader, in a few integers."""

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resumes from a position."""


@runtime_checkable
class ByLoss(Protocol):
    """A loader that draws by the gradients of a loss, which a trainer tells it."""

    def draw_by(self, task: Task) -> None:
        """Draws by the gradients of the loss of a task from here on."""


def check_batch(batch: object) -> None:
    """Refuses an argument that is not a batch."""
    if not isinstance(batch, Batch):
        remedy = "make a batch with `Batch.full(graph, num_layers)`, or call `model.infer(graph)`"
        raise GraphError(wrong_type("batch", batch, remedy))


def loss_weight(graph: Graph, num_batches: int = 1) -> Tensor:
    """Returns the weight of every node's loss, [N].

    It is a constant of the run, so that gradients stored by different batches can be mixed.
    """
    num_train = graph.num_train
    return graph.masks["train"] * (num_batches / num_train)
