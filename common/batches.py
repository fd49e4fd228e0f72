"""Some batches of a loader, to measure a part of an epoch."""

from collections.abc import Iterator, Sequence

from lazygnn.batch import Batch, Loader


class StoredBatches:
    """Some batches of a loader, always the same; a sweep still covers all nodes."""

    def __init__(self, loader: Loader, batches: Sequence[Batch]) -> None:
        self.loader = loader
        self.batches = batches
        self.position = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        for position, batch in enumerate(self.batches, 1):
            self.position = position
            yield batch

    def upcoming(self) -> Batch | None:
        """Returns the next batch."""
        return self.batches[self.position] if self.position < len(self) else None

    def sweep(self) -> Iterator[Batch]:
        """Returns batches with every node once."""
        return self.loader.sweep()

    def state_dict(self) -> dict[str, int]:
        """Returns an empty state."""
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Ignores the empty state."""


class DrawnBatches:
    """A few batches of a loader at a time, each made when it is taken; they go on where the last ones ended."""

    def __init__(self, loader: Loader, num_batches: int) -> None:
        self.loader = loader
        self.num_batches = min(num_batches, len(loader))
        self._left = iter(loader)

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.num_batches):
            batch = next(self._left, None)
            if batch is None:
                self._left = iter(self.loader)
                batch = next(self._left)
            yield batch

    def upcoming(self) -> Batch | None:
        """Returns the next batch."""
        return self.loader.upcoming()

    def sweep(self) -> Iterator[Batch]:
        """Returns batches with every node once."""
        return self.loader.sweep()

    def state_dict(self) -> dict[str, int]:
        """Returns the position of the loader."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resumes from a position of the loader."""
        self.loader.load_state_dict(state)
        self._left = iter(self.loader)
