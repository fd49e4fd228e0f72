"""Products and row copies in plain PyTorch, with and without MKL, against dense products in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.ops import Csr, reference
from lazygnn.ops.reference import run_steps, spmm, step
from tests.helpers import assert_equal_up_to_rounding, random_matrix, random_rows

pytestmark = pytest.mark.usefixtures("mkl")


def test_mkl_decides_which_product_runs(mkl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def listed(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*args: Any, **options: Any) -> Tensor:
            called.append(name)
            return function(*args, **options)

        return call

    for owner, name in ((torch.sparse, "mm"), (torch, "mm"), (torch, "addmm"), (Tensor, "addmm_")):
        monkeypatch.setattr(owner, name, listed(f"{owner.__name__}.{name}", getattr(owner, name)))
    a, x = random_matrix(6, 6), random_rows(6, 3, 1)
    spmm(a, x)
    step(a, x, x, 0.2)
    run_steps([a], x, x, 0.2)
    step(a, x, x, 0.2, weight=0.5)
    reducing = ["torch.sparse.mm"] * 4
    assert called == (["torch.mm", "torch.addmm", "torch.addmm", "Tensor.addmm_"] if mkl else reducing)
    # other devices have products of their own
    assert not reference._rows_in_parallel(torch.empty(2, 3, device="meta"))


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_all_types_of_values_and_indices_are_multiplied(dtype: torch.dtype, index: torch.dtype) -> None:
    a = random_matrix(6, 9, dtype=dtype)
    a = Csr(a.rowptr.to(index), a.col.to(index), a.value, 9)
    x, source = random_rows(9, 3, 2, dtype), random_rows(6, 3, 3, dtype)
    dense = a.to_dense().double()
    assert_equal_up_to_rounding(spmm(a, x), dense @ x.double(), dtype)
    once = step(a, x, source, 0.2)
    assert_equal_up_to_rounding(once[:6], 0.8 * dense @ x.double() + 0.2 * source.double(), dtype)
    twice = run_steps([a, a], x, source, 0.2)
    assert_equal_up_to_rounding(twice, 0.8 * dense @ once.double() + 0.2 * source.double(), dtype)


@pytest.mark.parametrize(
    ("num_rows", "num_cols", "channels"), [(6, 6, 3), (4, 9, 1), (9, 4, 5), (1, 1, 1), (0, 4, 3), (3, 4, 0), (0, 0, 2)]
)
def test_product_is_the_dense_one(num_rows: int, num_cols: int, channels: int) -> None:
    a, x = random_matrix(num_rows, num_cols), random_rows(num_cols, channels, 2)
    torch.testing.assert_close(spmm(a, x), a.to_dense() @ x, rtol=0, atol=1e-14)


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_an_empty_matrix_gives_zeros(index: torch.dtype) -> None:
    empty = Csr(torch.zeros(4, dtype=index), torch.zeros(0, dtype=index), torch.zeros(0), 2)
    assert spmm(empty, torch.ones(2, 2)).tolist() == [[0, 0]] * 3
    assert step(empty, torch.ones(2, 2), torch.ones(3, 2), 0.5).tolist() == [[0.5, 0.5]] * 3


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_a_step_is_the_dense_one(alpha: float) -> None:
    a, x, source = random_matrix(6, 6), random_rows(6, 3, 2), random_rows(6, 3, 3)
    expected = (1 - alpha) * a.to_dense() @ x + alpha * source
    before = x.clone(), source.clone()
    torch.testing.assert_close(step(a, x, source, alpha), expected, rtol=0, atol=1e-14)
    assert torch.equal(x, before[0])
    assert torch.equal(source, before[1])


@pytest.mark.parametrize("num_source", [4, 6, 9])
def test_a_step_leaves_rows_it_does_not_reach_alone(num_source: int) -> None:
    a, x, source = random_matrix(4, 9), random_rows(9, 3, 2), random_rows(num_source, 3, 3)
    out = step(a, x, source, 0.2)
    assert torch.equal(out[4:], x[4:])
    torch.testing.assert_close(out[:4], 0.8 * a.to_dense() @ x + 0.2 * source[:4], rtol=0, atol=1e-14)


def test_a_step_on_a_row_prefix_is_the_prefix_of_a_step() -> None:
    a, x, source = random_matrix(6, 6), random_rows(6, 3, 2), random_rows(6, 3, 3)
    out = step(a.rows(2), x, source, 0.2)
    torch.testing.assert_close(out[:2], step(a, x, source, 0.2)[:2], rtol=0, atol=1e-14)
    assert torch.equal(out[2:], x[2:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rows_of_16_bits_are_rounded_once(dtype: torch.dtype) -> None:
    a, x, source = random_matrix(6, 6, dtype=torch.float32), random_rows(6, 3, 2, dtype), random_rows(6, 3, 3, dtype)
    for out, expected in (
        (spmm(a, x), spmm(a, x.float())),
        (step(a, x, source, 0.2), step(a, x.float(), source.float(), 0.2)),
    ):
        assert out.dtype == dtype
        assert torch.equal(out, expected.to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_matrix_of_16_bits_is_widened_on_a_cpu(dtype: torch.dtype) -> None:
    a, x, source = random_matrix(6, 6, dtype=dtype), random_rows(6, 3, 2, dtype), random_rows(6, 3, 3, dtype)
    wide = a.to(torch.float32)
    assert torch.equal(spmm(a, x), spmm(wide, x))
    assert torch.equal(step(a, x, source, 0.2), step(wide, x, source, 0.2))
    assert torch.equal(run_steps([a, a], x, source, 0.2), run_steps([wide, wide], x, source, 0.2))


@pytest.mark.parametrize("reach", [[6, 6, 6], [4, 4], [5, 3], []], ids=str)
def test_a_chain_is_its_steps_and_gives_the_rows_reached(reach: list[int]) -> None:
    a, x, source = random_matrix(6, 6), random_rows(6, 3, 2), random_rows(6, 3, 3)
    adjs, expected = [a.rows(stop) for stop in reach], x
    for adj in adjs:
        expected = step(adj, expected, source, 0.2)
    assert torch.equal(run_steps(adjs, x, source, 0.2), expected[: reach[-1]] if reach else x)


def test_a_share_mixes_the_source_with_the_past() -> None:
    a, (x, source, previous) = random_matrix(6, 6), (random_rows(6, 3, seed) for seed in range(3))
    mixed = 0.3 * source + 0.7 * previous
    torch.testing.assert_close(step(a, x, source, 0.2, weight=0.3, previous=previous), step(a, x, mixed, 0.2))
    torch.testing.assert_close(step(a, x, source, 0.2, weight=0.3), step(a, x, 0.3 * source, 0.2))
    one = step(a, x, source, 0.2, weight=0.3, previous=previous)
    two = step(a, one, source, 0.2, weight=1.2, previous=previous)
    assert torch.equal(run_steps([a, a], x, source, 0.2, weights=[0.3, 1.2], previous=previous), two)
    with pytest.raises(ValueError, match="longer"):
        run_steps([a], x, source, 0.2, weights=[0.3, 1.2], previous=previous)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_a_sign_of_minus_one_subtracts_the_product(alpha: float, dtype: torch.dtype) -> None:
    a, x, source = random_matrix(6, 9, dtype=dtype), random_rows(9, 3, 2, dtype), random_rows(6, 3, 3, dtype)
    product = (1 - alpha) * a.to_dense().double() @ x.double()
    out = step(a, x, source, alpha, sign=-1)
    assert_equal_up_to_rounding(out[:6], alpha * source.double() - product, dtype)
    assert torch.equal(out[6:], x[6:])
    assert torch.equal(step(a, x, source, alpha, sign=1), step(a, x, source, alpha))


@pytest.mark.parametrize("reach", [[6, 6, 6], [4, 4], [5, 3]], ids=str)
def test_every_step_of_a_chain_has_its_sign(reach: list[int]) -> None:
    a, (x, source, previous) = random_matrix(6, 6), (random_rows(6, 3, seed) for seed in range(3))
    adjs, weights, expected = [a.rows(stop) for stop in reach], [0.3, 1.2, 1.0][: len(reach)], x
    for adj, weight in zip(adjs, weights, strict=True):
        mixed = torch.lerp(previous, source, weight)[: adj.num_rows]
        expected = torch.cat((0.2 * mixed - 0.8 * adj.to_dense() @ expected, expected[adj.num_rows :]))
    out = run_steps(adjs, x, source, 0.2, weights=weights, previous=previous, sign=-1)
    torch.testing.assert_close(out, expected[: reach[-1]], rtol=0, atol=1e-14)


@pytest.mark.parametrize("num_halo", [0, 1, 5])
def test_the_rows_of_a_halo_follow_those_of_the_product(num_halo: int) -> None:
    a, x = random_matrix(6, 9), random_rows(9, 3, 2)
    inside, halo = x[: 9 - num_halo].clone(), x[9 - num_halo :].clone()
    torch.testing.assert_close(spmm(a, inside, halo), a.to_dense() @ x, rtol=0, atol=1e-14)
    assert torch.equal(spmm(a, inside, halo), spmm(a, x))


def test_steps_take_a_halo_after_the_rows_of_x() -> None:
    a, x, source = random_matrix(4, 9), random_rows(9, 3, 1), random_rows(4, 3, 2)
    out = run_steps([a, a], x[:4], source, 0.2, weights=[0.5, 1.0], halo=x[4:5].expand(5, -1))
    whole = torch.cat((x[:4], x[4:5].expand(5, -1)))
    assert torch.equal(out, run_steps([a, a], whole, source, 0.2, weights=[0.5, 1.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_rounds_neither_the_matrix_nor_the_sums(dtype: torch.dtype) -> None:
    a, x, source = random_matrix(6, 6, dtype=torch.float32), random_rows(6, 3, 2, dtype), random_rows(6, 3, 3, dtype)

    def results() -> list[Tensor]:
        return [spmm(a, x), step(a, x, source, 0.1), run_steps([a, a], x, source, 0.1)]

    expected = results()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = results()
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert torch.equal(one, other)


def test_rows_of_a_table_are_gathered_and_scattered() -> None:
    table, rows = random_rows(9, 3, 0), torch.tensor([7, 0, 4])
    out = reference.allocate_rows(3, table)
    assert (out.shape, out.dtype) == ((3, 3), table.dtype)
    reference.gather(table, rows, out)
    assert torch.equal(out, table[rows])
    expected = table.index_copy(0, rows, 2 * out)
    reference.scatter(table, rows, 2 * out)
    assert torch.equal(table, expected)
