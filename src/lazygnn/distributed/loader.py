"""`PartLoader`: the parts of this rank as batches, in the same steps on all ranks.

`P` parts of all ranks, `S` steps of an epoch, `T` targets of a batch, `V` nodes of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lazygnn.batch import Batch, loss_weight
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.matrix import Part, ShardedMatrix
from lazygnn.distributed.plan import Plan, make_plan
from lazygnn.distributed.shard import Shard
from lazygnn.graph import Graph
from lazygnn.loader.base import EpochLoader
from lazygnn.ops import Csr


@dataclass(frozen=True, eq=False)
class Step:
    """What this rank does in one step of an epoch.

    Attributes:
        parts: Its parts; another rank may have more, and this one none.
        plan: The exchange of the rows around the parts of all ranks.
    """

    parts: list[Part]
    plan: Plan


class PartLoader(EpochLoader):
    """Batches of one part each, several of which make a step.

    Step `s` of an epoch holds the parts `p` with `p % S == s`, whichever rank they belong to. The order of the steps is
    drawn for every epoch. A batch has the targets of its part first, then the nodes around it, which keep their stored
    values.

    Args:
        shard: The share of this rank.
        graph: The graph of the shard as the model takes it.
        ranks: All ranks; each of them builds its loader.
        num_layers: Steps of a pass.
        parts_per_step: The most parts in a step, over all ranks.
        halo: `frozen`: stored values around a part. `features`: features, too, for methods that keep a history per
            layer. `none`: drops the edges that leave a part.
        halo_features: Features around the parts of this rank, as the model takes them, for `features`.
        seed: Seed of the order.
    """

    def __init__(
        self,
        shard: Shard,
        graph: Graph,
        ranks: Ranks,
        num_layers: int,
        *,
        parts_per_step: int,
        halo: str = "frozen",
        halo_features: Tensor | Csr | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        assert isinstance(graph.adj, ShardedMatrix)
        self.graph, self.num_layers, self.halo = graph, num_layers, halo
        self.num_parts = shard.num_parts
        self._num_steps = -(-shard.num_parts // parts_per_step)
        self._halo_features = halo_features
        self._weight = loss_weight(graph, self._num_steps)
        self._batches: dict[int, Batch] = {}
        self.parts = list(graph.adj.parts)
        self.all_steps = [self._make_step(shard, ranks, number) for number in range(self._num_steps)]

    def __len__(self) -> int:
        return self._num_steps

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of this rank that are left of the epoch."""
        for step in self.steps():
            yield from map(self.batch, step.parts)

    def steps(self) -> Iterator[Step]:
        """Yields the steps that are left of the epoch, as many on every rank."""
        while self.position < len(self):
            self.position += 1
            yield self.all_steps[int(self._shuffled(len(self))[self.position - 1])]
        self.epoch, self.position = self.epoch + 1, 0

    def upcoming(self) -> Batch | None:
        """Returns `None`: batches stay where they are."""
        return None

    def sweep(self) -> Iterator[Batch]:
        """Yields the batches of all parts of this rank."""
        yield from map(self.batch, self.parts)

    def batch(self, part: Part) -> Batch:
        """Returns the batch of a part, the same one every time where it takes long to make.

        With stored values around it, it is little more than a list of nodes. Those of all parts may be many times the
        nodes of this rank, so that they are not kept.
        """
        if self.halo == "frozen":
            return self._make_batch(part)
        if part.number not in self._batches:
            self._batches[part.number] = self._make_batch(part)
        return self._batches[part.number]

    def _make_step(self, shard: Shard, ranks: Ranks, number: int) -> Step:
        parts = [part for part in self.parts if part.number % self._num_steps == number]
        slots = [part.slots.cpu() for part in parts] if self.halo != "none" else []
        # those of one part are in rising order, and shared with it
        wanted = slots[0] if len(slots) == 1 else torch.cat([torch.empty(0, dtype=torch.int32), *slots]).unique()
        return Step(parts, make_plan(ranks, shard.bounds, shard.halo, wanted).to(self.graph.device))

    def _make_batch(self, part: Part) -> Batch:
        graph, device = self.graph, self.graph.device
        adj = part.adj if self.halo != "none" else _inner(part.adj)
        own = torch.arange(part.start, part.stop, device=device)
        around = part.slots[:0].long() if self.halo == "none" else part.slots.long() + graph.num_nodes
        return Batch(
            x=self._features(part),
            y=graph.y[part.rows],
            weight=self._weight[part.rows],
            nodes=torch.cat((own, around)),
            num_targets=part.stop - part.start,
            adjs=[adj] * self.num_layers,
            lasting=self.halo != "frozen",
        )

    def _features(self, part: Part) -> Tensor | Csr:
        x = self.graph.x
        own = x[part.rows] if isinstance(x, Tensor) else x.select(torch.arange(part.start, part.stop, device=x.device))
        around = self._halo_features
        if around is None:
            return own
        if isinstance(own, Tensor):
            assert isinstance(around, Tensor)
            return torch.cat((own, around.index_select(0, part.slots.to(around.device))))
        assert isinstance(around, Csr)
        below = around.select(part.slots.to(around.device))
        rowptr = torch.cat((own.rowptr, below.rowptr[1:] + own.rowptr[-1]))
        return Csr(rowptr, torch.cat((own.col, below.col)), torch.cat((own.value, below.value)), own.num_cols)


def _inner(adj: Csr) -> Csr:
    """Returns the square block of the nodes of a part among themselves."""
    size = adj.num_rows
    inside = adj.col < size
    kept = torch.zeros(len(adj.col) + 1, dtype=torch.long, device=adj.device)
    torch.cumsum(inside, 0, out=kept[1:])
    return Csr(kept[adj.rowptr.long()].to(adj.rowptr.dtype), adj.col[inside], adj.value[inside], size)
