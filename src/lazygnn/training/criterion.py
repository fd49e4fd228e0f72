"""What the best epoch, and the weights of a mixture, are chosen by on validation. Ours; not in the paper.

A score counts right and wrong predictions only, so the best of many epochs and averages is often a lucky one. The loss
also depends on how far a prediction is from right. It rises, though, while a model grows overconfident, even if its
score still rises. So the outputs are first divided by a temperature: the one of several with the least loss.

The loss is the mean over the labels that nodes have, of which a node of one class has one. A mean over all possible
labels would be small where most are absent, and would not count beside the score.

`T` nodes of a split, `C` outputs, `K` temperatures.
"""

import math

import torch
from torch import Tensor

from lazygnn.errors import DivergenceError
from lazygnn.task import Task

# from twice as confident to nearly six times less, by factors of the root of 2
TEMPERATURES = tuple(2 ** (step / 2) for step in range(-2, 6))


def tempered_losses(task: Task, outputs: Tensor, y: Tensor) -> Tensor:
    """Returns the loss at every temperature, added up over nodes, and the number of labels that they have, [K + 1].

    What several shares of the nodes have adds up.

    Args:
        task: Of classes or labels; its loss may weigh them.
        outputs: Of the nodes of a split, [T, C].
        y: Their targets.
    """
    widened = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    losses = [task.loss(widened / temperature, y).sum(dtype=torch.float64) for temperature in TEMPERATURES]
    if task.kind == "multi-label":
        # the loss of a node is a mean over all labels
        return torch.stack([*(task.num_outputs * loss for loss in losses), (y > 0).sum(dtype=torch.float64)])
    return torch.stack([*losses, losses[0].new_tensor(len(y))])


def calibrated_loss(sums: Tensor) -> float:
    """Returns the mean loss of a label at the best temperature.

    Args:
        sums: What `tempered_losses` returns, [K + 1].

    Raises:
        DivergenceError: No temperature has a finite loss.
    """
    values: list[float] = sums.tolist()
    *losses, num_labels = values
    # a temperature below 1 can take huge outputs beyond the largest number
    finite = [loss for loss in losses if math.isfinite(loss)]
    if not finite:
        raise DivergenceError("the loss on validation is not finite; lower `lr` or set `clip_norm`")
    return min(finite) / max(num_labels, 1)


def counts_loss(criterion: str, task: Task) -> bool:
    """Returns whether a criterion counts the loss; a regression has no temperature, and is chosen by its score."""
    return criterion == "score-loss" and task.kind != "regression"
