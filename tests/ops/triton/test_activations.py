"""Fused activations against float64, compiled on a device and in the interpreter elsewhere.

Uninitialized memory is NaN.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lazygnn import ops
from lazygnn.models import layers
from lazygnn.models.layers import MLP, NormKind
from lazygnn.ops.triton import activation_kernels, activations
from tests.helpers import needs_cuda, pairwise
from tests.ops.triton.helpers import DTYPES, draw

# rows that end within a tile, in the first iteration of the programs or a later one; one block of columns or two
SHAPES = [(2, 1), (65, 7), (1100, 17), (70, 300)]


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Combines the sums of many columns in fewer programs."""
    monkeypatch.setattr(activations, "_COMBINED", {"PROGRAMS": 512, "WIDTH": 128})


def batch_norm(columns: int, device: str, *, bias: float | None = None, momentum: float = 0.1) -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(columns, momentum=momentum)
    nn.init.uniform_(norm.weight, -1.5, 1.5, generator=torch.Generator().manual_seed(1))
    if bias is None:
        nn.init.uniform_(norm.bias, -1, 1, generator=torch.Generator().manual_seed(2))
    else:
        nn.init.constant_(norm.bias, bias)
    return norm.to(device)


def effective(p: float) -> float:
    """Returns the scale for a share of kept entries that is rounded to a multiple of 2^-16."""
    return 65536 / round(65536 * (1 - p))


def check(out: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Compares with float64: sums are rounded in float32, and 16-bit results once more."""
    assert out.dtype == dtype
    assert out.shape == expected.shape
    scale = float(expected.abs().max())
    torch.testing.assert_close(out.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-5 * max(scale, 1))


def exact(x: Tensor, norm: nn.BatchNorm1d, kept: Tensor, p: float, grad: Tensor) -> tuple[Tensor, ...]:
    """Returns the result, the gradients of `x`, weight and bias, and the input of ReLU, in float64, for this mask."""
    x = x.detach().double().requires_grad_()
    weight, bias = (part.detach().double().requires_grad_() for part in (norm.weight, norm.bias))
    y = nn.functional.batch_norm(x, None, None, weight, bias, training=True, eps=norm.eps)
    out = y.relu() * kept * effective(p)
    return (out.detach(), *torch.autograd.grad(out, (x, weight, bias), grad.double()), y.detach())


def run(x: Tensor, norm: nn.BatchNorm1d, p: float, grad: Tensor) -> tuple[Tensor, ...]:
    """Returns the result and the gradients of `x`, weight and bias."""
    x = x.detach().requires_grad_()
    out = activations.batch_norm_relu_dropout(x, norm, p)
    return (out.detach(), *torch.autograd.grad(out, (x, norm.weight, norm.bias), grad))


@pytest.mark.parametrize(("shape", "dtype", "p"), pairwise(SHAPES, DTYPES, [0.0, 0.3]), ids=str)
def test_fused_norm_relu_and_dropout(
    device: str, shape: tuple[int, int], dtype: torch.dtype, p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # three programs combine the sums of 17 columns or of 300
    monkeypatch.setattr(activations, "_COMBINED", {"PROGRAMS": 512, "WIDTH": 8 if shape[1] < 100 else 128})
    x, grad = draw(*shape, device, dtype), draw(*shape, device, dtype, seed=1)
    norm, before = batch_norm(shape[1], device), x.clone()
    out, *grads = run(x, norm, p, grad)
    kept = out > 0
    expected, *expected_grads, y = exact(x, norm, kept, p, grad)
    check(out, expected, dtype)
    check(grads[0], expected_grads[0], dtype)
    for ours, right in zip(grads[1:], expected_grads[1:], strict=True):
        check(ours, right, torch.float32)
    assert not bool(kept[y < -1e-5].any())
    weight = float(kept[y > 1e-5].double().mean())
    # The mean of ones is one up to rounding.
    assert weight == pytest.approx(1 - p, abs=1e-9 + 4 * (p * (1 - p) / max(int((y > 0).sum()), 1)) ** 0.5)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_entry_in_a_thousand_is_kept_and_preserves_the_mean(device: str, dtype: torch.dtype) -> None:
    x, grad = draw(600, 40, device, dtype), draw(600, 40, device, dtype, seed=1)
    norm = batch_norm(40, device, bias=8.0)
    out, *grads = run(x, norm, 0.999, grad)
    assert 4 < int((out > 0).sum()) < 60
    expected, *expected_grads, _ = exact(x, norm, out > 0, 0.999, grad)
    check(out, expected, dtype)
    check(grads[0], expected_grads[0], dtype)
    check(grads[1], expected_grads[1], torch.float32)


@pytest.mark.parametrize("first", [0.0, 1e4], ids=["plain", "outlier"])
@pytest.mark.parametrize("mean", [0.0, 100.0, -1000.0])
def test_a_mean_far_from_zero_loses_no_precision(device: str, mean: float, first: float) -> None:
    x, norm, grad = draw(1100, 17, device) + mean, batch_norm(17, device, momentum=1.0), draw(1100, 17, device, seed=1)
    x[0] += first
    out, *grads = run(x, norm, 0.0, grad)
    expected, *expected_grads, _ = exact(x, norm, out > 0, 0.0, grad)
    variance, center = torch.var_mean(x.double(), dim=0)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    # The mean is as precise as float32 allows, and the variance loses no precision.
    assert bool(((norm.running_mean - center).abs() <= 1e-7 * abs(mean) + 1e-5 * variance.sqrt()).all())
    torch.testing.assert_close(norm.running_var.double(), variance, rtol=5e-6, atol=0)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5 + 1.5e-7 * abs(mean))
    for ours, right in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-4 * float(right.abs().max()))


@pytest.mark.parametrize("momentum", [0.1, 0.4])
def test_running_statistics_are_those_of_torch(device: str, momentum: float) -> None:
    ours, plain = (batch_norm(5, device, momentum=momentum) for _ in range(2))
    for seed in range(3):
        x = draw(40 + seed, 5, device, seed=seed) * 3 + 2
        activations.batch_norm_relu_dropout(x, ours, 0.5)
        plain(x)
    torch.testing.assert_close(ours.running_mean, plain.running_mean)
    torch.testing.assert_close(ours.running_var, plain.running_var)
    assert int(ours.num_batches_tracked or 0) == 3


@pytest.mark.parametrize(
    ("shape", "dtype", "p"), pairwise([(1, 1), (3, 5), (65, 130), (7, 1171)], DTYPES, [0.25, 0.999]), ids=str
)
def test_fused_relu_and_dropout(device: str, shape: tuple[int, int], dtype: torch.dtype, p: float) -> None:
    x, grad = draw(*shape, device, dtype).requires_grad_(), draw(*shape, device, dtype, seed=1)
    out = activations.relu_dropout(x, p)
    (back,) = torch.autograd.grad(out, x, grad)
    kept = out > 0
    check(out.detach(), x.detach().double().relu() * kept * effective(p), dtype)
    check(back, grad.double() * kept * effective(p), dtype)
    weight = float(kept.sum() / max(int((x > 0).sum()), 1))
    assert weight == pytest.approx(1 - p, abs=4 * (p * (1 - p) / max(int((x > 0).sum()), 1)) ** 0.5)


@pytest.mark.parametrize(("shape", "dtype", "p"), pairwise([(1, 1), (65, 130)], DTYPES, [0.0, 0.25]), ids=str)
def test_fused_gelu_and_dropout(device: str, shape: tuple[int, int], dtype: torch.dtype, p: float) -> None:
    x, grad = (2 * draw(*shape, device, dtype)).requires_grad_(), draw(*shape, device, dtype, seed=1)
    out = activations.gelu_dropout(x, p)
    (back,) = torch.autograd.grad(out, x, grad)
    kept = out.detach() != 0
    wide = x.detach().double().requires_grad_()
    expected = nn.functional.gelu(wide) * kept * effective(p)
    check(out.detach(), expected.detach(), dtype)
    check(back, torch.autograd.grad(expected, wide, grad.double())[0], dtype)


def relu_mask(x: Tensor, p: float) -> Tensor:
    return activations.relu_dropout(torch.ones_like(x), p) > 0


def norm_mask(x: Tensor, p: float) -> Tensor:
    # All entries are far above zero, so that ReLU keeps them.
    norm = batch_norm(x.shape[1], str(x.device), bias=20.0)
    return activations.batch_norm_relu_dropout(x, norm, p) > 0


def gelu_mask(x: Tensor, p: float) -> Tensor:
    return activations.gelu_dropout(torch.ones_like(x), p) > 0


MASKS = pytest.mark.parametrize("mask", [relu_mask, gelu_mask, norm_mask], ids=["relu", "gelu", "norm"])
Mask = Callable[[Tensor, float], Tensor]


# the mask of GELU is that of ReLU
@pytest.mark.parametrize(
    ("mask", "dtype", "p"),
    pairwise([relu_mask, norm_mask], [torch.float32, torch.bfloat16], [0.5, 0.9]),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.usefixtures("few_programs")
def test_entries_are_dropped_independently(device: str, mask: Mask, dtype: torch.dtype, p: float) -> None:
    num_rows, columns = 300, 280
    x = draw(num_rows, columns, device, dtype)
    first, second = mask(x, p).double(), mask(x, p).double()
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    for drawn in (first, second):
        assert float(drawn.mean()) == pytest.approx(1 - p, abs=4 * deviation)
        # Columns and rows are uncorrelated, within and across tiles.
        for table, number in ((drawn.T, num_rows), (drawn, columns)):
            matrix = torch.corrcoef(table).fill_diagonal_(0)
            assert float(matrix.abs().max()) < 7 / number**0.5
    # Two calls are uncorrelated as well.
    both = torch.stack((first.flatten(), second.flatten()))
    assert abs(float(torch.corrcoef(both)[0, 1])) < 4 / x.numel() ** 0.5


@MASKS
def test_torchs_generator_determines_the_mask(device: str, mask: Mask) -> None:
    x, draws = draw(100, 30, device), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(mask(x, 0.3))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(mask(x, 0.3), draws[2])


@MASKS
def test_nothing_is_drawn_if_nothing_is_dropped(device: str, mask: Mask) -> None:
    x = draw(100, 30, device)
    expected = (torch.manual_seed(5), torch.rand(3, device=device))[1]
    torch.manual_seed(5)
    for p in (0.0, 1e-6):
        assert bool(mask(x, p).all())
    assert torch.equal(torch.rand(3, device=device), expected)


def test_the_same_rows_give_the_same_bits(device: str) -> None:
    x, grad = draw(1100, 17, device), draw(1100, 17, device, seed=1)
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        results.append(run(x, batch_norm(17, device), 0.5, grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_nan_is_not_hidden(device: str) -> None:
    x = draw(300, 20, device)
    x[7, 3] = math.nan
    out = activations.batch_norm_relu_dropout(x, batch_norm(20, device), 0.0)
    assert out.isnan().any(dim=0).nonzero().tolist() == [[3]]
    assert bool(out[:, 3].isnan().all())
    for fused in (activations.relu_dropout, activations.gelu_dropout):
        assert fused(x, 0.0).isnan().nonzero().tolist() == [[7, 3]]


def test_gradients_may_be_strided(device: str) -> None:
    x, grad, norm = draw(40, 30, device).requires_grad_(), draw(30, 40, device, seed=1).T, batch_norm(30, device)
    fused = (activations.relu_dropout, activations.gelu_dropout)
    for out in (*(one(x, 0.3) for one in fused), activations.batch_norm_relu_dropout(x, norm, 0.3)):
        (strided,) = torch.autograd.grad(out, x, grad, retain_graph=True)
        (dense,) = torch.autograd.grad(out, x, grad.contiguous())
        assert torch.equal(strided, dense)


def test_a_share_outside_of_its_range_is_refused(device: str) -> None:
    for p in (-0.1, 1.0):
        with pytest.raises(ValueError, match=rf"`p` must be in \[0, 1\), got {p}"):
            activations.relu_dropout(draw(2, 2, device), p)


def test_little_is_saved_for_the_backward_pass(device: str) -> None:
    kept: list[tuple[int, ...]] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    x = draw(50, 6, device).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        activations.batch_norm_relu_dropout(x, batch_norm(6, device), 0.5)
        assert sorted(kept) == [(), (6,), (6,), (6,), (6,), (50, 6)]
        kept.clear()
        activations.relu_dropout(x, 0.5)
        assert kept == [(50, 6)]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Makes the layers use the kernels on any device, and lists the calls."""
    calls: list[str] = []

    def listed(name: str) -> Callable[..., Tensor]:
        def call(*args: Any) -> Tensor:
            calls.append(name)
            out: Tensor = getattr(activations, name)(*args)
            return out

        return call

    names = ("batch_norm_relu_dropout", "layer_norm", "relu_dropout")
    most = activations.MOST_COLUMNS
    kernels = SimpleNamespace(MOST_COLUMNS=most, **{name: listed(name) for name in names})
    with monkeypatch.context() as patch:
        patch.setattr(layers, "activations", lambda _: kernels)
        yield calls


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_an_mlp_is_the_same_with_and_without_kernels(
    device: str, norm: NormKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    plain = MLP(6, 20, 3, mlp_layers=3, norm=norm, dropout=0.0).to(device)
    fused = MLP(6, 20, 3, mlp_layers=3, norm=norm, dropout=0.0).to(device)
    fused.load_state_dict(plain.state_dict())
    x = draw(70, 6, device)
    with counted(monkeypatch) as calls:
        results = [trained(fused, x, num_targets) for num_targets in (None, 70)]
    # Without dropout and batch norm, ReLU alone is not fused.
    assert calls == {"batch": ["batch_norm_relu_dropout"] * 4, "layer": ["layer_norm"] * 4, "none": []}[norm]
    for result in results:
        torch.testing.assert_close(result, trained(plain, x), rtol=1e-4, atol=1e-5)
    for ours, right in zip(fused.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, right)


def trained(model: MLP, x: Tensor, num_targets: int | None = None) -> list[Tensor]:
    model.zero_grad()
    out = model(x, num_targets)
    out.square().sum().backward()
    return [out.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_an_mlp_uses_the_kernels_for_dropout(device: str, norm: NormKind, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = MLP(6, 20, 3, mlp_layers=3, norm=norm, dropout=0.5).to(device), draw(70, 6, device)
    with counted(monkeypatch) as calls:
        assert not torch.equal(model(x), model(x))
    fused = {"batch": ["batch_norm_relu_dropout"], "layer": ["layer_norm", "relu_dropout"], "none": ["relu_dropout"]}
    assert calls == fused[norm] * 4
    with counted(monkeypatch) as calls:
        model.eval()
        assert torch.equal(model(x), model(x))
    assert calls == (["layer_norm"] * 4 if norm == "layer" else [])


@pytest.mark.parametrize(("bits", "unit"), [("fp32", 4), ("bf16", 8)])
@pytest.mark.parametrize(("name", "loads"), [("normalize", 4), ("partial_gradients", 8)])
def test_rows_are_loaded_16_bytes_at_a_time_and_masks_stay_in_their_thread(
    name: str, loads: int, bits: str, unit: int, compile_kernel: Callable[..., Any]
) -> None:
    types = {"x": f"*{bits}", "grad": f"*{bits}", "out": f"*{bits}", "seed": "*i64"}
    types |= {"num_rows": "i32", "num_programs": "i32"}
    fixed = {"KEPT": 32768, "COLUMNS": 512, "UNIT": unit, "ROWS": 32 if name == "normalize" else 8, "WIDTH": 32 * unit}
    fixed |= {"UNROLL": 4}
    kernel = getattr(activation_kernels, name)
    compiled = compile_kernel(kernel, types, fixed, activations._OPTIONS, other="*fp32")
    assert len(re.findall(r"ld\.global\.v4\.b32", compiled.asm["ptx"])) >= loads
    # Threads exchange vectors over columns, but no tables.
    moved = re.findall(r"convert_layout .* : tensor<([\dx]+)x\w+,", compiled.asm["ttgir"])
    assert all(re.fullmatch(r"(1x)?\d+", shape) for shape in moved)


@needs_cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(49_000, 512), (12_345, 100), (4001, 47)], ids=str)
def test_many_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, grad, norm = draw(*shape, "cuda", dtype), draw(*shape, "cuda", dtype, seed=1), batch_norm(shape[1], "cuda")
    # Some of these many entries are so close to zero that rounding decides the sign.
    grad[exact(x, norm, torch.ones_like(x), 0.5, grad)[-1].abs() < 1e-5] = 0
    out, *grads = run(x, norm, 0.5, grad)
    expected, *expected_grads, _ = exact(x, norm, out > 0, 0.5, grad)
    check(out, expected, dtype)
    check(grads[0], expected_grads[0], dtype)
    check(grads[1], expected_grads[1], torch.float32)
    check(grads[2], expected_grads[2], torch.float32)


@needs_cuda
def test_the_number_of_entries_may_exceed_32_bits() -> None:
    x = torch.ones(2**31 // 512 + 50, 512, dtype=torch.bfloat16, device="cuda")
    out = activations.relu_dropout(x, 0.5)
    assert bool(((out == 0) | (out == 2)).all())
    assert float(out[-50:].float().mean()) == pytest.approx(1, abs=0.1)
    x[1::2] = -1
    norm = batch_norm(512, "cuda", bias=3.0)
    nn.init.constant_(norm.weight, 1.0)
    out = activations.batch_norm_relu_dropout(x, norm, 0.0)
    assert bool((out[::2] == 4).all())
    assert bool((out[1::2] == 2).all())


@needs_cuda
@pytest.mark.parametrize("norm", ["batch", "none"])
def test_activations_can_be_captured_do_not_synchronize_and_draw_new_masks(
    norm: NormKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    model, x = MLP(6, 20, 20, mlp_layers=2, norm=norm, dropout=0.5).to("cuda"), draw(70, 6, "cuda")
    ops.activations(x)

    def train() -> Tensor:
        model.zero_grad()
        with ops.replaying():
            out: Tensor = model(x)
        out.sum().backward()
        return out.detach()

    train()
    torch.cuda.set_sync_debug_mode("error")
    try:
        train()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = train()
    draws = []
    for seed in (1, 1, None):
        if seed is not None:
            torch.cuda.manual_seed(seed)
        graph.replay()
        draws.append(out.clone())
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[1], draws[2])
    # A replay draws the same mask as a step without a graph.
    torch.cuda.manual_seed(1)
    torch.testing.assert_close(train(), draws[0])
