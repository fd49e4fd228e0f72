import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader


def test_every_epoch_has_the_whole_graph_as_its_batch(block_graph: Graph) -> None:
    loader, expected = FullLoader(block_graph, 3), Batch.full(block_graph, 3)
    (first,), (second,) = loader, loader
    assert first is second is loader.batch
    assert first.whole
    assert first.lasting
    assert torch.equal(first.nodes, expected.nodes)
    assert torch.equal(first.weight, expected.weight)
    assert first.adjs == expected.adjs == [block_graph.adj] * 3


def test_the_loss_of_a_label_step_is_the_same_in_every_step(block_graph: Graph) -> None:
    plain = FullLoader(block_graph, 1)
    assert plain.batch.labeled is None
    label_step = FullLoader(block_graph, 1, label_step=True).batch.labeled
    assert label_step is not None
    assert label_step.same_loss
    assert torch.equal(label_step.rows, block_graph.masks["train"].nonzero()[:, 0])


def test_edges_can_be_placed_apart_from_features(block_graph: Graph) -> None:
    (batch,) = FullLoader(block_graph, 2, edges=torch.device("meta"))
    assert batch.x is block_graph.x
    others = (batch.y, batch.weight, batch.nodes, batch.adjs[0].value)
    assert {tensor.device.type for tensor in others} == {"meta"}
    assert batch.adjs[0] is batch.adjs[1]
