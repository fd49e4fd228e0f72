"""Arguments of the wrong type: the error names the argument, its type and the remedy."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn import ClusterLoader, FullLoader, LazyGNN, Trainer, build, evaluate, infer, load_graph, partition, resolve
from lazygnn.graph import Graph

# typed as `Any`, so that the calls below can be wrong on purpose
NAME: Any = "cora"
NUMBER: Any = 3
NO_GRAPH = "make a graph with `load_graph`, `Graph.from_edges` or `Graph.from_data`"
NO_BATCH = "make a batch with `Batch.full(graph, num_layers)`, or call `model.infer(graph)`"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, graph: model(graph), f"`batch` is of type Graph; {NO_BATCH}"),
        (lambda model, graph: model(graph.x), f"`batch` is of type Tensor and shape (4, 3); {NO_BATCH}"),
        (lambda model, _: evaluate(model, NAME), f"`graph` is 'cora', of type str; {NO_GRAPH}"),
        (lambda model, graph: infer(graph, model), f"`graph` is of type LazyGNN; {NO_GRAPH}"),
        (lambda *_: partition(NAME, 3), f"`graph` is 'cora', of type str; {NO_GRAPH}"),
        (lambda *_: ClusterLoader(NAME, torch.tensor([0, 4]), 1), f"`graph` is 'cora', of type str; {NO_GRAPH}"),
        (lambda *_: load_graph(NUMBER), "`name` is 3, of type int; give the name of a data set, or a path"),
        (
            lambda model, graph: Trainer(model, FullLoader(graph, 1), NAME, NAME),
            f"`graph` is 'cora', of type str; {NO_GRAPH}",
        ),
    ],
)
def test_a_wrong_type_is_named(path_graph: Graph, call: Callable[[Any, Any], Any], message: str) -> None:
    model = LazyGNN(path_graph.in_channels, 4, 2, num_nodes=4)
    with pytest.raises(ValueError) as error:
        call(model, path_graph)
    assert message in str(error.value)


def test_a_configuration_in_place_of_trainer_options_is_refused(path_graph: Graph) -> None:
    config: Any = resolve("mlp", "path")
    built = build(config, path_graph)
    with pytest.raises(ValueError, match=r"`options` is of type Config; give `config\.trainer`"):
        Trainer(built.model, built.loader, built.graph, config)
