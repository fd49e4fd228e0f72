from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.data.folder import load_folder
from lazygnn.distributed import products
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.matrix import ShardedMatrix
from lazygnn.distributed.shard import open_shard
from lazygnn.fixed_point import solve
from lazygnn.ops import Adjacency
from lazygnn.propagation.response import fit_response
from tests.distributed.workers import in_threads
from tests.helpers import random_rows

X, SOURCE, BEFORE = (random_rows(150, 4, seed) for seed in range(3))
Operation = Callable[[Adjacency, Sequence[Tensor]], Tensor]
OPERATIONS: dict[str, Operation] = {
    "spmm": lambda adj, rows: ops.spmm(adj, rows[0]),
    "step": lambda adj, rows: ops.step(adj, rows[0], rows[1], 0.2, weight=0.7, previous=rows[2], sign=-1),
    "run_steps": lambda adj, rows: ops.run_steps(
        [adj, adj], rows[0], rows[1], 0.2, weights=[0.5, 1.5], previous=rows[2]
    ),
    "solve": lambda adj, rows: solve(adj, rows[0], 0.1).x,
    "solve from a start": lambda adj, rows: solve(adj, rows[0], 0.1, start=rows[2]).x,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_three_ranks_is_that_of_one_process(prepared: Path, name: str) -> None:
    adj = load_folder(prepared).adj.to(torch.float64)

    def run(ranks: Ranks) -> Tensor:
        matrix = open_shard(prepared, ranks).matrix.to(torch.float64)
        return OPERATIONS[name](matrix, [ops.own_rows(matrix, each) for each in (X, SOURCE, BEFORE)])

    expected = OPERATIONS[name](adj, [X, SOURCE, BEFORE])
    torch.testing.assert_close(torch.cat(in_threads(3, run)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("columns", "widths"), [(1, [1, 1, 1, 1]), (2, [2, 2]), (3, [2, 2]), (4, [4])])
@pytest.mark.parametrize("name", ["spmm", "step"])
def test_wide_products_exchange_a_few_columns_at_a_time(
    prepared: Path, name: str, columns: int, widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_BYTES_AT_ONCE", columns * 150 * X.element_size())
    adj = load_folder(prepared).adj.to(torch.float64)
    exchanged: list[int] = []
    plain = ShardedMatrix.halo_rows

    def halo_rows(self: ShardedMatrix, x: Tensor) -> Tensor:
        exchanged.append(x.shape[1])
        return plain(self, x)

    monkeypatch.setattr(ShardedMatrix, "halo_rows", halo_rows)

    def run(ranks: Ranks) -> tuple[Tensor, int]:
        matrix = open_shard(prepared, ranks).matrix.to(torch.float64)
        found = OPERATIONS[name](matrix, [ops.own_rows(matrix, each) for each in (X, SOURCE, BEFORE)])
        return found, matrix.traffic.evaluated

    rows, sent = zip(*in_threads(3, run), strict=True)
    assert sorted(exchanged) == sorted(widths * 3)
    torch.testing.assert_close(torch.cat(rows), OPERATIONS[name](adj, [X, SOURCE, BEFORE]), rtol=1e-12, atol=1e-12)
    # bytes do not depend on the number of exchanges
    monkeypatch.setattr(products, "_BYTES_AT_ONCE", 1 << 27)
    assert [again for _, again in in_threads(3, run)] == list(sent)


def test_norms_and_sums_are_those_of_all_ranks(prepared: Path) -> None:
    def run(ranks: Ranks) -> tuple[float, Tensor]:
        matrix = open_shard(prepared, ranks).matrix
        own = ops.own_rows(matrix, X)
        return ops.norm(matrix, own), ops.total(matrix, own.sum(0))

    for norm, total in in_threads(3, run):
        assert norm == pytest.approx(float(X.norm()), rel=1e-12)
        torch.testing.assert_close(total, X.sum(0))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_a_norm_does_not_leave_the_range_of_float32(prepared: Path, scale: float) -> None:
    x = scale * X.float()

    def run(ranks: Ranks) -> float:
        matrix = open_shard(prepared, ranks).matrix
        return ops.norm(matrix, ops.own_rows(matrix, x))

    for norm in in_threads(3, run):
        assert norm / scale == pytest.approx(float(X.norm()), rel=1e-5)


def test_a_response_is_fitted_to_the_whole_graph(prepared: Path) -> None:
    expected = fit_response(load_folder(prepared).adj, 0.1, 2, beta=0.1)
    assert not expected.is_plain
    found = in_threads(3, lambda ranks: fit_response(open_shard(prepared, ranks).matrix, 0.1, 2, beta=0.1))
    assert found == [expected] * 3
