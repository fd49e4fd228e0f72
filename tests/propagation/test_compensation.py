"""The mix of computed and stored rows of the halo, in values and in gradients, in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.loader import ClusterLoader
from lazygnn.propagation import Mix
from lazygnn.propagation.compensation import Compensation, Score
from tests.helpers import open_float64, random_rows

N, C = 60, 5


@pytest.fixture
def part(block_graph: Graph) -> Batch:
    graph = block_graph.to(torch.float64)
    return next(iter(ClusterLoader(graph, torch.tensor([0, 10, 25, 26, 45, 60]), 3, halo="induced")))


def opened(seed: int) -> tuple[StoredHistory, Tensor]:
    history, stored = open_float64(N, C, Mix(1.0)), random_rows(N, C, seed)
    history.push(torch.arange(N), stored, stored)
    return history, stored


def three_layers(**options: float | Score) -> tuple[Compensation, Tensor, Tensor]:
    """Returns a compensation of three layers, and what the middle one has stored: values and gradients."""
    (middle, values), (gradient, gradients) = opened(1), opened(2)
    features = [opened(3)[0], middle, opened(4)[0]]
    return Compensation(features, [gradient], **options), values, gradients  # type: ignore[arg-type]


SHARES: dict[Score, Callable[[Tensor], Tensor]] = {
    "constant": lambda x: 0 * x + 1,
    "linear": lambda x: x,
    "concave": lambda x: 2 * x - x**2,
    "convex": lambda x: x**2,
}


@pytest.mark.parametrize("score", list(SHARES))
@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_values_and_gradients_of_the_halo_are_mixed_by_coverage(part: Batch, score: Score, beta: float) -> None:
    compensation, values, gradients = three_layers(beta=beta, score=score)
    assert part.ring is not None
    size, halo = part.num_targets, part.nodes[part.num_targets :]
    weight = beta * SHARES[score](part.ring.coverage).unsqueeze(1)
    x = random_rows(len(part.nodes), C, 5).requires_grad_()
    grad = random_rows(len(part.nodes), C, 6)
    out = compensation(1, x, part)
    out.backward(grad)
    torch.testing.assert_close(out[:size], x[:size])
    torch.testing.assert_close(out[size:], (1 - weight) * values[halo] + weight * x[size:])
    assert x.grad is not None
    # the computed row receives the mixed gradient as a whole
    torch.testing.assert_close(x.grad[:size], grad[:size])
    torch.testing.assert_close(x.grad[size:], (1 - weight) * gradients[halo] + weight * grad[size:])


def test_targets_alone_are_stored(part: Batch) -> None:
    compensation, values, gradients = three_layers(beta=0.5)
    x, grad = random_rows(len(part.nodes), C, 5).requires_grad_(), random_rows(len(part.nodes), C, 6)
    compensation(1, x, part).backward(grad)
    for history, before, fresh in (
        (compensation.features[1], values, x.detach()),
        (compensation.gradients[0], gradients, grad),
    ):
        expected = before.clone()
        expected[part.targets] = fresh[: part.num_targets]
        assert isinstance(history, StoredHistory)
        assert torch.equal(history.values.read(torch.arange(N)), expected)


@pytest.mark.parametrize("index", [0, 2])
def test_gradients_after_the_first_and_the_last_layer_are_not_mixed(part: Batch, index: int) -> None:
    compensation, _, gradients = three_layers(beta=0.5)
    x, grad = random_rows(len(part.nodes), C, 5).requires_grad_(), random_rows(len(part.nodes), C, 6)
    compensation(index, x, part).backward(grad)
    assert x.grad is not None
    assert torch.equal(x.grad, grad)
    (history,) = compensation.gradients
    assert isinstance(history, StoredHistory)
    assert torch.equal(history.values.read(torch.arange(N)), gradients)


def test_a_batch_without_a_halo_passes(block_graph: Graph) -> None:
    x = random_rows(N, C, 5)
    assert Compensation()(0, x, Batch.full(block_graph, 1)) is x


def test_a_halo_without_histories_or_in_evaluation_is_refused(part: Batch) -> None:
    x = random_rows(len(part.nodes), C, 5)
    for compensation in (Compensation(), three_layers(beta=0.5)[0].eval()):
        with pytest.raises(ValueError, match=r'a halo needs histories in training and a loader with `halo="induced"`'):
            compensation(0, x, part)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"`beta` must be in \[0, 1\], got 1.5"):
        Compensation(beta=1.5)
    with pytest.raises(ValueError, match="`score` must be one of constant, linear, concave, convex, got `sine`"):
        Compensation(score="sine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 histories of features need 1 of gradients, got 0"):
        Compensation([opened(seed)[0] for seed in range(3)])
