import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from lazygnn.ops import Csr, aggregate, reference, run_steps, spmm, step


@pytest.fixture(params=[False, True], ids=["addmm", "reducing"], autouse=True)
def product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways torch can multiply on a CPU, whatever this machine would take."""
    monkeypatch.setattr(reference, "_rows_in_parallel", lambda _: request.param)


def matrix(num_rows: int, num_cols: int, seed: int = 0) -> Csr:
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((num_rows, num_cols)) < 0.4, rng.normal(size=(num_rows, num_cols)), 0)
    sparse = scipy.sparse.csr_matrix(dense)
    return Csr.from_arrays(sparse.indptr, sparse.indices, sparse.data, num_cols).to(torch.float64)


def rows(num_rows: int, channels: int, seed: int) -> Tensor:
    return torch.randn(num_rows, channels, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("num_rows", "num_cols", "channels"), [(6, 6, 3), (4, 9, 1), (9, 4, 5), (1, 1, 1)])
def test_product_is_the_dense_one(num_rows: int, num_cols: int, channels: int) -> None:
    a, x = matrix(num_rows, num_cols), rows(num_cols, channels, 1)
    torch.testing.assert_close(spmm(a, x), a.to_dense() @ x, rtol=0, atol=1e-14)


def test_an_empty_matrix_gives_zeros() -> None:
    empty = Csr(torch.zeros(4, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), torch.zeros(0), 2)
    assert spmm(empty, torch.ones(2, 2)).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_a_step_is_the_dense_one(alpha: float) -> None:
    a, x, source = matrix(6, 6), rows(6, 3, 1), rows(6, 3, 2)
    expected = (1 - alpha) * a.to_dense() @ x + alpha * source
    before = x.clone(), source.clone()
    torch.testing.assert_close(step(a, x, source, alpha), expected, rtol=0, atol=1e-14)
    assert torch.equal(x, before[0])
    assert torch.equal(source, before[1])


@pytest.mark.parametrize("num_source", [4, 6, 9])
def test_a_step_leaves_rows_it_does_not_reach_alone(num_source: int) -> None:
    a, x, source = matrix(4, 9), rows(9, 3, 1), rows(num_source, 3, 2)
    out = step(a, x, source, 0.2)
    assert torch.equal(out[4:], x[4:])
    torch.testing.assert_close(out[:4], 0.8 * a.to_dense() @ x + 0.2 * source[:4], rtol=0, atol=1e-14)


def test_a_step_on_a_row_prefix_is_the_prefix_of_a_step() -> None:
    a, x, source = matrix(6, 6), rows(6, 3, 1), rows(6, 3, 2)
    out = step(a.rows(2), x, source, 0.2)
    torch.testing.assert_close(out[:2], step(a, x, source, 0.2)[:2], rtol=0, atol=1e-14)
    assert torch.equal(out[2:], x[2:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_of_16_bits_are_rounded_once(dtype: torch.dtype) -> None:
    a, x, source = matrix(6, 6).to(torch.float32), rows(6, 3, 1).to(dtype), rows(6, 3, 2).to(dtype)
    for out, expected in (
        (spmm(a, x), spmm(a, x.float())),
        (step(a, x, source, 0.2), step(a, x.float(), source.float(), 0.2)),
    ):
        assert out.dtype == dtype
        assert torch.equal(out, expected.to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_matrix_of_16_bits_is_widened_on_a_cpu(dtype: torch.dtype) -> None:
    a, x, source = matrix(6, 6).to(dtype), rows(6, 3, 1).to(dtype), rows(6, 3, 2).to(dtype)
    wide = a.to(torch.float32)
    assert torch.equal(spmm(a, x), spmm(wide, x))
    assert torch.equal(step(a, x, source, 0.2), step(wide, x, source, 0.2))
    assert torch.equal(run_steps([a, a], x, source, 0.2), run_steps([wide, wide], x, source, 0.2))


@pytest.mark.parametrize("reach", [[6, 6, 6], [4, 4], [5, 3], []], ids=str)
def test_diffusion_is_the_steps_and_gives_the_rows_reached(reach: list[int]) -> None:
    a, x, source = matrix(6, 6), rows(6, 3, 1), rows(6, 3, 2)
    adjs, expected = [a.rows(stop) for stop in reach], x
    for adj in adjs:
        expected = step(adj, expected, source, 0.2)
    assert torch.equal(run_steps(adjs, x, source, 0.2), expected[: reach[-1]] if reach else x)


def test_a_share_of_the_source_stands_beside_the_past() -> None:
    a, (x, source, past) = matrix(6, 6), (rows(6, 3, seed) for seed in range(3))
    mixed = 0.3 * source + 0.7 * past
    torch.testing.assert_close(step(a, x, source, 0.2, share=0.3, past=past), step(a, x, mixed, 0.2))
    torch.testing.assert_close(step(a, x, source, 0.2, share=0.3), step(a, x, 0.3 * source, 0.2))
    one = step(a, x, source, 0.2, share=0.3, past=past)
    two = step(a, one, source, 0.2, share=1.2, past=past)
    assert torch.equal(run_steps([a, a], x, source, 0.2, shares=[0.3, 1.2], past=past), two)
    with pytest.raises(ValueError, match="longer"):
        run_steps([a], x, source, 0.2, shares=[0.3, 1.2], past=past)


def test_gradient_of_the_sparse_first_layer() -> None:
    x = matrix(7, 5)
    weight, grad = rows(5, 3, 1).requires_grad_(), rows(7, 3, 2)
    out = aggregate(x, weight)
    torch.testing.assert_close(out.detach(), x.to_dense() @ weight.detach(), rtol=0, atol=1e-14)
    out.backward(grad)
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, x.to_dense().T @ grad, rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(lambda w: aggregate(x, w), (weight,))


def test_the_gradient_takes_an_expanded_tensor() -> None:
    x = matrix(7, 5)
    weight = rows(5, 3, 1).requires_grad_()
    aggregate(x, weight).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, x.to_dense().sum(dim=0)[:, None].expand(5, 3), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_rounds_neither_the_matrix_nor_the_sums(dtype: torch.dtype) -> None:
    a, x, source = matrix(6, 6).to(torch.float32), rows(6, 3, 1).to(dtype), rows(6, 3, 2).to(dtype)
    weight = x.clone().requires_grad_()
    expected = spmm(a, x), step(a, x, source, 0.1), run_steps([a, a], x, source, 0.1), spmm(a.T, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = spmm(a, x), step(a, x, source, 0.1), run_steps([a, a], x, source, 0.1)
        product = aggregate(a, weight)
    product.backward(x)
    assert weight.grad is not None
    for one, other in zip((*found, weight.grad), expected, strict=True):
        assert one.dtype == dtype
        assert torch.equal(one, other)
    assert torch.equal(product, expected[0])
