"""Histories between layers or steps (GNNAutoScale): the halo is read from the last time it was computed.

`F` rows of a batch the transform runs on, `T` targets of a batch, `V` nodes of it, `C` channels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.history import History
from lazygnn.ops import Adjacency, aggregate
from lazygnn.propagation.base import Diffusion


class LayerMemory(nn.Module):
    """Stores the last computed output of every layer but the last, for each node (GNNAutoScale).

    A batch computes its targets alone. The halo of the next layer is read from here, so any number of layers costs one
    hop. No gradient flows into the halo. https://arxiv.org/abs/2106.05609

    Args:
        num_layers: Layers of the model.
        histories: One after each layer but the last, with a warm start that ignores the stored rows of targets,
            `Mix(1.0)`. Empty if batches have no halo.
    """

    def __init__(self, num_layers: int, histories: Sequence[History] = ()) -> None:
        super().__init__()
        if len(histories) not in (0, num_layers - 1):
            raise ValueError(f"{num_layers} layers need {num_layers - 1} histories or none, got {len(histories)}")
        self.histories = list(histories)

    def forward(self, index: int, x: Tensor, batch: Batch) -> Tensor:
        """Returns the input of the next layer: the targets as computed, the halo as stored, [T, C] -> [V, C]."""
        if self.training and self.histories:
            return add_halo(self.histories[index], x, batch)
        if len(x) != batch.adjs[index + 1].num_cols:
            raise ValueError(
                f"layer {index + 1} returned {len(x)} rows, the next one needs {batch.adjs[index + 1].num_cols}: a "
                "halo needs histories in training; evaluate with `model.infer(graph)` or `Batch.full`"
            )
        return x


class HistoricalPropagation(Diffusion):
    """Steps of APPNP with a history after each but the last; Fey et al., ICML 2021, https://arxiv.org/abs/2106.05609.

    The first step reads the halo's own features. Without histories, on the whole graph, this is APPNP.

    Args:
        alpha: Weight of `x_in` in every step, in (0, 1].
        num_layers: Number of steps, in training and in inference.
        histories: One after each step but the last, for batches with a halo.
    """

    def __init__(self, alpha: float, num_layers: int, histories: Sequence[History] = ()) -> None:
        super().__init__(alpha, eval_layers=num_layers, eval_tolerance=0.0)
        self.num_layers = num_layers
        self.memory = LayerMemory(num_layers, histories)

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """Runs `x <- (1 - alpha) A x + alpha x_in` once for each matrix, [F, C] -> [T, C]."""
        x, source = x_in, x_in[: batch.num_targets]
        for index, adj in enumerate(layer_matrices(batch, self.num_layers)):
            x = x if index == 0 else self.memory(index - 1, x, batch)
            x = torch.lerp(aggregate(adj, x), source, self.alpha)
        return x

    def fill(self, x_in: Tensor, batch: Batch) -> None:
        """Stores every step of the targets."""
        with torch.no_grad():
            self(x_in, batch)


def add_halo(history: History, x: Tensor, batch: Batch) -> Tensor:
    """Returns the targets as given and the halo as stored, and stores the targets, [T, C] -> [V, C]."""
    complete = history.start(batch.nodes, batch.num_targets, x).x
    history.push(batch.targets, x.detach(), x.detach())
    return complete


def layer_matrices(batch: Batch, num_layers: int) -> Sequence[Adjacency]:
    """Returns the matrix of every layer."""
    if len(batch.adjs) != num_layers:
        raise ValueError(
            f"batch has {len(batch.adjs)} layers, model has {num_layers}; build the loader with "
            f"`num_layers={num_layers}`"
        )
    return batch.adjs
