"""Helpers that many test modules share: `from tests.helpers import random_rows`."""

from collections.abc import Callable, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.history import StoredHistory, disk, open_history
from lazygnn.history.codec import Layout, Parts
from lazygnn.history.warmstart import WarmStart
from lazygnn.ops import Adjacency, Csr

Test = TypeVar("Test", bound=Callable[..., Any])


def random_rows(
    num_rows: int,
    channels: int,
    seed: int,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Returns normally distributed numbers, the same on every device; 16-bit numbers are rounded from float32."""
    drawn = torch.float64 if dtype == torch.float64 else torch.float32
    numbers = torch.randn(num_rows, channels, dtype=drawn, generator=torch.Generator().manual_seed(seed))
    return numbers.to(device, dtype)


def random_matrix(num_rows: int, num_cols: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Csr:
    """Returns a sparse matrix of which about 40 % of the entries are stored, with int32 indices."""
    stored = random_rows(num_rows, num_cols, seed) > 0.25
    row, col = stored.nonzero(as_tuple=True)
    value = random_rows(num_rows, num_cols, seed + 1, dtype)[row, col]
    return Csr.from_sorted(row, col, value, (num_rows, num_cols))


def random_graph(num_nodes: int, num_edges: int, seed: int = 0) -> Graph:
    """Returns a graph in float64 with random edges, four features and three classes; every node is a training node."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (2, num_edges))
    x, y = rng.normal(size=(num_nodes, 4)), rng.integers(0, 3, num_nodes)
    return Graph.from_edges(edges, x, y, train_mask=np.ones(num_nodes, bool)).to(torch.float64)


def open_float64(num_nodes: int, channels: int, start: WarmStart, *, halo_inputs: bool = False) -> StoredHistory:
    """Opens a history that stores and returns float64."""
    wide = torch.float64
    return open_history(num_nodes, channels, start, dtype=wide, compute_dtype=wide, halo_inputs=halo_inputs)


def exact_solution(adj: Adjacency, x: Tensor, alpha: float, *, sign: int = 1) -> Tensor:
    """Returns `alpha (I - sign (1 - alpha) A)^-1 x` by a dense solve: the fixed point of Eq. (1), and of Eq. (10)."""
    system = torch.eye(len(x), dtype=x.dtype) - sign * (1 - alpha) * adj.to_dense()
    solved: Tensor = torch.linalg.solve(system, alpha * x)
    return solved


def dense_steps(adj: Tensor, x: Tensor, source: Tensor, alpha: float, num_steps: int, *, sign: int = 1) -> Tensor:
    """Runs `x <- sign (1 - alpha) A x + alpha source` with a dense matrix; autograd differentiates it."""
    for _ in range(num_steps):
        x = sign * (1 - alpha) * adj @ x + alpha * source
    return x


def matrix_polynomial(coefficients: Sequence[float], adj: Tensor, x: Tensor) -> Tensor:
    """Returns `sum_k c_k A^k x` with a dense matrix."""
    out, power = torch.zeros_like(x), x
    for coefficient in coefficients:
        out, power = out + coefficient * power, adj @ power
    return out


def assert_equal_up_to_rounding(out: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Compares with float64: sums are rounded in float32 or float64, and 16-bit results once more."""
    assert out.dtype == dtype
    wide = torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(out.double(), expected, rtol=torch.finfo(dtype).eps, atol=16 * torch.finfo(wide).eps)


def read_events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Returns the steps and values of every tag in the event files of TensorBoard, repeated steps included."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), purge_orphaned_data=False)
    events.Reload()
    return {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def pairwise(*dimensions: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Returns combinations of choices of independent dimensions in which every two choices meet at least once."""
    candidates = list(product(*(range(len(choices)) for choices in dimensions)))

    def met(chosen: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(chosen), 2))

    left = set[tuple[tuple[int, int], ...]]().union(*map(met, candidates))
    found: list[tuple[int, ...]] = []
    while left:
        found.append(max(candidates, key=lambda chosen: len(met(chosen) & left)))
        left -= met(found[-1])
    return [tuple(choices[at] for choices, at in zip(dimensions, chosen, strict=True)) for chosen in found]


def say(request: pytest.FixtureRequest, text: str) -> None:
    """Prints a line in the output of pytest, also for a test that passes."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        request.config.get_terminal_writer().line(f" {text}")


def note_scratch(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Notes the names of rows on disk in the returned set; their files have no name while they are used."""
    names: set[str] = set()
    map_files = disk.map_files

    def noted(layout: Layout, folder: Path, name: str) -> Parts:
        names.add(name.rpartition("-")[0])
        return map_files(layout, folder, name)

    monkeypatch.setattr(disk, "map_files", noted)
    return names


def needs_cuda(test: Test) -> Test:
    """Marks a test as `gpu` and skips it without a CUDA device."""
    skipped = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    marked: Test = pytest.mark.gpu(skipped(test))
    return marked
