"""What layered models share: the matrices of a batch, and a memory between layers.

`T` targets of a batch, `V` nodes of it, `C` channels.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.history import History
from lazygnn.ops import Adjacency


class LayerMemory(nn.Module):
    """What every layer but the last gave for each node when it was last computed (GNNAutoScale).

    A batch computes its targets alone; what a layer gave for the halo is read from here, so any number of layers costs
    one hop. No gradient flows into the halo. https://arxiv.org/abs/2106.05609

    Args:
        num_layers: Layers of the model.
        histories: One after each layer but the last, with a warm start that ignores what is stored for targets:
            `Mix(1.0)`. None at all where batches have no halo.
    """

    def __init__(self, num_layers: int, histories: Sequence[History] = ()) -> None:
        super().__init__()
        if len(histories) not in (0, num_layers - 1):
            raise ValueError(f"{num_layers} layers need {num_layers - 1} histories or none, got {len(histories)}")
        self.histories = list(histories)

    def forward(self, index: int, x: Tensor, batch: Batch) -> Tensor:
        """What the next layer sees: the targets as they are, the halo as remembered, [T, C] -> [V, C]."""
        if self.training and self.histories:
            history = self.histories[index]
            complete = history.start(batch.nodes, batch.num_targets, x).x
            history.push(batch.targets, x.detach(), x.detach())
            return complete
        if len(x) != batch.adjs[index + 1].num_cols:
            raise ValueError(
                f"layer {index + 1} gave {len(x)} rows, the next one needs {batch.adjs[index + 1].num_cols}: a halo "
                "needs histories in training; evaluate with `model.infer(graph)` or `Batch.full`"
            )
        return x


def layer_matrices(batch: Batch, num_layers: int) -> Sequence[Adjacency]:
    """The matrix of every layer."""
    if len(batch.adjs) != num_layers:
        raise ValueError(
            f"batch has {len(batch.adjs)} layers, model has {num_layers}; build the loader with "
            f"`num_layers={num_layers}`"
        )
    return batch.adjs
