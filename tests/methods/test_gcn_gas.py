from collections.abc import Callable
from typing import Any

import torch

from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.methods import Built, Place, build_model, resolve

Make = Callable[..., Built]
VALUES: dict[str, Any] = {"num_layers": 3, "hidden_channels": 9}


def test_a_model_on_parts_has_a_history_after_each_layer_but_the_last(make: Make, block_graph: Graph) -> None:
    built = make("gcn-gas", num_parts=4, **VALUES)
    sizes = [history.num_bytes for history in named_histories(built.model).values()]
    assert sizes == [60 * 9 * 4] * 2
    assert len(built.loader) == 4
    # one hop of neighbors with their features
    assert all(len(batch.x) == len(batch.nodes) > batch.num_targets for batch in built.loader.sweep())
    config = resolve("gcn-gas", "block", {"num_parts": 4, **VALUES})
    inferring = build_model(config, block_graph, Place(torch.device("cpu"), training=False))
    assert len(named_histories(inferring)) == 0


def test_in_full_batch_it_is_a_gcn(make: Make) -> None:
    parts, whole = make("gcn-gas", num_parts=1, **VALUES), make("gcn", **VALUES)
    assert len(named_histories(parts.model)) == 0
    outputs = []
    for built in (parts, whole):
        (batch,) = built.loader
        torch.manual_seed(1)
        outputs.append(built.model.train()(batch))
    torch.testing.assert_close(*outputs)
