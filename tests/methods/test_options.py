from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.methods import Built, Place, find_method, method_options, place_graph, resolve
from lazygnn.methods.base import Cut, MethodOptions
from lazygnn.methods.options import ClusterOptions, GASOptions, HistoryOptions
from lazygnn.propagation import Mix

CPU = torch.device("cpu")
Make = Callable[..., Built]


def test_options_of_every_method_need_neither_parts_nor_host_memory_by_default(block_graph: Graph) -> None:
    options = MethodOptions()
    assert options.resolved() == options
    assert options.chosen() == options.ignored() == {}
    assert options.find_parts(block_graph, None) is None
    assert not options.keeps_features_on_host
    options.check(CPU)


@pytest.mark.parametrize("features", ["device", "host"])
def test_empty_edges_are_stored_where_the_features_are(features: Any) -> None:
    options = ClusterOptions(features=features)
    assert options.resolved().edges == features
    assert options.chosen() == {"edges": features}
    assert options.keeps_features_on_host == (features == "host")
    assert ClusterOptions(features="host", edges="device").resolved().edges == "device"


def test_a_graph_is_partitioned_into_as_many_parts_as_set(block_graph: Graph) -> None:
    assert ClusterOptions().find_parts(block_graph, None) is None
    seeds = [ClusterOptions(num_parts=4, partition="random", partition_seed=seed) for seed in (0, 0, 1)]
    first, same, other = (options.find_parts(block_graph, None) for options in seeds)
    assert first is not None
    assert same is not None
    assert other is not None
    assert first.num_parts == 4
    assert torch.equal(first.order, same.order)
    assert not torch.equal(first.order, other.order)


def test_a_loader_gives_parts_or_the_whole_graph(block_graph: Graph) -> None:
    place = Place(CPU)
    whole = ClusterOptions().resolved().load(Cut(block_graph, torch.tensor([0, 60]), 0), place, 2)
    assert isinstance(whole, FullLoader)
    options = ClusterOptions(num_parts=3, parts_per_batch=2, halo="none", keep_batches=False).resolved()
    parts = options.load(Cut(block_graph, torch.tensor([0, 20, 40, 60]), 5), place, 2)
    assert isinstance(parts, ClusterLoader)
    assert (parts.parts_per_batch, parts.halo, parts.seed, parts.num_layers) == (2, "none", 5, 2)
    assert len(parts) == 2


def test_more_parts_in_a_batch_than_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match="`parts_per_batch` is 9, but `num_parts` is 4; choose at most 4"):
        ClusterOptions(num_parts=4, parts_per_batch=9).check(CPU)
    ClusterOptions(num_parts=4, parts_per_batch=4).check(CPU)
    # stored by a version that did not refuse it, and without effect
    ClusterOptions(num_parts=1, parts_per_batch=4).check(CPU)


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        (
            "cluster-gcn",
            {"parts_per_batch": 4},
            "`parts_per_batch` is 4, but `num_parts` is 1, which means full batch; set `num_parts`, or omit `parts_per",
        ),
        ("gcn-gas", {"partition": "random"}, "`partition` is random, but `num_parts` is 1, .*, or omit `partition`"),
        ("gcn-gas", {"partition_seed": 3}, "`partition_seed` is 3, but `num_parts` is 1"),
        ("gcn-gas", {"balance": "edges"}, "`balance` is edges, but `num_parts` is 1, .*, or omit `balance`"),
        (
            "lazygnn",
            {"balance": "edges", "num_parts": 4, "partition": "random"},
            "`balance` is edges, but `partition` is random; set `partition=metis`, or omit `balance`",
        ),
        (
            "lazygnn",
            {"halo": "paper"},
            "`halo` is paper, but `num_parts` is 1, which means full batch; set `num_parts`",
        ),
        ("lazygnn-paper", {"halo": "frozen", "num_parts": 1}, "`halo` is frozen, but `num_parts` is 1, which means"),
        ("cluster-gcn", {"keep_batches": False}, "`keep_batches` is false, but `num_parts` is 1, which means full"),
        ("gcn-gas", {"history": "host"}, "`history` is host, but `num_parts` is 1, .*, or omit `history`"),
        ("appnp-gas", {"history_dtype": "int8"}, "`history_dtype` is int8, but `num_parts` is 1"),
        ("gcn-graphfm", {"momentum": 0.7}, "`momentum` is 0.7, but `num_parts` is 1, .*, or omit `momentum`"),
        ("gcn-lmc", {"beta": 0.1}, "`beta` is 0.1, but `num_parts` is 1"),
        ("gcn-lmc", {"score": "convex"}, "`score` is convex, but `num_parts` is 1"),
        ("gcn-lmc", {"history": "disk"}, "`history` is disk, but `num_parts` is 1"),
        ("vq-gnn", {"num_words": 7}, "`num_words` is 7, but `num_parts` is 1, .*, or omit `num_words`"),
        ("vq-gnn", {"word_channels": 2, "num_parts": 1}, "`word_channels` is 2, but `num_parts` is 1"),
        ("vq-gnn", {"word_decay": 0.5}, "`word_decay` is 0.5, but `num_parts` is 1"),
    ],
)
def test_an_option_of_parts_is_refused_in_full_batch(method: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(method, "some", values)


def test_edges_do_not_leave_the_device_before_the_features(make: Make) -> None:
    message = r"`edges` is host, but `features` is device; .*: set `features=host`, or omit `edges`"
    for num_parts in (1, 4):
        with pytest.raises(ConfigError, match=message):
            make("lazygnn", num_parts=num_parts, edges="host")
    with pytest.raises(ConfigError, match="option `edges` is 'disk'"):
        make("lazygnn", edges="disk")


@pytest.mark.parametrize("num_parts", [1, 4])
@pytest.mark.parametrize("method", ["lazygnn", "gcn-gas", "cluster-gcn"])
def test_features_alone_stay_in_host_memory_on_request(block_graph: Graph, method: str, num_parts: int) -> None:
    def devices(**values: Any) -> set[tuple[str, str]]:
        options = {"num_parts": num_parts, "features": "host", **values}
        config = resolve(method, "block", options)
        graph = place_graph(config, block_graph, torch.device("meta"))
        assert graph.device.type == "cpu"
        cut = Cut(graph, torch.arange(0, 61, 60 // num_parts), 0)
        batches = find_method(method).loader(method_options(config), cut, Place(torch.device("meta"))).sweep()
        return {(b.x.device.type, rest.type) for b in batches for rest in (b.nodes.device, *(a.device for a in b.adjs))}

    assert devices(edges="device") == {("cpu", "meta")}
    assert devices(edges="host") == devices() == devices(edges="none") == {("cpu", "cpu")}


def test_pinned_histories_on_a_cpu_warn_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    make("lazygnn", history="host", gamma=0.5)
    HistoryOptions(history="pinned").check(torch.device("cuda"))
    assert not caplog.records
    make("lazygnn", history="pinned", gamma=0.5)
    (message,) = caplog.messages
    assert message.startswith("`history` is pinned, which is for a GPU; on a CPU it is the same as `device`: set `hist")


def test_a_history_has_a_row_per_node_in_the_format_of_the_options(block_graph: Graph) -> None:
    history = HistoryOptions(history_dtype="bfloat16").open(block_graph, 7, Mix(0.5), Place(CPU), "some")
    assert history.values.parts["rows"].shape == (60, 7)
    assert history.values.parts["rows"].dtype == torch.bfloat16
    assert history.warm == Mix(0.5)


def test_a_history_follows_each_layer_but_the_last_in_training_on_parts(block_graph: Graph) -> None:
    parts, whole = GASOptions(num_parts=4), GASOptions()
    histories = parts.open_layers(block_graph, 7, 3, Place(CPU))
    assert [history.num_bytes for history in histories] == [60 * 7 * 4] * 2
    assert len(parts.open_layers(block_graph, 7, 3, Place(CPU, training=False))) == 0
    assert len(whole.open_layers(block_graph, 7, 3, Place(CPU))) == 0
