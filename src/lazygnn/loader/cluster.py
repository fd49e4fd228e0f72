"""`ClusterLoader`: parts of a permuted graph as batches, with a halo of neighbours around them.

`T` targets come first in a batch, then the halo hop by hop, `V` nodes in all; `N` nodes of the graph, `P` parts.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import Literal, get_args

import torch
from torch import Tensor

from lazygnn.batch import Batch, loss_weight
from lazygnn.graph import Graph, check_graph
from lazygnn.loader.rows import select_rows
from lazygnn.ops import Adjacency, Csr, find_device

Halo = Literal["frozen", "paper", "features", "none"]


class ClusterLoader:
    """Batches of whole parts, shuffled every epoch.

    A part is a slice of the node order, so a batch is cut out of the CSR by vectorised code, ahead of time in a
    thread. With one part a batch the cuts never change and are kept.

    Args:
        graph: Permuted by its partition (`Graph.permute`).
        ptr: Part `p` holds the nodes `ptr[p]` to `ptr[p + 1]`, [P + 1].
        num_layers: Steps of a pass.
        parts_per_batch: Parts drawn together.
        halo: `frozen`: one hop that stands at its history in every step, the transform runs on targets alone;
            `paper`: `num_layers` hops, exact on targets, the transform runs on all of them (Eqs. 15-21);
            `features`: one hop, its features included, for methods that keep a history per layer (GAS);
            `none`: edges that leave the batch are dropped (Cluster-GCN).
        seed: Seed of the order.
        device: Where batches are handed out; the graph's own device by default.
        keep: Keep the cuts of single parts; they take as much memory as the adjacency.
        pin: Cut into page-locked memory, from which an accelerator copies on its own; kept cuts are pinned once.
        edges: In place of `device`: where all of a kept cut but its features is placed, once. The features stay where
            the graph is, and so do cuts that are not kept.
        dtype: Type of dense features in a batch; that of the graph by default.
    """

    def __init__(
        self,
        graph: Graph,
        ptr: Tensor,
        num_layers: int,
        *,
        parts_per_batch: int = 1,
        halo: Halo = "frozen",
        seed: int = 0,
        device: torch.device | str | None = None,
        keep: bool = True,
        pin: bool = False,
        edges: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_graph(graph)
        self.num_parts = len(ptr) - 1
        if not 1 <= parts_per_batch <= self.num_parts:
            raise ValueError(f"`parts_per_batch` must lie in [1, {self.num_parts}], got {parts_per_batch}")
        if halo not in get_args(Halo):
            raise ValueError(f"`halo` must be one of {', '.join(get_args(Halo))}, got `{halo}`")
        if int(ptr[0]) != 0 or int(ptr[-1]) != graph.num_nodes or bool((ptr.diff() < 1).any()):
            raise ValueError(
                f"`ptr` must rise from 0 to {graph.num_nodes}, the number of nodes, got {ptr.tolist()[:8]}"
            )
        if device is not None and edges is not None:
            raise ValueError(
                f"`device` is {device}, `edges` {edges}; say where batches are to be, or their edges alone"
            )
        self.graph, self.num_layers, self.halo = graph, num_layers, halo
        self.parts_per_batch, self.seed = parts_per_batch, seed
        self.device = graph.device if device is None else torch.device(device)
        self.epoch, self.position = 0, 0
        # by its full name, since what is current is a matter of the thread
        self._edges = None if edges is None else find_device(edges)
        self._dtype = dtype
        self._pin = graph.device.type == "cpu" and (pin or self.device.type == "cuda")
        self._bounds = ptr.tolist()
        self._weight = loss_weight(graph, len(self))
        # local index of every node of the batch being cut, -1 elsewhere
        self._place = torch.full((graph.num_nodes,), -1, dtype=graph.adj.col.dtype, device=graph.device)
        self._kept: dict[int, Batch] | None = {} if keep and parts_per_batch == 1 else None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="lazygnn-cluster")
        self._next: Future[Batch] | None = None
        self._upcoming: Batch | None = None

    def __len__(self) -> int:
        return -(-self.num_parts // self.parts_per_batch)

    def __iter__(self) -> Iterator[Batch]:
        groups = self._order().split(self.parts_per_batch)
        self._prepare(groups, self.position)
        while (batch := self.upcoming()) is not None:
            self.position += 1
            self._prepare(groups, self.position)
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def upcoming(self) -> Batch | None:
        """The batch that comes next, already cut; `None` after the last one of an epoch."""
        if self._upcoming is None and self._next is not None:
            self._upcoming = self._hand_out(self._next.result())
        return self._upcoming

    def sweep(self) -> Iterator[Batch]:
        """Every node once, in node order; the course of the epochs is not touched."""
        for group in torch.arange(self.num_parts).split(self.parts_per_batch):
            yield self._hand_out(self._worker.submit(self._cut, group.tolist()).result())

    def state_dict(self) -> dict[str, int]:
        """Where the loader stands: the batches left follow from it."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on from where another loader of the same parts stood."""
        self.seed, self.epoch, self.position = state["seed"], state["epoch"], state["position"]

    def _order(self) -> Tensor:
        # one part keeps the node order, and so do all parts at once: the batch is then the whole graph
        if self.parts_per_batch == self.num_parts:
            return torch.arange(self.num_parts)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        return torch.randperm(self.num_parts, generator=generator)

    def _prepare(self, groups: tuple[Tensor, ...], position: int) -> None:
        self._upcoming = None
        ahead = position < len(groups)
        self._next = self._worker.submit(self._cut, groups[position].tolist()) if ahead else None

    def _hand_out(self, batch: Batch) -> Batch:
        return batch.to(self.device) if self._edges is None else batch

    def _cut(self, parts: list[int]) -> Batch:
        if self._kept is None:
            return self._pinned(self._cut_now(parts))
        if parts[0] not in self._kept:
            batch = self._cut_now(parts)
            # waits until it is there, whoever uses it on whatever stream
            self._kept[parts[0]] = self._pinned(batch if self._edges is None else batch.rest_to(self._edges))
        return self._kept[parts[0]]

    def _pinned(self, batch: Batch) -> Batch:
        return batch.pin() if self._pin else batch

    def _cut_now(self, parts: list[int]) -> Batch:
        graph = self.graph
        slices = [slice(self._bounds[part], self._bounds[part + 1]) for part in parts]
        targets = torch.cat([torch.arange(s.start, s.stop, device=graph.device) for s in slices])
        nodes, sizes, local = self._grow(targets)
        only_targets = self.halo in ("frozen", "none") or len(nodes) == len(targets)
        x = _rows(graph.x, slices, targets) if only_targets else select_rows(graph.x, nodes)
        return Batch(
            x=x.to(self._dtype) if isinstance(x, Tensor) and self._dtype is not None else x,
            y=graph.y[targets],
            weight=self._weight[targets],
            nodes=nodes,
            num_targets=len(targets),
            adjs=[local.rows(size) for size in sizes],
            lasting=self._kept is not None,
        )

    def _grow(self, targets: Tensor) -> tuple[Tensor, list[int], Adjacency]:
        """Nodes of the batch, how many rows each step reaches, and the local matrix."""
        place, adj = self._place, self.graph.adj
        hops = self.num_layers if self.halo == "paper" else min(self.num_layers, 1)
        frontier, rings, blocks, count = targets, [targets], [], len(targets)
        place[targets] = torch.arange(count, dtype=place.dtype, device=place.device)
        for _ in range(hops):
            block = adj.select(frontier)
            blocks.append(block)
            if self.halo == "none":
                break
            frontier = block.col[place[block.col] < 0].unique().long()
            place[frontier] = torch.arange(count, count + len(frontier), dtype=place.dtype, device=place.device)
            rings.append(frontier)
            count += len(frontier)
        nodes = torch.cat(rings)
        local = _local(blocks, place, count) if blocks else adj.select(targets[:0])
        place[nodes] = -1
        # the paper's halo shrinks hop by hop, so that the last step reaches the targets alone
        reach = list(accumulate(len(ring) for ring in rings))
        sizes = reach[hops - 1 :: -1] if self.halo == "paper" and hops else [len(targets)] * self.num_layers
        return nodes, sizes, local


def _local(blocks: list[Csr], place: Tensor, num_cols: int) -> Adjacency:
    """Stacks row blocks and renames their columns; entries in columns without a place are dropped."""
    col = torch.cat([place[block.col] for block in blocks])
    value = torch.cat([block.value for block in blocks])
    count = torch.cat([block.rowptr.diff() for block in blocks])
    rowptr = torch.zeros(len(count) + 1, dtype=torch.long, device=col.device)
    torch.cumsum(count, 0, out=rowptr[1:])
    inside = col >= 0
    if not bool(inside.all()):
        kept = torch.zeros(len(col) + 1, dtype=torch.long, device=col.device)
        torch.cumsum(inside, 0, out=kept[1:])
        rowptr, col, value = kept[rowptr], col[inside], value[inside]
    return Adjacency(rowptr.to(col.dtype), col, value, num_cols)


def _rows(x: Tensor | Csr, slices: list[slice], targets: Tensor) -> Tensor | Csr:
    # a single slice of dense features is a view: memory-mapped rows are read when they are used
    return x[slices[0]] if len(slices) == 1 and isinstance(x, Tensor) else select_rows(x, targets)
