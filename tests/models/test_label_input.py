from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import build, resolve
from lazygnn.models.label_input import LabelInput
from lazygnn.task import Task
from lazygnn.training import Trainer

SINGLE, MULTI = Task("single-label", 3), Task("multi-label", 2)


def batch_of(y: Tensor, weight: Tensor) -> Batch:
    nodes = torch.arange(len(y))
    return Batch(torch.ones(len(y), 1), y, weight, nodes, len(y), [], whole=True)


def test_a_shown_label_is_its_row_of_the_embedding_and_a_hidden_one_is_zero() -> None:
    labels = LabelInput(SINGLE, 4, 0.5)
    rows = labels(torch.tensor([2, 0, -1, 1]), torch.tensor([True, True, False, False]))
    assert torch.equal(rows, torch.stack((labels.embedding.weight[2], labels.embedding.weight[0], *torch.zeros(2, 4))))


def test_several_labels_add_up_and_unknown_ones_are_not_read() -> None:
    labels = LabelInput(MULTI, 4, 0.5)
    y = torch.tensor([[1.0, 1.0], [0.0, 0.0], [torch.nan, 1.0]])
    rows = labels(y, torch.tensor([True, True, False]))
    torch.testing.assert_close(rows[0], labels.embedding.weight.sum(dim=0))
    assert torch.equal(rows[1:], torch.zeros(2, 4))


def test_a_label_is_shown_or_learned_from_and_the_expected_weight_stays() -> None:
    torch.manual_seed(0)
    train = torch.arange(4000) % 2 == 0
    batch = batch_of(torch.arange(4000) % 3, train / 2000)
    labels = LabelInput(SINGLE, 4, 0.25)
    rows, weight = labels.draw(batch)
    shown = rows.abs().sum(dim=1) > 0
    assert not bool((shown & ~train).any())
    assert torch.equal(weight > 0, train & ~shown)
    # 2000 draws: the standard deviation of the share is 0.01
    assert abs(float(shown.sum()) / 2000 - 0.25) < 0.05
    assert abs(float(weight.sum()) - 1) < 0.07
    assert not torch.equal(labels.draw(batch).weight, weight)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5])
def test_a_share_that_shows_all_or_none_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=rf"`share` is {share}; .* choose one in \(0, 1\)"):
        LabelInput(SINGLE, 4, share)


def test_inference_shows_training_labels_and_no_others(block_graph: Graph) -> None:
    config = resolve("lazygnn-deep", "block", {"epochs": 3, "hidden_channels": 8, "label_input": 0.5, "beside": []})
    torch.manual_seed(0)
    built = build(config, block_graph)
    Trainer(built.model, built.loader, built.graph, config.trainer).run()
    outputs = built.model.infer(block_graph)
    hidden = ~block_graph.masks["train"]
    poisoned = replace(block_graph, y=torch.where(hidden, (block_graph.y + 1) % 3, block_graph.y))
    assert torch.equal(built.model.infer(poisoned), outputs)
    relabeled = replace(block_graph, y=torch.where(hidden, block_graph.y, (block_graph.y + 1) % 3))
    assert not torch.equal(built.model.infer(relabeled), outputs)
    # over the whole graph in evaluation mode, a batch sees the same labels
    torch.testing.assert_close(built.model.eval()(Batch.full(block_graph, 2)), outputs, rtol=1e-4, atol=1e-4)
    # a graph to predict on need not have labels
    unlabeled = replace(block_graph, y=torch.full_like(block_graph.y, -1), masks={})
    none = replace(block_graph, masks={"train": torch.zeros_like(hidden)})
    assert torch.equal(built.model.infer(unlabeled), built.model.infer(none))
