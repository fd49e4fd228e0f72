import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.loader import RowLoader
from lazygnn.models import SGC
from lazygnn.transforms import smooth_features


def test_sgc_is_the_dense_formula(graph: Graph) -> None:
    torch.manual_seed(0)
    model = SGC(3, 3).double()
    assert isinstance(graph.x, Tensor)
    adj, smooth = graph.adj.to_dense(), smooth_features(graph, 2)
    expected = adj @ adj @ graph.x @ model.linear.weight + model.linear.bias
    torch.testing.assert_close(model.infer(smooth), expected)
    (batch,) = RowLoader(smooth)
    torch.testing.assert_close(model(batch), expected[batch.targets])


def test_the_only_layer_holds_every_parameter() -> None:
    model = SGC(3, 3)
    assert [[id(p) for p in group] for group in model.layer_parameters()] == [[id(p) for p in model.parameters()]]
