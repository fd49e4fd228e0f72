from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn.config import Config
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader, FrozenNeighborLoader, FrozenSaintLoader, FullLoader
from lazygnn.methods import Built, build, resolve
from lazygnn.training import Trainer

Make = Callable[..., Built]
Unchecked = Callable[..., Config]


@pytest.mark.parametrize("method", ["lazygnn", "lazygnn-paper"])
def test_the_loader_that_is_chosen_gets_its_options(make: Make, method: str) -> None:
    assert isinstance(make(method).loader, FullLoader)
    assert isinstance(make(method, loader="cluster", num_parts=3).loader, ClusterLoader)
    neighbor = make(method, loader="neighbor", num_neighbors=[-1, 4], batch_size=7, num_layers=3).loader
    assert isinstance(neighbor, FrozenNeighborLoader)
    assert (neighbor.num_layers, neighbor.num_neighbors, neighbor.batch_size) == (3, [-1, 4], 7)
    saint = make(method, loader="saint", num_samples=9, walk_length=3, coverage=4).loader
    assert isinstance(saint, FrozenSaintLoader)
    assert (saint.num_layers, saint.sampler, saint.num_samples) == (2, "walk", 9)
    assert (saint.walk_length, saint.coverage) == (3, 4)
    edge = make(method, loader="saint", sampler="edge").loader
    assert isinstance(edge, FrozenSaintLoader)
    assert edge.sampler == "edge"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"num_neighbors": [3]},
            r"`num_neighbors` is \[3\], but `loader` is cluster; set `loader=neighbor`, or omit `num_neighbors`",
        ),
        ({"batch_size": 5, "num_parts": 4}, "`batch_size` is 5, but `loader` is cluster; set `loader=neighbor`"),
        ({"sampler": "node"}, "`sampler` is node, but `loader` is cluster; set `loader=saint`, or omit `sampler`"),
        ({"loader": "saint", "batch_size": 5}, "`batch_size` is 5, but `loader` is saint; set `loader=neighbor`"),
        ({"loader": "neighbor", "coverage": 5}, "`coverage` is 5, but `loader` is neighbor; set `loader=saint`"),
        ({"loader": "neighbor", "walk_length": 5}, "`walk_length` is 5, but `loader` is neighbor; set `loader=saint`"),
        (
            {"loader": "saint", "walk_length": 5, "sampler": "edge"},
            "`walk_length` is 5, but `sampler` is edge; set `sampler=walk`, or omit `walk_length`",
        ),
        ({"loader": "neighbor", "num_parts": 4}, "`num_parts` is 4, but `loader` is neighbor; set `loader=cluster`"),
        ({"loader": "saint", "halo": "none"}, "`halo` is none, but `loader` is saint; set `loader=cluster`, or omit"),
        ({"loader": "saint", "keep_batches": False}, "`keep_batches` is false, but `loader` is saint"),
        (
            {"loader": "neighbor", "edges": "device"},
            "`edges` is device, but `loader` is neighbor; set `loader=cluster`",
        ),
        (
            {"loader": "neighbor", "label_step": True},
            "`label_step` is true, but `loader` is neighbor; it needs full batch: set `loader=cluster`, or omit",
        ),
        ({"loader": "random"}, "option `loader` is 'random': input should be 'cluster', 'neighbor' or 'saint'"),
        ({"loader": "neighbor", "num_neighbors": [0]}, "option `num_neighbors"),
        ({"loader": "saint", "sampler": "all"}, "option `sampler` is 'all'"),
    ],
)
def test_an_option_of_another_loader_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve("lazygnn", "some", values)


def test_a_label_step_in_a_stored_configuration_is_refused_too(unchecked: Unchecked, block_graph: Graph) -> None:
    with pytest.raises(ConfigError, match="`label_step` is true, but `loader` is saint"):
        build(unchecked("lazygnn", loader="saint", label_step=True), block_graph)


def test_options_that_several_loaders_use_are_accepted(make: Make) -> None:
    for loader in ("neighbor", "saint"):
        built = make("lazygnn", loader=loader, features="host", halo_gradients=True)
        assert next(iter(built.loader)).labeled is None


def test_parts_of_a_recipe_do_not_partition_a_graph_that_is_sampled(unchecked: Unchecked, block_graph: Graph) -> None:
    built = build(unchecked("lazygnn", loader="neighbor", num_parts=4), block_graph)
    assert torch.equal(built.graph.y, block_graph.y)
    assert not torch.equal(build(unchecked("lazygnn", num_parts=4), block_graph).graph.y, block_graph.y)


@pytest.mark.parametrize("loader", ["cluster", "neighbor", "saint"])
@pytest.mark.parametrize("dataset", ["cora", "mine"], ids=["recipe", "rule"])
def test_the_size_of_a_sample_follows_from_the_graph(block_graph: Graph, dataset: str, loader: str) -> None:
    def options(**values: Any) -> Any:
        return resolve("lazygnn", dataset, {"loader": loader} | values, graph=block_graph).model

    found = options()
    assert (found.batch_size, found.num_samples) == {
        "cluster": (None, 2000),
        "neighbor": (3, 2000),
        "saint": (None, 5),
    }[loader]
    if loader == "neighbor":
        assert options(batch_size=11).batch_size == 11


@pytest.mark.parametrize(
    "values",
    [{"loader": "neighbor", "batch_size": 15, "num_neighbors": [3, 3]}, {"loader": "saint", "num_samples": 5}],
    ids=["neighbor", "saint"],
)
def test_training_on_samples_learns_and_fills_all_histories(block_graph: Graph, values: dict[str, Any]) -> None:
    torch.manual_seed(0)
    given = {"epochs": 10, "lr": 0.05, "dropout": 0.0, "hidden_channels": 8, "eval_every": 5, "diagnose_every": 0}
    config = resolve("lazygnn", "block", given | values)
    built = build(config, block_graph)
    trainer = Trainer(built.model, built.loader, built.graph, config.trainer)
    assert trainer.fit().scores["val"] >= 0.8
    assert trainer.histories["propagation.features"].complete
