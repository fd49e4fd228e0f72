"""Training steps replayed as CUDA graphs, with the staging of their inputs.

Before a step, its features and stored rows are staged: copied to the memory that its graph reads. The next batch is
announced, so that the step gathers the rows of that batch after writing its own, during the backward pass.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.history import StoredHistory
from lazygnn.history.pinned import PinnedStore
from lazygnn.ops import replaying
from lazygnn.training.capture import Capture, CapturedSteps, CudaCapture
from lazygnn.training.inputs import StepInputs
from lazygnn.training.shelf import ShelvedStore

Step = Callable[[Batch], Tensor]


class Replay:
    """Takes training steps; those on batches that the loader returns again are replayed.

    Args:
        step: Trains on a batch on the device and returns its loss; this function is captured.
        plain_step: Takes a step that cannot be replayed, on a batch on any device.
        optimizer: The one that `step` uses; its learning rate is a tensor.
        histories: The histories that a step reads and writes.
        device: The GPU.
        make_capture: Makes the object that captures functions; a `CudaCapture` by default.
    """

    def __init__(
        self,
        step: Step,
        plain_step: Step,
        optimizer: torch.optim.Optimizer,
        histories: Sequence[StoredHistory],
        device: torch.device,
        *,
        make_capture: Callable[[], Capture] | None = None,
    ) -> None:
        self._step, self._plain_step, self._optimizer = step, plain_step, optimizer
        self._histories, self._device = histories, device
        self._make_capture = partial(CudaCapture, optimizer, device) if make_capture is None else make_capture
        # of the rows, when the graphs were captured
        self._num_moves = 0
        self._build()

    def reset(self) -> None:
        """Drops all graphs, and the memory that they use."""
        self._rows.flush()
        self._num_moves = 0
        self._build()

    def step(self, batch: Batch, upcoming: Callable[[], Batch | None]) -> Tensor:
        """Takes one step and returns its loss; `upcoming` returns the batch after this one, if it is known."""
        if not batch.lasting:
            return self._plain_step(batch)
        if not self.is_steady(batch):
            self._rows.flush()
            # must not need more memory than the steps that are replayed
            with replaying():
                return self._plain_step(batch)
        following = upcoming()
        self._inputs.put(batch)
        self._rows.stage(batch.nodes, batch.num_targets)
        if following is None:
            self._rows.announce(None)
        else:
            self._rows.announce(following.nodes, following.num_targets)
        if self._rows.num_moves != self._num_moves:
            self._num_moves = self._rows.num_moves
            self._steps.forget()
        loss = self._steps(batch)
        self._rows.advance()
        if following is not None:
            self._inputs.fetch(following)
        return loss

    def is_steady(self, batch: Batch) -> bool:
        """Returns whether steps on this batch differ only in the contents of tensors, so that they can be replayed."""
        # an empty tensor is never page-locked
        if not all(tensor.is_cuda or tensor.is_pinned() for tensor in batch.tensors() if tensor.numel() > 0):
            return False
        return all(_is_capturable(history) and not history.measure for history in self._histories)

    def _build(self) -> None:
        self._inputs, self._rows = StepInputs(self._device), StagedRows(self._histories)
        self._steps = CapturedSteps(self._staged_step, self._optimizer, self._make_capture)

    def _staged_step(self, batch: Batch) -> Tensor:
        """Takes the step that is captured; nothing in it depends on the visit but the contents of tensors."""
        with replaying():
            # the copy is captured too
            batch = self._inputs.bring(batch)
            with self._rows.staged(batch.nodes, batch.num_targets):
                loss = self._step(batch)
            # a model without propagation reads no matrix, but the memory of all is freed now
            self._inputs.join(batch)
            return loss


@dataclass(frozen=True)
class _Entry:
    history: StoredHistory
    kind: str  # of the store that `shelved` replaces
    shelved: ShelvedStore


class StagedRows:
    """The rows that replayed steps read from histories in page-locked memory; other rows are read in place.

    Every step is `stage`, `announce`, the step itself within `staged` or a replay of it, `advance`.
    """

    def __init__(self, histories: Sequence[StoredHistory]) -> None:
        self._entries = [
            _Entry(history, kind, ShelvedStore(store))
            for history in histories
            for kind, store in history.stores.items()
            if isinstance(store, PinnedStore)
        ]

    def stage(self, nodes: Tensor, num_targets: int) -> None:
        """Gathers the rows that a pass over these nodes reads, unless they were announced before the last step."""
        self.flush()
        for entry, rows in self._reads(nodes, num_targets):
            entry.shelved.shelf.fill(rows)

    def announce(self, nodes: Tensor | None, num_targets: int = 0) -> None:
        """Announces the nodes of the step after this one; `None` if unknown."""
        if nodes is None:
            for entry in self._entries:
                entry.shelved.shelf.expect(None)
        else:
            for entry, rows in self._reads(nodes, num_targets):
                entry.shelved.shelf.expect(rows)

    @contextmanager
    def staged(self, nodes: Tensor, num_targets: int) -> Iterator[None]:
        """Wraps a step with passes over these nodes, run now or captured; it must not change pushed tensors."""
        with ExitStack() as stack:
            for entry, rows in self._reads(nodes, num_targets):
                stack.enter_context(_swapped(entry, rows))
            yield

    def advance(self) -> None:
        """Records that the step was launched."""
        for entry in self._entries:
            entry.shelved.shelf.accept()

    def flush(self) -> None:
        """Lets the current stream wait for the work of a failed step on other streams."""
        for entry in self._entries:
            entry.shelved.flush()

    @property
    def num_moves(self) -> int:
        """Returns a number that changes when steps must be captured again, since rows have moved to other memory."""
        return sum(entry.shelved.shelf.num_moves for entry in self._entries)

    def _reads(self, nodes: Tensor, num_targets: int) -> list[tuple[_Entry, Tensor]]:
        return [(entry, entry.history.reads(nodes, num_targets)[entry.kind]) for entry in self._entries]


def _is_capturable(history: StoredHistory) -> bool:
    """Returns whether a CUDA graph can capture passes: all rows are written, and the device can address them."""
    parts = [part for store in history.stores.values() for part in store.parts.values()]
    return history.complete and all(part.is_cuda for part in parts)


@contextmanager
def _swapped(entry: _Entry, rows: Tensor) -> Iterator[None]:
    """Lets a history read and write through the shelved store."""
    stores = entry.history.stores
    stores[entry.kind] = entry.shelved
    try:
        with entry.shelved.step(rows):
            yield
    finally:
        stores[entry.kind] = entry.shelved.store
