"""Layer norm against float64, compiled on a device and in the interpreter elsewhere.

Uninitialized memory is NaN.
"""

import pytest
import torch
from torch import Tensor, nn

from lazygnn import ops
from lazygnn.models.layers import TypedLayerNorm
from lazygnn.ops.triton import layer_norm as module
from lazygnn.ops.triton.layer_norm import MOST_COLUMNS, layer_norm
from tests.helpers import needs_cuda
from tests.ops.triton.helpers import DTYPES, draw

# one column, columns and rows that end within a tile, a whole tile, the widest row; programs with one pass or several
SHAPES = [(3, 1), (1, 7), (65, 17), (300, 64), (70, 300), (5, MOST_COLUMNS)]


def make_norm(columns: int, device: str, eps: float = 1e-5) -> TypedLayerNorm:
    norm = TypedLayerNorm(columns, eps=eps)
    nn.init.uniform_(norm.weight, -1.5, 1.5, generator=torch.Generator().manual_seed(1))
    nn.init.uniform_(norm.bias, -1, 1, generator=torch.Generator().manual_seed(2))
    return norm.to(device)


def exact(x: Tensor, norm: nn.LayerNorm, grad: Tensor) -> tuple[Tensor, ...]:
    """Returns the result and the gradients of `x`, weight and bias, in float64."""
    x, weight, bias = (part.detach().double().requires_grad_() for part in (x, norm.weight, norm.bias))
    out = nn.functional.layer_norm(x, x.shape[1:], weight, bias, norm.eps)
    return (out.detach(), *torch.autograd.grad(out, (x, weight, bias), grad.double()))


def run(x: Tensor, norm: nn.LayerNorm, grad: Tensor) -> tuple[Tensor, ...]:
    """Returns the result and the gradients of `x`, weight and bias."""
    x = x.detach().requires_grad_()
    out = layer_norm(x, norm)
    return (out.detach(), *torch.autograd.grad(out, (x, norm.weight, norm.bias), grad))


def check(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Compares with float64: sums are rounded in float32, and 16-bit results once more."""
    assert found.dtype == dtype
    assert found.shape == expected.shape
    scale = float(expected.abs().max())
    torch.testing.assert_close(found.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-5 * max(scale, 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_and_gradients(device: str, shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, grad = draw(*shape, device, dtype), draw(*shape, device, dtype, seed=1)
    # a single column has no variance, so a small `eps` would divide its rounding errors
    norm = make_norm(shape[1], device, eps=1.0 if shape[1] == 1 else 1e-5)
    out, grad_x, *grads = run(x, norm, grad)
    expected, expected_x, *expected_grads = exact(x, norm, grad)
    check(out, expected, dtype)
    check(grad_x, expected_x, dtype)
    for found, right in zip(grads, expected_grads, strict=True):
        check(found, right, torch.float32)


def test_a_mean_far_from_zero_loses_little(device: str) -> None:
    x, norm = draw(40, 64, device) + 1000, make_norm(64, device)
    expected = exact(x, norm, torch.ones_like(x))[0]
    # float32 stores such entries to 6e-5
    torch.testing.assert_close(layer_norm(x, norm).double(), expected, rtol=0, atol=1e-3)


def test_several_passes_of_a_program(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BACKWARD", 128)
    monkeypatch.setattr(module, "_processors", lambda _: 1)
    x, grad, norm = draw(50, 48, device), draw(50, 48, device, seed=1), make_norm(48, device)
    for found, right in zip(run(x, norm, grad), exact(x, norm, grad), strict=True):
        check(found, right, torch.float32)


def test_the_same_rows_give_the_same_bits(device: str) -> None:
    x, grad, norm = draw(200, 32, device), draw(200, 32, device, seed=1), make_norm(32, device)
    for one, other in zip(run(x, norm, grad), run(x, norm, grad), strict=True):
        assert torch.equal(one, other)


def test_a_transposed_gradient(device: str) -> None:
    x, norm = draw(30, 16, device), make_norm(16, device)
    grad = draw(16, 30, device, seed=1).T
    for found, right in zip(run(x, norm, grad), exact(x, norm, grad), strict=True):
        check(found, right, torch.float32)


@needs_cuda
@pytest.mark.parametrize("columns", [64, MOST_COLUMNS + 1])
def test_the_module_takes_the_kernel_where_it_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, norm = draw(20, columns, "cuda", torch.bfloat16), make_norm(columns, "cuda")
    called = []

    def listed(x: Tensor, norm: nn.LayerNorm) -> Tensor:
        called.append(columns)
        return layer_norm(x, norm)

    monkeypatch.setattr("lazygnn.ops.triton.activations.layer_norm", listed)
    with ops.replaying(), torch.autocast("cuda", torch.bfloat16):
        out = norm(x)
    assert bool(called) == (columns <= MOST_COLUMNS)
    assert out.dtype == torch.bfloat16
    expected = exact(x, norm, torch.ones_like(x))[0]
    torch.testing.assert_close(out.double(), expected, rtol=0.01, atol=0.01)
