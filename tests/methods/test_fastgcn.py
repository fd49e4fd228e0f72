from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.loader import FastGCNLoader
from lazygnn.methods import Built, resolve
from lazygnn.model import Model
from lazygnn.models import PrecomputedGCN
from lazygnn.ops import spmm

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


def test_the_options_describe_convolutions_with_drawn_layers(make: Make, is_same: IsSame, block_graph: Graph) -> None:
    built = make("fastgcn", num_layers=3, num_samples=11, batch_size=6, **LAYERS)

    def expected() -> Model:
        return PrecomputedGCN(3, 9, 3, num_layers=3, norm="layer", dropout=0.2, input_dropout=0.1)

    assert is_same(built, expected)
    assert isinstance(built.loader, FastGCNLoader)
    assert isinstance(built.graph.x, Tensor)
    assert isinstance(block_graph.x, Tensor)
    # the first product is computed beforehand, so one layer less is drawn
    torch.testing.assert_close(built.graph.x, spmm(block_graph.adj, block_graph.x))
    for batch in built.loader:
        assert batch.num_targets <= 6
        assert len(batch.adjs) == 2
        assert all(adj.num_cols <= 11 for adj in batch.adjs)


def test_a_single_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="option `num_layers` is 1: input should be greater than or equal to 2"):
        resolve("fastgcn", "mine", {"num_layers": 1})
