"""Rows that survive from one training step to the next.

A `Store` keeps `N` rows somewhere; a `History` is a warm start over one or two stores and the age of every row.
Neither is an `nn.Module`: moving a model must not move its histories, and nothing is broadcast.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from lazygnn.warmstart import WarmStart


class Store(ABC):
    """`num_rows` rows of `channels` numbers, read and written by row index."""

    num_rows: int
    channels: int

    @abstractmethod
    def read(self, rows: Tensor) -> Tensor:
        """A copy of these rows on the compute device, in the compute dtype."""

    @abstractmethod
    def write(self, rows: Tensor, values: Tensor) -> None:
        """Overwrites these rows; a later `read` sees them."""

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """Bytes kept."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The tensors that hold all rows, for a checkpoint."""


class History(ABC):
    """Gives a pass its start value and takes its result."""

    @abstractmethod
    def start(self, nodes: Tensor, num_targets: int, fresh: Tensor) -> Tensor:
        """Start value of all `nodes`, [V, C]; `fresh` covers the first of them, the targets at least."""

    @abstractmethod
    def push(self, targets: Tensor, values: Tensor, fresh: Tensor) -> None:
        """Stores the result of a pass for `targets`; the rows of `values` and `fresh` below them are not looked at."""

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """Bytes kept for all nodes."""


class NoHistory(History):
    """Keeps nothing: a pass starts from the fresh value, rows without one from zero."""

    def start(self, nodes: Tensor, num_targets: int, fresh: Tensor) -> Tensor:  # noqa: ARG002
        """The fresh rows, then zeros."""
        return pad_rows(fresh, len(nodes))

    def push(self, targets: Tensor, values: Tensor, fresh: Tensor) -> None:
        """Forgets."""

    @property
    def num_bytes(self) -> int:
        """Nothing is kept."""
        return 0


class StoredHistory(History):
    """A warm start over stored rows; a row never written is a cold start."""

    def __init__(self, warm: WarmStart, values: Store, inputs: Store | None) -> None:
        if warm.keeps_inputs != (inputs is not None):
            raise ValueError(f"{warm} {'needs' if warm.keeps_inputs else 'takes no'} store for its inputs")
        self.warm = warm
        self.values = values
        self.inputs = inputs
        # step of the last push, -1 before the first
        self.pushed = torch.full((values.num_rows,), -1, dtype=torch.int32)
        self.num_pushes = 0
        self._complete = False

    def start(self, nodes: Tensor, num_targets: int, fresh: Tensor) -> Tensor:
        """Warm-starts the rows that `fresh` covers; the rest stand at their stored value."""
        stored = self.values.read(nodes)
        then = None if self.inputs is None else self.inputs.read(nodes[:num_targets])
        parts = [self.warm.targets(fresh[:num_targets], stored[:num_targets], then)]
        if len(fresh) > num_targets:
            parts.append(self.warm.halo(fresh[num_targets:], stored[num_targets : len(fresh)]))
        if not self._complete:
            known = self._known(nodes[: len(fresh)], fresh)
            parts = [torch.where(known, torch.cat(parts), fresh)]
        if len(nodes) > len(fresh):
            parts.append(stored[len(fresh) :])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def push(self, targets: Tensor, values: Tensor, fresh: Tensor) -> None:
        """Stores result and input of a pass and notes when."""
        self.values.write(targets, values[: len(targets)])
        if self.inputs is not None:
            self.inputs.write(targets, fresh[: len(targets)])
        self.pushed[targets.to(self.pushed.device)] = self.num_pushes
        self.num_pushes += 1
        self._complete = self._complete or bool((self.pushed >= 0).all())

    @property
    def age(self) -> Tensor:
        """Pushes since each row was written, [N]; a row never written is as old as the history."""
        return self.num_pushes - self.pushed - 1

    @property
    def num_bytes(self) -> int:
        """Bytes of the stored rows."""
        return self.values.num_bytes + (0 if self.inputs is None else self.inputs.num_bytes)

    def _known(self, nodes: Tensor, fresh: Tensor) -> Tensor:
        return (self.pushed[nodes.to(self.pushed.device)] >= 0).to(fresh.device).unsqueeze(1)


def pad_rows(x: Tensor, num_rows: int) -> Tensor:
    """`x` with rows of zeros below it, `num_rows` in all."""
    if len(x) == num_rows:
        return x
    return torch.cat((x, x.new_zeros(num_rows - len(x), x.shape[1])))
