from typing import Any

import pytest

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import resolve
from lazygnn.models import GraphFM
from tests.methods.helpers import Make, check_full_batch, check_histories

OPTIONS: dict[str, Any] = {"num_layers": 3, "hidden_channels": 9}


def test_training_on_parts_has_a_history_after_each_layer_but_the_last(make: Make, block_graph: Graph) -> None:
    check_histories(make, block_graph, "gcn-graphfm", OPTIONS, width=9)


def test_in_full_batch_it_is_gcn(make: Make) -> None:
    check_full_batch(make, "gcn-graphfm", "gcn", OPTIONS)


def test_the_momentum_is_an_option(make: Make) -> None:
    model = make("gcn-graphfm", num_parts=4, momentum=0.7).model
    assert isinstance(model, GraphFM)
    assert model.memory.momentum == 0.7
    with pytest.raises(ConfigError, match="option `momentum` is 2"):
        resolve("gcn-graphfm", "cora", {"momentum": 2})
