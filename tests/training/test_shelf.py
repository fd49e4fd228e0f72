"""Rows staged for steps that are replayed: on a CPU, without streams, and with a tape in place of a graph."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lazygnn.history import StoredHistory, open_history
from lazygnn.history.codec import Codec
from lazygnn.history.pinned import PinnedStore
from lazygnn.history.warmstart import WarmStart
from lazygnn.propagation import Drift, Mix
from lazygnn.training.replay import StagedRows
from lazygnn.training.shelf import Shelf, ShelvedStore

DTYPES = [torch.float32, torch.bfloat16, torch.int8]
STARTS = [Drift(0.1), Mix(0.4), Mix(1.0)]


class Tape(TorchDispatchMode):
    """Runs all that ran while it was recorded again, on the same tensors, as a CUDA graph does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self) -> None:
        for func, args, kwargs, out in self.calls:
            for old, new in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                # what was written in place, and views, are where they were
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Visits:
    """Takes steps on batches of a history, the first on each as it is, later ones from a tape."""

    def __init__(self, history: StoredHistory) -> None:
        self.history = history
        self.rows = StagedRows([history])
        self.tapes: dict[int, tuple[Tape, Tensor]] = {}
        self.num_moves = 0

    def ordinary(self, nodes: Tensor, num_targets: int, fresh: Tensor) -> Tensor:
        self.history.prefetch(nodes, num_targets)
        x = self.history.start(nodes, num_targets, fresh).x
        self.history.push(nodes[:num_targets], torch.sin(x), fresh)
        return x

    def staged(self, nodes: Tensor, num_targets: int, fresh: Tensor) -> Tensor:
        # as a batch that a graph brings by itself
        here = nodes.clone()
        with self.rows.staged(here, num_targets):
            return self.ordinary(here, num_targets, fresh)

    def replayed(self, nodes: Tensor, num_targets: int, fresh: Tensor) -> Tensor:
        if self.num_moves != self.rows.num_moves:
            self.tapes.clear()
            self.num_moves = self.rows.num_moves
        if nodes.data_ptr() not in self.tapes:
            tape, kept = Tape(), self.state()
            with tape:
                x = self.staged(nodes, num_targets, fresh)
            # capturing runs nothing
            for live, before in zip(self.live(), kept, strict=True):
                live.copy_(before)
            self.tapes[nodes.data_ptr()] = tape, x
        tape, x = self.tapes[nodes.data_ptr()]
        tape.replay()
        return x.clone()

    def live(self) -> list[Tensor]:
        found = [self.history.pushed, self.history.num_pushes]
        for shelved in shelves(self.rows):
            shelf = shelved.shelf
            found += [*shelved.parts.values(), *shelf._parts.values(), shelf._next, shelf._count]
        return found

    def state(self) -> list[Tensor]:
        return [tensor.clone() for tensor in self.live()]


def shelves(rows: StagedRows) -> list[ShelvedStore]:
    return [entry.shelved for entry in rows._entries]


def open_far(start: WarmStart, kept: torch.dtype = torch.float32, channels: int = 5) -> StoredHistory:
    """A history of 40 rows on a CPU as if they were in page-locked memory."""
    codec = Codec(kept, torch.float32)

    def store() -> PinnedStore:
        layout = codec.layout(40, channels).items()
        parts = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in layout}
        return PinnedStore(parts, codec, torch.device("cpu"))

    return StoredHistory(start, store(), store() if start.stores_inputs else None)


def fill(*histories: StoredHistory) -> None:
    torch.manual_seed(0)
    values, inputs = torch.randn(2, 40, histories[0].values.channels)
    for history in histories:
        history.push(torch.arange(40), values, inputs)


def assert_same(history: StoredHistory, twin: StoredHistory) -> None:
    state = history.state_dict()
    assert all(torch.equal(state[name], value) for name, value in twin.state_dict().items())


@pytest.mark.usefixtures("no_streams")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("start", STARTS, ids=str)
@pytest.mark.parametrize("kept", DTYPES, ids=str)
def test_any_course_of_steps_is_that_of_rows_on_the_device(start: WarmStart, kept: torch.dtype, seed: int) -> None:
    numbers, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    history, twin = open_far(start, kept), open_history(40, 5, start, dtype=kept)
    fill(history, twin)
    # the largest come late
    sizes = [(12, 5), (20, 9), (17, 9), (20, 3), (40, 14), (33, 21)]
    batches = [(torch.randperm(40, generator=generator)[:nodes], targets) for nodes, targets in sizes]
    # read where they are, as a graph does
    inputs = [torch.zeros(targets + nodes % 3, 5) for nodes, targets in sizes]
    ours, theirs = Visits(history), Visits(twin)
    upcoming = 0
    for number in range(80):
        index, upcoming = upcoming, numbers.randrange(4 if number < 40 else 6)
        fresh = inputs[index].normal_(generator=generator)
        (nodes, num_targets), expected = batches[index], theirs.ordinary(*batches[index], fresh)
        kind = numbers.choice(("replayed", "replayed", "replayed", "staged", "ordinary", "loaded"))
        if kind == "loaded":
            kept_state = {name: value.clone() for name, value in history.state_dict().items()}
            history.load_state_dict(kept_state)
        if kind in ("ordinary", "loaded"):
            assert torch.equal(ours.ordinary(nodes, num_targets, fresh), expected)
            continue
        ours.rows.stage(nodes, num_targets)
        if numbers.random() < 0.2:
            ours.rows.announce(None)
        else:
            # now and then another one comes than was announced
            ours.rows.announce(*batches[upcoming if numbers.random() < 0.9 else 0])
        assert torch.equal(getattr(ours, kind)(nodes, num_targets, fresh), expected)
        ours.rows.advance()
    assert_same(history, twin)


@pytest.mark.usefixtures("no_streams")
def test_what_was_announced_is_gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[tuple[int, bool]] = []

    def gather(store: PinnedStore, rows: Tensor, out: Any, count: Tensor | None = None) -> None:
        gathered.append((len(rows) if count is None else int(count), count is not None))
        plain(store, rows, out, count)

    plain = PinnedStore.gather
    monkeypatch.setattr(PinnedStore, "gather", gather)
    history = open_far(Mix(0.5))
    fill(history)
    visits, batches = Visits(history), [torch.randperm(40)[: 10 + size] for size in range(3)]

    def step(nodes: Tensor, upcoming: Tensor | None) -> list[tuple[int, bool]]:
        gathered.clear()
        visits.rows.stage(nodes, 4)
        visits.rows.announce(upcoming, 4)
        visits.staged(nodes, 4, torch.ones(4, 5))
        visits.rows.advance()
        return list(gathered)

    assert step(batches[0], batches[1]) == [(10, False), (11, True)]
    assert step(batches[1], batches[1]) == [(11, True)]
    assert step(batches[1], batches[2]) == [(12, True)]
    # a slice of the same memory is the same
    assert step(batches[2][:], None) == [(0, True)]
    assert step(batches[0], batches[1]) == [(10, False), (11, True)]
    assert step(batches[2], batches[1]) == [(12, False), (11, True)]
    history.push(torch.arange(3), torch.ones(3, 5), torch.ones(3, 5))
    assert step(batches[1], batches[2]) == [(11, False), (12, True)]
    history.load_state_dict(history.state_dict())
    assert step(batches[2], batches[1]) == [(12, False), (11, True)]


@pytest.mark.usefixtures("no_streams")
def test_a_step_that_fails_leaves_nothing_on_the_shelf() -> None:
    history, twin = open_far(Drift()), open_history(40, 5, Drift())
    fill(history, twin)
    nodes, following, fresh = torch.arange(9), torch.arange(20, 30), torch.ones(4, 5)
    visits, plain = Visits(history), dict(history.stores)
    visits.rows.stage(nodes, 4)
    visits.rows.announce(following, 4)
    with pytest.raises(KeyboardInterrupt), visits.rows.staged(nodes, 4):
        raise KeyboardInterrupt
    assert history.stores == plain
    visits.rows.stage(following, 4)
    visits.rows.announce(None)
    found = visits.staged(following, 4, fresh)
    visits.rows.advance()
    assert torch.equal(found, Visits(twin).ordinary(following, 4, fresh))
    # the step that failed may not be the last, nor one to be replayed
    assert torch.equal(Visits(history).ordinary(nodes, 4, fresh), Visits(twin).ordinary(nodes, 4, fresh))
    assert_same(history, twin)


@pytest.mark.usefixtures("no_streams")
def test_a_step_may_read_and_write_twice_or_not_at_all() -> None:
    history, twin = open_far(Drift(0.2)), open_history(40, 5, Drift(0.2))
    fill(history, twin)
    one, two, fresh = torch.arange(9), torch.arange(5, 30), torch.ones(4, 5)
    visits = Visits(history)
    for passes, nodes, following in ((2, one, two), (0, two, one), (1, one, two)):
        visits.rows.stage(nodes, 4)
        visits.rows.announce(following, 4)
        with visits.rows.staged(nodes, 4):
            starts = [visits.ordinary(nodes, 4, fresh) for _ in range(passes)]
        visits.rows.advance()
        assert all(torch.equal(x, Visits(twin).ordinary(nodes, 4, fresh)) for x in starts)
    assert_same(history, twin)


@pytest.mark.usefixtures("no_streams")
@pytest.mark.parametrize("kept", DTYPES, ids=str)
def test_what_is_read_from_the_shelf_is_a_copy(kept: torch.dtype) -> None:
    history = open_far(Mix(0.5), kept)
    fill(history)
    assert isinstance(history.values, PinnedStore)
    store, rows = ShelvedStore(history.values), torch.arange(7, 17)
    expected = history.values.read(rows)
    store.shelf.fill(rows)
    with store.step(rows):
        store.read(rows).zero_()
        located = store.locate(rows)
        assert located.rows is None
        assert torch.equal(located.table.float(), expected)


@pytest.mark.usefixtures("no_streams")
def test_a_shelf_is_as_large_as_the_largest_batch() -> None:
    history = open_far(Drift())
    fill(history)
    rows = StagedRows([history])
    values, inputs = (shelved.shelf for shelved in shelves(rows))
    history.values.read(torch.arange(40))
    history.prefetch(torch.arange(30), 20)
    assert rows.num_moves == values._parts["rows"].numel() == 0
    rows.stage(torch.arange(20), 4)
    assert (len(values._next), len(inputs._next), rows.num_moves) == (20, 4, 2)
    rows.announce(torch.arange(12), 7)
    assert (len(values._next), len(inputs._next), rows.num_moves) == (20, 7, 3)
    # what the step at hand reads has moved along
    assert torch.equal(values.first(20)["rows"], history.values.read(torch.arange(20)))
    rows.announce(torch.arange(12), 7)
    assert rows.num_moves == 3
    with pytest.raises(AssertionError, match="never gathered"):
        values.first(21)


def test_stores_of_other_tiers_are_used_as_they_are() -> None:
    history = open_history(40, 5, Drift())
    fill(history)
    visits = Visits(history)
    visits.rows.stage(torch.arange(5), 2)
    visits.rows.announce(torch.arange(5), 2)
    visits.rows.announce(None)
    store = history.values
    with visits.rows.staged(torch.arange(5), 2):
        assert history.values is store
        visits.ordinary(torch.arange(5), 2, torch.ones(2, 5))
    visits.rows.advance()
    assert visits.rows.num_moves == 0


class Stream:
    """Logs which stream waits for which."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_stream(self, other: "Stream") -> None:
        self.log.append(f"{self.name} waits for {other.name}")


def test_rows_are_written_and_then_gathered_beside_the_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    names, current = iter(("values", "inputs")), [Stream("main", log)]

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    def logged(name: str, function: Callable[..., None]) -> Callable[..., None]:
        def call(*given: Any) -> None:
            log.append(f"{name} on {current[-1].name}")
            function(*given)

        return call

    monkeypatch.setattr(torch.cuda, "Stream", lambda _: Stream(next(names), log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current[-1])
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(PinnedStore, "_scatter", logged("scatter", PinnedStore._scatter))
    monkeypatch.setattr(Shelf, "refill", logged("refill", Shelf.refill))
    history = open_far(Drift())
    fill(history)
    nodes, fresh, visits = torch.arange(9), torch.ones(4, 5), Visits(history)
    visits.rows.stage(nodes, 4)
    visits.rows.announce(nodes, 4)
    log.clear()
    with visits.rows.staged(nodes, 4):
        visits.ordinary(nodes, 4, fresh)
        for name in ("values", "inputs"):
            assert log[:3] == [f"{name} waits for main", f"scatter on {name}", f"refill on {name}"]
            del log[:3]
        assert not log
        # no other tensor takes the memory of what is read meanwhile
        assert all(shelved._lent for shelved in shelves(visits.rows))
    assert sorted(log) == ["main waits for inputs", "main waits for values"]
    assert not any(shelved._lent for shelved in shelves(visits.rows))


def interrupted(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> None:
        function(*given)
        raise KeyboardInterrupt

    return call


def test_writes_of_a_step_that_fails_are_awaited_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: Stream("side", log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Stream("main", log))
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    history, nodes = open_far(Mix(0.5)), torch.arange(9)
    fill(history)
    visits = Visits(history)
    visits.rows.stage(nodes, 4)
    visits.rows.announce(None)
    monkeypatch.setattr(Visits, "ordinary", interrupted(Visits.ordinary))
    with pytest.raises(KeyboardInterrupt):
        visits.staged(nodes, 4, torch.ones(4, 5))
    assert log == ["side waits for main"]
    visits.rows.flush()
    assert log[1:] == ["main waits for side"]


@pytest.mark.usefixtures("no_streams")
def test_a_shelf_does_not_trust_what_an_unfinished_step_has_left() -> None:
    history, rows, following = open_far(Mix(0.5)), torch.arange(9), torch.arange(20, 30)
    fill(history)
    assert isinstance(history.values, PinnedStore)
    shelf = Shelf(history.values)
    shelf.fill(rows)
    shelf.expect(following)
    shelf.refill()
    for wanted in (rows, following):
        shelf.fill(wanted)
        assert torch.equal(shelf.first(len(wanted))["rows"], history.values.read(wanted))


@pytest.mark.usefixtures("no_streams")
def test_rows_that_another_owner_replayed_are_gathered_again() -> None:
    history, twin = open_far(Mix(0.5)), open_history(40, 5, Mix(0.5))
    fill(history, twin)
    nodes, fresh = torch.arange(9), torch.ones(4, 5)
    one, other, plain = Visits(history), Visits(history), Visits(twin)
    for visits in (one, other, one, other, one):
        visits.rows.stage(nodes, 4)
        visits.rows.announce(nodes, 4)
        assert torch.equal(visits.replayed(nodes, 4, fresh), plain.ordinary(nodes, 4, fresh))
        visits.rows.advance()
    assert_same(history, twin)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("choice", ["auto", "reference"])
@pytest.mark.parametrize("start", [Drift(0.1), Mix(1.0)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_graphs_gather_for_those_that_follow_in_any_order(
    dtype: torch.dtype, start: WarmStart, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", choice)
    history, twin = (
        open_history(9000, 47, start, tier=tier, dtype=dtype, device="cuda") for tier in ("pinned", "device")
    )
    everything, first = torch.arange(9000, device="cuda"), torch.randn(9000, 47, device="cuda")
    for each in (history, twin):
        each.push(everything, first, first)
    staged = StagedRows([history])
    # one is in host memory, as the nodes of a batch may be
    batches = [torch.randperm(9000)[:size].pin_memory() for size in (7001, 5000, 8000, 6003)]
    batches = [batch if number == 1 else batch.cuda() for number, batch in enumerate(batches)]
    fresh, found = torch.zeros(2000, 47, device="cuda"), torch.zeros(9000, 47, device="cuda")
    weight = torch.randn(2048, 2048, device="cuda")

    def visit(each: StoredHistory, nodes: Tensor) -> Tensor:
        each.prefetch(nodes, 2000)
        x = each.start(nodes, 2000, fresh).x
        each.push(nodes[:2000], 0.5 * x, fresh)
        return x

    def replayed(nodes: Tensor) -> None:
        here = nodes.to("cuda", non_blocking=True)
        with staged.staged(here, 2000):
            found[: len(nodes)] = visit(history, here)
            # takes the memory of what was pushed, and time
            torch.full((9000, 48), torch.nan, device="cuda")
            for _ in range(20):
                torch.mm(weight, weight)

    # a shelf as large as the largest batch does not move
    for nodes in (*batches, batches[0]):
        staged.stage(nodes, 2000)
    staged.announce(None)
    replayed(batches[0])
    torch.cuda.synchronize()
    visit(twin, batches[0])
    graphs = [torch.cuda.CUDAGraph() for _ in batches]
    for graph, nodes in zip(graphs, batches, strict=True):
        with torch.cuda.graph(graph):
            replayed(nodes)
    generator, moves, upcoming = torch.Generator().manual_seed(0), staged.num_moves, 0
    torch.cuda.set_sync_debug_mode("error")
    try:
        starts: list[tuple[Tensor, Tensor]] = []
        for number in range(24):
            index, upcoming = upcoming, int(torch.randint(4, (), generator=generator))
            nodes = batches[index]
            fresh.fill_(float(number))
            staged.stage(nodes, 2000)
            staged.announce(None if number % 6 == 5 else batches[upcoming], 2000)
            graphs[index].replay()
            staged.advance()
            starts.append((found[: len(nodes)].clone(), visit(twin, nodes.to("cuda", non_blocking=True))))
            if number % 7 == 6:
                # a step that is not replayed
                for each in (history, twin):
                    visit(each, batches[0])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert staged.num_moves == moves
    assert all(torch.equal(one, other) for one, other in starts)
    one, other = history.state_dict(), twin.state_dict()
    assert all(torch.equal(one[name].cpu(), other[name].cpu()) for name in other)
