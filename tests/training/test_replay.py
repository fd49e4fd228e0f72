"""Steps that are replayed: on a CPU with functions in place of graphs, on a GPU with graphs."""

import gc
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.config import TrainerOptions
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.history.pinned import PinnedStore
from lazygnn.loader import ClusterLoader
from lazygnn.methods import METHODS, build, resolve
from lazygnn.ops import Csr, replaying
from lazygnn.training import EpochReport, Trainer
from lazygnn.training.capture import CapturedSteps
from lazygnn.training.replay import Replay, StagedRows
from lazygnn.training.shelf import ShelvedStore

VALUES: dict[str, Any] = {
    "cuda_graphs": "auto",
    "epochs": 5,
    "hidden_channels": 16,
    "norm": "batch",
    "num_parts": 4,
    "partition": "random",
    "weight_decay": 0.01,
    "decay_layers": 1,
    "diagnose_every": 0,
    "eval_every": 100,
}
DEEP: dict[str, Any] = {"method": "lazygnn-deep", "num_blocks": 2, "alphas": [0.1, -0.5], "view_channels": 5}
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def make_trainer(graph: Graph, device: str = "cpu", method: str = "lazygnn", **values: Any) -> Trainer:
    known = METHODS[method].options.model_fields.keys() | TrainerOptions.model_fields.keys()
    given = {name: value for name, value in VALUES.items() if name in known} | values
    if given.get("num_parts") == 1:
        given.pop("partition", None)
    config = resolve(method, "block", given)
    torch.manual_seed(0)
    built = build(config, graph, device)
    return Trainer(built.model, built.loader, built.graph, config.trainer)


def run(trainer: Trainer) -> tuple[list[float], dict[str, Tensor]]:
    losses: list[float] = []
    trainer.on_epoch = lambda report: losses.append(report.loss)
    trainer.run()
    return losses, {name: value.clone() for name, value in trainer.checkpoint()[0].items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def make_replay(trainer: Trainer, recorder: Any) -> Replay:
    histories, cpu = list(trainer.histories.values()), torch.device("cpu")
    step, plain = trainer._step, trainer._plain_step
    return Replay(step, plain, trainer.optimizer, histories, cpu, make_capture=lambda: recorder)


@pytest.fixture
def replaying_trainer(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets a trainer on a CPU replay as it would on a GPU."""
    monkeypatch.setattr(Trainer, "_make_replay", lambda self: make_replay(self, recorder))
    monkeypatch.setattr(Replay, "is_steady", lambda self, _: not any(h.measure for h in self._histories))
    return recorder


def graphs_of(trainer: Trainer) -> CapturedSteps:
    assert trainer._replay is not None
    return trainer._replay._steps


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"num_parts": 1},
        {"num_parts": 1, "label_step": True},
        {"history_dtype": "int8"},
        {"gamma": 0.5},
        DEEP,
        DEEP | {"num_parts": 1},
    ],
    ids=str,
)
def test_replayed_training_is_ordinary_training_bit_for_bit(
    block_graph: Graph, replaying_trainer: Any, values: dict[str, Any]
) -> None:
    replayed = run(make_trainer(block_graph, **values))
    num_batches = values.get("num_parts", 4)
    assert (replaying_trainer.captured, replaying_trainer.replayed) == (num_batches, 4 * num_batches)
    plain = make_trainer(block_graph, **values)
    plain._replay = None
    losses, state = run(plain)
    assert replayed[0] == losses
    assert_equal(replayed[1], state)


def test_a_diagnosed_epoch_is_not_replayed(block_graph: Graph, replaying_trainer: Any) -> None:
    reports: list[EpochReport] = []
    trainer = make_trainer(block_graph, epochs=6, diagnose_every=3)
    trainer.on_epoch = reports.append
    trainer.run()
    assert [report.laziness is not None for report in reports] == [False, False, True] * 2
    assert replaying_trainer.replayed == 3 * 4
    assert all(report.laziness["drift_norm"] > 0 for report in reports if report.laziness)


def test_batches_that_never_return_are_not_replayed(
    block_graph: Graph, replaying_trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nor launched as if they were to be
    monkeypatch.setattr(Replay, "_staged_step", lambda *_: pytest.fail("took the step of a graph"))
    run(make_trainer(block_graph, keep_batches=False))
    run(make_trainer(block_graph, method="graphsage", batch_size=5))
    assert replaying_trainer.captured == 0


class LoggedStream:
    """Stands in for a stream, and for an event on it; lists what waits for what."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_stream(self, other: "LoggedStream") -> None:
        self.log.append(f"{self.name} waits for {other.name}")

    wait_event = wait_stream

    def record_event(self) -> "LoggedStream":
        return self


@pytest.mark.parametrize("reads", [False, True])
def test_a_step_ends_after_copies_that_it_does_not_read(
    block_graph: Graph, recorder: Any, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    log: list[str] = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: LoggedStream("main", log))
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(Replay, "is_steady", lambda *_: True)

    def step(batch: Batch) -> Tensor:
        if reads:
            assert batch.adjs[0].num_rows == 15
        log.append("step")
        return torch.zeros(())

    trainer = make_trainer(block_graph)
    replay = Replay(step, step, trainer.optimizer, [], torch.device("cpu"), make_capture=lambda: recorder)
    # as on a GPU, where the features are there already
    monkeypatch.setattr(replay._inputs, "_stream", LoggedStream("side", log))
    monkeypatch.setattr(replay._inputs, "_is_held", lambda _: False)
    replay.step(next(iter(ClusterLoader(block_graph, torch.tensor([0, 15, 60]), 1))), lambda: None)
    assert log == ["side waits for main", *["main waits for side"] * reads, "step", "main waits for side"]


def test_restoring_forgets_what_was_captured(block_graph: Graph, replaying_trainer: Any) -> None:
    trainer = make_trainer(block_graph)
    expected = run(trainer)[1]
    start = make_trainer(block_graph)
    trainer.restore(*start.checkpoint())
    captured = replaying_trainer.captured
    torch.manual_seed(0)
    make_trainer(block_graph)
    trainer.run()
    assert replaying_trainer.captured == 2 * captured
    assert_equal(trainer.checkpoint()[0], expected)


@pytest.fixture
def pinned_histories(no_streams: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps histories on a CPU as if they were in page-locked memory."""
    monkeypatch.setattr(
        "lazygnn.history._make_store", lambda parts, codec, device, _: PinnedStore(parts, codec, device)
    )


PINNED = [
    {},
    {"num_parts": 1},
    {"history_dtype": "int8"},
    {"history_dtype": "bfloat16"},
    {"gamma": 0.5},
    {"halo_gradients": True},
    {"halo": "paper"},
    {"diagnose_every": 3},
    {"keep_batches": False},
    {"parts_per_batch": 3, "num_parts": 5},
    {"method": "gcn-gas"},
    {"method": "gcn-graphfm", "num_layers": 3},
    {"method": "gcn-lmc", "num_layers": 3},
    {"method": "vq-gnn", "num_layers": 3},
    {"method": "gcnii-gas", "num_layers": 3},
    DEEP,
]


@pytest.mark.usefixtures("replaying_trainer", "pinned_histories")
@pytest.mark.parametrize("values", PINNED, ids=str)
def test_staged_rows_train_as_rows_on_the_device(
    block_graph: Graph, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(block_graph, **values)
    assert all(isinstance(history.values, PinnedStore) for history in trainer.histories.values())
    losses, state = run(trainer)
    # batches that never return are not replayed, so nothing is staged for them
    never_return = "parts_per_batch" in values or not values.get("keep_batches", True)
    assert trainer._replay is not None
    assert all((entry.shelved.shelf.num_moves == 0) == never_return for entry in trainer._replay._rows._entries)
    monkeypatch.undo()
    expected_losses, expected = run(make_trainer(block_graph, **values))
    assert losses == expected_losses
    assert_equal(state, expected)


@pytest.mark.usefixtures("replaying_trainer", "pinned_histories")
def test_the_next_batch_is_announced_before_a_step_and_writes_are_done_at_its_end(
    block_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[tuple[str, ...]] = []
    trainer = make_trainer(block_graph, epochs=2)
    batches = list(trainer.loader.sweep())
    places = {batch.nodes.data_ptr(): str(number) for number, batch in enumerate(batches)}

    def watch(owner: Any, name: str, *, of_nodes: bool) -> None:
        plain = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            nodes = given[1] if of_nodes else None
            log.append((name, places[nodes.data_ptr()]) if nodes is not None else (name,))
            return plain(*given, **named)

        monkeypatch.setattr(owner, name, call)

    for name in ("stage", "announce", "staged"):
        watch(StagedRows, name, of_nodes=True)
    watch(StoredHistory, "start", of_nodes=True)
    watch(StagedRows, "advance", of_nodes=False)
    watch(ShelvedStore, "write", of_nodes=False)
    watch(ShelvedStore, "flush", of_nodes=False)
    watch(trainer.optimizer, "step", of_nodes=False)
    trainer.on_batch = lambda _: log.append(("next",))
    trainer.run()
    text = " ".join("-".join(entry) for entry in log if entry != ("flush",))
    order = [place for epoch in range(2) for place in places_of(trainer, places, epoch)]
    for number, place in enumerate(order):
        first, _, text = text.partition(" next")
        coming = "announce" if number in (3, 7) else f"announce-{order[number + 1]}"
        step = f"stage-{place} {coming} staged-{place} start-{place} write write step advance"
        assert first.strip() == step
    # the last thing that a step does is to wait for what it has begun
    ends = [log[at - 2 : at] for at, entry in enumerate(log) if entry == ("advance",)]
    assert ends == [[("flush",)] * 2] * 8


def places_of(trainer: Trainer, places: dict[int, str], epoch: int) -> list[str]:
    trainer.loader.load_state_dict({**trainer.loader.state_dict(), "epoch": epoch, "position": 0})
    return [places[batch.nodes.data_ptr()] for batch in trainer.loader]


@pytest.mark.usefixtures("pinned_histories")
def test_steps_are_captured_again_after_a_shelf_has_grown(block_graph: Graph, replaying_trainer: Any) -> None:
    trainer = make_trainer(block_graph)
    assert trainer._replay is not None
    rows = trainer._replay._rows
    captured: list[int] = []

    def grow(report: EpochReport) -> None:
        captured.append(replaying_trainer.captured)
        if report.epoch == 3:
            rows.stage(torch.arange(60), 60)

    trainer.on_epoch = grow
    trainer.run()
    assert captured == [0, 4, 4, 8, 8]
    assert replaying_trainer.replayed == 4 * 4
    state, plain = trainer.checkpoint()[0], make_trainer(block_graph)
    plain._replay = None
    assert_equal(state, run(plain)[1])


def test_a_cpu_has_no_graphs(block_graph: Graph, recorder: Any) -> None:
    trainer = make_trainer(block_graph, cuda_graphs="auto")
    assert trainer._replay is None
    run(trainer)
    assert all(history.complete for history in trainer.histories.values())
    replay = make_replay(trainer, recorder)
    assert not any(replay.is_steady(batch) for batch in trainer.loader.sweep())


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"option `cuda_graphs` is 'on': input should be 'auto' or 'off'"):
        resolve("lazygnn", "block", {"cuda_graphs": "on"})


class Interrupt(Exception):
    pass


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"num_parts": 1},
        {"num_parts": 1, "label_step": True},
        {"num_parts": 1, "label_step": True, "history": "pinned", "features": "host"},
        {"dropout": 0.0, "norm": "layer"},
        {"gamma": 0.5, "start": "mix"},
        {"history_dtype": "bfloat16"},
        {"history_dtype": "int8"},
        {"clip_norm": 0.1, "optimizer": "adamw"},
        {"schedule": "cosine", "warmup_epochs": 2},
        {"halo": "paper"},
        {"method": "gcn"},
        {"method": "gcnii-gas", "num_layers": 3},
        {"method": "cluster-gcn"},
        {"history": "pinned"},
        {"history": "pinned", "features": "host"},
        {"history": "pinned", "features": "host", "edges": "device"},
        {"history": "pinned", "history_dtype": "int8"},
        {"history": "pinned", "gamma": 0.5},
        {"history": "pinned", "halo_gradients": True},
        {"history": "pinned", "halo": "paper"},
        {"history": "pinned", "method": "gcn-gas"},
        DEEP,
        DEEP | {"num_parts": 1},
        DEEP | {"history": "pinned"},
        {"method": "gcn-lmc", "num_layers": 3},
        {"history": "pinned", "method": "gcn-lmc", "num_layers": 3},
        {"method": "gcn-graphfm"},
        {"history": "pinned", "method": "gcn-graphfm"},
        {"method": "vq-gnn", "num_layers": 3},
        {"history": "pinned", "method": "vq-gnn", "num_layers": 3},
    ],
    ids=str,
)
def test_graphs_train_as_kernels_do(block_graph: Graph, values: dict[str, Any], precision: str) -> None:
    values = {"method": "lazygnn", **values}
    results = []
    for choice in ("auto", "off"):
        trainer = make_trainer(block_graph, "cuda", precision=precision, cuda_graphs=choice, **values)
        assert (trainer._replay is not None) == (choice == "auto")
        # the same kernels, which draw the same masks
        with replaying():
            results.append(run(trainer))
        if trainer._replay is not None:
            # a whole graph in host memory is copied again for every step
            far = values.get("num_parts") == 1 and values.get("features") == "host"
            assert len(graphs_of(trainer)._graphs) == (0 if far else len(trainer.loader))
    (losses, state), (expected_losses, expected) = results
    assert losses == pytest.approx(expected_losses, rel=1e-4 if precision == "float32" else 0.02)
    for name, value in expected.items():
        if not name.startswith("random"):
            tolerance = 1e-3 if precision == "float32" else 0.1
            one, other = state[name].double(), value.double()
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, msg=name)
    assert torch.equal(state["random.cuda"], expected["random.cuda"])


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("graphs", ["auto", "off"])
def test_features_come_over_the_bus_as_they_are_multiplied(block_graph: Graph, graphs: str) -> None:
    results = {}
    for features in ("device", "host"):
        given: dict[str, Any] = {"precision": "bfloat16", "dropout": 0.0, "cuda_graphs": graphs, "features": features}
        trainer = make_trainer(block_graph, "cuda", **given)
        found = {batch.x.dtype for batch in trainer.loader.sweep() if isinstance(batch.x, Tensor)}
        assert found == {torch.bfloat16 if features == "host" else torch.float32}
        results[features] = run(trainer)[0]
    assert results["host"] == pytest.approx(results["device"], rel=1e-3)


@pytest.mark.gpu
@gpu
def test_dropout_differs_from_replay_to_replay(block_graph: Graph) -> None:
    trainer = make_trainer(block_graph, "cuda", lr=1e-12, num_parts=1, dropout=0.5, epochs=8, weight_decay=0.0)
    losses, _ = run(trainer)
    assert trainer._replay is not None
    assert len(set(losses)) == 8


@pytest.mark.gpu
@gpu
def test_histories_advance_with_replays(block_graph: Graph) -> None:
    trainer = make_trainer(block_graph, "cuda", epochs=6)
    run(trainer)
    (history,) = trainer.histories.values()
    # one pass to fill, six to train
    assert int(history.num_pushes) == 7 * 4
    assert sorted(history.age.unique().tolist()) == [0, 1, 2, 3]


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("stop_after", [2, 6, 9, 14])
def test_a_replayed_run_is_resumed_exactly(block_graph: Graph, stop_after: int) -> None:
    straight = run(make_trainer(block_graph, "cuda"))[1]
    first, second = (make_trainer(block_graph, "cuda") for _ in range(2))

    def stop(trainer: Trainer) -> None:
        if trainer.num_batches == stop_after:
            raise Interrupt

    first.on_batch = stop
    with pytest.raises(Interrupt):
        first.run()
    tensors, state = first.checkpoint()
    second.restore({name: value.clone() for name, value in tensors.items()}, state)
    second.run()
    assert_equal(second.checkpoint()[0], straight)


@pytest.mark.gpu
@gpu
def test_graphs_share_their_memory(block_graph: Graph) -> None:
    def reserved(num_parts: int) -> int:
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        trainer = make_trainer(block_graph, "cuda", hidden_channels=4096, num_parts=num_parts, epochs=3)
        run(trainer)
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved() - before

    # workspaces of cuBLAS aside, six graphs need no more than two
    assert reserved(6) <= reserved(2) + 64 * 2**20


@pytest.mark.gpu
@gpu
def test_training_again_and_again_keeps_no_memory(block_graph: Graph) -> None:
    kept = []
    for _ in range(4):
        run(make_trainer(block_graph, "cuda"))
        gc.collect()
        torch.cuda.empty_cache()
        kept.append(torch.cuda.memory_reserved())
    assert kept[1:] == kept[1:2] * 3


@pytest.mark.gpu
@gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("choice", ["auto", "off"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"num_parts": 1},
        {"features": "host"},
        {"features": "host", "edges": "device"},
        {"features": "host", "history": "pinned"},
        {"features": "host", "edges": "device", "history": "pinned", "history_dtype": "bfloat16"},
        {"clip_norm": 1.0, "gamma": 0.5},
        {"history": "pinned", "gamma": 0.5},
        {"history": "pinned", "method": "gcn-gas"},
        DEEP,
        DEEP | {"history": "pinned"},
    ],
    ids=str,
)
def test_a_step_does_not_wait_for_the_device(
    block_graph: Graph, values: dict[str, Any], precision: str, choice: str
) -> None:
    trainer = make_trainer(block_graph, "cuda", precision=precision, cuda_graphs=choice, epochs=2, **values)
    trainer.run()
    trainer.model.train(True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        losses = [trainer._train_batch(batch) for batch in trainer.loader]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(bool(loss.isfinite()) for loss in losses)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("choice", ["auto", "off"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"keep_batches": False},
        {"parts_per_batch": 2},
        {"history": "host"},
        {"history": "pinned", "history_dtype": "bfloat16"},
        {"history": "pinned", "history_dtype": "int8"},
        {"method": "gcn-gas"},
        {"method": "cluster-gcn"},
    ],
    ids=str,
)
def test_features_in_host_memory_change_nothing(block_graph: Graph, values: dict[str, Any], choice: str) -> None:
    places: list[dict[str, Any]] = [{}, {"features": "host"}, {"features": "host", "edges": "device"}]
    expected, *results = (
        run(make_trainer(block_graph, "cuda", cuda_graphs=choice, **place, **values)) for place in places
    )
    for losses, state in results:
        assert losses == expected[0]
        assert_equal(state, expected[1])


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("choice", ["auto", "off"])
@pytest.mark.parametrize("place", [{}, {"features": "host"}, {"features": "host", "edges": "device"}], ids=str)
@pytest.mark.parametrize("values", PINNED, ids=str)
def test_rows_in_page_locked_memory_change_nothing(
    block_graph: Graph, values: dict[str, Any], place: dict[str, Any], choice: str
) -> None:
    (losses, state), (expected_losses, expected) = (
        run(make_trainer(block_graph, "cuda", cuda_graphs=choice, history=tier, **place, **values))
        for tier in ("pinned", "device")
    )
    assert losses == expected_losses
    assert_equal(state, expected)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("values", [{}, {"features": "host"}, {"gamma": 0.5}, {"method": "gcn-gas"}], ids=str)
def test_graphs_are_captured_again_after_a_shelf_has_grown(block_graph: Graph, values: dict[str, Any]) -> None:
    trainer = make_trainer(block_graph, "cuda", history="pinned", epochs=6, **values)
    captures, num_graphs = [], []

    def grow(report: EpochReport) -> None:
        captures.append(graphs_of(trainer)._capture)
        num_graphs.append(len(graphs_of(trainer)._graphs))
        if report.epoch == 3:
            assert trainer._replay is not None
            # more than the shelves hold, whatever the batches
            trainer._replay._rows.stage(torch.arange(60, device="cuda").repeat(2), 120)

    trainer.on_epoch = grow
    trainer.run()
    assert num_graphs[2:] == [4] * 4
    assert captures == captures[:1] * 3 + captures[3:4] * 3
    assert captures[2] is not captures[3]
    assert_equal(trainer.checkpoint()[0], run(make_trainer(block_graph, "cuda", epochs=6, **values))[1])


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("sparse", [False, True])
def test_edges_that_stay_on_the_device_are_replayed_where_they_are(block_graph: Graph, sparse: bool) -> None:
    if sparse:
        rows = torch.arange(60).repeat_interleave(2)
        block_graph = replace(block_graph, x=Csr.from_sorted(rows, torch.arange(120) % 7, torch.rand(120), (60, 7)))
    losses = []
    for place in ({}, {"features": "host", "edges": "device"}):
        trainer = make_trainer(block_graph, "cuda", num_parts=4, **place)
        losses.append(run(trainer)[0])
        assert len(graphs_of(trainer)._graphs) == 4
        batches = list(trainer.loader)
        assert all(batch.x.device.type == ("cpu" if place else "cuda") for batch in batches)
        # what the first visit worked out about a pattern is still there
        assert all("plan" in adj.derived for batch in batches for adj in batch.adjs)
        trainer.finish()
    assert losses[0] == losses[1]
