"""The rows of the adjacency that this rank owns, part by part, with products over all ranks.

`N` nodes of the graph, `T` of a part, `H` around it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import ClassVar

import torch
from torch import Tensor

from lazygnn.distributed import products
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.plan import Plan
from lazygnn.distributed.traffic import Traffic
from lazygnn.ops import Adjacency, Csr


@dataclass(frozen=True, eq=False)
class Part:
    """One part of the graph: a batch of training, and a block of rows in evaluation.

    Attributes:
        number: Its number among all parts.
        start: Its first row among those of this rank.
        stop: The row after its last.
        adj: Its rows, [T, T + H]; its own nodes come first, then those around it.
        slots: The nodes around it, as positions in the halo of this rank, [H].
    """

    number: int
    start: int
    stop: int
    adj: Adjacency
    slots: Tensor

    @property
    def rows(self) -> slice:
        """Returns its rows among those of this rank."""
        return slice(self.start, self.stop)

    def map(self, move: Callable[[Adjacency], Adjacency], device: torch.device) -> "Part":
        """Returns the part with another matrix and its indices on a device."""
        return replace(self, adj=move(self.adj), slots=self.slots.to(device))


@dataclass(frozen=True, eq=False)
class ShardedMatrix(Csr):
    """Rows of an [N, N] matrix; operations on it exchange rows with the other ranks.

    The entries are those of the parts, so that training and evaluation share them. `rowptr`, `col` and `value` are
    empty.

    Attributes:
        parts: The parts of this rank, in the order of their rows.
        num_slots: Number of nodes around the parts.
        first_row: The first row of this rank among all rows.
        plan: The exchange of all rows around the parts.
        ranks: All ranks.
        traffic: Counts the bytes.
    """

    products: ClassVar[ModuleType] = products

    parts: Sequence[Part]
    num_slots: int
    first_row: int
    plan: Plan
    ranks: Ranks
    traffic: Traffic

    @property
    def num_rows(self) -> int:
        """Returns the number of rows of this rank."""
        return self.parts[-1].stop

    def to(self, target: torch.device | torch.dtype | str, *, non_blocking: bool = False) -> "ShardedMatrix":
        """Moves the matrix to a device, or its values to a dtype."""
        value = self.value.to(target)
        if value.device == self.value.device and value.dtype == self.value.dtype:
            return self

        def move(adj: Adjacency) -> Adjacency:
            return adj.to(target, non_blocking=non_blocking)

        parts = [part.map(move, value.device) for part in self.parts]
        return replace(self, value=value, parts=parts, plan=self.plan.to(value.device))

    def halo_rows(self, x: Tensor) -> Tensor:
        """Returns the rows of the nodes around the parts, from the ranks that own them, in the type of `x`."""
        plan = self.plan
        # the plan of all nodes around the parts has them in the order of their slots
        halo = x.new_empty(self.num_slots, x.shape[1])
        if not plan.is_empty:
            sent = x.index_select(0, plan.rows)
            self.ranks.all_to_all(halo.view(torch.uint8), sent.view(torch.uint8), plan.received, plan.sent)()
            self.traffic.evaluated += plan.sent_to_others(self.ranks.rank) * x.shape[1] * x.element_size()
        return halo
