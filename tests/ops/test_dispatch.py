"""Triton kernels run where they can, the reference everywhere else; and the gradient of a product."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.ops import Csr, aggregate, dispatch, reference, spmm
from tests.helpers import assert_equal_up_to_rounding, needs_cuda, random_matrix, random_rows


@pytest.fixture(autouse=True)
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treats every operation as replayed; restored after the test, also where it is patched again."""
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    monkeypatch.setattr(dispatch, "_replayed", True)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An empty module in place of the Triton products."""
    module = ModuleType("kernels")
    monkeypatch.setattr(dispatch, "_triton_products", lambda: module)
    return module


def tensor(*, is_cuda: bool = True, dtype: torch.dtype = torch.float32, requires_grad: bool = False) -> Any:
    return SimpleNamespace(is_cuda=is_cuda, dtype=dtype, requires_grad=requires_grad, shape=(4, 2))


def matrix(num_entries: int = 3, **given: Any) -> Any:
    return SimpleNamespace(products=None, value=tensor(**given), col=range(num_entries))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_on_a_device_use_the_kernels(kernels: ModuleType, dtype: torch.dtype) -> None:
    assert dispatch._products(matrix(), tensor(dtype=dtype), tensor(), None) is kernels


def test_products_that_the_kernels_lack_use_the_reference(kernels: ModuleType) -> None:
    assert dispatch._products(matrix(), tensor(is_cuda=False)) is reference
    assert dispatch._products(matrix(is_cuda=False), tensor()) is reference
    assert dispatch._products(matrix(), tensor(dtype=torch.float64)) is reference
    assert dispatch._products(matrix(dtype=torch.float64), tensor()) is reference
    assert dispatch._products(matrix(), tensor(), tensor(requires_grad=True)) is reference
    with torch.no_grad():
        assert dispatch._products(matrix(), tensor(), tensor(requires_grad=True)) is kernels


def test_a_small_product_uses_the_kernels_only_if_it_is_replaying(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_LARGE_PRODUCT", 20)
    assert dispatch._products(matrix(9), tensor()) is kernels
    assert dispatch._products(matrix(0), tensor()) is reference
    monkeypatch.setattr(dispatch, "_replayed", False)
    assert dispatch._products(matrix(9), tensor()) is reference
    assert dispatch._products(matrix(10), tensor()) is kernels
    with dispatch.replaying(), ThreadPoolExecutor(1) as other:
        assert dispatch._products(matrix(9), tensor()) is kernels
        # A backward pass runs in another thread.
        assert other.submit(dispatch._products, matrix(9), tensor()).result() is kernels


def test_an_environment_variable_selects_plain_products(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAZYGNN_KERNELS")
    assert dispatch._products(matrix(), tensor()) is kernels
    monkeypatch.setenv("LAZYGNN_KERNELS", "reference")
    assert dispatch._products(matrix(), tensor()) is reference
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    assert dispatch._products(matrix(), tensor()) is kernels
    monkeypatch.setenv("LAZYGNN_KERNELS", "fast")
    with pytest.raises(ValueError, match="`LAZYGNN_KERNELS` must be `auto` or `reference`, got `fast`"):
        dispatch._products(matrix(), tensor())


def test_rows_of_a_history_use_the_kernels_under_the_same_conditions(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ModuleType("rows")
    monkeypatch.setattr(dispatch, "import_module", {"lazygnn.ops.triton.history_rows": rows}.get)
    assert dispatch.history_rows(tensor(), tensor(dtype=torch.bfloat16)) is rows
    assert dispatch.history_rows(tensor(), tensor(is_cuda=False)) is None
    assert dispatch.history_rows(tensor(), tensor(dtype=torch.float64)) is None
    assert dispatch.history_rows(tensor(dtype=torch.int8)) is None
    assert dispatch.history_rows(tensor(requires_grad=True)) is None
    with torch.no_grad():
        assert dispatch.history_rows(tensor(requires_grad=True)) is rows
    monkeypatch.setattr(dispatch, "_triton_products", lambda: None)
    assert dispatch.history_rows(tensor()) is None
    monkeypatch.setenv("LAZYGNN_KERNELS", "reference")
    assert dispatch.history_rows(tensor()) is None


def test_rows_in_host_memory_use_the_kernels_whatever_their_type(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ModuleType("host_rows")
    monkeypatch.setattr(dispatch, "import_module", {"lazygnn.ops.triton.host_rows": host}.get)
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.float64):
        assert dispatch.host_rows(tensor(dtype=dtype)) is host
    assert dispatch.host_rows(tensor(is_cuda=False)) is reference
    monkeypatch.setattr(dispatch, "_triton_products", lambda: None)
    assert dispatch.host_rows(tensor()) is reference
    monkeypatch.setattr(dispatch, "_triton_products", lambda: kernels)
    monkeypatch.setenv("LAZYGNN_KERNELS", "reference")
    assert dispatch.host_rows(tensor()) is reference


def test_a_broken_triton_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(dispatch, "_triton_products", cache(dispatch._triton_products.__wrapped__))
    with pytest.warns(
        UserWarning, match=r"Triton does not work here \(.*triton.*\); .*set `LAZYGNN_KERNELS=reference` to silence"
    ):
        assert dispatch._products(matrix(), tensor()) is reference
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dispatch._products(matrix(), tensor()) is reference


def test_a_product_on_the_cpu_does_not_search_for_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_triton_products", lambda: pytest.fail("searched for Triton"))
    adj = Csr(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.tensor([2.0, 3.0]), 2)
    x = torch.ones(2, 1)
    assert dispatch.spmm(adj, x).tolist() == [[2], [3]]
    assert dispatch.step(adj, x, x, 0.5).tolist() == [[1.5], [2]]
    assert dispatch.run_steps([adj], x, x, 0.5).tolist() == [[1.5], [2]]


@needs_cuda
def test_the_kernels_are_found_on_a_device() -> None:
    adj = Csr(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.tensor([2.0, 3.0]), 2).to("cuda")
    assert dispatch._products(adj, torch.ones(2, 1, device="cuda")).__name__ == "lazygnn.ops.triton.products"
    assert dispatch.spmm(adj, torch.ones(2, 1, device="cuda")).tolist() == [[2], [3]]


def test_kernels_are_described(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert dispatch.describe_kernels() == "plain PyTorch, since there is no GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert kernels is not None
    assert dispatch.describe_kernels() == "Triton"
    monkeypatch.setattr(dispatch, "_triton_products", lambda: None)
    assert dispatch.describe_kernels() == "plain PyTorch, since Triton does not work here"
    monkeypatch.setenv("LAZYGNN_KERNELS", "reference")
    assert dispatch.describe_kernels() == "plain PyTorch, since LAZYGNN_KERNELS=reference"


def rows_on_a_device(**given: Any) -> Any:
    """Describes rows that the activation kernels accept, unless told otherwise."""
    described = {"is_cuda": True, "dtype": torch.float32, "is_contiguous": lambda: True, "numel": lambda: 6}
    return SimpleNamespace(**described | given)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_activations_on_a_device_use_the_kernels(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("activations")
    monkeypatch.setattr(dispatch, "import_module", {"lazygnn.ops.triton.activations": module}.get)
    assert dispatch.activations(rows_on_a_device(dtype=dtype)) is module


@pytest.mark.usefixtures("kernels")
def test_an_activation_that_is_not_replayed_must_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("activations")
    monkeypatch.setattr(dispatch, "import_module", {"lazygnn.ops.triton.activations": module}.get)
    monkeypatch.setattr(dispatch, "_replayed", False)
    assert dispatch.activations(rows_on_a_device()) is None
    assert dispatch.activations(rows_on_a_device(numel=lambda: 2**27)) is module
    with dispatch.replaying():
        assert dispatch.is_replaying()
        assert dispatch.activations(rows_on_a_device()) is module
    assert not dispatch.is_replaying()
    assert dispatch.activations(rows_on_a_device()) is None


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    "refused",
    [{"is_cuda": False}, {"dtype": torch.float64}, {"is_contiguous": lambda: False}, {"numel": lambda: 0}],
    ids=["cpu", "float64", "strided", "empty"],
)
def test_activations_that_the_kernels_lack_use_plain_torch(refused: dict[str, Any]) -> None:
    assert dispatch.activations(rows_on_a_device(**refused)) is None


@pytest.mark.usefixtures("kernels")
def test_activations_use_the_kernels_only_if_allowed_and_available(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert dispatch.activations(rows_on_a_device()) is None
    with monkeypatch.context() as patch:
        patch.setenv("LAZYGNN_KERNELS", "reference")
        assert dispatch.activations(rows_on_a_device()) is None
    monkeypatch.setattr(dispatch, "_triton_products", lambda: None)
    assert dispatch.activations(rows_on_a_device()) is None


@pytest.mark.usefixtures("kernels")
def test_the_kernel_modules_can_be_imported() -> None:
    pytest.importorskip("triton")
    found = [
        dispatch.activations(rows_on_a_device()),
        dispatch.history_rows(tensor()),
        dispatch.host_rows(tensor()),
    ]
    names = ["activations", "history_rows", "host_rows"]
    assert [module and module.__name__ for module in found] == [f"lazygnn.ops.triton.{name}" for name in names]


@pytest.mark.usefixtures("mkl")
@pytest.mark.parametrize(("num_rows", "num_cols"), [(6, 6), (4, 9), (9, 4), (1, 3)])
@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_an_aggregate_and_its_gradient_are_the_dense_ones(
    dtype: torch.dtype, index: torch.dtype, num_rows: int, num_cols: int
) -> None:
    adj, grad = random_matrix(num_rows, num_cols, dtype=dtype), random_rows(num_rows, 3, 3, dtype)
    adj = Csr(adj.rowptr.to(index), adj.col.to(index), adj.value, num_cols)
    x, dense = random_rows(num_cols, 3, 2, dtype).requires_grad_(), adj.to_dense().double()
    out = aggregate(adj, x)
    out.backward(grad)
    assert x.grad is not None
    assert_equal_up_to_rounding(out.detach(), dense @ x.detach().double(), dtype)
    assert_equal_up_to_rounding(x.grad, dense.T @ grad.double(), dtype)


@pytest.mark.usefixtures("mkl")
def test_the_gradient_is_that_of_small_differences_and_takes_an_expanded_tensor() -> None:
    adj, x = random_matrix(5, 7), random_rows(7, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: aggregate(adj, x), (x,))
    aggregate(adj, x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, adj.to_dense().sum(dim=0)[:, None].expand(7, 2), rtol=0, atol=1e-13)


@pytest.mark.usefixtures("mkl")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_rounds_neither_an_aggregate_nor_its_gradient(dtype: torch.dtype) -> None:
    adj, x = random_matrix(6, 6, dtype=torch.float32), random_rows(6, 3, 2, dtype)
    weight = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = aggregate(adj, weight)
    out.backward(x)
    assert weight.grad is not None
    for ours, expected in ((out, spmm(adj, x)), (weight.grad, spmm(adj.T, x))):
        assert ours.dtype == dtype
        assert torch.equal(ours, expected)


def test_the_matrix_is_transposed_once() -> None:
    adj, x = random_matrix(5, 7), random_rows(7, 2, 2).requires_grad_()
    aggregate(adj, x).sum().backward()
    assert "_transposition" in vars(adj)
    assert adj.T is adj.T


def test_a_matrix_of_one_process_has_all_rows() -> None:
    matrix, x = random_matrix(4, 4), random_rows(4, 3, 0)
    assert dispatch.norm(matrix, x) == pytest.approx(float(x.norm()))
    assert dispatch.total(matrix, x) is x
    assert dispatch.own_rows(matrix, x) is x


def test_a_matrix_may_have_products_of_its_own() -> None:
    def double(matrix: Csr, x: Tensor, halo: Tensor | None) -> Tensor:
        return 2 * reference.spmm(matrix, x, halo)

    class Doubled(Csr):
        products = SimpleNamespace(spmm=double, norm=lambda *_: 7.0)

    matrix, x = random_matrix(4, 4), random_rows(4, 3, 0)
    doubled = Doubled(matrix.rowptr, matrix.col, matrix.value, 4)
    assert torch.equal(spmm(doubled, x), 2 * spmm(matrix, x))
    assert dispatch.norm(doubled, x) == 7
