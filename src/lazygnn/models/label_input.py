"""Training labels as a further input of a model: some are shown, the loss is taken on the others. Ours.

Shi et al., Masked Label Prediction, IJCAI 2021, https://arxiv.org/abs/2009.03509.

`T` targets of a batch, `N` nodes of the graph, `C` outputs, `H` hidden channels.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.models.layers import Linear
from lazygnn.task import Task


class Shown(NamedTuple):
    """What a step shows of the labels, and what it learns from."""

    rows: Tensor  # [T, H], added to the hidden values; zero for a node whose label is hidden
    weight: Tensor  # [T], weight of each node's loss; zero for a node whose label is shown


class LabelInput(nn.Module):
    """Adds `onehot(y) W` to the hidden values of training nodes.

    In training, each label of a training node is shown with probability `share`, drawn in every step, and the loss of
    such a node does not count. The others are weighted up, so that the expected loss is that of all training nodes. In
    inference all training labels are shown, and no others.

    Args:
        task: Tells what a label is.
        hidden_channels: Width of the hidden values.
        share: Share of the training labels that a step shows, in (0, 1).
    """

    def __init__(self, task: Task, hidden_channels: int, share: float) -> None:
        super().__init__()
        if not 0 < share < 1:
            raise ConfigError(f"`share` is {share}; some labels must be shown and some hidden: choose one in (0, 1)")
        self.task = task
        self.share = share
        self.embedding = Linear(task.num_outputs, hidden_channels, bias=False)

    def draw(self, batch: Batch) -> Shown:
        """Chooses the labels that this step shows."""
        known = batch.weight > 0
        shown = known & (torch.rand(batch.num_targets, device=batch.weight.device) < self.share)
        weight = batch.weight * ~shown / (1 - self.share)
        return Shown(self(batch.y, shown), weight)

    def forward(self, y: Tensor, shown: Tensor) -> Tensor:
        """Embeds the labels of the nodes that are shown, [T, H]; other labels are not read."""
        if self.task.kind == "single-label":
            targets = F.one_hot(torch.where(shown, y, 0), self.task.num_outputs)
        else:
            # a hidden label may be NaN, which a product with zero would keep
            targets = torch.where(shown.unsqueeze(1), y, 0)
        weight = self.embedding.weight
        rows: Tensor = self.embedding((targets * shown.unsqueeze(1)).to(weight.dtype))
        return rows
