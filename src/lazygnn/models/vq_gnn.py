"""A GCN on parts of the graph whose neighbors outside are words of a codebook (VQ-GNN).

`V` nodes of a batch, `T` targets among them (the first rows), `H` hidden channels, `C` outputs.
"""

from collections.abc import Callable, Sequence
from typing import Any, Unpack, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.history import History, pad_rows
from lazygnn.models.gcn import GCN, GCNLayer
from lazygnn.models.layers import drop, dropout
from lazygnn.models.stack import LayerArguments
from lazygnn.ops import Adjacency, spmm
from lazygnn.propagation import layer_matrices
from lazygnn.propagation.codebook import Codebook


class VQGNN(GCN):
    """A GCN that stores a few codes for each node and layer, in place of a row.

    A layer sums over the neighbors outside the batch by their words. The gradient of such a sum also has a word, which
    flows back into the batch. After the backward pass, the codebook learns the targets' own rows and gradients, and
    their codes are stored. With a word for every node, sums and gradients are exact. Ding et al., NeurIPS 2021,
    https://arxiv.org/abs/2110.14363

    Differences to the released code: the first layer reads the features of the neighbors, as GNNAutoScale does, and
    needs no codebook. Rows are scaled by the running statistics when they are encoded, as when they are decoded. A node
    that was not visited yet counts as the mean, not as a random word, and a word that nobody chooses stays.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of outputs.
        num_layers: Number of layers.
        books: A codebook for each layer but the first, `hidden_channels` wide. Empty if batches have no halo.
        codes: A history of codes for each codebook, in float32, with a warm start that ignores the stored rows of
            targets, `Mix(1.0)`. Training on batches with a halo needs them.
        shared: `norm`, `dropout` and `input_dropout`, as for `Stack`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int,
        books: Sequence[Codebook] = (),
        codes: Sequence[History] = (),
        **shared: Unpack[LayerArguments],
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers=num_layers, **shared)
        for name, given in {"codebooks": books, "histories of codes": codes}.items():
            if len(given) not in (0, num_layers - 1):
                raise ValueError(f"{num_layers} layers need {num_layers - 1} {name} or none, got {len(given)}")
        self.books, self.codes = nn.ModuleList(books), list(codes)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        adjs = layer_matrices(batch, len(self.layers))
        x: Any = drop(batch.x, self.input_dropout, self.training)
        for index, (layer, adj) in enumerate(zip(cast(list[GCNLayer], list(self.layers)), adjs, strict=True)):
            if index > 0:
                x = F.relu(self.norms[index - 1](x))
            if index > 0 and self.training and self.codes and adj.num_cols > batch.num_targets:
                x = self._convolve(index - 1, layer, x, batch)
            else:
                # without codes, a batch with a halo is refused
                x = x if index == 0 else dropout(self.memory(index - 1, x, batch), self.dropout, self.training)
                x = layer(x, adj)
        return cast(Tensor, x)

    def fill(self, batch: Batch) -> None:
        """Does nothing: a node without codes counts as the mean of all."""

    def _convolve(self, index: int, layer: GCNLayer, x: Tensor, batch: Batch) -> Tensor:
        """Returns `A x W + b` for the targets, where the halo has the words of its codes, [T, H] -> [T, C]."""
        book, history = cast(Codebook, self.books[index]), self.codes[index]
        own = x.detach()
        nothing = torch.zeros(batch.num_targets, book.num_branches, device=x.device)
        codes = history.start(batch.nodes, batch.num_targets, nothing).x[batch.num_targets :].long()
        values, gradients = book.decode(codes)

        def learn(grad: Tensor) -> None:
            found = book.update(own, grad).to(torch.float32)
            history.push(batch.targets, found, found)

        complete = dropout(torch.cat((x, values.to(x.dtype))), self.dropout, self.training)
        sums: Tensor = _Messages.apply(complete, batch.adjs[index + 1], gradients, learn)  # type: ignore[no-untyped-call]
        return sums @ layer.weight + layer.bias


class _Messages(Function):
    """Sums over all neighbors; the gradients of the sums of the halo are given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adj: Adjacency, halo: Tensor, learn: Callable[[Tensor], None]) -> Tensor:
        ctx.adj, ctx.learn = adj, learn
        ctx.save_for_backward(halo)
        return spmm(adj, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (halo,) = ctx.saved_tensors
        # the matrix of the graph is symmetric, so the rows of the targets are their columns too
        back = spmm(ctx.adj, torch.cat((grad, halo.to(grad.dtype))))
        ctx.learn(grad)
        return pad_rows(back, ctx.adj.num_cols), None, None, None
