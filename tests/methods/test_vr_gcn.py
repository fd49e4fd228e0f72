from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.loader import ControlLoader
from lazygnn.methods import Built, Place, build_model, resolve
from lazygnn.models import VRGCN
from lazygnn.ops import spmm

Make = Callable[..., Built]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


def test_the_options_describe_sampled_convolutions_with_histories(make: Make, block_graph: Graph) -> None:
    built = make("vr-gcn", num_layers=3, num_neighbors=2, batch_size=6, **LAYERS)
    model = built.model
    assert isinstance(model, VRGCN)
    assert (model.dropout, model.input_dropout, model.gcn.dropout) == (0.2, 0.1, 0.2)
    assert [history.num_bytes for history in named_histories(model).values()] == [60 * 9 * 4] * 2
    # the first product is computed beforehand, so one layer less is sampled
    assert isinstance(built.graph.x, Tensor)
    assert isinstance(block_graph.x, Tensor)
    torch.testing.assert_close(built.graph.x, spmm(block_graph.adj, block_graph.x))
    assert isinstance(built.loader, ControlLoader)
    for batch in built.loader:
        assert batch.num_targets <= 6
        assert len(batch.adjs) == 2
        assert all(int(adj.rowptr.diff().max()) <= 3 for adj in batch.adjs)


def test_inference_has_no_histories(block_graph: Graph) -> None:
    config = resolve("vr-gcn", "block", {"num_layers": 3})
    model = build_model(config, block_graph, Place(torch.device("cpu"), training=False))
    assert len(named_histories(model)) == 0


def test_histories_may_be_stored_in_fewer_bytes(make: Make) -> None:
    built = make("vr-gcn", history_dtype="bfloat16", **LAYERS)
    assert [history.num_bytes for history in named_histories(built.model).values()] == [60 * 9 * 2]
