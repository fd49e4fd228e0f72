"""What a stored history knows of itself: completeness, drift, and what a checkpoint must match."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lazygnn.history import StoredHistory, open_history
from lazygnn.history.codec import Codec
from lazygnn.history.device import DeviceStore
from lazygnn.propagation import Drift, Mix

OpenHistory = Callable[..., StoredHistory]


def push_ones(history: StoredHistory, *targets: int) -> None:
    ones = torch.ones(len(targets), history.values.channels)
    history.push(torch.tensor(targets), ones, ones)


def is_complete(history: StoredHistory) -> bool:
    return bool(history.state_dict()["complete"])


@pytest.mark.parametrize("mix", [0.0, 0.3])
def test_tiers_agree_bit_for_bit(open_tier: OpenHistory, mix: float) -> None:
    generator = torch.Generator().manual_seed(2)
    histories = [open_tier(tier, 50, 5, Drift(mix)) for tier in ("device", "host", "disk", "worker")]
    for _ in range(40):
        nodes = torch.randperm(50, generator=generator)[:30]
        num_targets = int(torch.randint(1, 20, (), generator=generator))
        fresh = torch.randn(25, 5, generator=generator)
        starts = [history.start(nodes, num_targets, fresh).x for history in histories]
        assert all(torch.equal(start, starts[0]) for start in starts)
        for history in histories:
            history.push(nodes[:num_targets], torch.sin(starts[0]), fresh)
    states = [history.state_dict() for history in histories]
    assert all(torch.equal(state[name], states[0][name]) for state in states for name in states[0])


def test_a_history_is_complete_once_every_row_is_written() -> None:
    history = open_history(4, 1, Mix(0.5))
    push_ones(history, 0, 1)
    push_ones(history, 1, 2)
    assert not is_complete(history)
    push_ones(history, 3)
    assert is_complete(history)


def test_a_push_of_all_rows_completes_at_once() -> None:
    history = open_history(3, 1, Mix(0.5))
    push_ones(history, 2, 0, 1)
    assert is_complete(history)


def test_completeness_is_not_asked_for_before_it_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Tensor] = []
    original = Tensor.all

    def counted(self: Tensor) -> Tensor:
        asked.append(self)
        return original(self)

    history = open_history(8, 1, Mix(0.5))
    monkeypatch.setattr(Tensor, "all", counted)
    for _ in range(3):
        for first in range(0, 8, 2):
            push_ones(history, first, first + 1)
    assert len(asked) == 1


def test_a_restored_history_completes_as_the_first_would_have() -> None:
    history, restored = open_history(4, 1, Mix(0.5)), open_history(4, 1, Mix(0.5))
    push_ones(history, 0, 1, 2)
    restored.load_state_dict(history.state_dict())
    push_ones(restored, 2)
    assert not is_complete(restored)
    push_ones(restored, 3)
    assert is_complete(restored)


def test_drift_is_measured_over_known_targets() -> None:
    history = open_history(3, 1, Drift())
    history.measure = True
    history.push(torch.tensor([0, 1]), torch.zeros(2, 1), torch.tensor([[3.0], [4.0]]))
    # moved by 3 and 0; the third row is new, the halo does not count
    history.start(torch.tensor([0, 1, 2]), 3, torch.tensor([[6.0], [4.0], [9.0]]))
    assert history.drift_norm() == pytest.approx(3 / 5)
    assert history.drift_norm() is None
    history.start(torch.tensor([0, 1]), 1, torch.tensor([[3.0], [70.0]]))
    assert history.drift_norm() == 0


def test_drift_adds_up_over_a_full_history() -> None:
    history = open_history(2, 1, Drift())
    history.push(torch.arange(2), torch.zeros(2, 1), torch.tensor([[3.0], [4.0]]))
    history.measure = True
    history.start(torch.tensor([0]), 1, torch.tensor([[9.0]]))
    history.start(torch.tensor([1]), 1, torch.tensor([[12.0]]))
    assert history.drift_norm() == pytest.approx(2.0)


@pytest.mark.parametrize(("start", "measure"), [(Mix(0.5), True), (Drift(), False)])
def test_no_drift_without_inputs_or_measuring(start: Mix | Drift, measure: bool) -> None:
    history = open_history(2, 1, start)
    history.measure = measure
    push_ones(history, 0, 1)
    history.start(torch.arange(2), 2, torch.zeros(2, 1))
    assert history.drift_norm() is None


def test_a_state_is_all_tensors() -> None:
    history = open_history(3, 2, Drift(), dtype=torch.int8)
    push_ones(history, 0)
    state = history.state_dict()
    names = ["values.rows", "values.scale", "inputs.rows", "inputs.scale", "pushed", "norms"]
    assert list(state) == [*names, "num_pushes", "complete"]
    assert state["num_pushes"].dtype == state["complete"].dtype == torch.int64
    assert (state["num_pushes"].item(), state["complete"].item()) == (1, 0)
    assert state["pushed"].tolist() == [0, -1, -1]


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    history = open_history(3, 2, Mix(0.5))
    push_ones(history, 0, 1, 2)
    with pytest.raises(ValueError, match=r"stores values\.rows, pushed, .*; the given state has values\.rows, inputs"):
        history.load_state_dict(open_history(3, 2, Drift()).state_dict())
    with pytest.raises(ValueError, match="the given state has nothing"):
        history.load_state_dict({})
    with pytest.raises(ValueError, match=r"`values\.rows` of the history is \[3, 2\] in .*float32; .* is \[4, 2\] in"):
        history.load_state_dict(open_history(4, 2, Mix(0.5)).state_dict())
    with pytest.raises(ValueError, match=r"it is \[3, 2\] in torch\.bfloat16"):
        history.load_state_dict(open_history(3, 2, Mix(0.5), dtype=torch.bfloat16).state_dict())
    broken = {**open_history(3, 2, Mix(0.5)).state_dict(), "pushed": torch.zeros(5, dtype=torch.int32)}
    with pytest.raises(ValueError, match=r"`pushed` of the history is \[3\]"):
        history.load_state_dict(broken)
    assert history.values.read(torch.arange(3)).tolist() == [[1, 1]] * 3


@pytest.mark.parametrize(("start", "num_stores", "verb"), [(Mix(0.5), 2, "does not use"), (Drift(), 1, "needs")])
def test_stores_must_suit_the_warm_start(start: Mix | Drift, num_stores: int, verb: str) -> None:
    codec = Codec(torch.float32, torch.float32)
    stores = [DeviceStore({"rows": torch.zeros(2, 1)}, codec, torch.device("cpu")) for _ in range(num_stores)]
    with pytest.raises(ValueError, match=f"{verb} a store for its inputs"):
        StoredHistory(start, stores[0], stores[1] if num_stores == 2 else None)


def test_the_input_of_a_start_comes_if_asked_for() -> None:
    history = open_history(3, 1, Drift())
    push_ones(history, 0, 1, 2)
    nodes, fresh = torch.tensor([2, 0, 1]), torch.tensor([[5.0], [7.0]])
    with_previous, alone = (history.start(nodes, 1, fresh, with_previous=asked) for asked in (True, False))
    assert with_previous.previous is not None
    assert with_previous.previous.tolist() == [[1], [7]]
    assert alone.previous is None
    assert torch.equal(with_previous.x, alone.x)


@pytest.mark.parametrize(("dtype", "in_place"), [(torch.bfloat16, True), (torch.int8, False)])
def test_rows_are_located_where_they_lie_unless_they_are_encoded(dtype: torch.dtype, in_place: bool) -> None:
    store = open_history(3, 2, Mix(0.5), dtype=dtype).values
    store.write(torch.arange(3), torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]))
    table, rows = store.locate(torch.tensor([2, 0]))
    assert (table is store.parts["rows"]) == (store.writable() is table) == in_place
    found = table if rows is None else table[rows]
    torch.testing.assert_close(found.float(), torch.tensor([[4.0, 4.0], [1.0, 1.0]]))


def test_rows_of_a_slow_store_are_located_in_a_copy(open_tier: OpenHistory) -> None:
    store = open_tier("worker", 3, 1, Mix(0.5)).values
    store.write(torch.tensor([2]), torch.tensor([[4.0]]))
    table, rows = store.locate(torch.tensor([2, 0]))
    assert (rows, table.tolist(), store.writable()) == (None, [[4], [0]], None)


@pytest.mark.parametrize("halo_inputs", [False, True])
def test_inputs_are_read_for_the_targets_and_on_request_for_the_halo(halo_inputs: bool) -> None:
    history, nodes = open_history(4, 1, Drift(), halo_inputs=halo_inputs), torch.tensor([3, 0, 2])
    reads = history.reads(nodes, 1)
    assert {kind: rows.tolist() for kind, rows in reads.items()} == {
        "values": [3, 0, 2],
        "inputs": [3, 0, 2] if halo_inputs else [3],
    }
    push_ones(history, 0, 1, 2, 3)
    assert (history.start(nodes, 1, torch.ones(1, 1)).halo is not None) == halo_inputs


def test_without_a_halo_it_has_no_inputs() -> None:
    history = open_history(3, 1, Drift(), halo_inputs=True)
    assert history.start(torch.arange(3), 3, torch.ones(3, 1)).halo is None
    # rows with a fresh value have an input of their own
    assert history.start(torch.arange(3), 1, torch.ones(3, 1)).halo is None
    push_ones(history, 0, 1, 2)
    assert history.start(torch.arange(3), 3, torch.ones(3, 1)).halo is None


def test_only_targets_count_for_the_drift_if_the_halo_is_read_too() -> None:
    history = open_history(3, 1, Drift(), halo_inputs=True)
    history.measure = True
    history.push(torch.arange(3), torch.zeros(3, 1), torch.tensor([[3.0], [4.0], [50.0]]))
    history.start(torch.tensor([0, 1, 2]), 2, torch.tensor([[6.0], [4.0]]))
    assert history.drift_norm() == pytest.approx(3 / 5)


def test_inputs_of_the_halo_must_be_stored() -> None:
    store = DeviceStore({"rows": torch.zeros(2, 1)}, Codec(torch.float32, torch.float32), torch.device("cpu"))
    with pytest.raises(
        ValueError, match=r"`halo_inputs` needs stored inputs, Mix\(beta=0\.5\) stores none; use `Drift"
    ):
        StoredHistory(Mix(0.5), store, None, halo_inputs=True)
