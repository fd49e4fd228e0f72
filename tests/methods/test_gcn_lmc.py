from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.methods import Built, Place, build_model, resolve
from lazygnn.models import LMC
from tests.methods.helpers import check_full_batch

Make = Callable[..., Built]
OPTIONS: dict[str, Any] = {"num_layers": 4, "hidden_channels": 9}


def test_training_on_parts_has_histories_of_values_and_gradients(make: Make, block_graph: Graph) -> None:
    built = make("gcn-lmc", num_parts=4, beta=0.3, score="convex", **OPTIONS)
    sizes = {name: history.num_bytes // (60 * 4) for name, history in named_histories(built.model).items()}
    assert sizes == {
        "compensation.features.0": 9,
        "compensation.features.1": 9,
        "compensation.features.2": 9,
        "compensation.features.3": 3,
        "compensation.gradients.0": 9,
        "compensation.gradients.1": 9,
    }
    assert isinstance(built.model, LMC)
    assert (built.model.compensation.beta, built.model.compensation.score) == (0.3, "convex")
    assert all(batch.ring is not None and batch.adjs[0].num_rows == len(batch.nodes) for batch in built.loader.sweep())
    config = resolve("gcn-lmc", "block", {"num_parts": 4, **OPTIONS})
    assert not named_histories(build_model(config, block_graph, Place(torch.device("cpu"), training=False)))


def test_in_full_batch_it_is_gcn(make: Make) -> None:
    check_full_batch(make, "gcn-lmc", "gcn", OPTIONS)


def test_the_halo_cannot_be_chosen() -> None:
    with pytest.raises(ConfigError, match="option `halo` is 'frozen'"):
        resolve("gcn-lmc", "cora", {"halo": "frozen"})
