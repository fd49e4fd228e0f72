import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from lazygnn.ops import Csr, index_dtype, to_tensor
from tests.helpers import needs_cuda

DENSE = np.array([[0.0, 1.5, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.5, 0.0]])


def csr(dense: np.ndarray = DENSE) -> Csr:
    matrix = scipy.sparse.csr_matrix(dense)
    return Csr.from_arrays(matrix.indptr, matrix.indices, matrix.data, dense.shape[1])


def random_matrix(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((7, 5)) < 0.4, rng.normal(size=(7, 5)), 0).astype(np.float32)


def equal(matrix: Csr, dense: np.ndarray | Tensor) -> bool:
    return matrix.to_dense().tolist() == dense.tolist()


def test_arrays_of_scipy_are_taken_over() -> None:
    matrix = csr()
    assert equal(matrix, DENSE)
    assert matrix.shape == (3, 4)
    assert len(matrix) == matrix.num_rows == 3
    assert matrix.rowptr.dtype == matrix.col.dtype == torch.int32
    assert matrix.value.dtype == torch.float32
    assert matrix.row_index().tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("index", ["int64", "uint16", ">i4"])
@pytest.mark.parametrize("data", ["bool", "uint8", "float16", ">f8", "longdouble"])
def test_from_arrays_takes_any_number_type(index: str, data: str) -> None:
    parts = np.array([0, 1, 1, 2], dtype=index), np.array([1, 0], dtype=index), np.ones(2, dtype=data)
    for part in parts:
        part.flags.writeable = False
    matrix = Csr.from_arrays(*parts, 2)
    assert equal(matrix, np.array([[0, 1], [0, 0], [1, 0]]))
    assert matrix.value.dtype == torch.float32


def test_a_plain_array_is_not_copied() -> None:
    array = np.ones(3)
    assert to_tensor(array).data_ptr() == array.ctypes.data


def test_a_matrix_that_is_already_on_the_device_is_returned_itself() -> None:
    moved = csr().to("meta")
    moved.derived["plan"] = "computed before"
    assert moved.to("meta") is moved
    assert moved.to(torch.device("meta")) is moved
    assert moved.to(moved.value.dtype) is moved


@needs_cuda
def test_all_names_of_a_device_are_equal() -> None:
    moved = csr().to("cuda")
    assert all(moved.to(name) is moved for name in ("cuda", "cuda:0", torch.device("cuda")))


def test_from_sorted_coordinates() -> None:
    row, col = torch.tensor([0, 0, 2, 2]), torch.tensor([1, 3, 0, 2])
    matrix = Csr.from_sorted(row, col, torch.tensor([1.5, 2.0, 3.0, 0.5]), (3, 4))
    assert equal(matrix, DENSE)
    assert matrix.rowptr.tolist() == [0, 2, 2, 4]


def test_duplicates_add_up_in_the_dense_form() -> None:
    matrix = Csr(torch.tensor([0, 3]), torch.tensor([1, 1, 0]), torch.tensor([1.0, 2.0, 4.0]), 2)
    assert matrix.to_dense().tolist() == [[4, 3]]


@pytest.mark.parametrize("seed", range(3))
def test_transposed(seed: int) -> None:
    dense = random_matrix(seed)
    transposed = csr(dense).T
    assert equal(transposed, dense.T)
    expected = scipy.sparse.csr_matrix(dense.T)
    assert transposed.rowptr.tolist() == expected.indptr.tolist()
    assert transposed.col.tolist() == expected.indices.tolist()
    assert transposed.rowptr.dtype == transposed.col.dtype == torch.int32
    assert equal(transposed.T, dense)


def test_other_values_share_the_transposed_pattern() -> None:
    dense = random_matrix()
    matrix = csr(dense)
    tripled = matrix.with_value(3 * matrix.value)
    assert equal(tripled, 3 * dense)
    assert equal(tripled.T, 3 * dense.T)
    assert equal(matrix, dense)
    assert tripled.T.col.data_ptr() == matrix.T.col.data_ptr()


@pytest.mark.parametrize("rows", [[], [2], [6, 0, 3], [1, 1, 1], list(range(7))])
def test_selected_rows(rows: list[int]) -> None:
    dense = random_matrix()
    chosen = csr(dense).select(torch.tensor(rows, dtype=torch.long))
    assert chosen.shape == (len(rows), 5)
    assert equal(chosen, dense[rows])
    assert chosen.rowptr.dtype == torch.int32


@pytest.mark.parametrize("stop", range(8))
def test_the_first_rows_share_memory(stop: int) -> None:
    dense = random_matrix()
    matrix = csr(dense)
    prefix = matrix.rows(stop)
    assert prefix.shape == (stop, 5)
    assert equal(prefix, dense[:stop])
    assert prefix.rowptr.data_ptr() == matrix.rowptr.data_ptr()


def test_moving() -> None:
    matrix = csr()
    assert matrix.to("cpu") is matrix
    double = matrix.to(torch.float64)
    assert double.value.dtype == torch.float64
    assert double.col is matrix.col
    meta = matrix.to("meta")
    assert {part.device.type for part in (meta.rowptr, meta.col, meta.value)} == {"meta"}


def test_the_torch_tensor_is_the_same_memory() -> None:
    matrix = csr()
    assert matrix.tensor.layout == torch.sparse_csr
    assert matrix.tensor.values().data_ptr() == matrix.value.data_ptr()
    assert matrix.tensor.to_dense().tolist() == DENSE.tolist()


def test_indices_are_int32_if_they_fit() -> None:
    assert index_dtype(2**31 - 1, 5) == torch.int32
    assert index_dtype(5, 2**31) == torch.int64


def test_a_matrix_is_shown_in_one_line() -> None:
    matrix = Csr.from_arrays(np.array([0, 2, 3]), np.array([0, 3, 1]), np.ones(3), 4)
    assert repr(matrix) == "Csr(shape=(2, 4), num_values=3, dtype=float32, device='cpu')"
