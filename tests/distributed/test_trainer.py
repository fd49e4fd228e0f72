"""Weights and histories do not depend on the number of ranks, and are those of one process that accumulates."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from lazygnn.config import TrainerOptions
from lazygnn.data.folder import load_folder, save_folder
from lazygnn.data.synthetic import block_graph
from lazygnn.distributed.checkpoint import RankCheckpoints
from lazygnn.distributed.exchange import Exchange
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.loader import PartLoader
from lazygnn.distributed.shard import open_shard
from lazygnn.distributed.trainer import RankTrainer, part_seed
from lazygnn.history import StoredHistory, named_histories, open_history
from lazygnn.loader import ClusterLoader
from lazygnn.models import MLP, Decoupled
from lazygnn.partitioning import partition
from lazygnn.propagation import Drift, LazyPropagation, Mix
from lazygnn.training import evaluate, infer
from lazygnn.training.optimizer import make_optimizer
from tests.distributed.workers import in_processes, in_threads

WIDE = torch.float64
OPTIONS = TrainerOptions(epochs=3, lr=0.05, weight_decay=1e-3)
SEED, PARTS, PER_STEP = 3, 8, 4


class Round(NamedTuple):
    """What ranks do: from the last checkpoint or the start, to a number of steps, where they save, or to the end."""

    ranks: int
    resume: bool = False
    stop: int | None = None


# an epoch has two steps, so runs also stop in the middle of one
ROUNDS = [Round(4), Round(2), Round(1), Round(4, stop=3), Round(2, resume=True, stop=5), Round(4, resume=True)]


class Stop(Exception):
    """Ends a training early."""


def make_model(num_nodes: int, **history: Any) -> Decoupled:
    """Makes the model of all processes: with stored gradients, dropout and no batch normalization."""
    torch.manual_seed(SEED)
    mlp = MLP(8, 16, 3, mlp_layers=2, dropout=0.5, input_dropout=0.2).to(WIDE)
    made = {"dtype": WIDE, "compute_dtype": WIDE} | history
    features = open_history(num_nodes, 3, Drift(0.1), **made)
    gradients = open_history(num_nodes, 3, Mix(1.0), **made)
    return Decoupled(mlp, LazyPropagation(0.1, features, gradients))


def make_trainer(ranks: Ranks, folder: Path, options: TrainerOptions = OPTIONS) -> RankTrainer:
    shard = open_shard(folder / "graph", ranks)
    graph = shard.graph.to(WIDE)
    device = torch.device("cpu")
    exchange = Exchange(ranks, graph.num_nodes, len(shard.halo), device, wire=WIDE, traffic=shard.traffic)
    model = make_model(graph.num_nodes, make_store=exchange.make_store)
    assert isinstance(model.propagation, LazyPropagation)
    model.propagation.fit(graph.adj, 2)
    loader = PartLoader(shard, graph, ranks, 2, parts_per_step=PER_STEP, seed=SEED)
    return RankTrainer(model, loader, graph, options, ranks, exchange, seed=SEED)


def train_ranks(ranks: Ranks, folder: Path, number: int) -> dict[str, Any]:
    """Runs a round and returns weights, rows of the histories and predictions."""
    now, trainer = ROUNDS[number], make_trainer(ranks, folder)
    checkpoints = RankCheckpoints(folder / "checkpoints", ranks, keep=1)

    def save(_: object) -> None:
        if trainer.num_batches == now.stop:
            checkpoints.save(trainer)
            raise Stop

    trainer.on_batch = save
    assert checkpoints.restore(trainer) == now.resume
    with suppress(Stop):
        trainer.run()
    model = trainer.model
    assert isinstance(model, Decoupled)
    assert isinstance(model.propagation, LazyPropagation)
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "rows": {f"{name}.{part}": t for name, each in trainer.histories.items() for part, t in tables(each)},
        "outputs": infer(model, trainer.graph),
        "scores": trainer._assess(select=False).scores,
        "response": model.propagation.response,
        "steps": trainer.num_batches,
        "halo bytes": trainer.exchange.traffic.halo,
        "record": trainer.exchange.record_bytes,
        "sent rows": sum(step.plan.sent_to_others(ranks.rank) for step in trainer.parts.all_steps),
        "checkpoints": [folder.name for folder in (folder / "checkpoints").glob("*")],
    }


def tables(history: StoredHistory) -> list[tuple[str, Tensor]]:
    return [(kind, store.parts["rows"]) for kind, store in history.stores.items()]


def accumulate(folder: Path) -> dict[str, Any]:
    """Trains in one process, with what the library has for one: each step sees the histories as they were before it."""
    graph = load_folder(folder / "graph").to(WIDE)
    assert graph.part_ptr is not None
    batches = list(ClusterLoader(graph, graph.part_ptr, 2, seed=SEED).sweep())
    model = make_model(graph.num_nodes)
    assert isinstance(model.propagation, LazyPropagation)
    model.propagation.fit(graph.adj, 2)
    histories = named_histories(model)
    optimizer = make_optimizer(model.layer_parameters(), OPTIONS)
    model.train()
    for number, batch in enumerate(batches):
        torch.manual_seed(part_seed(SEED, -1, number))
        model.fill(batch)
    num_steps = PARTS // PER_STEP
    for epoch in range(OPTIONS.epochs):
        order = torch.randperm(num_steps, generator=torch.Generator().manual_seed(SEED * 1_000_003 + epoch))
        for step in order.tolist():
            before = {name: [t.clone() for _, t in tables(each)] for name, each in histories.items()}
            after = {name: [t.clone() for _, t in tables(each)] for name, each in histories.items()}
            optimizer.zero_grad()
            for number in range(step, PARTS, num_steps):
                batch = batches[number]
                torch.manual_seed(part_seed(SEED, epoch, number))
                # the loader weighs a part as if it were a step of its own
                (model.loss(batch, graph.task) / PER_STEP).backward()
                for name, history in histories.items():
                    for old, new, (_, table) in zip(before[name], after[name], tables(history), strict=True):
                        new[batch.targets] = table[batch.targets]
                        table.copy_(old)
            optimizer.step()
            for name, history in histories.items():
                for new, (_, table) in zip(after[name], tables(history), strict=True):
                    table.copy_(new)
    return {
        "weights": model.state_dict(),
        "rows": {f"{name}.{part}": t for name, each in histories.items() for part, t in tables(each)},
        "outputs": infer(model, graph),
        "scores": evaluate(model, graph),
        "response": model.propagation.response,
    }


class Results(NamedTuple):
    """One process that accumulates, and every round of ranks."""

    expected: dict[str, Any]
    rounds: list[list[dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a prepared graph."""
    folder = tmp_path_factory.mktemp("ranks")
    graph = block_graph(240, 3, degree=6, in_channels=8, num_classes=3, seed=1)
    parts = partition(graph, PARTS)
    save_folder(replace(graph.permute(parts.order), part_ptr=parts.ptr), folder / "graph")
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    in_processes(folder, [each.ranks for each in ROUNDS], train_ranks)
    found = [
        [torch.load(folder / f"{number}-{rank}.pt", weights_only=False) for rank in range(each.ranks)]
        for number, each in enumerate(ROUNDS)
    ]
    return Results(accumulate(folder), found)


@pytest.mark.parametrize("number", [0, 1, 2, 5], ids=["4 ranks", "2 ranks", "1 rank", "4, then 2, then 4 ranks"])
def test_ranks_end_with_the_weights_and_rows_of_one_process(results: Results, number: int) -> None:
    expected, found = results.expected, results.rounds[number]
    for rank in found:
        assert rank["steps"] == 6
        assert rank["response"] == expected["response"]
        for name, weight in expected["weights"].items():
            torch.testing.assert_close(rank["weights"][name], weight, rtol=1e-10, atol=1e-10)
    for name, rows in expected["rows"].items():
        assert float(rows.abs().max()) > 1e-6
        together = torch.cat([rank["rows"][name] for rank in found])
        torch.testing.assert_close(together, rows, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("number", [0, 1, 2], ids=["4 ranks", "2 ranks", "1 rank"])
def test_ranks_predict_what_one_process_predicts(results: Results, number: int) -> None:
    expected, found = results.expected, results.rounds[number]
    outputs = torch.cat([rank["outputs"] for rank in found])
    torch.testing.assert_close(outputs, expected["outputs"], rtol=1e-10, atol=1e-10)
    for rank in found:
        assert rank["scores"] == pytest.approx(expected["scores"], abs=1e-12)


def test_a_checkpoint_replaces_the_one_before(results: Results) -> None:
    assert [results.rounds[number][0]["checkpoints"] for number in (3, 4)] == [["ranks-000000003"], ["ranks-000000005"]]


def test_bytes_are_those_of_the_rows_that_leave_a_rank(results: Results) -> None:
    for number in (0, 1):
        for rank in results.rounds[number]:
            # values and gradients of three columns in float64
            assert rank["record"] == 2 * 3 * 8
            assert rank["halo bytes"] == OPTIONS.epochs * rank["sent rows"] * rank["record"] > 0
    assert results.rounds[2][0]["halo bytes"] == 0


def test_no_copy_is_read_after_an_evaluation_has_dropped_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = []

    def poison(x: Tensor) -> bool:
        dropped.append(x.fill_(torch.nan).shape)
        return True

    def trained(ranks: Ranks) -> dict[str, Tensor]:
        trainer = make_trainer(ranks, folder, OPTIONS.model_copy(update={"eval_every": 1}))
        trainer.run()
        return trainer.model.state_dict()

    states = []
    for drop in (lambda _: False, poison):
        monkeypatch.setattr("lazygnn.distributed.store.drop_pages", drop)
        states += in_threads(1, trained)
    # two histories, after each of three epochs
    assert len(dropped) >= 2 * OPTIONS.epochs
    for name, value in states[0].items():
        assert torch.equal(states[1][name], value)


def test_copies_that_serve_several_epochs_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Tensor) -> bool:
        raise AssertionError

    def trained(ranks: Ranks) -> int:
        options = OPTIONS.model_copy(update={"eval_every": 1, "exchange_every": 2})
        trainer = make_trainer(ranks, folder, options)
        trainer.run()
        return trainer.epoch

    monkeypatch.setattr("lazygnn.distributed.store.drop_pages", refuse)
    assert in_threads(1, trained) == [OPTIONS.epochs]


def test_random_numbers_of_parts_differ() -> None:
    seeds = {part_seed(seed, epoch, part) for seed in range(3) for epoch in range(-1, 3) for part in range(3)}
    assert len(seeds) == 36
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_threshold_is_not_rounded_by_an_average_over_ranks(folder: Path) -> None:
    def averaged(ranks: Ranks) -> float:
        trainer = make_trainer(ranks, folder)
        trainer.model.set_threshold(0.1)
        trainer._average_buffers()
        assert trainer.model.label_threshold is not None
        return float(trainer.model.label_threshold)

    # a third of 0.1 + 0.1 + 0.1 is another number
    assert in_threads(3, averaged) == [0.1] * 3
