"""`ClusterLoader`: parts of a permuted graph as batches, each with a halo of neighbors.

`T` targets come first in a batch, then the halo hop by hop, `V` nodes in all; `N` nodes of the graph, `P` parts.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Literal, get_args

import torch
from torch import Tensor

from lazygnn.batch import Batch, Ring, loss_weight
from lazygnn.checks import rises
from lazygnn.graph import Graph, check_graph, select_rows
from lazygnn.loader.base import EpochLoader
from lazygnn.loader.local import LocalIndex, stack_rows
from lazygnn.ops import Adjacency, Csr, find_device

Halo = Literal["frozen", "paper", "features", "induced", "none"]


class ClusterLoader(EpochLoader):
    """Batches of whole parts, shuffled every epoch.

    A part is a slice of the node order. A thread cuts the next batch out of the CSR ahead of time. With one part per
    batch the cuts never change and are kept.

    Args:
        graph: The graph, permuted by its partition (`Graph.permute`).
        ptr: Part `p` holds the nodes `ptr[p]` to `ptr[p + 1]`, [P + 1].
        num_layers: Steps per pass.
        parts_per_batch: Parts drawn together.
        halo: `frozen`: one hop that keeps its stored value in every step; the transform runs on targets only.
            `paper`: `num_layers` hops, exact on targets; the transform runs on all nodes (Eqs. 15-21).
            `features`: one hop with its features, for methods that keep a history per layer (GAS).
            `induced`: the same hop with the edges among all nodes of the batch and the labels of the halo, for methods
            that compute the halo too (LMC).
            `none`: drops the edges that leave the batch (Cluster-GCN).
        seed: Seed of the order.
        keep: Whether to keep the cuts of single parts; they take as much memory as the adjacency.
        pin: Whether to cut into page-locked memory, from which an accelerator copies asynchronously. Kept cuts are
            pinned once.
        edges: The device of a kept cut except its features, which stay with the graph. Cuts that are not kept stay with
            the graph as a whole.
        dtype: Type of dense features in a batch; that of the graph by default.

    Examples:
        >>> from lazygnn import ClusterLoader, partition
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> parts = partition(graph, 3, method="contiguous")
        >>> loader = ClusterLoader(graph.permute(parts.order), parts.ptr, num_layers=2)
        >>> [batch.num_targets for batch in loader]
        [100, 100, 100]
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
        keep: bool = True,
        pin: bool = False,
        edges: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(seed)
        check_graph(graph)
        self.num_parts = len(ptr) - 1
        if not 1 <= parts_per_batch <= self.num_parts:
            raise ValueError(f"`parts_per_batch` must be in [1, {self.num_parts}], got {parts_per_batch}")
        if halo not in get_args(Halo):
            raise ValueError(f"`halo` must be one of {', '.join(get_args(Halo))}, got `{halo}`")
        if not rises(ptr, graph.num_nodes, by=1):
            raise ValueError(
                f"`ptr` must rise from 0 to {graph.num_nodes}, the number of nodes, got {ptr.tolist()[:8]}"
            )
        self.graph, self.num_layers, self.halo = graph, num_layers, halo
        self.parts_per_batch = parts_per_batch
        # with its index, since the current device depends on the thread
        self._edges = None if edges is None else find_device(edges)
        self._dtype = dtype
        self._pin = pin and graph.device.type == "cpu"
        self._bounds = ptr.tolist()
        self._weight = loss_weight(graph, len(self))
        self._local = LocalIndex(graph)
        self._kept: dict[int, Batch] | None = {} if keep and parts_per_batch == 1 else None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="lazygnn-cluster")
        self._next: Future[Batch] | None = None
        self._upcoming: Batch | None = None

    def __len__(self) -> int:
        return -(-self.num_parts // self.parts_per_batch)

    def __iter__(self) -> Iterator[Batch]:
        self._cut_ahead()
        yield from super().__iter__()

    def upcoming(self) -> Batch | None:
        """Returns the next batch of the epoch, cut ahead of time; `None` after the last one."""
        if self._upcoming is None and self._next is not None:
            self._upcoming = self._next.result()
        return self._upcoming

    def sweep(self) -> Iterator[Batch]:
        """Yields batches of all nodes in node order; leaves epoch and position unchanged."""
        for parts in torch.arange(self.num_parts).split(self.parts_per_batch):
            yield self._submit(parts.tolist()).result()

    def _advance(self) -> None:
        super()._advance()
        self._cut_ahead()

    def _cut_ahead(self) -> None:
        self._upcoming = self._next = None
        if self.position < len(self):
            start = self.position * self.parts_per_batch
            parts = self._order()[start : start + self.parts_per_batch].tolist()
            self._next = self._submit(parts)

    def _submit(self, parts: list[int]) -> Future[Batch]:
        """Lets the thread cut a batch, on the stream of the caller, who reads it there without waiting."""
        device = self.graph.device
        stream = torch.cuda.stream(torch.cuda.current_stream(device)) if device.type == "cuda" else nullcontext()
        return self._worker.submit(self._cut_on, stream, parts)

    def _cut_on(self, stream: AbstractContextManager[object], parts: list[int]) -> Batch:
        with stream:
            return self._cut(parts)

    def _order(self) -> Tensor:
        # all parts at once keep the node order, so that the batch is the whole graph
        if self.parts_per_batch == self.num_parts:
            return torch.arange(self.num_parts)
        return self._shuffled(self.num_parts)

    def _cut(self, parts: list[int]) -> Batch:
        if self._kept is None:
            return self._pinned(self._cut_now(parts))
        if parts[0] not in self._kept:
            batch = self._cut_now(parts)
            # blocks until the copy is complete, so that any stream may use it
            self._kept[parts[0]] = self._pinned(batch if self._edges is None else batch.rest_to(self._edges))
        return self._kept[parts[0]]

    def _pinned(self, batch: Batch) -> Batch:
        return batch.pin() if self._pin else batch

    def _cut_now(self, parts: list[int]) -> Batch:
        graph = self.graph
        bounds = [(self._bounds[part], self._bounds[part + 1]) for part in parts]
        targets = torch.cat([torch.arange(start, stop, device=graph.device) for start, stop in bounds])
        nodes, num_rows, adj = self._grow(targets)
        if self.halo in ("paper", "features", "induced") and len(nodes) > len(targets):
            x = select_rows(graph.x, nodes)
        elif len(parts) == 1 and isinstance(graph.x, Tensor):
            # a view: memory-mapped rows are read when they are used
            x = graph.x[slice(*bounds[0])]
        else:
            x = select_rows(graph.x, targets)
        return Batch(
            x=x.to(self._dtype) if isinstance(x, Tensor) and self._dtype is not None else x,
            y=graph.y[targets],
            weight=self._weight[targets],
            nodes=nodes,
            num_targets=len(targets),
            adjs=[adj.rows(count) for count in num_rows],
            lasting=self._kept is not None,
            ring=self._ring(nodes[len(targets) :], adj) if self.halo == "induced" else None,
        )

    def _ring(self, halo: Tensor, adj: Adjacency) -> Ring:
        """Returns labels and weights of the halo, which has the last rows of the matrix."""
        graph = self.graph
        degree = graph.adj.rowptr.diff()[halo]
        inside = adj.rowptr.diff()[adj.num_rows - len(halo) :]
        return Ring(graph.y[halo], self._weight[halo], (inside / degree).to(graph.adj.value.dtype))

    def _grow(self, targets: Tensor) -> tuple[Tensor, list[int], Adjacency]:
        """Adds the halo hop by hop.

        Returns:
            The nodes of the batch, the number of rows that each step computes, and the matrix of the batch.
        """
        local, adj = self._local, self.graph.adj
        num_hops = self.num_layers if self.halo == "paper" else min(self.num_layers, 1)
        ring, blocks, ring_sizes = targets, list[Csr](), [len(targets)]
        local.add(targets)
        for _ in range(num_hops):
            blocks.append(adj.select(ring))
            if self.halo == "none":
                break
            ring = local.add_missing(blocks[-1].col)
            ring_sizes.append(len(ring))
        if self.halo == "induced" and num_hops > 0:
            blocks.append(adj.select(ring))
        matrix = stack_rows(blocks, local, sum(ring_sizes)) if blocks else adj.select(targets[:0])
        # the paper's halo shrinks hop by hop: the last step computes the targets only
        reached = list(accumulate(ring_sizes))
        paper = self.halo == "paper" and num_hops > 0
        num_rows = reached[num_hops - 1 :: -1] if paper else [matrix.num_rows] * self.num_layers
        return local.clear(), num_rows, matrix
