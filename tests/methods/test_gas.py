"""The three methods with historical embeddings: `gcn_gas.py`, `gcnii_gas.py` and `appnp_gas.py`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.methods import Built, Place, build_model, resolve

Make = Callable[..., Built]
SMALL: dict[str, Any] = {"num_layers": 3, "hidden_channels": 9}
# options, and the width of the histories
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "gcn": (SMALL, 9),
    "gcnii": (SMALL | {"alpha": 0.2, "theta": 0.7, "shared_weights": False}, 9),
    "appnp": (SMALL | {"alpha": 0.3, "prop_channels": 5}, 5),
}


@pytest.mark.parametrize("method", list(CASES))
def test_a_model_on_parts_has_a_history_after_each_layer_but_the_last(
    make: Make, block_graph: Graph, method: str
) -> None:
    options, width = CASES[method]
    built = make(f"{method}-gas", num_parts=4, **options)
    sizes = [history.num_bytes for history in named_histories(built.model).values()]
    assert sizes == [60 * width * 4] * 2
    assert len(built.loader) == 4
    # one hop of neighbors with their features
    assert all(len(batch.x) == len(batch.nodes) > batch.num_targets for batch in built.loader.sweep())
    config = resolve(f"{method}-gas", "block", {"num_parts": 4, **options})
    inferring = build_model(config, block_graph, Place(torch.device("cpu"), training=False))
    assert len(named_histories(inferring)) == 0


@pytest.mark.parametrize("method", list(CASES))
def test_in_full_batch_it_is_the_method_without_histories(make: Make, method: str) -> None:
    options, _ = CASES[method]
    parts, whole = make(f"{method}-gas", num_parts=1, **options), make(method, **options)
    assert len(named_histories(parts.model)) == 0
    outputs = []
    for built in (parts, whole):
        (batch,) = built.loader
        torch.manual_seed(1)
        outputs.append(built.model.train()(batch))
    torch.testing.assert_close(*outputs)
