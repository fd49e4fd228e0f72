"""A stack of lazy blocks, or of convolutions. Ours; not in the paper.

`T` targets of a batch, `N` nodes of the graph, `H` hidden channels, `C` outputs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch, check_batch
from lazygnn.errors import ConfigError, wrong_type
from lazygnn.graph import Graph
from lazygnn.history import on_disk
from lazygnn.inference import by_rows, evaluating
from lazygnn.model import Model, largest_error, weighted_loss
from lazygnn.models.block import LazyBlock
from lazygnn.models.convolution import Convolution
from lazygnn.models.label_input import LabelInput
from lazygnn.models.layers import Linear, NormKind, drop, dropout, gelu_dropout, make_norm
from lazygnn.models.parameters import parameters_by_layer
from lazygnn.ops import Csr
from lazygnn.task import Task

Block = LazyBlock | Convolution


class LazyStack(Model):
    """`h_0 = dropout(gelu(W_in x))`, then the blocks, then `W_out dropout(norm(h))`.

    Args:
        in_channels: Width of the features.
        out_channels: Number of outputs.
        blocks: One or more, all with the same width.
        hidden_channels: Width of the blocks.
        norm: Normalization of the last `h`.
        dropout: Fraction of hidden units dropped in training.
        input_dropout: Fraction of input entries dropped in training; for sparse features, of the stored entries.
        labels: Shows training labels to the stack; `None` shows none.
        scratch: Folder for the rows of all nodes in inference, if these do not fit in memory.
    """

    replayable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        blocks: Sequence[Block],
        *,
        hidden_channels: int,
        norm: NormKind = "layer",
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        labels: LabelInput | None = None,
        scratch: Path | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(blocks, Sequence) or not blocks or not all(isinstance(block, Block) for block in blocks):
            raise ConfigError(wrong_type("blocks", blocks, "give a list of one or more `LazyBlock` or `Convolution`"))
        self.first = Linear(in_channels, hidden_channels)
        self.blocks = nn.ModuleList(blocks)
        self.norm = make_norm(norm, hidden_channels)
        self.last = Linear(hidden_channels, out_channels)
        self.labels = labels
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.scratch = scratch

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        return self._outputs(batch)[0]

    def loss(self, batch: Batch, task: Task) -> Tensor:
        """Returns the loss of a batch; labels that are shown have no part in it."""
        outputs, weight = self._outputs(batch)
        return weighted_loss(outputs, batch.y, weight, task)

    def fill(self, batch: Batch) -> None:
        """Stores a first history for the targets of a batch, in every block."""
        with torch.no_grad():
            self._outputs(batch)

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the exact outputs of every node, [N, C], on the device of the graph, block by block."""
        with evaluating(self):
            return by_rows(self._leave, self.device, self._after_blocks(graph))

    @torch.no_grad()
    def embed(self, graph: Graph) -> Tensor:
        """Returns the exact input of the last layer for every node, [N, H], on the device of the graph."""
        with evaluating(self):
            h = self._after_blocks(graph)
            return by_rows(self.norm, self.device, h, allocate=lambda *_: h)

    @torch.no_grad()
    def diagnose(self, graph: Graph) -> dict[str, float]:
        """Returns the largest error of a stored solution over the blocks."""
        adj = graph.adj.to(self.device)
        return largest_error(block.diagnose(adj) for block in cast(list[Block], list(self.blocks)))

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer, from input to output."""
        first = [self.first] if self.labels is None else [self.first, self.labels]
        layers = parameters_by_layer([*first, *self.blocks, self.last], [])
        layers[-1].extend(self.norm.parameters())
        return layers

    @property
    def reads_labels(self) -> bool:
        """Returns whether the labels of training nodes are shown to the stack."""
        return self.labels is not None

    def _outputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the outputs of the targets, [T, C], and the weight of the loss of each, [T]."""
        check_batch(batch)
        x, weight, rows = drop(batch.x, self.input_dropout, self.training), batch.weight, None
        if self.labels is not None and self.training:
            rows, weight = self.labels.draw(batch)
        elif self.labels is not None:
            rows = self.labels(batch.y, batch.weight > 0)
        h = self._enter(x, rows)
        for block in self.blocks:
            h = block(h, batch)
        return self._leave(h), weight

    def _after_blocks(self, graph: Graph) -> Tensor:
        """Computes the output of the last block for every node, block by block, [N, H]."""
        adj, h = graph.adj.to(self.device), self._enter_all(graph)
        for block in cast(list[Block], list(self.blocks)):
            h = block.infer(h, adj, scratch=self.scratch)
        return h

    def _enter_all(self, graph: Graph) -> Tensor:
        allocate, labels = on_disk(self.scratch, "stack"), self.labels
        # a graph to predict on need not have labels to show
        if labels is None or "train" not in graph.masks:
            return by_rows(self._enter, self.device, graph.x, allocate=allocate)

        def enter(x: Tensor | Csr, y: Tensor, shown: Tensor) -> Tensor:
            return self._enter(x, labels(y, shown))

        return by_rows(enter, self.device, graph.x, graph.y, graph.masks["train"], allocate=allocate)

    def _enter(self, x: Tensor | Csr, rows: Tensor | None = None) -> Tensor:
        h = self.first(x)
        return gelu_dropout(h if rows is None else h + rows, self.dropout, self.training)

    def _leave(self, h: Tensor) -> Tensor:
        out: Tensor = self.last(dropout(self.norm(h), self.dropout, self.training))
        return out
