"""Rows that are stored from one training step to the next.

A `Store` stores `N` rows; a `History` computes the start value of a pass from them. Neither is an `nn.Module`: moving a
model must not move its histories, and nothing is broadcast.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from lazygnn.history.codec import Codec, Parts

# rows of a store that are copied together
_BLOCK = 65_536


class Located(NamedTuple):
    """Rows on the compute device."""

    table: Tensor  # [M, C]
    rows: Tensor | None  # indices of the rows; None for all of them, in order

    def between(self, start: int, stop: int) -> "Located":
        """Returns some of the rows."""
        if self.rows is None:
            return Located(self.table[start:stop], None)
        return Located(self.table, self.rows[start:stop])


class Store(ABC):
    """Rows of numbers, read and written by row index; indices are distinct and never changed in place.

    Args:
        parts: The tensors that store all rows, laid out by the codec.
        codec: How a row is stored.
        device: The compute device, which reads and writes rows.

    Attributes:
        copies_at_once: Whether values may be changed as soon as `write` of them returns.
    """

    copies_at_once = False

    def __init__(self, parts: Parts, codec: Codec, device: torch.device) -> None:
        self.parts = parts
        self.codec = codec
        self.device = device
        self.num_rows, self.channels = parts["rows"].shape

    @abstractmethod
    def read(self, rows: Tensor) -> Tensor:
        """Returns a copy of these rows on the compute device, in the compute dtype."""

    @abstractmethod
    def write(self, rows: Tensor, values: Tensor) -> None:
        """Overwrites these rows; a later `read` sees them."""

    def locate(self, rows: Tensor) -> Located:
        """Returns these rows for reading until the next write: a copy, or the table itself with indices."""
        return Located(self.read(rows), None)

    def writable(self) -> Tensor | None:
        """Returns the table of all rows, for a kernel that writes rows directly; `None` if `write` must be used."""
        return None

    def read_columns(self, columns: Tensor) -> Tensor:
        """Copies some columns of all rows to host memory, in float32 at least, block by block."""
        dtype = torch.promote_types(self.codec.compute_dtype, torch.float32)
        blocks = torch.arange(self.num_rows, device=self.device).split(_BLOCK)
        return torch.cat([self.read(rows).cpu()[:, columns].to(dtype) for rows in blocks])

    def prefetch(self, rows: Tensor) -> None:  # noqa: B027
        """Announces a `read` of this same tensor of `rows`; affects speed only."""

    def flush(self) -> None:  # noqa: B027
        """Waits until all writes are done."""

    @property
    def num_bytes(self) -> int:
        """Returns the bytes of the stored rows."""
        return sum(part.nbytes for part in self.parts.values())

    def state(self) -> dict[str, Tensor]:
        """Returns the live tensors that store all rows, after all writes."""
        self.flush()
        return self.parts

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copies the tensors of `state` into this store."""
        own = self.state()
        check_state(own, state)
        for name, part in own.items():
            # rows with padding are copied by way of the device, which may be too small for all of them
            for mine, given in zip(part.split(_BLOCK), state[name].split(_BLOCK), strict=True):
                mine.copy_(given)

    def _scatter(self, rows: Tensor, parts: Mapping[str, Tensor]) -> None:
        for name, part in self.parts.items():
            part.index_copy_(0, rows, parts[name])


class Start(NamedTuple):
    """The start value of a pass, and the input that a change of the input is measured from."""

    x: Tensor  # [V, C]
    previous: Tensor | None  # [F, C], the input of the last visit; None if it is zero or was not requested
    halo: Tensor | None = None  # [V - F, C], inputs of the other nodes at their last visit, from a history with them


class History(ABC):
    """Provides the start value of a pass and stores its result."""

    @abstractmethod
    def prefetch(self, nodes: Tensor, num_targets: int) -> None:
        """Announces a `start` with this same tensor `nodes`; affects speed only."""

    @abstractmethod
    def start(
        self, nodes: Tensor, num_targets: int, fresh: Tensor, weight: float = 1.0, *, with_previous: bool = True
    ) -> Start:
        """Returns the start value of all `nodes`; `fresh` covers the first of them, at least the targets.

        `weight` is the weight of the change of `fresh` since the last visit. The input of the last visit is returned
        only if `with_previous` is set.
        """

    @abstractmethod
    def push(self, targets: Tensor, values: Tensor, fresh: Tensor) -> None:
        """Stores the result of a pass for `targets`, the first rows of `values` and `fresh`."""

    @property
    def copies_at_once(self) -> bool:
        """Returns whether pushed tensors may be changed as soon as `push` returns."""
        return False

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """Returns the bytes stored for all nodes."""


class NoHistory(History):
    """Stores nothing: a pass starts from the fresh value, and from zero where there is none, Eqs. (3) and (11)."""

    def prefetch(self, nodes: Tensor, num_targets: int) -> None:
        """Does nothing."""

    def start(
        self,
        nodes: Tensor,
        num_targets: int,  # noqa: ARG002
        fresh: Tensor,
        weight: float = 1.0,
        *,
        with_previous: bool = True,  # noqa: ARG002
    ) -> Start:
        """Returns the fresh rows times `weight`, and rows of zeros below them."""
        return Start(pad_rows(fresh if weight == 1 else weight * fresh, len(nodes)), None)

    def push(self, targets: Tensor, values: Tensor, fresh: Tensor) -> None:
        """Does nothing."""

    @property
    def copies_at_once(self) -> bool:
        """Returns true, since pushed tensors are never read."""
        return True

    @property
    def num_bytes(self) -> int:
        """Returns zero."""
        return 0


def pad_rows(x: Tensor, num_rows: int) -> Tensor:
    """Returns `x` with rows of zeros below it, `num_rows` in all."""
    if len(x) == num_rows:
        return x
    return torch.cat((x, x.new_zeros(num_rows - len(x), x.shape[1])))


def check_state(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Raises unless `given` has the tensors of `own`, by name, shape and type."""
    if own.keys() != given.keys():
        raise ValueError(f"the history stores {', '.join(own)}; the given state has {', '.join(given) or 'nothing'}")
    for name, tensor in own.items():
        mine, other = (f"{list(t.shape)} in {t.dtype}" for t in (tensor, given[name]))
        if mine != other:
            raise ValueError(f"`{name}` of the history is {mine}; in the given state it is {other}")
