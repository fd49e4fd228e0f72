from collections.abc import Callable

import torch

from lazygnn.graph import Graph
from lazygnn.methods import Built
from lazygnn.model import Model
from lazygnn.models import SGC

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]


def test_features_are_propagated_before_training(make: Make, is_same: IsSame, block_graph: Graph) -> None:
    built = make("sgc", num_layers=2, batch_size=6)
    adj, x = block_graph.adj.to_dense(), torch.as_tensor(block_graph.x)
    torch.testing.assert_close(built.graph.x, adj @ adj @ x)
    for batch in built.loader:
        assert batch.num_targets <= 6
        torch.testing.assert_close(batch.x, torch.as_tensor(built.graph.x)[batch.nodes])
    assert is_same(built, lambda: SGC(built.graph.in_channels, 3))
