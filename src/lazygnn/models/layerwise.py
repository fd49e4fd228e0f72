"""What layered models share: the matrices of a batch, a memory between layers, and inference in blocks of rows.

`T` targets of a batch, `V` nodes of it, `C` channels.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.history import History
from lazygnn.ops import Adjacency, Csr

# rows of a layer's widest activation that inference holds at a time
INFERENCE_ROWS = 65_536


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
            complete = history.start(batch.nodes, batch.num_targets, x)
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


def by_rows(function: Callable[..., Tensor], device: torch.device, *parts: Tensor | Csr) -> Tensor:
    """Applies `function` to blocks of the rows of `parts` on `device`; the result lies where the first part does."""
    num_rows, out = len(parts[0]), torch.empty(0)
    for start in range(0, num_rows, INFERENCE_ROWS):
        block = function(*[_rows(part, start, start + INFERENCE_ROWS).to(device) for part in parts])
        if num_rows <= INFERENCE_ROWS:
            return block.to(parts[0].device)
        if start == 0:
            out = torch.empty(num_rows, block.shape[1], dtype=block.dtype, device=parts[0].device)
        out[start : start + INFERENCE_ROWS] = block
    return out


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _rows(x: Tensor | Csr, start: int, stop: int) -> Tensor | Csr:
    if start == 0 and stop >= len(x):
        return x
    if isinstance(x, Csr):
        return x.select(torch.arange(start, min(stop, len(x)), device=x.device))
    return x[start:stop]
