import pytest
import torch
from torch import Tensor

from lazygnn.ops import Csr, aggregate, reference


@pytest.fixture(params=[False, True], ids=["addmm", "reducing"], autouse=True)
def product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways torch can multiply on a CPU, whatever this machine would take."""
    monkeypatch.setattr(reference, "_rows_in_parallel", lambda _: request.param)


def rows(num_rows: int, channels: int, seed: int) -> Tensor:
    return torch.randn(num_rows, channels, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def matrix(num_rows: int, num_cols: int) -> Csr:
    dense = torch.where(rows(num_rows, num_cols, 0) > 0.2, rows(num_rows, num_cols, 1), 0)
    row, col = dense.nonzero(as_tuple=True)
    return Csr.from_sorted(row, col, dense[row, col], (num_rows, num_cols))


@pytest.mark.parametrize(("num_rows", "num_cols"), [(6, 6), (4, 9), (9, 4), (1, 3)])
def test_forward_and_backward_are_the_dense_ones(num_rows: int, num_cols: int) -> None:
    adj, grad = matrix(num_rows, num_cols), rows(num_rows, 3, 3)
    ours, dense = (rows(num_cols, 3, 2).requires_grad_() for _ in range(2))
    out, expected = aggregate(adj, ours), adj.to_dense() @ dense
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-13)
    out.backward(grad)
    expected.backward(grad)
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad, dense.grad, rtol=0, atol=1e-13)


def test_the_gradient_is_that_of_small_differences_and_takes_an_expanded_tensor() -> None:
    adj, x = matrix(5, 7), rows(7, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: aggregate(adj, x), (x,))
    aggregate(adj, x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, adj.to_dense().sum(dim=0)[:, None].expand(7, 2), rtol=0, atol=1e-13)


def test_the_matrix_is_transposed_once() -> None:
    adj, x = matrix(5, 7), rows(7, 2, 2).requires_grad_()
    aggregate(adj, x).sum().backward()
    assert "_transposition" in vars(adj)
    assert adj.T is adj.T
