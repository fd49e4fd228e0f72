"""Index lists of the halo: which rows this rank sends to every other, and where those that it receives belong.

`R` ranks, `H` rows of a halo.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lazygnn.distributed.group import Ranks
from lazygnn.ops import index_dtype


@dataclass(frozen=True, eq=False)
class Plan:
    """One exchange of rows, which is repeated with new values.

    Attributes:
        rows: Own rows to send, sorted by the rank that receives them.
        sent: How many of them each rank receives, [R].
        slots: Where rows that are received belong in the halo of this rank, sorted by the rank that sends them, [H].
        received: How many of them each rank sends, [R].
        is_empty: Whether no rank sends anything.
    """

    rows: Tensor
    sent: Sequence[int]
    slots: Tensor
    received: Sequence[int]
    is_empty: bool

    def to(self, device: torch.device) -> "Plan":
        """Returns the plan with its indices on a device."""
        return Plan(self.rows.to(device), self.sent, self.slots.to(device), self.received, self.is_empty)

    def sent_to_others(self, rank: int) -> int:
        """Returns the number of rows that leave this rank."""
        return sum(self.sent) - self.sent[rank]


def make_plan(ranks: Ranks, bounds: Sequence[int], halo: Tensor, slots: Tensor) -> Plan:
    """Tells every rank which of its rows this rank needs, and learns what the others need.

    Args:
        ranks: All ranks; each of them calls this function.
        bounds: Rank `r` owns the nodes `bounds[r]` to `bounds[r + 1]`.
        halo: All nodes around the parts of this rank, in rising order.
        slots: Those of them that the exchange brings, as positions in `halo`, in rising order.
    """
    wanted = halo[slots].long()
    owner = torch.searchsorted(torch.tensor(bounds[1:-1], dtype=torch.long), wanted, right=True)
    received = torch.bincount(owner, minlength=ranks.size).tolist()
    table = ranks.gather(received)
    sent = [counts[ranks.rank] for counts in table]
    rows = torch.empty(sum(sent), dtype=torch.long)
    ranks.all_to_all(rows, wanted, sent, received)()
    # as small as they can be: on a graph with many neighbors, the plans of all steps have several entries for each node
    index = index_dtype(bounds[-1], len(halo))
    rows = rows.sub_(bounds[ranks.rank]).to(index)
    return Plan(rows, sent, slots.to(index), received, not any(map(any, table)))
