from collections.abc import Callable
from typing import Any

import torch

from lazygnn.graph import Graph
from lazygnn.methods import Built
from lazygnn.model import Model
from lazygnn.models import SIGN

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


def test_features_of_all_hops_are_stacked_before_training(make: Make, is_same: IsSame, block_graph: Graph) -> None:
    built = make("sign", num_layers=2, batch_size=6, mlp_layers=2, **LAYERS)
    adj, x = block_graph.adj.to_dense(), torch.as_tensor(block_graph.x)
    torch.testing.assert_close(built.graph.x, torch.cat([x, adj @ x, adj @ adj @ x], dim=1))
    for batch in built.loader:
        torch.testing.assert_close(batch.x, torch.as_tensor(built.graph.x)[batch.nodes])

    def expected() -> Model:
        return SIGN(x.shape[1], 9, 3, num_layers=2, mlp_layers=2, norm="layer", dropout=0.2, input_dropout=0.1)

    assert is_same(built, expected)
