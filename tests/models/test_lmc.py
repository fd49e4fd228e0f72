"""LMC against the whole graph and against GNNAutoScale, in float64."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader
from lazygnn.model import Model
from lazygnn.models import GCN, LMC
from lazygnn.propagation import Mix
from lazygnn.propagation.compensation import Compensation
from tests.helpers import open_float64, random_graph

N, H, C = 80, 8, 3
PTR = torch.tensor([0, 20, 40, 60, 80])
Norm = Literal["batch", "layer", "none"]


@pytest.fixture(scope="module")
def random() -> Graph:
    return random_graph(N, 240, seed=1)


def make_lmc(num_layers: int, norm: Norm = "none", beta: float = 0.0) -> LMC:
    torch.manual_seed(0)
    start, widths = Mix(1.0), [H] * (num_layers - 1)
    features = [open_float64(N, width, start) for width in [*widths, C]]
    gradients = [open_float64(N, width, start) for width in widths[1:]]
    compensation = Compensation(features, gradients, beta=beta)
    return LMC(4, H, C, num_layers=num_layers, norm=norm, dropout=0.0, compensation=compensation).double()


def make_gas(num_layers: int, norm: Norm = "none") -> GCN:
    torch.manual_seed(0)
    histories = [open_float64(N, H, Mix(1.0)) for _ in range(num_layers - 1)]
    return GCN(4, H, C, num_layers=num_layers, norm=norm, dropout=0.0, histories=histories).double()


def gradient(model: Model) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def full_gradient(model: Model, graph: Graph, num_layers: int) -> Tensor:
    model.zero_grad()
    model.loss(Batch.full(graph, num_layers), graph.task).backward()
    return gradient(model)


def sum_over_parts(model: Model, graph: Graph, num_layers: int) -> Tensor:
    loader = ClusterLoader(graph, PTR, num_layers, halo="induced" if isinstance(model, LMC) else "features")
    model.zero_grad()
    for batch in loader.sweep():
        (model.loss(batch, graph.task) / len(loader)).backward()
    return gradient(model)


def error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("num_layers", [1, 2, 3, 4])
def test_with_exact_histories_the_gradients_of_all_parts_add_up(random: Graph, num_layers: int, norm: Norm) -> None:
    lmc, gas = make_lmc(num_layers, norm), make_gas(num_layers, norm)
    exact = full_gradient(lmc, random, num_layers)
    for model in (lmc, gas):
        # with frozen weights, each pass makes the histories of one more layer exact
        for _ in range(2 * num_layers):
            sum_over_parts(model, random, num_layers)
    assert error(sum_over_parts(lmc, random, num_layers), exact) < 1e-12
    if num_layers > 1:
        assert error(sum_over_parts(gas, random, num_layers), exact) > 0.1


@pytest.mark.parametrize("num_layers", [2, 3])
def test_with_stale_histories_the_gradient_is_nearer_than_that_of_gas(random: Graph, num_layers: int) -> None:
    errors = []
    for model in (make_lmc(num_layers), make_gas(num_layers)):
        for _ in range(2 * num_layers):
            sum_over_parts(model, random, num_layers)
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter.data += 0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        found = sum_over_parts(model, random, num_layers)
        errors.append(error(found, full_gradient(model, random, num_layers)))
    assert 1e-3 < errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_exact_histories_give_exact_outputs_where_no_computed_row_is_mixed_in(random: Graph, beta: float) -> None:
    model = make_lmc(3, beta=beta)
    expected = model.infer(random)
    loader = ClusterLoader(random, PTR, 3, halo="induced")
    for _ in range(4):
        for batch in loader.sweep():
            model.fill(batch)
    outputs = torch.cat([model(batch) for batch in loader.sweep()]).detach()
    # computed rows miss the neighbors outside
    assert (error(outputs, expected) < 1e-12) == (beta == 0)


def test_the_loss_is_that_of_the_targets(random: Graph) -> None:
    model = make_lmc(3, beta=0.5)
    batch = next(iter(ClusterLoader(random, PTR, 3, halo="induced")))
    model.fill(batch)
    expected = (batch.weight * random.task.loss(model(batch), batch.y)).sum()
    torch.testing.assert_close(model.loss(batch, random.task), expected)


def test_weights_learn_from_the_targets_alone(random: Graph) -> None:
    model = make_lmc(2, norm="layer", beta=1.0)
    batch = next(iter(ClusterLoader(random, PTR, 2, halo="induced")))
    model.fill(batch)
    outputs = model._outputs(batch)
    # the halo's loss alone reaches the first layer by way of the targets, and the last layer not at all
    outputs[batch.num_targets :].sum().backward()
    first, last = model.layer_parameters()
    assert all(p.grad is not None and float(p.grad.abs().max()) > 0 for p in first)
    assert all(p.grad is None or float(p.grad.abs().max()) == 0 for p in last)


def test_batch_norm_counts_a_batch_once_and_its_targets_alone(random: Graph) -> None:
    model = make_lmc(2, norm="batch", beta=0.5)
    batch = next(iter(ClusterLoader(random, PTR, 2, halo="induced")))
    (norm,) = model.norms
    model.fill(batch)
    assert int(norm.num_batches_tracked) == 1  # type: ignore[arg-type]
    hidden = model.layers[0](batch.x, batch.adjs[0])[: batch.num_targets]
    torch.testing.assert_close(norm.running_mean, 0.1 * hidden.mean(dim=0))


def test_without_histories_it_is_a_gcn(random: Graph) -> None:
    torch.manual_seed(0)
    model = LMC(4, H, C, num_layers=3, norm="layer", dropout=0.0).double()
    gcn = make_gas(3, "layer")
    batch = Batch.full(random, 3)
    assert torch.equal(model(batch), gcn(batch))
    with pytest.raises(ValueError, match="3 layers need 3 histories of features or none, got 2"):
        LMC(4, H, C, num_layers=3, compensation=make_lmc(2).compensation)
