from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import Built, resolve
from lazygnn.models import LabelPropagation
from lazygnn.transforms import link_similar, smooth_features

Make = Callable[..., Built]


def test_the_options_describe_the_propagation(make: Make, block_graph: Graph) -> None:
    built = make("label-propagation", alpha=0.3, class_mass=True, eval_tolerance=1e-3)
    assert built.graph.adj is block_graph.adj
    expected = LabelPropagation(0.3, tolerance=1e-3, class_mass=True)
    torch.testing.assert_close(built.model.infer(built.graph), expected.infer(block_graph), rtol=0, atol=0)


@pytest.mark.parametrize("hops", [0, 2])
def test_nodes_with_similar_features_are_linked_on_request(make: Make, block_graph: Graph, hops: int) -> None:
    built = make("label-propagation", feature_neighbors=3, feature_hops=hops, feature_weight=0.5)
    linked = link_similar(smooth_features(block_graph, hops) if hops else block_graph, 3, 0.5)
    torch.testing.assert_close(built.graph.adj.to_dense(), linked.adj.to_dense())
    assert built.graph.x is block_graph.x


@pytest.mark.parametrize("values", [{"feature_hops": 2}, {"feature_weight": 0.5}], ids=str)
def test_an_option_of_links_that_are_not_made_is_refused(values: dict[str, Any]) -> None:
    ((name, value),) = values.items()
    message = f"`{name}` is {value}, but `feature_neighbors` is 0, .*; set `feature_neighbors`, or omit `{name}`"
    with pytest.raises(ConfigError, match=message):
        resolve("label-propagation", "some", values)
