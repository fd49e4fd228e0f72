from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch_geometric.nn import SAGEConv

from lazygnn import commands
from lazygnn.graph import Graph
from lazygnn.loader import NeighborLoader
from lazygnn.methods import build, resolve
from lazygnn.models.layers import relu_dropout
from lazygnn.models.sage import SAGE, SAGELayer, mean_of_neighbors
from lazygnn.run.digests import DIGESTS
from lazygnn.training.trainer import Trainer


def two_layers(graph: Graph, dtype: torch.dtype = torch.float64) -> SAGE:
    torch.manual_seed(0)
    return SAGE(graph.in_channels, 5, graph.task.num_outputs, num_layers=2, dropout=0.0).to(dtype)


def edges_of(graph: Graph) -> Tensor:
    """Sources and targets, without self-loops."""
    row, col = graph.adj.row_index(), graph.adj.col.long()
    return torch.stack((col, row))[:, row != col]


def pyg_convolution(layer: SAGELayer) -> Any:
    """PyG's layer with the same weights; its `lin_l` is for the neighbors and holds the bias."""
    convolution = SAGEConv(*layer.neighbors.shape, aggr="mean").double()
    with torch.no_grad():
        convolution.lin_l.weight.copy_(layer.neighbors.T)
        convolution.lin_l.bias.copy_(layer.own.bias)
        convolution.lin_r.weight.copy_(layer.own.weight.T)
    return convolution


@pytest.mark.parametrize("fanouts", [[-1, -1], [60, 60]], ids=["all", "as many as there are"])
def test_sage_equals_that_of_torch_geometric_where_all_neighbors_are_drawn(graph: Graph, fanouts: list[int]) -> None:
    model = two_layers(graph)
    first, second = (pyg_convolution(layer) for layer in model.layers if isinstance(layer, SAGELayer))
    (batch,) = NeighborLoader(graph, fanouts)
    out = model(batch)
    x, edges = graph.x, edges_of(graph)
    expected = second(first(x, edges).relu(), edges)
    torch.testing.assert_close(out, expected[batch.targets])
    torch.testing.assert_close(model.infer(graph), expected)

    torch.manual_seed(1)
    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (expected[batch.targets] * direction).sum().backward()
    for layer, convolution in zip(model.layers, (first, second), strict=True):
        assert isinstance(layer, SAGELayer)
        for ours, theirs in (
            (layer.neighbors, convolution.lin_l.weight),
            (layer.own.bias, convolution.lin_l.bias),
            (layer.own.weight, convolution.lin_r.weight),
        ):
            assert isinstance(theirs, Tensor)
            assert ours.grad is not None
            assert theirs.grad is not None
            torch.testing.assert_close(ours.grad, theirs.grad.T if theirs.dim() == 2 else theirs.grad)


def test_sparse_features_give_the_same_outputs_and_gradients(
    graph: Graph, make_sparse: Callable[[Graph], Graph]
) -> None:
    assert isinstance(graph.x, Tensor)
    # entries that are not stored
    dense = replace(graph, x=graph.x.clamp(min=0))
    one, other = two_layers(graph), two_layers(graph)
    # a sparse batch has rows that only neighbors need
    batches = [next(iter(NeighborLoader(each, [3, 3], seed=2))) for each in (make_sparse(dense), dense)]
    first, second = one(batches[0]), other(batches[1])
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)
    first.square().sum().backward()
    second.square().sum().backward()
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-12)


def test_the_mean_excludes_the_node_itself_and_ignores_edge_weights(path_graph: Graph) -> None:
    expected = torch.tensor([[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 1, 0]])
    assert torch.equal(mean_of_neighbors(path_graph.adj).to_dense(), expected)


def test_a_node_without_neighbors_has_a_mean_of_zero() -> None:
    graph = Graph.from_edges(
        torch.tensor([[0], [1]]), torch.eye(3), torch.tensor([0, 1, 0]), train_mask=torch.ones(3).bool()
    )
    mean = mean_of_neighbors(graph.adj).to_dense()
    assert torch.equal(mean[2], torch.zeros(3))
    model = two_layers(graph, torch.float32)
    (batch,) = NeighborLoader(graph, [2, 2])
    assert bool(model(batch).isfinite().all())
    torch.testing.assert_close(model(batch), model.infer(graph)[batch.targets])


def test_training_draws_dropout_as_fused_relu_and_dropout(graph: Graph) -> None:
    model = two_layers(graph)
    model.dropout = 0.5
    (batch,) = NeighborLoader(graph, [3, 3], seed=2)
    torch.manual_seed(1)
    out = model(batch)
    torch.manual_seed(1)
    first, second = model.layers
    hidden = relu_dropout(first(batch.x, batch.adjs[0]), 0.5, training=True)
    assert torch.equal(out, second(hidden, batch.adjs[1]))


def test_runs_with_the_earlier_name_of_a_weight_are_read(block_arrays: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "block.npz", **block_arrays)
    config = resolve("graphsage", str(tmp_path / "block.npz"), {"epochs": 2, "hidden_channels": 4})
    run = tmp_path / "run"
    result = commands.train(config, run, quiet=True)
    outputs, _, _ = commands.predict_run(run)
    current = load_file(run / "best.safetensors")
    earlier = {name.replace("neighbors", "neighbours"): value for name, value in current.items()}
    assert len(earlier.keys() - current.keys()) == 2
    save_file(earlier, run / "best.safetensors")
    # such a run has no digests
    (run / DIGESTS).unlink()
    assert commands.evaluate_run(run)["test"] == result["test"]
    assert torch.equal(commands.predict_run(run)[0], outputs)


def test_a_run_is_resumed_from_a_checkpoint_with_the_earlier_name(block_graph: Graph) -> None:
    config = resolve("graphsage", "block", {"epochs": 4, "hidden_channels": 4})

    def make_trainer() -> Trainer:
        torch.manual_seed(0)
        built = build(config, block_graph)
        return Trainer(built.model, built.loader, built.graph, config.trainer)

    straight = make_trainer()
    saved: list[tuple[dict[str, Tensor], dict[str, Any]]] = []

    def save(trainer: Trainer) -> None:
        if trainer.num_batches == 2:
            tensors, state = trainer.checkpoint()
            saved.append(({name.replace("neighbors", "neighbours"): t.clone() for name, t in tensors.items()}, state))

    straight.on_batch = save
    straight.run()
    resumed = make_trainer()
    resumed.restore(*saved[0])
    resumed.run()
    assert straight.finish().scores == resumed.finish().scores
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])
