"""`LazyBlock`: a residual block that sees a node, its neighbors and the whole graph. Ours; not in the paper.

`T` targets of a batch, `N` nodes of the graph, `H` hidden channels, `K` channels of a view.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, cast

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError, check_number, wrong_type
from lazygnn.graph import Graph, check_graph
from lazygnn.history import History, StoredHistory, on_disk, open_history
from lazygnn.inference import by_rows, evaluating, multiply
from lazygnn.model import largest_error
from lazygnn.models.layers import Linear, NormKind, check_columns, gelu_dropout, make_norm
from lazygnn.ops import Adjacency
from lazygnn.propagation import Drift, ExactPropagation, LazyPropagation
from lazygnn.propagation.base import check_rows

Far = LazyPropagation | ExactPropagation


class LazyBlock(nn.Module):
    """`h + W_2 dropout(gelu(W_1 [u, A v, P_1 v, P_2 v, ...]))` with `u = norm(h)` and `v = u W_v`, or `v = u`.

    `A v` is the sum over neighbors. Every `P` is a lazily propagated fixed point, which sees the whole graph. The
    history of the first one stores its input and its solution for each node. In a mini-batch the halo of `A v` and of
    `P_1 v` comes from it. No gradient flows into the halo.

    Args:
        channels: Width of `h`.
        far: One or more propagations of `view_channels` columns. The first one reads the inputs of the halo, so open
            its history with `halo_inputs=True` for mini-batches.
        view_channels: Width of `v`; `None` takes `u` itself.
        norm: Normalization of `h`.
        dropout: Fraction of hidden units dropped in training.
    """

    def __init__(
        self,
        channels: int,
        far: Far | Sequence[Far],
        *,
        view_channels: int | None = None,
        norm: NormKind = "layer",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        views = [far] if isinstance(far, Far) else far
        if not isinstance(views, Sequence) or not views or not all(isinstance(one, Far) for one in views):
            raise ConfigError(wrong_type("far", far, "give one or more `LazyPropagation`"))
        width = channels if view_channels is None else view_channels
        self.norm = make_norm(norm, channels)
        self.narrow = None if view_channels is None else Linear(channels, view_channels, bias=False)
        self.far = nn.ModuleList(views)
        self.first = Linear(channels + (1 + len(views)) * width, channels)
        self.last = Linear(channels, channels)
        self.dropout = dropout

    @classmethod
    def for_graph(
        cls,
        graph: Graph,
        channels: int,
        *,
        num_layers: int = 2,
        alpha: float = 0.1,
        beta: float = 0.1,
        norm: NormKind = "layer",
        dropout: float = 0.5,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Makes a block with a history for every node of a graph and steps fitted to it.

        Args:
            graph: The graph to train on.
            channels: Width of `h`.
            num_layers: Steps of a pass, as in `Batch.full(graph, num_layers)`.
            alpha: Weight of the input in every step.
            beta: Weight of the fresh input in the start value of a pass.
            norm: Normalization of `h`.
            dropout: Fraction of hidden units dropped in training.
            device: Where the history lives; the block itself is moved with `.to(device)` as usual.
        """
        check_graph(graph)
        check_number("channels", channels, whole=True)
        check_number("num_layers", num_layers, whole=True)
        check_number("beta", beta)
        history = open_history(graph.num_nodes, channels, Drift(beta), device=device, halo_inputs=True)
        far = LazyPropagation(alpha, history).fit(graph.adj, num_layers)
        return cls(channels, far, norm=norm, dropout=dropout)

    def forward(self, h: Tensor, batch: Batch) -> Tensor:
        """Computes the targets of a batch, [T, H] -> [T, H]; exact in evaluation mode, which needs a full batch."""
        check_columns(h, len(self.last.weight))
        u = self.norm(h)
        v = self._view(u)
        first, *others = cast(list[Far], list(self.far))
        near, far = first.views(v, batch)
        return self._combine(h, u, near, far, *[one(v, batch) for one in others])

    @torch.no_grad()
    def infer(self, h: Tensor, adj: Adjacency, *, scratch: Path | None = None) -> Tensor:
        """Computes all nodes exactly and in bounded device memory, [N, H] -> [N, H].

        Args:
            h: Input of all nodes, which may be in host memory or in a memory map; the result overwrites it.
            adj: The matrix, on the compute device.
            scratch: Folder for the views of all nodes, if these do not fit in memory.
        """
        check_columns(h, len(self.last.weight))
        check_rows(h, adj)
        device = adj.device

        def copy(function: Callable[[Tensor], Tensor], x: Tensor, name: str) -> Tensor:
            return by_rows(function, device, x, allocate=on_disk(scratch, name))

        def combine(rows: Tensor, *others: Tensor) -> Tensor:
            return self._combine(rows, self.norm(rows), *others)

        with evaluating(self):
            v = copy(lambda rows: self._view(self.norm(rows)), h, "block-0")
            near = copy(torch.clone, v, "block-1")
            views = [multiply(adj, near, in_place=True)]
            for index, far in enumerate(cast(list[Far], list(self.far))):
                views.append(far.infer(copy(torch.clone, v, f"block-{index + 2}"), adj, in_place=True))
            return by_rows(combine, device, h, *views, allocate=lambda *_: h)

    def diagnose(self, adj: Adjacency) -> dict[str, float]:
        """Returns the largest error of a stored solution, against the exact one for its stored input.

        Empty without stored inputs.
        """
        return largest_error(
            far.diagnose(adj, _no_input)
            for far in self.far
            if isinstance(far, LazyPropagation) and _stores_inputs(far.features)
        )

    def _view(self, u: Tensor) -> Tensor:
        return u if self.narrow is None else cast(Tensor, self.narrow(u))

    def _combine(self, h: Tensor, u: Tensor, *views: Tensor) -> Tensor:
        # `W_1 [u, views]` one part after the other, so that neither they nor their gradients are copied side by side
        own, *others = self.first.weight.split([part.shape[1] for part in (u, *views)])
        joined = torch.addmm(self.first.bias.expand(len(u), -1), u, own)
        for view, weight in zip(views, others, strict=True):
            # in place, which autocast leaves alone: `addmm` would copy the sum so far
            joined.addmm_(view.to(joined.dtype), weight.to(joined.dtype))
        hidden = gelu_dropout(joined, self.dropout, self.training)
        out: Tensor = h + self.last(hidden)
        return out


def _stores_inputs(history: History) -> bool:
    return isinstance(history, StoredHistory) and history.inputs is not None


def _no_input() -> Tensor:
    raise AssertionError("a history of a block stores its inputs")
