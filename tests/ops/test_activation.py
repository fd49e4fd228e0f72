"""Fused activations against float64: in Triton's interpreter on any machine, compiled where there is a device.

The interpreter must be asked for before Triton is imported, so one test here runs all the others in a process of its
own. Whatever the kernels write to starts as NaN.
"""

import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lazygnn import ops
from lazygnn.models import layers
from lazygnn.models.layers import MLP, NormKind

pytest.importorskip("triton")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ON_CUDA = torch.cuda.is_available() and not INTERPRETED
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# rows that end within a tile, in the first sweep of the programs and in a later one; one block of columns and two
SHAPES = [(2, 1), (65, 7), (1100, 17), (70, 300)]


def rows(num_rows: int, columns: int, device: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    numbers = torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype).to(device)


def batch_norm(columns: int, device: str, *, bias: float | None = None, momentum: float = 0.1) -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(columns, momentum=momentum)
    nn.init.uniform_(norm.weight, -1.5, 1.5, generator=torch.Generator().manual_seed(1))
    if bias is None:
        nn.init.uniform_(norm.bias, -1, 1, generator=torch.Generator().manual_seed(2))
    else:
        nn.init.constant_(norm.bias, bias)
    return norm.to(device)


def effective(p: float) -> float:
    """The scale where the share kept is a multiple of 2^-16."""
    return 65536 / round(65536 * (1 - p))


def check(out: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Sums are off by the roundings of float32; a result in 16 bits by its own, besides."""
    assert out.dtype == dtype
    assert out.shape == expected.shape
    scale = float(expected.abs().max())
    torch.testing.assert_close(out.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-5 * max(scale, 1))


def exact(x: Tensor, norm: nn.BatchNorm1d, kept: Tensor, p: float, grad: Tensor) -> tuple[Tensor, ...]:
    """The result and the gradients of `x`, weight and bias in float64, given what is kept; and what ReLU is given."""
    x = x.detach().double().requires_grad_()
    weight, bias = (part.detach().double().requires_grad_() for part in (norm.weight, norm.bias))
    y = nn.functional.batch_norm(x, None, None, weight, bias, training=True, eps=norm.eps)
    out = y.relu() * kept * effective(p)
    return (out.detach(), *torch.autograd.grad(out, (x, weight, bias), grad.double()), y.detach())


def run(x: Tensor, norm: nn.BatchNorm1d, p: float, grad: Tensor) -> tuple[Tensor, ...]:
    """The result and the gradients of `x`, weight and bias."""
    from lazygnn.ops import activation

    x = x.detach().requires_grad_()
    out = activation.batch_norm_relu_dropout(x, norm, p)
    return (out.detach(), *torch.autograd.grad(out, (x, norm.weight, norm.bias), grad))


def test_activations_are_right_in_the_interpreter(interpret: Callable[[], None]) -> None:
    interpret()


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norm_relu_and_dropout_in_one(device: str, shape: tuple[int, int], dtype: torch.dtype, p: float) -> None:
    x, grad = rows(*shape, device, dtype), rows(*shape, device, dtype, seed=1)
    norm, before = batch_norm(shape[1], device), x.clone()
    out, *grads = run(x, norm, p, grad)
    kept = out > 0
    expected, *expected_grads, y = exact(x, norm, kept, p, grad)
    check(out, expected, dtype)
    check(grads[0], expected_grads[0], dtype)
    for ours, right in zip(grads[1:], expected_grads[1:], strict=True):
        check(ours, right, torch.float32)
    assert not bool(kept[y < -1e-5].any())
    share = float(kept[y > 1e-5].double().mean())
    # a mean of ones is one but for rounding
    assert share == pytest.approx(1 - p, abs=1e-9 + 4 * (p * (1 - p) / max(int((y > 0).sum()), 1)) ** 0.5)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_share_of_one_in_a_thousand_is_kept_and_keeps_the_mean(device: str, dtype: torch.dtype) -> None:
    x, grad = rows(600, 40, device, dtype), rows(600, 40, device, dtype, seed=1)
    norm = batch_norm(40, device, bias=8.0)
    out, *grads = run(x, norm, 0.999, grad)
    assert 4 < int((out > 0).sum()) < 60
    expected, *expected_grads, _ = exact(x, norm, out > 0, 0.999, grad)
    check(out, expected, dtype)
    check(grads[0], expected_grads[0], dtype)
    check(grads[1], expected_grads[1], torch.float32)


@pytest.mark.parametrize("first", [0.0, 1e4], ids=["plain", "outlier"])
@pytest.mark.parametrize("mean", [0.0, 100.0, -1000.0])
def test_a_mean_far_from_zero_costs_no_precision(device: str, mean: float, first: float) -> None:
    x, norm, grad = rows(1100, 17, device) + mean, batch_norm(17, device, momentum=1.0), rows(1100, 17, device, seed=1)
    x[0] += first
    out, *grads = run(x, norm, 0.0, grad)
    expected, *expected_grads, _ = exact(x, norm, out > 0, 0.0, grad)
    variance, centre = torch.var_mean(x.double(), dim=0)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    # the mean is as near as float32 comes to it, and the variance does not suffer
    assert bool(((norm.running_mean - centre).abs() <= 1e-7 * abs(mean) + 1e-5 * variance.sqrt()).all())
    torch.testing.assert_close(norm.running_var.double(), variance, rtol=5e-6, atol=0)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5 + 1.5e-7 * abs(mean))
    for ours, right in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-4 * float(right.abs().max()))


@pytest.mark.parametrize("momentum", [0.1, 0.4])
def test_running_statistics_are_those_of_torch(device: str, momentum: float) -> None:
    from lazygnn.ops import activation

    ours, plain = (batch_norm(5, device, momentum=momentum) for _ in range(2))
    for seed in range(3):
        x = rows(40 + seed, 5, device, seed=seed) * 3 + 2
        activation.batch_norm_relu_dropout(x, ours, 0.5)
        plain(x)
    torch.testing.assert_close(ours.running_mean, plain.running_mean)
    torch.testing.assert_close(ours.running_var, plain.running_var)
    assert int(ours.num_batches_tracked or 0) == 3


@pytest.mark.parametrize("p", [0.25, 0.999])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (65, 130), (7, 1171)], ids=str)
def test_relu_and_dropout_in_one(device: str, shape: tuple[int, int], dtype: torch.dtype, p: float) -> None:
    from lazygnn.ops import activation

    x, grad = rows(*shape, device, dtype).requires_grad_(), rows(*shape, device, dtype, seed=1)
    out = activation.relu_dropout(x, p)
    (back,) = torch.autograd.grad(out, x, grad)
    kept = out > 0
    check(out.detach(), x.detach().double().relu() * kept * effective(p), dtype)
    check(back, grad.double() * kept * effective(p), dtype)
    share = float(kept.sum() / max(int((x > 0).sum()), 1))
    assert share == pytest.approx(1 - p, abs=4 * (p * (1 - p) / max(int((x > 0).sum()), 1)) ** 0.5)


def relu_mask(x: Tensor, p: float) -> Tensor:
    from lazygnn.ops import activation

    return activation.relu_dropout(torch.ones_like(x), p) > 0


def norm_mask(x: Tensor, p: float) -> Tensor:
    from lazygnn.ops import activation

    # far above zero, so that ReLU takes nothing
    norm = batch_norm(x.shape[1], str(x.device), bias=20.0)
    return activation.batch_norm_relu_dropout(x, norm, p) > 0


MASKS = pytest.mark.parametrize("mask", [relu_mask, norm_mask], ids=["relu", "norm"])
Mask = Callable[[Tensor, float], Tensor]


@MASKS
@pytest.mark.parametrize("p", [0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_entries_are_dropped_independently(device: str, mask: Mask, dtype: torch.dtype, p: float) -> None:
    num_rows, columns = 300, 280
    x = rows(num_rows, columns, device, dtype)
    first, second = mask(x, p).double(), mask(x, p).double()
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    for drawn in (first, second):
        assert float(drawn.mean()) == pytest.approx(1 - p, abs=4 * deviation)
        # nothing in common between two columns or two rows, wherever a tile ends
        for table, number in ((drawn.T, num_rows), (drawn, columns)):
            matrix = torch.corrcoef(table).fill_diagonal_(0)
            assert float(matrix.abs().max()) < 7 / number**0.5
    # nor between two calls
    both = torch.stack((first.flatten(), second.flatten()))
    assert abs(float(torch.corrcoef(both)[0, 1])) < 4 / x.numel() ** 0.5


@MASKS
def test_the_draw_is_that_of_torchs_generator(device: str, mask: Mask) -> None:
    x, draws = rows(100, 30, device), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(mask(x, 0.3))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(mask(x, 0.3), draws[2])


@MASKS
def test_where_nothing_is_dropped_nothing_is_drawn(device: str, mask: Mask) -> None:
    x = rows(100, 30, device)
    expected = (torch.manual_seed(5), torch.rand(3, device=device))[1]
    torch.manual_seed(5)
    for p in (0.0, 1e-6):
        assert bool(mask(x, p).all())
    assert torch.equal(torch.rand(3, device=device), expected)


def test_the_same_rows_give_the_same_bits(device: str) -> None:
    x, grad = rows(1100, 17, device), rows(1100, 17, device, seed=1)
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        results.append(run(x, batch_norm(17, device), 0.5, grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_what_is_no_number_is_seen(device: str) -> None:
    from lazygnn.ops import activation

    x = rows(300, 20, device)
    x[7, 3] = math.nan
    out = activation.batch_norm_relu_dropout(x, batch_norm(20, device), 0.0)
    assert out.isnan().any(dim=0).nonzero().tolist() == [[3]]
    assert bool(out[:, 3].isnan().all())
    assert activation.relu_dropout(x, 0.0).isnan().nonzero().tolist() == [[7, 3]]


def test_gradients_may_lie_in_any_order(device: str) -> None:
    from lazygnn.ops import activation

    x, grad, norm = rows(40, 30, device).requires_grad_(), rows(30, 40, device, seed=1).T, batch_norm(30, device)
    for out in (activation.relu_dropout(x, 0.3), activation.batch_norm_relu_dropout(x, norm, 0.3)):
        (strided,) = torch.autograd.grad(out, x, grad, retain_graph=True)
        (dense,) = torch.autograd.grad(out, x, grad.contiguous())
        assert torch.equal(strided, dense)


def test_a_share_that_cannot_be_dropped_is_refused(device: str) -> None:
    from lazygnn.ops import activation

    for p in (-0.1, 1.0):
        with pytest.raises(ValueError, match=rf"`p` must lie in \[0, 1\), got {p}"):
            activation.relu_dropout(rows(2, 2, device), p)


def test_little_is_kept_for_the_backward_pass(device: str) -> None:
    from lazygnn.ops import activation

    kept: list[tuple[int, ...]] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    x = rows(50, 6, device).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        activation.batch_norm_relu_dropout(x, batch_norm(6, device), 0.5)
        assert sorted(kept) == [(), (6,), (6,), (6,), (6,), (50, 6)]
        kept.clear()
        activation.relu_dropout(x, 0.5)
        assert kept == [(50, 6)]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Lets the layers use the kernels, on a device that they would not be used for, too; counts their calls."""
    from lazygnn.ops import activation

    calls: list[str] = []

    def listed(name: str) -> Callable[..., Tensor]:
        def call(*args: Any) -> Tensor:
            calls.append(name)
            out: Tensor = getattr(activation, name)(*args)
            return out

        return call

    names = ("batch_norm_relu_dropout", "relu_dropout")
    kernels = SimpleNamespace(**{name: listed(name) for name in names})
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
    x = rows(70, 6, device)
    with counted(monkeypatch) as calls:
        results = [trained(fused, x, num_targets) for num_targets in (None, 70)]
    # without dropout there is but a ReLU to fuse
    assert calls == (["batch_norm_relu_dropout"] * 4 if norm == "batch" else [])
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
def test_an_mlp_drops_by_the_kernels(device: str, norm: NormKind, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = MLP(6, 20, 3, mlp_layers=3, norm=norm, dropout=0.5).to(device), rows(70, 6, device)
    with counted(monkeypatch) as calls:
        assert not torch.equal(model(x), model(x))
        model.eval()
        assert torch.equal(model(x), model(x))
    assert calls == ["batch_norm_relu_dropout" if norm == "batch" else "relu_dropout"] * 4


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are asked for, Triton works, and all is replayed."""
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    monkeypatch.setattr(ops, "_fused", lambda: ModuleType("kernels"))
    with ops.to_be_replayed():
        yield


def tensor(**given: Any) -> Any:
    """What passes for rows on a device."""
    described = {"is_cuda": True, "dtype": torch.float32, "is_contiguous": lambda: True, "numel": lambda: 6}
    return SimpleNamespace(**described | given)


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_on_a_device_are_for_the_kernels(dtype: torch.dtype) -> None:
    kernels = ops.activations(tensor(dtype=dtype))
    assert kernels is not None
    assert kernels.__name__ == "lazygnn.ops.activation"


def test_what_is_launched_once_must_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    monkeypatch.setattr(ops, "_fused", lambda: ModuleType("kernels"))
    assert ops.activations(tensor()) is None
    assert ops.activations(tensor(numel=lambda: 2**27)) is not None
    with ops.to_be_replayed():
        assert ops.activations(tensor()) is not None
    assert ops.activations(tensor()) is None


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize(
    "refused",
    [{"is_cuda": False}, {"dtype": torch.float64}, {"is_contiguous": lambda: False}, {"numel": lambda: 0}],
    ids=["cpu", "float64", "strided", "empty"],
)
def test_what_the_kernels_cannot_do_is_for_plain_torch(refused: dict[str, Any]) -> None:
    assert ops.activations(tensor(**refused)) is None


@pytest.mark.usefixtures("found")
def test_kernels_must_be_wanted_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert ops.activations(tensor()) is None
    with monkeypatch.context() as patch:
        patch.setenv("LAZYGNN_KERNELS", "reference")
        assert ops.activations(tensor()) is None
    monkeypatch.setattr(ops, "_fused", lambda: None)
    assert ops.activations(tensor()) is None


@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize(("bits", "unit"), [("fp32", 4), ("bf16", 8)])
@pytest.mark.parametrize(("name", "loads"), [("normalise", 4), ("partial_gradients", 8)])
def test_rows_are_read_16_bytes_at_a_time_and_draws_stay_in_their_thread(
    name: str, loads: int, bits: str, unit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiles for a device that need not be there."""
    import triton
    from triton.backends.compiler import GPUTarget

    from lazygnn.ops import activation_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = getattr(activation_kernels, name)
    names: list[str] = vars(kernel)["arg_names"]
    types = {"x": f"*{bits}", "grad": f"*{bits}", "out": f"*{bits}", "seed": "*i64"}
    types |= {"num_rows": "i32", "num_programs": "i32"}
    fixed = {"KEPT": 32768, "COLUMNS": 512, "UNIT": unit, "ROWS": 32 if name == "normalise" else 8, "WIDTH": 32 * unit}
    fixed |= {"UNROLL": 4} if "UNROLL" in names else {}
    signature = {name: "constexpr" if name in fixed else types.get(name, "*fp32") for name in names}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(names) if signature[name].startswith("*")}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs=aligned)
    options = {"num_warps": 8, "enable_fp_fusion": False}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert len(re.findall(r"ld\.global\.v4\.b32", compiled.asm["ptx"])) >= loads
    # no more goes from thread to thread than vectors over columns: not one table
    moved = re.findall(r"convert_layout .* : tensor<([\dx]+)x\w+,", compiled.asm["ttgir"])
    assert all(re.fullmatch(r"(1x)?\d+", shape) for shape in moved)


needs_cuda = pytest.mark.skipif(not ON_CUDA, reason="needs a CUDA device")


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(49_000, 512), (12_345, 100), (4001, 47)], ids=str)
def test_many_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, grad, norm = rows(*shape, "cuda", dtype), rows(*shape, "cuda", dtype, seed=1), batch_norm(shape[1], "cuda")
    # of so many entries some are so near to zero that ReLU may take them for either
    grad[exact(x, norm, torch.ones_like(x), 0.5, grad)[-1].abs() < 1e-5] = 0
    out, *grads = run(x, norm, 0.5, grad)
    expected, *expected_grads, _ = exact(x, norm, out > 0, 0.5, grad)
    check(out, expected, dtype)
    check(grads[0], expected_grads[0], dtype)
    check(grads[1], expected_grads[1], torch.float32)
    check(grads[2], expected_grads[2], torch.float32)


@pytest.mark.gpu
@needs_cuda
def test_more_entries_than_32_bits_can_count() -> None:
    from lazygnn.ops import activation

    x = torch.ones(2**31 // 512 + 50, 512, dtype=torch.bfloat16, device="cuda")
    out = activation.relu_dropout(x, 0.5)
    assert bool(((out == 0) | (out == 2)).all())
    assert float(out[-50:].float().mean()) == pytest.approx(1, abs=0.1)
    x[1::2] = -1
    norm = batch_norm(512, "cuda", bias=3.0)
    nn.init.constant_(norm.weight, 1.0)
    out = activation.batch_norm_relu_dropout(x, norm, 0.0)
    assert bool((out[::2] == 4).all())
    assert bool((out[1::2] == 2).all())


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("norm", ["batch", "none"])
def test_activations_can_be_captured_wait_for_nothing_and_draw_anew(
    norm: NormKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    model, x = MLP(6, 20, 20, mlp_layers=2, norm=norm, dropout=0.5).to("cuda"), rows(70, 6, "cuda")
    ops.activations(x)

    def train() -> Tensor:
        model.zero_grad()
        with ops.to_be_replayed():
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
    # a replay draws what a step would have drawn
    torch.cuda.manual_seed(1)
    torch.testing.assert_close(train(), draws[0])
