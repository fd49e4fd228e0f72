from collections.abc import Callable
from typing import Any

import pytest

from lazygnn.errors import ConfigError
from lazygnn.methods import Built, resolve
from lazygnn.model import Model
from lazygnn.models import GCN, ClusterGCN

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


def test_the_options_describe_a_gcn_within_batches_of_parts(make: Make, is_same: IsSame) -> None:
    built = make("cluster-gcn", num_parts=5, parts_per_batch=2, diag_lambda=0.5, num_layers=3, **LAYERS)

    def expected() -> Model:
        gcn = GCN(built.graph.in_channels, 9, 3, num_layers=3, norm="layer", dropout=0.2, input_dropout=0.1)
        return ClusterGCN(gcn, diag_lambda=0.5)

    assert is_same(built, expected)
    assert len(built.loader) == 3
    assert all(len(batch.nodes) == batch.num_targets for batch in built.loader.sweep())


def test_cluster_gcn_has_no_halo() -> None:
    with pytest.raises(ConfigError, match="option `halo` is 'frozen'"):
        resolve("cluster-gcn", "cora", {"halo": "frozen"})
