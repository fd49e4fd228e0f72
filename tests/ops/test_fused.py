"""The kernels against the reference: in Triton's interpreter on any machine, compiled where there is a device.

The interpreter must be asked for before Triton is imported, so one test here runs all the others in a process of its
own. Whatever the kernels write to starts as NaN, and there the interpreter watches all they read and write.
"""

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.ops import Csr, reference, to_be_replayed

pytest.importorskip("triton")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ON_CUDA = torch.cuda.is_available() and not INTERPRETED
KERNELS = ["lane_rows", "piece_sums"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# bytes between the tensors that an interpreted kernel is given
APART = 1 << 16


@pytest.fixture
def device(device: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where kernels run; besides, nothing outside a tensor can be touched unnoticed."""
    if INTERPRETED:
        watch(monkeypatch)
    return device


def watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the interpreter read what tensors hold, and write to the result alone.

    A kernel finds its tensors far apart, so that what it reads beyond the end of one is not a part of another. Loads
    are those of a device, which reads together only what one mask is for.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    from lazygnn.ops import fused

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
        monkeypatch.setattr(fused, name, Launched(getattr(fused, name)))
    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", watched_load)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", watched_store)


def move_apart(tensors: dict[str, Tensor], arena: Tensor) -> dict[str, Tensor]:
    """The same tensors with their memory in the arena; what was one memory stays one."""
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
    """Where a tensor begins and ends now; rows have the padding that belongs to them."""
    if tensor.dim() < 2:
        return moved.data_ptr(), moved.data_ptr() + tensor.numel() * tensor.element_size()
    begin = moved.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()
    return begin, begin + int(tensor.untyped_storage().nbytes())


def assert_within(ptrs: Any, mask: Any, memory: list[tuple[int, int]], what: str) -> None:
    at, size = ptrs.data[mask.data], ptrs.get_element_ty().primitive_bitwidth // 8
    inside = np.zeros(at.shape, bool)
    for begin, end in memory:
        inside |= (at >= begin) & (at + size <= end)
    assert inside.all(), f"{what} where no tensor is"


@pytest.fixture(params=[4, 8], ids=["4 at a time", "8 at a time"])
def unroll(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many neighbours at a time, whatever the matrix."""
    use_unroll(request.param, monkeypatch)


def use_unroll(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    monkeypatch.setattr(fused, "_unroll", lambda _: number)


def use_split(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    monkeypatch.setattr(fused, "_split", lambda _: number)


def rows(num_rows: int, columns: int, device: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    numbers = torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype).to(device)


def matrix(counts: list[int], num_cols: int, device: str, index: torch.dtype = torch.int32) -> Csr:
    """Random columns and values, so many of them in every row."""
    generator, total = torch.Generator().manual_seed(len(counts)), sum(counts)
    rowptr = torch.tensor([0, *counts]).cumsum(0)
    col = torch.randint(0, num_cols, (total,), generator=generator)
    return Csr(rowptr.to(index), col.to(index), torch.randn(total, generator=generator), num_cols).to(device)


def exact(adj: Csr, x: Tensor, source: Tensor | None = None, alpha: float = 0.0) -> Tensor:
    """The step in float64, on a CPU: cuSPARSE refuses a matrix of more entries than places."""
    where, adj, x = x.device, adj.to("cpu").to(torch.float64), x.cpu().double()
    source = torch.zeros(adj.num_rows, x.shape[1], dtype=x.dtype) if source is None else source.cpu().double()
    return reference.step(adj, x, source, alpha).to(where)


def check(out: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Sums are off by the roundings of float32; a result in 16 bits by its own, besides."""
    assert out.dtype == dtype
    assert out.shape == expected.shape
    torch.testing.assert_close(out.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_kernels_equal_the_reference_in_the_interpreter(interpret: Callable[[], None]) -> None:
    interpret()


@pytest.mark.usefixtures("unroll")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 3, 17, 47, 48, 100])
def test_a_step_is_that_of_the_reference(device: str, columns: int, dtype: torch.dtype) -> None:
    from lazygnn.ops import fused

    adj = matrix([3, 0, 9, 1, 20, 0, 5, 7, 2, 13, 0], 15, device)
    x, source = rows(15, columns, device, dtype), rows(12, columns, device, dtype, seed=1)
    before = x.clone(), source.clone()
    out = fused.step(adj, x, source, 0.3)
    check(out, exact(adj, x, source, 0.3), dtype)
    assert torch.equal(out[11:], x[11:])
    check(fused.spmm(adj, x), exact(adj, x)[:11], dtype)
    assert torch.equal(x, before[0])
    assert torch.equal(source, before[1])


@pytest.mark.parametrize(("num_rows", "num_cols", "columns"), [(0, 4, 5), (3, 4, 0), (9, 4, 5), (1, 1, 1)])
def test_shapes_at_the_edge(device: str, num_rows: int, num_cols: int, columns: int) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([2] * num_rows, num_cols, device), rows(num_cols, columns, device)
    check(fused.spmm(adj, x), exact(adj, x)[:num_rows], torch.float32)
    source = rows(num_rows, columns, device, seed=1)
    check(fused.step(adj, x, source, 0.3), exact(adj, x, source, 0.3), torch.float32)


def test_a_matrix_without_entries_gives_the_source_alone(device: str) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([0, 0, 0], 2, device), rows(2, 5, device)
    assert fused.spmm(adj, x).tolist() == [[0] * 5] * 3
    check(fused.step(adj, x, rows(3, 5, device), 0.5), 0.5 * rows(3, 5, device).double(), torch.float32)


def test_indices_of_64_bits(device: str) -> None:
    from lazygnn.ops import fused

    adj, x, source = matrix([3, 0, 40], 6, device, torch.int64), rows(6, 5, device), rows(3, 5, device, seed=1)
    check(fused.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), torch.float32)


# in pieces of 8 entries: rows that begin or end where a piece does, rows of one piece and of many, and none at all
LONG_ROWS = [[8], [16, 8], [3, 5, 8, 0, 24], [7, 9, 9, 7], [1, 100, 1], [0, 15, 0, 17, 40, 3], [7], [200, 1, 0, 90]]


@pytest.mark.usefixtures("unroll")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("counts", LONG_ROWS, ids=str)
def test_long_rows_are_split(
    device: str, counts: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lazygnn.ops import fused

    use_split(8, monkeypatch)
    adj, x, source = matrix(counts, 15, device), rows(15, 17, device, dtype), rows(15, 17, device, dtype, seed=1)
    check(fused.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), dtype)
    if sum(counts) >= 8:
        row = adj.row_index()[: sum(counts) // 8 * 8].view(-1, 8)
        whole = (row[:, 0] == row[:, 7]).nonzero()[:, 0]
        plan = fused._plan(adj)
        assert plan.whole is not None
        assert plan.num_whole == len(whole)
        assert plan.whole[: len(whole)].tolist() == whole.tolist()


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_a_hub_is_split(device: str, index: torch.dtype) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([5, 3 * 64, 0, 30], 40, device, index), rows(40, 47, device, torch.bfloat16)
    check(fused.spmm(adj, x), exact(adj, x)[:4], torch.bfloat16)
    assert fused._plan(adj).num_whole == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_hub_has_neighbours_in_the_halo(device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    use_split(8, monkeypatch)
    adj, x, source = matrix([30, 0, 3, 50], 9, device), rows(9, 19, device, dtype), rows(4, 19, device, dtype, seed=1)
    adj = adj.with_value(adj.value / 10)
    once = fused.step(adj, x, source, 0.2)
    check(fused.run_steps([adj] * 2, x, source, 0.2), exact(adj, once, source, 0.2)[:4], dtype)


def test_rows_are_taken_by_length_within_windows(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    monkeypatch.setattr(fused, "WINDOW", 4)
    use_split(8, monkeypatch)
    # of the 43 entries of the fifth row, 2 lie before its whole pieces and 1 after them
    counts = [1, 5, 0, 8, 43, 6, 6, 2, 1, 7]
    adj = matrix(counts, 12, device)
    assert fused._plan(adj).order.tolist() == [3, 1, 0, 2, 5, 6, 4, 7, 9, 8]
    x, source = rows(12, 5, device), rows(10, 5, device, seed=1)
    out = fused.step(adj, x, source, 0.1)
    check(out, exact(adj, x, source, 0.1), torch.float32)
    monkeypatch.setattr(fused, "WINDOW", 4096)
    alike = matrix(counts, 12, device)
    assert fused._plan(alike).order.tolist() == [3, 9, 5, 6, 1, 4, 7, 0, 8, 2]
    assert torch.equal(fused.step(alike, x, source, 0.1), out)


def test_rows_of_equal_length_keep_their_order(device: str) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([1] * 40, 40, device), rows(40, 5, device)
    plan = fused._plan(adj)
    assert plan.order.tolist() == list(range(40))
    assert plan.order.dtype == torch.int32
    # too few entries for a piece
    assert plan.whole is None
    check(fused.spmm(adj, x), exact(adj, x), torch.float32)


def test_a_plan_belongs_to_a_pattern(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    use_split(8, monkeypatch)
    adj, x = matrix([3, 20, 9, 30], 6, device), rows(6, 5, device)
    plan = fused._plan(adj)
    assert fused._plan(adj) is plan
    assert fused._plan(adj.with_value(2 * adj.value)) is plan
    assert fused._plan(adj.with_value(2 * adj.value).T) is fused._plan(adj.T)
    for other in (adj.rows(2), adj.T, adj.select(torch.tensor([3, 0], device=device)), adj.to(torch.float16)):
        assert fused._plan(other) is not plan
        assert sorted(fused._plan(other).order.tolist()) == list(range(other.num_rows))
        y = rows(other.num_cols, 5, device)
        check(fused.spmm(other, y), exact(other, y)[: other.num_rows], torch.float32)
    check(fused.spmm(adj, x), exact(adj, x)[:4], torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("counts", [[3, 0, 9, 1, 20, 0, 5, 7], [50, 1, 0, 20]], ids=str)
def test_bits_do_not_depend_on_how_many_come_at_a_time(
    device: str, counts: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lazygnn.ops import fused

    use_split(16, monkeypatch)
    adj, x, source = matrix(counts, 15, device), rows(15, 47, device, dtype), rows(15, 47, device, dtype, seed=1)
    results = []
    for number in (4, 8, 12):
        use_unroll(number, monkeypatch)
        results.append(fused.step(adj, x, source, 0.1))
    check(results[0], exact(adj, x, source, 0.1), dtype)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    # nor on how the rows lie that are added
    padded = fused.empty_rows(15, source).copy_(source)
    assert fused.is_aligned(padded)
    assert not fused.is_aligned(source)
    assert torch.equal(results[0], fused.step(adj, x, padded, 0.1))


# fours that end with the entries, that end before them, and none at all; rows that begin among the last few
LAST_ENTRIES = [[4], [8, 4], [1], [2, 0], [0, 3], [3, 0, 9, 1], [5, 0], [4, 1, 1, 1, 0], [1, 6], [2, 1, 2]]


def moved(entries: Tensor, before: int, after: int) -> Tensor:
    """The same entries between others that must not be used."""
    poison = torch.nan if entries.is_floating_point() else 1 << 30
    memory = torch.full((before + len(entries) + after,), poison, dtype=entries.dtype, device=entries.device)
    memory[before : before + len(entries)] = entries
    return memory[before : before + len(entries)]


@pytest.mark.parametrize("value", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(("before", "after"), [(0, 8), (8, 8), (1, 8), (3, 0), (0, 0)])
def test_entries_may_lie_anywhere(device: str, before: int, after: int, index: torch.dtype, value: torch.dtype) -> None:
    from lazygnn.ops import fused

    for counts in LAST_ENTRIES:
        adj, x = matrix(counts, 15, device, index).to(value), rows(15, 5, device)
        there = Csr(adj.rowptr, moved(adj.col, before, after), moved(adj.value, before, after), 15)
        out = fused.spmm(there, x)
        check(out, exact(adj, x)[: len(counts)], torch.float32)
        assert torch.equal(out, fused.spmm(adj, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("counts", [*LAST_ENTRIES, [2, 30, 5], [1, 18], [0, 0]], ids=str)
def test_nothing_is_touched_beyond_the_end(
    device: str, counts: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lazygnn.ops import fused

    use_split(8, monkeypatch)
    adj, x, source = matrix(counts, 6, device), rows(6, 19, device, dtype), rows(6, 19, device, dtype, seed=1)
    once = fused.step(adj, x, source, 0.1)
    check(once, exact(adj, x, source, 0.1), dtype)
    twice = fused.run_steps([adj] * 2, x, source, 0.1)
    assert torch.equal(twice, fused.step(adj, once, source, 0.1)[: len(counts)])


@pytest.mark.skipif(not INTERPRETED, reason="watches the interpreter")
def test_what_is_touched_beyond_the_end_is_noticed(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    adj, x, source = matrix([3, 0, 9, 1], 15, device), rows(15, 8, device), rows(4, 8, device, seed=1)
    monkeypatch.setattr(fused, "_check", lambda *_, **__: None)
    for short in (
        (Csr(adj.rowptr, adj.col, adj.value[:-1], 15), x, source),
        (Csr(adj.rowptr, adj.col, moved(adj.value[:-1], 0, 1), 15), x, source),
        (Csr(adj.rowptr, adj.col, moved(adj.value[1:], 1, 0)[:12], 15), x, source),
        (adj, x[: int(adj.col.max())].clone(), source),
        (adj, x, source[:3].clone()),
    ):
        with pytest.raises(Exception, match="read where no tensor is"):
            fused.step(*short, 0.1)
    monkeypatch.setattr(fused, "empty_rows", lambda _, like: torch.empty(3, like.shape[1]))
    with pytest.raises(Exception, match="written where no tensor is"):
        fused.spmm(adj, x)


@pytest.mark.usefixtures("unroll")
def test_bits_of_a_row_do_not_depend_on_what_follows(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    use_split(8, monkeypatch)
    adj, x = matrix([3, 5, 1, 21, 0, 2, 17, 4], 15, device), rows(15, 7, device)
    out = fused.spmm(adj, x)
    for stop in range(1, 9):
        assert torch.equal(fused.spmm(adj.rows(stop), x), out[:stop])


def test_entries_may_be_strided(device: str) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([3, 0, 9, 1], 15, device), rows(15, 5, device)
    for value in (torch.ones(1, device=device).expand(13), torch.stack((adj.value, adj.value / 2), 1)[:, 1]):
        there = Csr(adj.rowptr, torch.stack((adj.col, adj.col), 1)[:, 0], value, 15)
        check(fused.spmm(there, x), exact(adj.with_value(value.contiguous()), x)[:4], torch.float32)


def test_views_are_read_as_they_are(device: str, view: Callable[[Tensor], Tensor]) -> None:
    from lazygnn.ops import fused

    x, source = view(rows(30, 48, device)), view(rows(30, 48, device, seed=1))
    adj = matrix([4, 0, 7, 12, 1], len(x), device)
    check(fused.step(adj, x, source, 0.2), exact(adj, x, source, 0.2), torch.float32)


def test_rows_are_padded_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([4, 0, 7, 12, 1], 5, device), rows(5, 47, device)
    out = fused.step(adj, x, x, 0.2)
    assert (out.shape, out.stride()) == ((5, 47), (48, 1))
    assert fused.aligned(out) is out
    assert fused.aligned(x).stride() == (48, 1)
    # the last row of such a view may not be read to the end of its padding
    last = rows(1, 5 * 48 - 1, device)[0].as_strided((5, 47), (48, 1))
    assert fused.aligned(last) is not last


@pytest.mark.parametrize("reach", [[], [4], [4, 4, 4], [9, 9], [7, 5, 4], [4, 6]], ids=str)
def test_diffusion_is_that_of_the_reference(device: str, reach: list[int]) -> None:
    from lazygnn.ops import fused

    adjs = [matrix([3, 0, 6, 2, 5, 1, 0, 9, 4][:num_rows], 9, device) for num_rows in reach]
    x, source = rows(9, 5, device), rows(9, 5, device, seed=1)
    before = x.clone()
    expected = reference.run_steps([adj.to(torch.float64) for adj in adjs], x.double(), source.double(), 0.2)
    check(fused.run_steps(adjs, x, source, 0.2), expected, torch.float32)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [5, 8, 75])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0, 1.2])
def test_a_step_adds_a_share_of_its_source_and_the_rest_of_the_past(
    device: str, share: float, columns: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lazygnn.ops import fused

    monkeypatch.setattr(fused, "_MAX_LANES", 16)
    adj = matrix([4, 0, 7], 5, device)
    x, source, past = (rows(5, columns, device, dtype, seed) for seed in range(3))
    alone, beside = share * source.double(), torch.lerp(past.double(), source.double(), share)
    check(fused.step(adj, x, source, 0.1, share=share), exact(adj, x, alone, 0.1), dtype)
    expected = exact(adj, x, beside, 0.1)
    # rows that lie as close as they can, and rows that can be read 16 bytes at a time
    for given in (past, fused.aligned(past)):
        check(fused.step(adj, x, source, 0.1, share=share, past=given), expected, dtype)


@pytest.mark.parametrize("reach", [[4, 4], [4, 4, 4, 4, 4], [6, 4]], ids=str)
def test_every_step_of_a_chain_has_a_share_of_its_own(device: str, reach: list[int]) -> None:
    from lazygnn.ops import fused

    adjs = [matrix([3, 0, 6, 2, 1, 5][:num_rows], 6, device) for num_rows in reach]
    x, source, past = rows(6, 5, device), rows(6, 10, device, seed=1)[:, ::2], rows(6, 5, device, seed=2)
    shares = [0.3, 1.0, 0.0, 1.2, 0.5][: len(adjs)]
    for given in (None, past):
        expected = x
        for adj, share in zip(adjs, shares, strict=True):
            expected = fused.step(adj, expected, source, 0.2, share=share, past=given)
        assert torch.equal(fused.run_steps(adjs, x, source, 0.2, shares=shares, past=given), expected[:4])
    with pytest.raises(ValueError, match="shorter"):
        fused.run_steps(adjs, x, source, 0.2, shares=shares[1:])


def test_a_frozen_halo_is_not_copied(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([3, 5, 2], 90, device), rows(90, 4, device)
    sizes: list[int] = []
    empty = fused.empty_rows

    def counted(num_rows: int, like: Tensor) -> Tensor:
        sizes.append(num_rows)
        return empty(num_rows, like)

    monkeypatch.setattr(fused, "empty_rows", counted)
    fused.run_steps([adj] * 4, x, x, 0.2)
    assert sizes == [3] * 4


def test_many_columns_are_taken_in_turn(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    adj = matrix([4, 0, 7], 5, device)
    for lanes, columns in ((2, 75), (32, 140)):
        monkeypatch.setattr(fused, "_MAX_LANES", lanes)
        x, source = (rows(5, columns, device, seed=seed) for seed in range(2))
        check(fused.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), torch.float32)


@pytest.mark.usefixtures("unroll")
def test_a_row_that_is_not_a_neighbour_does_not_matter(device: str) -> None:
    from lazygnn.ops import fused

    rowptr, col = torch.tensor([0, 1, 3, 3]), torch.tensor([1, 2, 1])
    adj = Csr(rowptr, col, torch.ones(3), 4).to(device)
    x = torch.tensor([[math.nan], [1.0], [2.0], [math.inf]], device=device)
    assert fused.spmm(adj, x).tolist() == [[1], [3], [0]]


def test_types_may_differ(device: str) -> None:
    from lazygnn.ops import fused

    adj = matrix([4, 0, 7], 5, device)
    x, source = rows(5, 7, device, torch.bfloat16), rows(5, 7, device, seed=1)
    check(fused.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), torch.bfloat16)


def test_shapes_that_do_not_fit_are_refused(device: str) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([4, 0, 7], 5, device), rows(5, 7, device)
    with pytest.raises(ValueError, match="`x` has 4 rows for the 5 columns of the matrix"):
        fused.spmm(adj, x[:4])
    with pytest.raises(ValueError, match="the matrix has 10 values in 11 places"):
        fused.spmm(adj.with_value(adj.value[1:]), x)
    with pytest.raises(ValueError, match=r"`source` has shape \(2, 7\); the step needs \(3, 7\) or more rows"):
        fused.step(adj, x, x[:2], 0.1)
    with pytest.raises(ValueError, match=r"`past` has shape \(2, 7\); the step needs \(3, 7\) or more rows"):
        fused.step(adj, x, x, 0.1, share=0.5, past=x[:2])
    with pytest.raises(ValueError, match=r"`source` has shape \(5, 6\); the step needs \(3, 7\)"):
        fused.step(adj, x, x[:, 1:], 0.1)


@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("halo", [False, True], ids=["whole", "halo"])
@pytest.mark.parametrize(("bits", "unit"), [("fp32", 4), ("bf16", 8), ("fp16", 8)])
def test_all_is_loaded_16_bytes_at_a_time(
    bits: str, unit: int, halo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiles for a device that need not be there, in both versions of the kernel a pass takes."""
    from lazygnn.ops.kernels import lane_rows, piece_sums

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"order": "*i32", "rowptr": "*i32", "col": "*i32", "value": "*fp32", "pieces": "*fp32", "keep": "fp32"}
    types |= dict.fromkeys(("source_weight", "past_weight"), "fp32")
    types |= {"whole": "*i32", "num_whole": "*i64"}
    types |= dict.fromkeys(("x", "halo", "source", "past", "out"), f"*{bits}")
    fixed: dict[str, Any] = {"X_STRIDE": 48 // unit, "HALO_STRIDE": 48 // unit, "UNIT": unit, "SPLIT": 512}
    fixed |= {} if halo else {"halo": None}
    own = {"SOURCE_COLUMNS": 48, "SOURCE_UNIT": unit, "PAST_COLUMNS": 48, "PAST_UNIT": unit}
    code = compiled(lane_rows, types, fixed | own | {"LANES": 48 // unit, "UNROLL": 4})
    # the source and the past; indices and values, ahead and in the loop; neighbours, in it and behind the last whole
    # four; four pieces of 48 columns in float32
    assert len(re.findall(r"ld\.global\.v4\.b32", code)) == 2 + 2 * 2 + 4 + 3 + 4 * unit // 4
    assert len(re.findall(r"st\.global\.v4\.b32", code)) == 1
    # the order, the ends of a row and three last entries are all that comes one by one, and nothing is handed from
    # lane to lane
    assert len(re.findall(r"ld\.global\.b\d", code)) == 3 + 2 * 3
    assert ".shared" not in code
    lanes = 2 ** math.ceil(math.log2(48 / unit))
    code = compiled(piece_sums, types, fixed | {"COLUMNS": 48, "NEIGHBOURS": 8, "WIDTH": lanes * unit, "UNROLL": 4})
    assert len(re.findall(r"ld\.global\.v4\.b32", code)) >= 4


def compiled(kernel: Any, types: dict[str, str], fixed: dict[str, Any]) -> str:
    """What a kernel becomes for one warp of an H100 or H200."""
    import triton
    from triton.backends.compiler import GPUTarget

    names: list[str] = kernel.arg_names
    signature = {name: "constexpr" if name in fixed else types.get(name, "i32") for name in names}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(names) if signature[name].startswith("*")}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs=aligned)
    options = {"num_warps": 1, "enable_fp_fusion": False}
    code: str = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    return code


@pytest.mark.gpu
@pytest.mark.skipif(not ON_CUDA, reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [16, 47, 256, 700])
def test_compiled_kernels_give_the_reference(columns: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    counts = (torch.rand(3000, generator=torch.Generator().manual_seed(0)) ** -1.2).clamp(max=2900).long().tolist()
    adj = matrix(counts, 5000, "cuda")
    x, source = rows(5000, columns, "cuda", dtype), rows(3000, columns, "cuda", dtype, seed=1)
    with to_be_replayed():
        out, once = ops.run_steps([adj] * 2, x, source, 0.2), ops.step(adj, x, source, 0.2)
        # the kernels, not cuSPARSE
        assert "plan" in adj.derived
        assert torch.equal(out, ops.run_steps([adj] * 2, x, source, 0.2))
    expected = exact(adj, once, source, 0.2)[:3000]
    torch.testing.assert_close(out.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=2e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not ON_CUDA, reason="needs a CUDA device")
def test_a_step_can_be_captured_and_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    monkeypatch.setattr(ops, "_replayed", True)
    adj, x = matrix([30] * 999 + [5000], 1000, "cuda"), rows(1000, 47, "cuda")
    alike = matrix([30] * 999 + [5000], 1000, "cuda")
    expected = ops.run_steps([adj] * 2, x, x, 0.2)
    assert "plan" in adj.derived
    torch.cuda.set_sync_debug_mode("error")
    try:
        ops.run_steps([adj] * 2, x, x, 0.2)
        # another matrix of the kind is worked out without a word from the device
        ops.run_steps([alike] * 2, x, x, 0.2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        # a matrix that has the pattern of one known finds its plan
        out = ops.run_steps([adj, adj.with_value(adj.value)], x, x, 0.2)
    graph.replay()
    assert torch.equal(out, expected)
