"""Checks that the methods with historical embeddings share."""

from collections.abc import Callable
from typing import Any

import torch

from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.methods import Built, Place, build_model, resolve

Make = Callable[..., Built]


def check_histories(make: Make, graph: Graph, method: str, options: dict[str, Any], width: int) -> None:
    """Checks that training on parts has a history after each of three layers but the last, and inference none."""
    built = make(method, num_parts=4, **options)
    sizes = [history.num_bytes for history in named_histories(built.model).values()]
    assert sizes == [60 * width * 4] * 2
    assert len(built.loader) == 4
    # one hop of neighbors with their features
    assert all(len(batch.x) == len(batch.nodes) > batch.num_targets for batch in built.loader.sweep())
    config = resolve(method, "block", {"num_parts": 4, **options})
    inferring = build_model(config, graph, Place(torch.device("cpu"), training=False))
    assert len(named_histories(inferring)) == 0


def check_full_batch(make: Make, method: str, without: str, options: dict[str, Any]) -> None:
    """Checks that in full batch a method opens no history and has the outputs of the method without histories."""
    parts, whole = make(method, num_parts=1, **options), make(without, **options)
    assert len(named_histories(parts.model)) == 0
    outputs = []
    for built in (parts, whole):
        (batch,) = built.loader
        torch.manual_seed(1)
        outputs.append(built.model.train()(batch))
    torch.testing.assert_close(*outputs)
