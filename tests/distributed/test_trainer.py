"""Weights and histories do not depend on the number of ranks, and are those of one process that accumulates."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.config import TrainerOptions
from lazygnn.data.folder import load_folder, save_folder
from lazygnn.data.synthetic import block_graph
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
from lazygnn.training import infer
from lazygnn.training.optimizer import make_optimizer
from tests.distributed.workers import in_processes

WIDE = torch.float64
OPTIONS = TrainerOptions(epochs=3, lr=0.05, weight_decay=1e-3)
SEED, PARTS, PER_STEP = 3, 8, 4


def make_model(num_nodes: int, **history: Any) -> Decoupled:
    """Makes the model of all processes: with stored gradients, dropout and no batch normalization."""
    torch.manual_seed(SEED)
    mlp = MLP(8, 16, 3, mlp_layers=2, dropout=0.5, input_dropout=0.2).to(WIDE)
    made = {"dtype": WIDE, "compute_dtype": WIDE} | history
    features = open_history(num_nodes, 3, Drift(0.1), **made)
    gradients = open_history(num_nodes, 3, Mix(1.0), **made)
    return Decoupled(mlp, LazyPropagation(0.1, features, gradients))


def train_ranks(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Trains on the ranks and returns weights, own rows of the histories, predictions and scores."""
    shard = open_shard(folder / "graph", ranks)
    graph = shard.graph.to(WIDE)
    device = torch.device("cpu")
    exchange = Exchange(ranks, graph.num_nodes, len(shard.halo), device, wire=WIDE, traffic=shard.traffic)
    model = make_model(graph.num_nodes, make_store=exchange.make_store)
    assert isinstance(model.propagation, LazyPropagation)
    model.propagation.fit(graph.adj, 2)
    loader = PartLoader(shard, graph, ranks, 2, parts_per_step=PER_STEP, seed=SEED)
    trainer = RankTrainer(model, loader, graph, OPTIONS, ranks, exchange, seed=SEED)
    trainer.run()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    result = trainer.finish()
    return {
        "weights": weights,
        "rows": {f"{name}.{part}": t for name, each in named_histories(model).items() for part, t in tables(each)},
        "outputs": infer(model, graph),
        "scores": result.scores,
        "response": model.propagation.response,
        "bytes": (shard.traffic.halo, shard.traffic.reduced),
        "record": exchange.record_bytes,
        "sent": [step.plan.sent_to_others(ranks.rank) for step in loader._steps],
    }


def tables(history: StoredHistory) -> list[tuple[str, Tensor]]:
    return [(kind, store.parts["rows"]) for kind, store in history.stores.items()]


def accumulate(folder: Path) -> dict[str, Any]:
    """Trains in one process, with what the library has for one: each step sees the histories as they were before it."""
    graph = load_folder(folder / "graph").to(WIDE)
    assert graph.part_ptr is not None
    loader = ClusterLoader(graph, graph.part_ptr, 2, seed=SEED)
    model = make_model(graph.num_nodes)
    assert isinstance(model.propagation, LazyPropagation)
    model.propagation.fit(graph.adj, 2)
    batches, histories = list(loader.sweep()), named_histories(model)
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
                # the loader weighs a batch of one part
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
        "response": model.propagation.response,
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[int, list[dict[str, Any]]]]:
    """One process that accumulates, and one, two and four ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    graph = block_graph(240, 3, degree=6, in_channels=8, num_classes=3, seed=1)
    parts = partition(graph, PARTS)
    from dataclasses import replace

    save_folder(replace(graph.permute(parts.order), part_ptr=parts.ptr), folder / "graph")
    in_processes(folder, (1, 2, 4), train_ranks)
    found = {
        size: [torch.load(folder / f"{size}-{rank}.pt", weights_only=False) for rank in range(size)]
        for size in (1, 2, 4)
    }
    return accumulate(folder), found


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_end_with_the_weights_of_one_process(
    results: tuple[dict[str, Any], dict[int, list[dict[str, Any]]]], size: int
) -> None:
    expected, found = results[0], results[1][size]
    for rank in found:
        assert rank["response"] == expected["response"]
        for name, weight in expected["weights"].items():
            torch.testing.assert_close(rank["weights"][name], weight, rtol=1e-10, atol=1e-10)
    for name, rows in expected["rows"].items():
        together = torch.cat([rank["rows"][name] for rank in found])
        torch.testing.assert_close(together, rows, rtol=1e-10, atol=1e-10)
