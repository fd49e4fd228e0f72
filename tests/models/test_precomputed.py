from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.models import GCN, PrecomputedGCN
from lazygnn.models.gcn import GCNLayer
from lazygnn.transforms import smooth_features


def pair(graph: Graph, num_layers: int) -> tuple[PrecomputedGCN, GCN]:
    """A model on propagated features, and a GCN with the same weights."""
    torch.manual_seed(0)
    widths = graph.in_channels, 5, graph.task.num_outputs
    ours = PrecomputedGCN(*widths, num_layers=num_layers, norm="layer", dropout=0.0).double()
    gcn = GCN(*widths, num_layers=num_layers, norm="layer", dropout=0.0).double()
    first = gcn.layers[0]
    assert isinstance(first, GCNLayer)
    with torch.no_grad():
        first.weight.copy_(ours.first.weight)
        assert isinstance(ours.first.bias, Tensor)
        first.bias.copy_(ours.first.bias.uniform_())
        gcn.norms[0].load_state_dict(ours.norm.state_dict())
        for old, new in zip(ours.gcn.layers, gcn.layers[1:], strict=True):
            new.load_state_dict(old.state_dict())
    return ours, gcn


@pytest.mark.parametrize("num_layers", [2, 3])
def test_on_propagated_features_it_is_a_gcn(graph: Graph, num_layers: int) -> None:
    ours, gcn = pair(graph, num_layers)
    smooth = smooth_features(graph, 1)
    expected = gcn(Batch.full(graph, num_layers))
    torch.testing.assert_close(ours(Batch.full(smooth, num_layers - 1)), expected)
    torch.testing.assert_close(ours.infer(smooth), gcn.infer(graph))
    torch.testing.assert_close(ours.infer(smooth), expected.detach())
    sizes = [[tuple(p.shape) for p in layer] for layer in ours.layer_parameters()]
    assert sizes == [[tuple(p.shape) for p in layer] for layer in gcn.layer_parameters()]


def test_dropout_is_applied_to_inputs_and_hidden_units_in_training_only(graph: Graph) -> None:
    torch.manual_seed(0)
    model = PrecomputedGCN(graph.in_channels, 5, 3, num_layers=2, dropout=0.9, input_dropout=0.9).double()
    batch = Batch.full(graph, 1)
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))
    model.train()
    model.infer(graph)
    assert model.training
    for dropout, input_dropout in ((0.0, 0.9), (0.9, 0.0)):
        one = PrecomputedGCN(3, 5, 3, num_layers=2, dropout=dropout, input_dropout=input_dropout).double()
        assert not torch.equal(one(batch), one(batch))


def test_a_batch_with_a_matrix_for_every_layer_is_refused(graph: Graph) -> None:
    model = PrecomputedGCN(graph.in_channels, 5, 3, num_layers=2).double()
    with pytest.raises(ValueError, match="batch has 2 layers, model has 1"):
        model(Batch.full(replace(graph), 2))


def test_one_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="`num_layers` must be at least 2, got 1"):
        PrecomputedGCN(3, 4, 2, num_layers=1)
