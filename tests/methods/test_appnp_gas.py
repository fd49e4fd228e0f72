from typing import Any

from lazygnn.graph import Graph
from tests.methods.helpers import Make, check_full_batch, check_histories

OPTIONS: dict[str, Any] = {"num_layers": 3, "hidden_channels": 9, "alpha": 0.3, "prop_channels": 5}


def test_training_on_parts_has_a_history_after_each_step_but_the_last(make: Make, block_graph: Graph) -> None:
    check_histories(make, block_graph, "appnp-gas", OPTIONS, width=5)


def test_in_full_batch_it_is_appnp(make: Make) -> None:
    check_full_batch(make, "appnp-gas", "appnp", OPTIONS)
