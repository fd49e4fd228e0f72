"""Triton products against the reference, compiled on a device and in the interpreter elsewhere.

Uninitialized memory is NaN. In the interpreter, every read and write must be within a tensor.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from torch import Tensor

from lazygnn import ops
from lazygnn.ops import Csr, dispatch, reference, replaying
from lazygnn.ops.triton import alignment, plans, products
from lazygnn.ops.triton.jit import jit
from lazygnn.ops.triton.product_kernels import lane_rows, piece_sums
from tests.helpers import needs_cuda, pairwise
from tests.ops.triton.helpers import DTYPES, INTERPRETED, LONG_ROWS, draw, matrix, only_interpreted

KERNELS = ["lane_rows", "piece_sums"]
UNROLL = [4, 8]
# bytes between the starts of the tensors of an interpreted kernel
APART = 1 << 16


@pytest.fixture
def device(device: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns where kernels run; in the interpreter, an access outside of all tensors fails."""
    if INTERPRETED:
        watch(monkeypatch)
    return device


def watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the interpreter fail on reads outside of all tensors, and on writes outside of the result.

    The tensors of a kernel are moved far apart, so that reading past the end of one does not reach another.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    arena = torch.empty(16 * APART, dtype=torch.uint8)
    readable: list[tuple[int, int]] = []
    writable: list[tuple[int, int]] = []
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def watched_load(self: Any, ptrs: Any, mask: Any, *options: Any, **more: Any) -> Any:
        assert_within(ptrs, mask, readable, "read")
        return load(self, ptrs, mask, *options, **more)

    def watched_store(self: Any, ptrs: Any, value: Any, mask: Any, *options: Any, **more: Any) -> Any:
        assert_within(ptrs, mask, writable, "written")
        return store(self, ptrs, value, mask, *options, **more)

    class Launched:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: Any) -> Callable[..., Any]:
            def launch(**given: Any) -> None:
                tensors = {name: tensor for name, tensor in given.items() if isinstance(tensor, Tensor)}
                apart, result = move_apart(tensors, arena), "out" if "out" in given else "pieces"
                spans = {name: span(tensor, apart[name]) for name, tensor in tensors.items()}
                readable[:], writable[:] = spans.values(), [spans[result]]
                self.kernel[grid](**given | apart)
                given[result].copy_(apart[result])

            return launch

    for name in KERNELS:
        monkeypatch.setattr(products, name, Launched(getattr(products, name)))
    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", watched_load)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", watched_store)


def move_apart(tensors: dict[str, Tensor], arena: Tensor) -> dict[str, Tensor]:
    """Returns the same tensors with their memory in the arena; tensors that weight memory still do."""
    places: dict[int, int] = {}
    moved = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        assert storage.nbytes() < APART // 2
        at = places.setdefault(storage.data_ptr(), (1 + len(places)) * APART)
        arena[at : at + storage.nbytes()] = torch.empty(0, dtype=torch.uint8).set_(storage)
        offset = at // tensor.element_size() + tensor.storage_offset()
        moved[name] = tensor.new_empty(0).set_(arena.untyped_storage(), offset, tensor.shape, tensor.stride())
        assert (moved[name].data_ptr() - tensor.data_ptr()) % 16 == 0
    return moved


def span(tensor: Tensor, moved: Tensor) -> tuple[int, int]:
    """Returns the addresses where a moved tensor starts and ends, including the padding of its rows."""
    if tensor.dim() < 2:
        return moved.data_ptr(), moved.data_ptr() + tensor.numel() * tensor.element_size()
    begin = moved.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()
    return begin, begin + int(tensor.untyped_storage().nbytes())


def assert_within(ptrs: Any, mask: Any, memory: list[tuple[int, int]], what: str) -> None:
    at, size = ptrs.data[mask.data], ptrs.get_element_ty().primitive_bitwidth // 8
    inside = np.zeros(at.shape, bool)
    for begin, end in memory:
        inside |= (at >= begin) & (at + size <= end)
    assert inside.all(), f"{what} outside of all tensors"


@pytest.fixture(params=UNROLL, ids=["4 at a time", "8 at a time"])
def unroll(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_unroll(request.param, monkeypatch)


def use_unroll(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets how many neighbors are loaded at a time, whatever the matrix."""
    monkeypatch.setattr(products, "_unroll", lambda _: number)


def use_split(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "piece_size", lambda _: number)


def exact(adj: Csr, x: Tensor, source: Tensor | None = None, alpha: float = 0.0) -> Tensor:
    """Returns the step in float64, on a CPU: cuSPARSE refuses matrices with more entries than positions."""
    where, adj, x = x.device, adj.to("cpu").to(torch.float64), x.cpu().double()
    source = torch.zeros(adj.num_rows, x.shape[1], dtype=x.dtype) if source is None else source.cpu().double()
    return reference.step(adj, x, source, alpha).to(where)


def check(out: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Compares with float64: sums are rounded in float32, and 16-bit results once more."""
    assert out.dtype == dtype
    assert out.shape == expected.shape
    torch.testing.assert_close(out.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 3, 17, 47, 48, 100])
def test_a_step_is_that_of_the_reference(device: str, columns: int, dtype: torch.dtype) -> None:
    # A program has 32, 10, 6, 5 or 2 rows, and is not full; or it has one row.
    adj = matrix([3, 0, 9, 1, 13, 0, 6], 9, device)
    x, source = draw(9, columns, device, dtype), draw(8, columns, device, dtype, seed=1)
    before = x.clone(), source.clone()
    out = products.step(adj, x, source, 0.3)
    check(out, exact(adj, x, source, 0.3), dtype)
    assert torch.equal(out[7:], x[7:])
    check(products.spmm(adj, x), exact(adj, x)[:7], dtype)
    assert torch.equal(x, before[0])
    assert torch.equal(source, before[1])


@pytest.mark.parametrize(("num_rows", "num_cols", "columns"), [(0, 4, 5), (3, 4, 0), (9, 4, 5), (1, 1, 1)])
def test_smallest_shapes(device: str, num_rows: int, num_cols: int, columns: int) -> None:
    adj, x = matrix([2] * num_rows, num_cols, device), draw(num_cols, columns, device)
    check(products.spmm(adj, x), exact(adj, x)[:num_rows], torch.float32)
    source = draw(num_rows, columns, device, seed=1)
    check(products.step(adj, x, source, 0.3), exact(adj, x, source, 0.3), torch.float32)


def test_a_matrix_without_entries_gives_the_source_alone(device: str) -> None:
    adj, x = matrix([0, 0, 0], 2, device), draw(2, 5, device)
    assert products.spmm(adj, x).tolist() == [[0] * 5] * 3
    check(products.step(adj, x, draw(3, 5, device), 0.5), 0.5 * draw(3, 5, device).double(), torch.float32)


def test_indices_may_have_64_bits(device: str) -> None:
    adj, x, source = matrix([3, 0, 40], 6, device, torch.int64), draw(6, 5, device), draw(3, 5, device, seed=1)
    check(products.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), torch.float32)


@pytest.mark.parametrize(
    ("counts", "dtype", "number"), pairwise(LONG_ROWS, [torch.float32, torch.bfloat16], UNROLL), ids=str
)
def test_long_rows_are_split(
    device: str, counts: list[int], dtype: torch.dtype, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_split(8, monkeypatch)
    use_unroll(number, monkeypatch)
    adj, x, source = matrix(counts, 15, device), draw(15, 17, device, dtype), draw(15, 17, device, dtype, seed=1)
    check(products.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), dtype)


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_a_hub_is_split(device: str, index: torch.dtype) -> None:
    adj, x = matrix([5, 3 * 64, 0, 30], 40, device, index), draw(40, 47, device, torch.bfloat16)
    check(products.spmm(adj, x), exact(adj, x)[:4], torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_hub_has_neighbors_in_the_halo(device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    use_split(8, monkeypatch)
    adj, x, source = matrix([30, 0, 3, 50], 9, device), draw(9, 19, device, dtype), draw(4, 19, device, dtype, seed=1)
    adj = adj.with_value(adj.value / 10)
    once = products.step(adj, x, source, 0.2)
    check(products.run_steps([adj] * 2, x, source, 0.2), exact(adj, once, source, 0.2)[:4], dtype)


def test_bits_do_not_depend_on_the_order_of_rows(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_split(8, monkeypatch)
    x, source, results = draw(12, 5, device), draw(10, 5, device, seed=1), []
    for window in (4, 4096):
        monkeypatch.setattr(plans, "WINDOW", window)
        adj = matrix([1, 5, 0, 8, 43, 6, 6, 2, 1, 7], 12, device)
        results.append(products.step(adj, x, source, 0.1))
    check(results[0], exact(adj, x, source, 0.1), torch.float32)
    assert torch.equal(results[0], results[1])


def test_rows_of_equal_length_are_multiplied(device: str) -> None:
    adj, x = matrix([1] * 40, 40, device), draw(40, 5, device)
    check(products.spmm(adj, x), exact(adj, x), torch.float32)


def test_matrices_derived_from_another_are_multiplied(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_split(8, monkeypatch)
    adj = matrix([3, 20, 9, 30], 6, device)
    products.spmm(adj, draw(6, 5, device))
    chosen = adj.select(torch.tensor([3, 0], device=device))
    for other in (adj.rows(2), adj.T, chosen, adj.to(torch.float16), adj.with_value(2 * adj.value), adj):
        x = draw(other.num_cols, 5, device)
        check(products.spmm(other, x), exact(other, x)[: other.num_rows], torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("counts", [[3, 0, 9, 1, 20, 0, 5, 7], [50, 1, 0, 20]], ids=str)
def test_bits_do_not_depend_on_how_many_neighbors_are_loaded_at_a_time(
    device: str, counts: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_split(16, monkeypatch)
    adj, x, source = matrix(counts, 15, device), draw(15, 47, device, dtype), draw(15, 47, device, dtype, seed=1)
    results = []
    for number in (4, 8, 12):
        use_unroll(number, monkeypatch)
        results.append(products.step(adj, x, source, 0.1))
    check(results[0], exact(adj, x, source, 0.1), dtype)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    # The bits do not depend on the alignment of the source either.
    padded = alignment.empty_rows(15, source).copy_(source)
    assert alignment.is_aligned(padded)
    assert not alignment.is_aligned(source)
    assert torch.equal(results[0], products.step(adj, x, padded, 0.1))


# groups of four that end with the entries or before them, and no group at all; rows that start among the last entries
LAST_ENTRIES = [[4], [8, 4], [1], [2, 0], [0, 3], [3, 0, 9, 1], [5, 0], [4, 1, 1, 1, 0], [1, 6], [2, 1, 2]]


def moved(entries: Tensor, before: int, after: int) -> Tensor:
    """Returns the same entries, surrounded by values that must not be used."""
    poison = torch.nan if entries.is_floating_point() else 1 << 30
    memory = torch.full((before + len(entries) + after,), poison, dtype=entries.dtype, device=entries.device)
    memory[before : before + len(entries)] = entries
    return memory[before : before + len(entries)]


@pytest.mark.parametrize("counts", LAST_ENTRIES, ids=str)
@pytest.mark.parametrize(("index", "value"), [(torch.int32, torch.float32), (torch.int64, torch.bfloat16)], ids=str)
def test_entries_may_start_anywhere_in_memory(
    device: str, index: torch.dtype, value: torch.dtype, counts: list[int]
) -> None:
    adj, x = matrix(counts, 15, device, index).to(value), draw(15, 5, device)
    expected = products.spmm(adj, x)
    check(expected, exact(adj, x)[: len(counts)], torch.float32)
    for before, after in ((0, 8), (8, 8), (1, 8), (3, 0), (0, 0)):
        there = Csr(adj.rowptr, moved(adj.col, before, after), moved(adj.value, before, after), 15)
        assert torch.equal(products.spmm(there, x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("counts", [*LAST_ENTRIES, [2, 30, 5], [1, 18], [0, 0]], ids=str)
def test_nothing_outside_of_the_tensors_is_accessed(
    device: str, counts: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_split(8, monkeypatch)
    adj, x, source = matrix(counts, 6, device), draw(6, 19, device, dtype), draw(6, 19, device, dtype, seed=1)
    once = products.step(adj, x, source, 0.1)
    check(once, exact(adj, x, source, 0.1), dtype)
    twice = products.run_steps([adj] * 2, x, source, 0.1)
    assert torch.equal(twice, products.step(adj, once, source, 0.1)[: len(counts)])


@only_interpreted
def test_an_access_outside_of_the_tensors_fails(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adj, x, source = matrix([3, 0, 9, 1], 15, device), draw(15, 8, device), draw(4, 8, device, seed=1)
    monkeypatch.setattr(products, "_check", lambda *_, **__: None)
    for short in (
        (Csr(adj.rowptr, adj.col, adj.value[:-1], 15), x, source),
        (Csr(adj.rowptr, adj.col, moved(adj.value[:-1], 0, 1), 15), x, source),
        (Csr(adj.rowptr, adj.col, moved(adj.value[1:], 1, 0)[:12], 15), x, source),
        (adj, x[: int(adj.col.max())].clone(), source),
        (adj, x, source[:3].clone()),
    ):
        with pytest.raises(Exception, match="read outside of all tensors"):
            products.step(*short, 0.1)
    monkeypatch.setattr(products, "empty_rows", lambda _, like: torch.empty(3, like.shape[1]))
    with pytest.raises(Exception, match="written outside of all tensors"):
        products.spmm(adj, x)


@jit
def doubled(x: tl.tensor, out: tl.tensor) -> None:
    tl.store(out, tl.load(x) * 2)


@only_interpreted
def test_a_product_that_exceeds_32_bits_fails() -> None:
    x, out = torch.tensor([1 << 30], dtype=torch.int32), torch.empty(1, dtype=torch.int32)
    with pytest.raises(Exception, match="int32 overflow in mul"):
        doubled[(1,)](x, out)
    doubled[(1,)](x - 1, out)
    assert out.tolist() == [(1 << 31) - 2]


@pytest.mark.usefixtures("unroll")
def test_bits_of_a_row_do_not_depend_on_what_follows(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_split(8, monkeypatch)
    adj, x = matrix([3, 5, 1, 21, 0, 2, 17, 4], 15, device), draw(15, 7, device)
    out = products.spmm(adj, x)
    for stop in range(1, 9):
        assert torch.equal(products.spmm(adj.rows(stop), x), out[:stop])


def test_entries_may_be_strided(device: str) -> None:
    adj, x = matrix([3, 0, 9, 1], 15, device), draw(15, 5, device)
    for value in (torch.ones(1, device=device).expand(13), torch.stack((adj.value, adj.value / 2), 1)[:, 1]):
        there = Csr(adj.rowptr, torch.stack((adj.col, adj.col), 1)[:, 0], value, 15)
        check(products.spmm(there, x), exact(adj.with_value(value.contiguous()), x)[:4], torch.float32)


def test_views_are_read_as_they_are(device: str, view: Callable[[Tensor], Tensor]) -> None:
    x, source = view(draw(30, 48, device)), view(draw(30, 48, device, seed=1))
    adj = matrix([4, 0, 7, 12, 1], len(x), device)
    check(products.step(adj, x, source, 0.2), exact(adj, x, source, 0.2), torch.float32)


def test_results_have_aligned_rows(device: str) -> None:
    adj, x = matrix([4, 0, 7, 12, 1], 5, device), draw(5, 47, device)
    out = products.step(adj, x, x, 0.2)
    assert (out.shape, out.stride()) == ((5, 47), (48, 1))
    assert alignment.aligned(out) is out


@pytest.mark.parametrize("reach", [[], [4], [4, 4, 4], [9, 9], [7, 5, 4], [4, 6]], ids=str)
def test_a_chain_is_that_of_the_reference(device: str, reach: list[int]) -> None:
    adjs = [matrix([3, 0, 6, 2, 5, 1, 0, 9, 4][:num_rows], 9, device) for num_rows in reach]
    x, source = draw(9, 5, device), draw(9, 5, device, seed=1)
    before = x.clone()
    expected = reference.run_steps([adj.to(torch.float64) for adj in adjs], x.double(), source.double(), 0.2)
    check(products.run_steps(adjs, x, source, 0.2), expected, torch.float32)
    assert torch.equal(x, before)


@pytest.mark.parametrize(("weight", "columns", "dtype"), pairwise([0.0, 0.3, 1.0, 1.2], [5, 8, 75], DTYPES), ids=str)
def test_a_step_adds_a_share_of_its_source_and_the_rest_of_the_past(
    device: str, weight: float, columns: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_MAX_LANES", 16)
    adj = matrix([4, 0, 7], 5, device)
    x, source, previous = (draw(5, columns, device, dtype, seed) for seed in range(3))
    alone, beside = weight * source.double(), torch.lerp(previous.double(), source.double(), weight)
    check(products.step(adj, x, source, 0.1, weight=weight), exact(adj, x, alone, 0.1), dtype)
    expected = exact(adj, x, beside, 0.1)
    # rows without padding, and rows that can be read 16 bytes at a time
    for given in (previous, alignment.aligned(previous)):
        check(products.step(adj, x, source, 0.1, weight=weight, previous=given), expected, dtype)


@pytest.mark.parametrize("reach", [[4, 4], [4, 4, 4, 4, 4], [6, 4]], ids=str)
def test_every_step_of_a_chain_has_its_own_share(device: str, reach: list[int]) -> None:
    adjs = [matrix([3, 0, 6, 2, 1, 5][:num_rows], 6, device) for num_rows in reach]
    x, source, previous = draw(6, 5, device), draw(6, 10, device, seed=1)[:, ::2], draw(6, 5, device, seed=2)
    weights = [0.3, 1.0, 0.0, 1.2, 0.5][: len(adjs)]
    for given in (None, previous):
        expected = x
        for adj, weight in zip(adjs, weights, strict=True):
            expected = products.step(adj, expected, source, 0.2, weight=weight, previous=given)
        assert torch.equal(products.run_steps(adjs, x, source, 0.2, weights=weights, previous=given), expected[:4])
    with pytest.raises(ValueError, match="shorter"):
        products.run_steps(adjs, x, source, 0.2, weights=weights[1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("columns", [5, 20])
def test_a_sign_of_minus_one_subtracts_the_product(
    device: str, columns: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_split(8, monkeypatch)
    # with 20 columns, in blocks of columns
    monkeypatch.setattr(products, "_MAX_LANES", 2)
    adj = matrix([4, 0, 30], 5, device)
    adj = adj.with_value(adj.value / 5)
    x, source, previous = (draw(5, columns, device, dtype, seed) for seed in range(3))
    negative, mixed = adj.with_value(-adj.value), torch.lerp(previous.double(), source.double(), 0.3)
    check(products.step(adj, x, source, 0.1, sign=-1), exact(negative, x, source, 0.1), dtype)
    out = products.step(adj, x, source, 0.1, weight=0.3, previous=previous, sign=-1)
    check(out, exact(negative, x, mixed, 0.1), dtype)


@pytest.mark.parametrize("reach", [[4, 4], [4, 4, 4, 4], [6, 4]], ids=str)
def test_every_step_of_a_chain_has_its_sign(device: str, reach: list[int]) -> None:
    adjs = [matrix([3, 0, 6, 2, 1, 5][:num_rows], 6, device) for num_rows in reach]
    x, source, previous = (draw(6, 5, device, seed=seed) for seed in range(3))
    weights = [0.3, 1.0, 0.0, 1.2][: len(adjs)]
    expected = x
    for adj, weight in zip(adjs, weights, strict=True):
        expected = products.step(adj, expected, source, 0.2, weight=weight, previous=previous, sign=-1)
    out = products.run_steps(adjs, x, source, 0.2, weights=weights, previous=previous, sign=-1)
    assert torch.equal(out, expected[:4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("columns", "num_halo"), [(5, 0), (5, 1), (8, 7), (20, 5)])
def test_the_rows_of_a_halo_follow_those_of_the_product(
    device: str, columns: int, num_halo: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_split(8, monkeypatch)
    # with 20 columns, the halo is read in blocks of columns too
    monkeypatch.setattr(products, "_MAX_LANES", 2)
    adj, x = matrix([4, 0, 30, 7], 9, device), draw(9, columns, device, dtype)
    adj = adj.with_value(adj.value / 5)
    # rows without padding, and rows that can be read 16 bytes at a time
    for convert in (torch.clone, alignment.aligned):
        inside, halo = convert(x[: 9 - num_halo]), convert(x[9 - num_halo :])
        out = products.spmm(adj, inside, halo)
        check(out, exact(adj, x)[:4], dtype)
        assert torch.equal(out, products.spmm(adj, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [([3, 3], 20), ([3], 5), ([5, 3], 8)], ids=str)
def test_steps_read_a_halo_where_it_is_or_one_row_of_it_for_all(
    device: str, columns: int, rows: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_MAX_LANES", 2)
    adjs = [matrix([4, 0, 6, 2, 1][:number], 9, device) for number in rows]
    adjs = [adj.with_value(adj.value / 5) for adj in adjs]
    x, source = draw(9, columns, device, dtype), draw(9, columns, device, dtype)
    for halo in (x[3:].clone(), x[3:4].expand(6, -1)):
        out = products.run_steps(adjs, x[:3], source, 0.3, weights=[0.5, 2.0][: len(rows)], halo=halo)
        whole = torch.cat((x[:3], halo))
        assert torch.equal(out, products.run_steps(adjs, whole, source, 0.3, weights=[0.5, 2.0][: len(rows)]))


def test_a_halo_of_a_wrong_size_is_refused(device: str) -> None:
    adj, x = matrix([4, 0, 7], 5, device), draw(5, 7, device)
    for halo in (x[:1], x[:3]):
        with pytest.raises(ValueError, match=f"`x` has {3 + len(halo)} rows, but the matrix has 5 columns"):
            products.spmm(adj, x[:3], halo)


def test_a_frozen_halo_is_not_copied(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adj, x = matrix([3, 5, 2], 90, device), draw(90, 4, device)
    sizes: list[int] = []
    empty = alignment.empty_rows

    def counted(num_rows: int, like: Tensor) -> Tensor:
        sizes.append(num_rows)
        return empty(num_rows, like)

    for module in (alignment, products):
        monkeypatch.setattr(module, "empty_rows", counted)
    products.run_steps([adj] * 4, x, x, 0.2)
    assert sizes == [3] * 4


def test_many_columns_are_processed_in_blocks(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adj = matrix([4, 0, 7], 5, device)
    for lanes, columns in ((2, 75), (32, 140)):
        monkeypatch.setattr(products, "_MAX_LANES", lanes)
        x, source = (draw(5, columns, device, seed=seed) for seed in range(2))
        check(products.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), torch.float32)


@pytest.mark.usefixtures("unroll")
def test_a_row_that_is_not_a_neighbor_does_not_matter(device: str) -> None:
    rowptr, col = torch.tensor([0, 1, 3, 3]), torch.tensor([1, 2, 1])
    adj = Csr(rowptr, col, torch.ones(3), 4).to(device)
    x = torch.tensor([[math.nan], [1.0], [2.0], [math.inf]], device=device)
    assert products.spmm(adj, x).tolist() == [[1], [3], [0]]


def test_types_may_differ(device: str) -> None:
    adj = matrix([4, 0, 7], 5, device)
    x, source = draw(5, 7, device, torch.bfloat16), draw(5, 7, device, seed=1)
    check(products.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), torch.bfloat16)


def test_shapes_that_do_not_fit_are_reproducts(device: str) -> None:
    adj, x = matrix([4, 0, 7], 5, device), draw(5, 7, device)
    with pytest.raises(ValueError, match="`x` has 4 rows, but the matrix has 5 columns"):
        products.spmm(adj, x[:4])
    with pytest.raises(ValueError, match="the matrix has 10 values for 11 column indices"):
        products.spmm(adj.with_value(adj.value[1:]), x)
    with pytest.raises(ValueError, match=r"`source` has shape \(2, 7\); the step needs \(3, 7\) or more rows"):
        products.step(adj, x, x[:2], 0.1)
    with pytest.raises(ValueError, match=r"`previous` has shape \(2, 7\); the step needs \(3, 7\) or more rows"):
        products.step(adj, x, x, 0.1, weight=0.5, previous=x[:2])
    with pytest.raises(ValueError, match=r"`source` has shape \(5, 6\); the step needs \(3, 7\)"):
        products.step(adj, x, x[:, 1:], 0.1)


@pytest.mark.parametrize(
    ("bits", "unit", "halo"), [("fp32", 4, False), ("fp32", 4, True), ("bf16", 8, True), ("fp16", 8, False)]
)
def test_all_is_loaded_16_bytes_at_a_time(bits: str, unit: int, halo: bool, compile_kernel: Callable[..., Any]) -> None:
    types = {"order": "*i32", "rowptr": "*i32", "col": "*i32", "value": "*fp32", "pieces": "*fp32", "keep": "fp32"}
    types |= dict.fromkeys(("source_weight", "previous_weight"), "fp32")
    types |= {"whole": "*i32", "num_whole": "*i64"}
    types |= dict.fromkeys(("x", "halo", "source", "previous", "out"), f"*{bits}")
    fixed: dict[str, Any] = {"X_STRIDE": 48 // unit, "HALO_STRIDE": 48 // unit, "UNIT": unit, "SPLIT": 512, "UNROLL": 4}
    fixed |= {} if halo else {"halo": None}
    own = {
        "SOURCE_COLUMNS": 48,
        "SOURCE_UNIT": unit,
        "PREVIOUS_COLUMNS": 48,
        "PREVIOUS_UNIT": unit,
        "LANES": 48 // unit,
    }
    code = compile_kernel(lane_rows, types, fixed | own, products._OPTIONS).asm["ptx"]
    # the source and the previous; indices and values, before and in the loop; neighbors, in the loop and after the last
    # group of four; four pieces of 48 columns in float32
    assert len(re.findall(r"ld\.global\.v4\.b32", code)) == 2 + 2 * 2 + 4 + 3 + 4 * unit // 4
    assert len(re.findall(r"st\.global\.v4\.b32", code)) == 1
    # Only the order, the ends of a row and the last three entries are loaded one by one. Lanes exchange nothing.
    assert len(re.findall(r"ld\.global\.b\d", code)) == 3 + 2 * 3
    assert ".shared" not in code
    lanes = 2 ** math.ceil(math.log2(48 / unit))
    sums = {"COLUMNS": 48, "NEIGHBORS": 8, "WIDTH": lanes * unit}
    code = compile_kernel(piece_sums, types, fixed | sums, products._OPTIONS).asm["ptx"]
    assert len(re.findall(r"ld\.global\.v4\.b32", code)) >= 4


@needs_cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [16, 47, 256, 700])
def test_compiled_kernels_give_the_reference(columns: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    counts = (torch.rand(3000, generator=torch.Generator().manual_seed(0)) ** -1.2).clamp(max=2900).long().tolist()
    adj = matrix(counts, 5000, "cuda")
    x, source = draw(5000, columns, "cuda", dtype), draw(3000, columns, "cuda", dtype, seed=1)
    with replaying():
        out, once = ops.run_steps([adj] * 2, x, source, 0.2), ops.step(adj, x, source, 0.2)
        # The kernels ran, not cuSPARSE.
        assert "plan" in adj.derived
        assert torch.equal(out, ops.run_steps([adj] * 2, x, source, 0.2))
    expected = exact(adj, once, source, 0.2)[:3000]
    torch.testing.assert_close(out.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=2e-4)


@needs_cuda
def test_a_step_can_be_captured_and_does_not_synchronize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    monkeypatch.setattr(dispatch, "_replayed", True)
    adj, x = matrix([30] * 999 + [5000], 1000, "cuda"), draw(1000, 47, "cuda")
    similar = matrix([30] * 999 + [5000], 1000, "cuda")
    expected = ops.run_steps([adj] * 2, x, x, 0.2)
    assert "plan" in adj.derived
    torch.cuda.set_sync_debug_mode("error")
    try:
        ops.run_steps([adj] * 2, x, x, 0.2)
        # The plan of another matrix is computed without synchronizing.
        ops.run_steps([similar] * 2, x, x, 0.2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        # A matrix with a known pattern reuses its plan.
        out = ops.run_steps([adj, adj.with_value(adj.value)], x, x, 0.2)
    graph.replay()
    assert torch.equal(out, expected)
