"""The contract: what a history gives and takes, wherever its rows are and whatever type they have."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from lazygnn.history import NoHistory, StoredHistory, pad_rows
from lazygnn.history.base import Located
from lazygnn.history.codec import DTYPES
from lazygnn.propagation import Drift, Mix

OpenHistory = Callable[..., StoredHistory]
# a row of one channel is exact in int8 up to the rounding of its scale; the others hold small whole numbers exactly
close = partial(torch.testing.assert_close, rtol=1e-6, atol=0)


def rows(*values: float) -> Tensor:
    return torch.tensor(values).unsqueeze(1)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    kept: torch.dtype = request.param
    return kept


@pytest.fixture
def opened(any_tier: str, dtype: torch.dtype, open_tier: OpenHistory) -> OpenHistory:
    """Opens a history on this tier, in this type."""
    return partial(open_tier, any_tier, dtype=dtype)


def test_a_read_sees_the_writes_before_it(opened: OpenHistory) -> None:
    store = opened(5, 1, Mix(0.5)).values
    store.write(torch.tensor([3, 1]), rows(3.0, 1.0))
    store.write(torch.tensor([1, 4]), rows(-8.0, 4.0))
    close(store.read(torch.tensor([4, 0, 1, 3])), rows(4.0, 0.0, -8.0, 3.0))


def test_a_read_is_a_copy(opened: OpenHistory) -> None:
    store = opened(2, 1, Mix(0.5)).values
    ids = torch.arange(2)
    store.write(ids, rows(1.0, 2.0))
    store.read(ids).zero_()
    close(store.read(ids), rows(1.0, 2.0))


def test_a_write_takes_a_copy_that_knows_no_gradient(opened: OpenHistory) -> None:
    store = opened(2, 1, Mix(0.5)).values
    values = rows(1.0, 2.0).requires_grad_()
    store.write(torch.arange(2), values)
    values.data.zero_()
    close(store.read(torch.arange(2)), rows(1.0, 2.0))


def test_a_row_never_written_is_a_cold_start(opened: OpenHistory) -> None:
    history = opened(4, 1, Mix(0.5))
    history.push(torch.tensor([1]), rows(10.0), rows(0.0))
    close(history.start(torch.tensor([0, 1, 2]), 3, rows(2.0, 4.0, 6.0)).x, rows(2.0, 7.0, 6.0))


def test_rows_without_a_fresh_value_start_from_what_is_stored(opened: OpenHistory) -> None:
    history = opened(3, 1, Mix(0.5))
    history.push(torch.arange(3), rows(1.0, 2.0, 3.0), rows(0.0, 0.0, 0.0))
    close(history.start(torch.tensor([2, 0, 1]), 1, rows(5.0)).x, rows(4.0, 1.0, 2.0))


def test_halo_rows_with_a_fresh_value_do_not_drift(opened: OpenHistory) -> None:
    history = opened(2, 1, Drift())
    history.push(torch.arange(2), rows(1.0, 2.0), rows(10.0, 20.0))
    close(history.start(torch.tensor([0, 1]), 1, rows(11.0, 50.0)).x, rows(2.0, 2.0))


def test_only_targets_are_written(opened: OpenHistory) -> None:
    history = opened(3, 1, Drift())
    history.push(torch.arange(3), rows(5.0, 6.0, 7.0), rows(8.0, 8.0, 8.0))
    history.start(torch.tensor([2, 0, 1]), 1, rows(3.0))
    history.push(torch.tensor([2]), rows(1.0, 9.0, 9.0), rows(4.0, 9.0, 9.0))
    close(history.values.read(torch.arange(3)), rows(5.0, 6.0, 1.0))
    assert history.inputs is not None
    close(history.inputs.read(torch.arange(3)), rows(8.0, 8.0, 4.0))


def test_age_counts_pushes_since_a_row_was_written(opened: OpenHistory) -> None:
    history = opened(3, 1, Mix(0.5))
    history.push(torch.tensor([0]), rows(1.0), rows(1.0))
    history.push(torch.tensor([1]), rows(1.0), rows(1.0))
    assert history.age.tolist() == [1, 0, 2]
    assert history.mean_age() == 1.0


@pytest.mark.parametrize("start", [Mix(0.5), Drift(0.1)])
def test_bytes_are_rows_times_width(opened: OpenHistory, start: Mix | Drift, dtype: torch.dtype) -> None:
    history = opened(100, 7, start)
    scales = 4 * 100 if dtype == torch.int8 else 0
    assert history.num_bytes == (1 + start.stores_inputs) * (100 * 7 * dtype.itemsize + scales)


def test_rows_come_in_the_compute_type(opened: OpenHistory) -> None:
    history = opened(4, 2, Drift(), compute_dtype=torch.float64)
    ones = torch.ones(4, 2, dtype=torch.float64)
    history.push(torch.arange(4), ones, ones)
    assert history.start(torch.arange(4), 4, ones).x.dtype == torch.float64


def test_a_restored_history_continues_bit_for_bit(opened: OpenHistory) -> None:
    torch.manual_seed(0)
    batches = [(torch.randperm(9), torch.randn(9, 3)) for _ in range(8)]

    def run(history: StoredHistory, part: list[tuple[Tensor, Tensor]]) -> Tensor:
        starts = []
        for nodes, fresh in part:
            starts.append(history.start(nodes, 4, fresh[:4]).x)
            history.push(nodes[:4], 2 * starts[-1] + fresh, fresh)
        return torch.stack(starts)

    through, stopped = opened(9, 3, Drift(0.1)), opened(9, 3, Drift(0.1))
    run(stopped, batches[:3])
    state = {name: tensor.clone() for name, tensor in stopped.state_dict().items()}
    resumed = opened(9, 3, Drift(0.1))
    # what a history held before is forgotten
    run(resumed, batches[5:])
    resumed.load_state_dict(state)
    assert torch.equal(run(through, batches)[3:], run(resumed, batches[3:]))
    ended, other = through.state_dict(), resumed.state_dict()
    assert ended.keys() == other.keys()
    assert all(torch.equal(ended[name], other[name]) for name in ended)


def test_a_prefetch_changes_nothing(opened: OpenHistory) -> None:
    generator = torch.Generator().manual_seed(1)
    plain, ahead = opened(30, 3, Drift(0.2)), opened(30, 3, Drift(0.2))
    batches = [torch.randperm(30, generator=generator)[:20] for _ in range(24)]
    ahead.prefetch(batches[0], 8)
    for nodes, soon in zip(batches, batches[1:] + batches[:1], strict=True):
        ahead.prefetch(soon, 8)
        fresh = torch.randn(8, 3, generator=generator)
        starts = [history.start(nodes, 8, fresh).x for history in (plain, ahead)]
        assert torch.equal(*starts)
        for history in (plain, ahead):
            history.push(nodes[:8], starts[0] + 1, fresh)


def test_no_history_gives_the_fresh_value_back() -> None:
    history = NoHistory()
    fresh = rows(1.0, 2.0)
    history.prefetch(torch.arange(2), 2)
    history.push(torch.arange(2), fresh, fresh)
    assert history.start(torch.arange(2), 2, fresh).x is fresh
    assert history.start(torch.arange(3), 2, fresh).x[:, 0].tolist() == [1.0, 2.0, 0.0]
    assert history.num_bytes == 0


def test_pad_rows() -> None:
    assert pad_rows(torch.ones(1, 2), 3).tolist() == [[1, 1], [0, 0], [0, 0]]


@pytest.mark.parametrize("indices", [None, torch.tensor([3, 1, 0])], ids=["in order", "by index"])
def test_some_of_the_located_rows_are_located_without_a_copy(indices: Tensor | None) -> None:
    table = rows(5.0, 6.0, 7.0, 8.0)
    some = Located(table, indices).between(1, 3)
    found = some.table if some.rows is None else some.table[some.rows]
    assert found[:, 0].tolist() == ([6, 7] if indices is None else [6, 5])
    assert some.table.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()


def test_no_history_knows_no_inputs_of_the_halo() -> None:
    assert NoHistory().start(torch.arange(3), 2, rows(1.0, 2.0)).halo is None


def test_inputs_of_the_halo_are_those_of_its_last_visit(opened: OpenHistory) -> None:
    history = opened(4, 1, Drift(), halo_inputs=True)
    # before every row is written, and after
    history.push(torch.tensor([0, 1]), rows(5.0, 6.0), rows(8.0, 16.0))
    start = history.start(torch.tensor([1, 0, 2]), 1, rows(17.0))
    assert start.halo is not None
    assert start.previous is not None
    close(start.halo, rows(8.0, 0.0))
    close(start.previous, rows(16.0))
    close(start.x, rows(7.0, 5.0, 0.0))
    history.push(torch.tensor([2, 3]), rows(1.0, 2.0), rows(32.0, 64.0))
    start = history.start(torch.tensor([3, 1, 2]), 1, rows(65.0), with_previous=False)
    assert start.halo is not None
    assert start.previous is None
    close(start.halo, rows(16.0, 32.0))
    close(start.x, rows(3.0, 6.0, 1.0))


def test_inputs_of_the_halo_are_a_copy(opened: OpenHistory) -> None:
    history, nodes = opened(2, 1, Drift(), halo_inputs=True), torch.arange(2)
    history.push(nodes, rows(1.0, 2.0), rows(3.0, 4.0))
    halo = history.start(nodes, 1, rows(3.0)).halo
    assert halo is not None
    history.push(nodes, rows(1.0, 2.0), rows(7.0, 8.0))
    close(halo, rows(4.0))


def test_a_prefetch_of_the_inputs_of_the_halo_changes_nothing(opened: OpenHistory) -> None:
    generator = torch.Generator().manual_seed(1)
    plain, ahead = (opened(30, 3, Drift(0.2), halo_inputs=True) for _ in range(2))
    batches = [torch.randperm(30, generator=generator)[:20] for _ in range(12)]
    ahead.prefetch(batches[0], 8)
    for nodes, soon in zip(batches, batches[1:] + batches[:1], strict=True):
        ahead.prefetch(soon, 8)
        fresh = torch.randn(8, 3, generator=generator)
        one, other = (history.start(nodes, 8, fresh) for history in (plain, ahead))
        assert torch.equal(one.x, other.x)
        assert one.halo is not None
        assert other.halo is not None
        assert torch.equal(one.halo, other.halo)
        for history in (plain, ahead):
            history.push(nodes[:8], one.x + 1, fresh)
