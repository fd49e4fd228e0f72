"""Which products run: the fused kernels where they can, the reference everywhere else."""

import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from lazygnn import ops
from lazygnn.ops import Csr, reference


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    with ops.to_be_replayed():
        yield


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stands in for the fused kernels."""
    module = ModuleType("kernels")
    monkeypatch.setattr(ops, "_fused", lambda: module)
    return module


def tensor(*, is_cuda: bool = True, dtype: torch.dtype = torch.float32, requires_grad: bool = False) -> Any:
    return SimpleNamespace(is_cuda=is_cuda, dtype=dtype, requires_grad=requires_grad, shape=(4, 2))


def matrix(num_entries: int = 3, **given: Any) -> Any:
    return SimpleNamespace(value=tensor(**given), col=range(num_entries))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_on_a_device_are_for_the_kernels(kernels: ModuleType, dtype: torch.dtype) -> None:
    assert ops._kernels(matrix(), tensor(dtype=dtype), tensor(), None) is kernels


def test_what_the_kernels_cannot_do_is_for_the_reference(kernels: ModuleType) -> None:
    assert ops._kernels(matrix(), tensor(is_cuda=False)) is reference
    assert ops._kernels(matrix(is_cuda=False), tensor()) is reference
    assert ops._kernels(matrix(), tensor(dtype=torch.float64)) is reference
    assert ops._kernels(matrix(dtype=torch.float64), tensor()) is reference
    assert ops._kernels(matrix(), tensor(), tensor(requires_grad=True)) is reference
    with torch.no_grad():
        assert ops._kernels(matrix(), tensor(), tensor(requires_grad=True)) is kernels


def test_a_small_product_is_for_the_kernels_only_where_it_is_replayed(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "_LARGE_PRODUCT", 20)
    assert ops._kernels(matrix(9), tensor()) is kernels
    assert ops._kernels(matrix(0), tensor()) is reference
    ops._replayed = False
    assert ops._kernels(matrix(9), tensor()) is reference
    assert ops._kernels(matrix(10), tensor()) is kernels
    with ops.to_be_replayed(), ThreadPoolExecutor(1) as other:
        assert ops._kernels(matrix(9), tensor()) is kernels
        # where a backward pass runs
        assert other.submit(ops._kernels, matrix(9), tensor()).result() is kernels


def test_a_variable_of_the_environment_asks_for_plain_products(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAZYGNN_KERNELS")
    assert ops._kernels(matrix(), tensor()) is kernels
    monkeypatch.setenv("LAZYGNN_KERNELS", "reference")
    assert ops._kernels(matrix(), tensor()) is reference
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    assert ops._kernels(matrix(), tensor()) is kernels
    monkeypatch.setenv("LAZYGNN_KERNELS", "fast")
    with pytest.raises(ValueError, match="`LAZYGNN_KERNELS` must be `auto` or `reference`, got `fast`"):
        ops._kernels(matrix(), tensor())


def test_rows_of_a_history_are_for_the_kernels_under_the_same_conditions(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ModuleType("rows")
    monkeypatch.setattr(ops, "import_module", {"lazygnn.ops.rows": rows}.get)
    assert ops.history_rows(tensor(), tensor(dtype=torch.bfloat16)) is rows
    assert ops.history_rows(tensor(), tensor(is_cuda=False)) is None
    assert ops.history_rows(tensor(), tensor(dtype=torch.float64)) is None
    assert ops.history_rows(tensor(dtype=torch.int8)) is None
    assert ops.history_rows(tensor(requires_grad=True)) is None
    with torch.no_grad():
        assert ops.history_rows(tensor(requires_grad=True)) is rows
    monkeypatch.setattr(ops, "_fused", lambda: None)
    assert ops.history_rows(tensor()) is None
    monkeypatch.setenv("LAZYGNN_KERNELS", "reference")
    assert ops.history_rows(tensor()) is None


def test_rows_in_host_memory_are_for_the_kernels_whatever_their_type(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = ModuleType("bus")
    monkeypatch.setattr(ops, "import_module", {"lazygnn.ops.bus": bus}.get)
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.float64):
        assert ops.far_rows(tensor(dtype=dtype)) is bus
    assert ops.far_rows(tensor(is_cuda=False)) is reference
    monkeypatch.setattr(ops, "_fused", lambda: None)
    assert ops.far_rows(tensor()) is reference
    monkeypatch.setattr(ops, "_fused", lambda: kernels)
    monkeypatch.setenv("LAZYGNN_KERNELS", "reference")
    assert ops.far_rows(tensor()) is reference


def test_a_broken_triton_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(ops, "_fused", cache(ops._fused.__wrapped__))
    with pytest.warns(
        UserWarning, match=r"Triton does not work here \(.*triton.*\).*`LAZYGNN_KERNELS=reference` silences"
    ):
        assert ops._kernels(matrix(), tensor()) is reference
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ops._kernels(matrix(), tensor()) is reference


def test_a_product_on_the_cpu_does_not_look_for_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "_fused", lambda: pytest.fail("looked for Triton"))
    adj = Csr(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.tensor([2.0, 3.0]), 2)
    x = torch.ones(2, 1)
    assert ops.spmm(adj, x).tolist() == [[2], [3]]
    assert ops.step(adj, x, x, 0.5).tolist() == [[1.5], [2]]
    assert ops.run_steps([adj], x, x, 0.5).tolist() == [[1.5], [2]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_device_the_kernels_are_found() -> None:
    adj = Csr(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.tensor([2.0, 3.0]), 2).to("cuda")
    assert ops._kernels(adj, torch.ones(2, 1, device="cuda")).__name__ == "lazygnn.ops.fused"
    assert ops.spmm(adj, torch.ones(2, 1, device="cuda")).tolist() == [[2], [3]]


def test_kernels_are_described(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert ops.describe_kernels() == "plain PyTorch, since there is no GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert kernels is not None
    assert ops.describe_kernels() == "Triton"
    monkeypatch.setattr(ops, "_fused", lambda: None)
    assert ops.describe_kernels() == "plain PyTorch, since Triton does not work here"
    monkeypatch.setenv("LAZYGNN_KERNELS", "reference")
    assert ops.describe_kernels() == "plain PyTorch, since LAZYGNN_KERNELS=reference"
