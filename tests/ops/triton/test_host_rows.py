"""Copies of rows through the kernel, compiled on a device and in the interpreter elsewhere.

Uninitialized memory is NaN.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.history import StoredHistory, open_history
from lazygnn.history.codec import Codec
from lazygnn.history.pinned import PinnedStore
from lazygnn.history.warmstart import WarmStart
from lazygnn.ops import reference
from lazygnn.ops.triton import history_rows, host_rows
from lazygnn.propagation import Drift, Mix
from lazygnn.training.replay import StagedRows
from tests.helpers import needs_cuda
from tests.ops.triton.helpers import draw, only_interpreted

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.float64]
# tiles of four numbers, or of two rows, so that three programs have several tiles of 31 rows and the last is not full
TILES = pytest.mark.parametrize(("columns", "words"), [(None, 4), (47, 128)])


def random_rows(num_rows: int, columns: int | None, dtype: torch.dtype, device: str, seed: int = 0) -> Tensor:
    """Returns random numbers with the layout of a table, or of a vector without `columns`."""
    values = (50 * draw(num_rows, columns or 1, "cpu", seed=seed)).to(device, dtype)
    values = values[:, 0] if columns is None else values
    return host_rows.allocate_rows(num_rows, values).copy_(values)


def some_rows(num_rows: int, of: int, device: str, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.randperm(of, generator=torch.Generator().manual_seed(7))[:num_rows].to(device, dtype)


def padding(table: Tensor) -> Tensor:
    """Returns the padding between the rows."""
    return table.as_strided((len(table), table.stride(0)), table.stride())[:, table.shape[1] :]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 3, 8, 47, 48, 100, 130])
def test_rows_are_gathered_and_scattered_as_they_are(device: str, columns: int, dtype: torch.dtype) -> None:
    table, rows = random_rows(60, columns, dtype, device), some_rows(40, 60, device)
    before, out = table.clone(), host_rows.allocate_rows(40, table)
    assert out.stride(0) * out.element_size() % 16 == 0
    host_rows.gather(table, rows, out)
    expected = reference.allocate_rows(40, before)
    reference.gather(before, rows, expected)
    assert torch.equal(out, expected)
    assert torch.equal(table, before)
    # padded rows, and rows without padding
    for new in (random_rows(40, columns, dtype, device, seed=1), expected.flip(0)):
        host_rows.scatter(table, rows, new)
        reference.scatter(before, rows, new)
        assert torch.equal(table, before)


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@TILES
def test_a_few_programs_copy_all_rows(
    device: str, columns: int | None, words: int, index: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_rows, "_PROGRAMS", 3)
    monkeypatch.setattr(host_rows, "_WORDS", words)
    table, rows = random_rows(45, columns, torch.float32, device), some_rows(31, 45, device, index)
    out = host_rows.allocate_rows(31, table)
    host_rows.gather(table, rows, out)
    assert torch.equal(out, table[rows])
    new = random_rows(31, columns, torch.float32, device, seed=1)
    expected = table.index_copy(0, rows.long(), new)
    host_rows.scatter(table, rows, new)
    assert torch.equal(table, expected)


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@TILES
@pytest.mark.parametrize("count", [0, 1, 16, 31, 50])
def test_the_number_of_gathered_rows_is_read_on_the_device(
    device: str, columns: int | None, words: int, index: torch.dtype, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_rows, "_PROGRAMS", 3)
    monkeypatch.setattr(host_rows, "_WORDS", words)
    table, rows = random_rows(45, columns, torch.float32, device), some_rows(31, 45, device)
    out = host_rows.allocate_rows(31, table)
    host_rows.gather(table, rows, out, torch.tensor(count, dtype=index, device=device))
    assert torch.equal(out[:count], table[rows][:count])
    assert bool(out[count:].isnan().all())
    reference.gather(table, rows, out, torch.tensor(count, dtype=index, device=device))
    assert torch.equal(out[:count], table[rows][:count])


def test_a_row_may_be_wider_than_a_tile(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_rows, "_WIDTH", 16)
    table, rows = random_rows(9, 147, torch.bfloat16, device), some_rows(5, 9, device)
    out = host_rows.allocate_rows(5, table)
    host_rows.gather(table, rows, out)
    assert torch.equal(out, table[rows])
    expected = table.index_copy(0, rows, 2 * out)
    host_rows.scatter(table, rows, 2 * out)
    assert torch.equal(table, expected)


def test_padding_does_not_matter(device: str) -> None:
    table, rows = random_rows(20, 5, torch.float32, device), some_rows(11, 20, device)
    padding(table).fill_(torch.nan)
    out = host_rows.allocate_rows(11, table)
    host_rows.gather(table, rows, out)
    assert torch.equal(out, table[rows])
    new = random_rows(11, 5, torch.float32, device, seed=1)
    padding(new).fill_(torch.inf)
    expected = table.index_copy(0, rows, new)
    host_rows.scatter(table, rows, new)
    assert torch.equal(table, expected)


@pytest.mark.parametrize("columns", [None, 5])
def test_no_rows_are_copied(device: str, columns: int | None) -> None:
    table, rows = random_rows(6, columns, torch.float32, device), some_rows(0, 6, device)
    before, out = table.clone(), host_rows.allocate_rows(0, table)
    host_rows.gather(table, rows, out)
    host_rows.scatter(table, rows, out)
    assert out.shape == (0, *table.shape[1:])
    assert torch.equal(table, before)


def test_rows_with_any_strides_can_be_scattered(device: str, view: Callable[[Tensor], Tensor]) -> None:
    new = view(random_rows(30, 48, torch.float16, device))
    table = random_rows(60, new.shape[1], torch.float16, device, seed=1)
    rows = some_rows(len(new), 60, device).repeat_interleave(2)[::2]
    expected = table.index_copy(0, rows, new)
    host_rows.scatter(table, rows, new)
    assert torch.equal(table, expected)


def test_rows_that_do_not_fit_are_refused(device: str) -> None:
    table, rows = random_rows(9, 7, torch.float32, device), some_rows(4, 9, device)
    message = r"cannot copy rows of shape \(4, 7\) in torch.float32 to \(5, 7\) in torch.float32"
    with pytest.raises(ValueError, match=message):
        host_rows.gather(table, rows, host_rows.allocate_rows(5, table))
    with pytest.raises(ValueError, match=r"rows of shape \(3, 7\) .* to \(4, 7\)"):
        host_rows.scatter(table, rows, table[:3])
    with pytest.raises(ValueError, match=r"rows of shape \(4, 6\) .* to \(4, 7\)"):
        host_rows.scatter(table, rows, table[:4, :6])
    with pytest.raises(ValueError, match=r"in torch.float16 to \(4, 7\) in torch.float32"):
        host_rows.scatter(table, rows, table[:4].half())
    close = torch.zeros(9, 7, device=device)
    with pytest.raises(ValueError, match=r"a multiple of 16 bytes apart.*; got torch.float32 with strides \(7, 1\)"):
        host_rows.scatter(close, rows, table[:4])
    narrow = torch.zeros(9, dtype=torch.float16, device=device)
    with pytest.raises(ValueError, match=r"or 32-bit numbers; got torch.float16 with strides \(1,\)"):
        host_rows.gather(narrow, rows, narrow[:4])


def open_far(start: WarmStart, kept: torch.dtype) -> StoredHistory:
    """Opens a history of 60 rows of 47 on a CPU, as if it were in page-locked memory."""
    codec = Codec(kept, torch.float32)

    def store() -> PinnedStore:
        layout = codec.layout(60, 47).items()
        parts = {
            name: host_rows.allocate_rows(60, torch.zeros(shape, dtype=dtype)).zero_()
            for name, (shape, dtype) in layout
        }
        return PinnedStore(parts, codec, torch.device("cpu"))

    return StoredHistory(start, store(), store() if start.stores_inputs else None)


@only_interpreted
@pytest.mark.usefixtures("no_streams")
@pytest.mark.parametrize("start", [Drift(0.1), Mix(0.4)], ids=str)
@pytest.mark.parametrize("kept", DTYPES, ids=str)
def test_a_pinned_history_equals_one_on_the_device(
    start: WarmStart, kept: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "host_rows", lambda _: host_rows)

    def visit(history: StoredHistory, seed: int, ahead: bool) -> Tensor:
        nodes = torch.randperm(60, generator=torch.Generator().manual_seed(seed))[: 60 if seed == 2 else 40]
        fresh = random_rows(23, 47, torch.float32, "cpu", seed=seed)
        if ahead:
            history.prefetch(nodes, 23)
        x = history.start(nodes, 23, fresh).x
        history.push(nodes[: 60 if seed == 2 else 23], 0.5 * x, x)
        return x

    history = open_far(start, kept)
    twin = open_history(60, 47, start, dtype=kept)
    for seed in range(6):
        assert torch.equal(visit(history, seed, ahead=seed % 3 > 0), visit(twin, seed, ahead=False))
    state = history.state_dict()
    assert all(torch.equal(state[name], value) for name, value in twin.state_dict().items())
    other = open_far(start, kept)
    other.load_state_dict(twin.state_dict())
    assert torch.equal(visit(other, 7, ahead=True), visit(twin, 7, ahead=False))
    # 48 columns in place of 47
    assert history.num_bytes == twin.num_bytes + 60 * kept.itemsize * (1 + start.stores_inputs)


@only_interpreted
@pytest.mark.usefixtures("no_streams")
@pytest.mark.parametrize("start", [Drift(0.1), Mix(0.4)], ids=str)
@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_a_staged_pass_equals_a_plain_one(start: WarmStart, kept: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "host_rows", lambda _: host_rows)
    monkeypatch.setattr(ops, "history_rows", lambda *_: history_rows)
    history, twin = open_far(start, kept), open_far(start, kept)

    def visit(each: StoredHistory, nodes: Tensor, fresh: Tensor) -> list[Tensor | None]:
        each.prefetch(nodes, 9)
        x, previous, _ = each.start(nodes, 9, fresh)
        before = x.clone()
        each.push(nodes[:9], 0.5 * x, fresh)
        assert torch.equal(x, before)
        return [x, previous]

    for each in (history, twin):
        each.push(torch.arange(60), random_rows(60, 47, torch.float32, "cpu"), torch.ones(60, 47))
    staged = StagedRows([history])
    batches = [some_rows(60, 60, "cpu")[5 * first : 30 + 6 * first] for first in range(5)]
    for number, index in enumerate(order := [0, 1, 4, 4, 2, 3, 0, 1, 2]):
        nodes, fresh = batches[index], random_rows(14, 47, torch.float32, "cpu", seed=number)
        staged.stage(nodes, 9)
        staged.announce(*((batches[order[number + 1]], 9) if number + 1 < len(order) else (None,)))
        with staged.staged(nodes, 9):
            found = visit(history, nodes, fresh)
        staged.advance()
        for one, other in zip(found, visit(twin, nodes, fresh), strict=True):
            assert one is other is None or torch.equal(torch.as_tensor(one), torch.as_tensor(other))
    state = history.state_dict()
    assert all(torch.equal(state[name], value) for name, value in twin.state_dict().items())


def test_rows_are_copied_16_bytes_at_a_time(compile_kernel: Callable[..., Any]) -> None:
    sizes = {"SOURCE_STRIDE": 24, "OUT_STRIDE": 24, "WORDS": 24, "ROWS": 128, "WIDTH": 32}
    types = {"source": "*i32", "out": "*i32", "source_rows": "*i64", "out_rows": "*i64", "count": "*i64"}
    for absent in (["source_rows", "count"], ["out_rows", "count"], ["out_rows"]):
        code = compile_kernel(host_rows.copy_rows, types, sizes | dict.fromkeys(absent), host_rows._OPTIONS)
        # A thread has eight loads of four words in flight.
        assert len(re.findall(r"ld\.global\.v4\.b32", code.asm["ptx"])) == 8
        assert len(re.findall(r"st\.global\.v4\.b32", code.asm["ptx"])) == 8
        # Threads exchange indices only.
        assert code.metadata.shared <= 128 * 8


@needs_cuda
def test_offsets_may_exceed_32_bits() -> None:
    table = torch.zeros(2**32 + 64, dtype=torch.int8, device="cuda").as_strided((3, 47), (2**31, 1))
    new, rows = random_rows(2, 47, torch.int8, "cuda"), torch.tensor([2, 0], device="cuda")
    host_rows.scatter(table, rows, new)
    assert torch.equal(table[rows], new)
    out = host_rows.allocate_rows(2, table)
    host_rows.gather(table, rows, out)
    assert torch.equal(out, new)
