"""What takes the place of a CUDA graph on a CPU, and batches in page-locked memory."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader
from lazygnn.ops import Csr
from lazygnn.training.capture import Launch


class Recorder:
    """Takes the place of a capture: runs nothing itself, and its replays run the function."""

    def __init__(self) -> None:
        self.captured = 0
        self.replayed = 0

    def __call__(self, function: Callable[[], None]) -> Launch:
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            function()

        return replay


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def pinned() -> Callable[..., list[Batch]]:
    """Makes batches in page-locked memory, or with their features alone there; these may be sparse."""

    def pinned(graph: Graph, edges: str | None = None, *, sparse: bool = False) -> list[Batch]:
        if sparse:
            rows, values = torch.arange(60).repeat_interleave(2), torch.arange(1.0, 121)
            graph = replace(graph, x=Csr.from_sorted(rows, torch.arange(120) % 7, values, (60, 7)))
        batches = list(ClusterLoader(graph, torch.tensor([0, 15, 25, 48, 60]), 2, pin=True, edges=edges))
        for batch in batches:
            num_features = 3 if isinstance(batch.x, Csr) else 1
            for number, tensor in enumerate(batch.tensors()):
                assert tensor.is_cuda if edges is not None and number >= num_features else tensor.is_pinned()
        return batches

    return pinned


@pytest.fixture
def assert_copied() -> Callable[[Batch, Batch], None]:
    """Compares a batch on the device with its origin."""

    def assert_copied(copy: Batch, origin: Batch) -> None:
        assert all(tensor.is_cuda for tensor in copy.tensors())
        assert (copy.num_targets, copy.whole) == (origin.num_targets, origin.whole)
        for mine, given in zip(copy.tensors(), origin.tensors(), strict=True):
            assert torch.equal(mine.cpu(), given.cpu())

    return assert_copied
