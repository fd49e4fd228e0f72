import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import ImportanceLoader
from lazygnn.loader.importance import inclusion
from lazygnn.task import Task
from tests.helpers import random_rows


class Fixed:
    """Norms that are known for some nodes, and the nodes that were measured."""

    def __init__(self, norms: Tensor, known: Tensor | None = None) -> None:
        self.norms, self.known = norms, torch.ones_like(norms, dtype=torch.bool) if known is None else known
        self.measured: list[Batch] = []

    def measure(self, batch: Batch, task: Task) -> None:
        assert task.num_outputs == 3
        self.measured.append(batch)

    def stored_norms(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        return self.norms[nodes], self.known[nodes]


def load(graph: Graph, source: Fixed | None = None, **options: Any) -> ImportanceLoader:
    loader = ImportanceLoader(graph, 2, **{"batch_size": 6} | options)
    loader.source = source
    return loader


def skewed() -> Tensor:
    """Norms of sixty nodes, of which a few are much larger than the others."""
    return random_rows(60, 1, 3)[:, 0].mul(1.5).exp()


@pytest.mark.parametrize("size", [1, 6, 19])
def test_probabilities_sum_to_the_batch_and_are_in_proportion_below_one(size: int) -> None:
    norms = skewed()[:20]
    p = inclusion(norms, size)
    assert float(p.sum()) == pytest.approx(size, abs=1e-9)
    assert bool((p > 0).all())
    below = p < 1
    ratio = p[below] / norms[below]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
    # who is certain would have had a probability of at least 1
    assert bool((norms[~below] * ratio[0] >= 1 - 1e-9).all())
    if size > 1:
        assert not bool(below.all())


def test_equal_norms_give_uniform_probabilities_and_a_large_batch_ones() -> None:
    torch.testing.assert_close(inclusion(torch.full((20,), 3.0), 5), torch.full((20,), 0.25))
    for size in (20, 30):
        assert torch.equal(inclusion(skewed()[:20], size), torch.ones(20, dtype=torch.float64))
    # a single large norm
    expected = torch.tensor([1, 1 / 3, 1 / 3, 1 / 3])
    torch.testing.assert_close(inclusion(torch.tensor([100.0, 1, 1, 1]), 2), expected)


def test_probabilities_minimize_the_variance_of_the_loss() -> None:
    """No other probabilities with the same sum have a smaller variance `sum g^2 / p`."""
    norms = skewed()[:20]
    best = inclusion(norms, 6)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        other = inclusion(norms * torch.rand(20, dtype=torch.float64, generator=generator).add(0.5), 6)
        assert float((norms.square() / best).sum()) <= float((norms.square() / other).sum()) + 1e-9
    uniform = torch.full((20,), 0.3, dtype=torch.float64)
    assert float((norms.square() / best).sum()) < 0.8 * float((norms.square() / uniform).sum())


def test_the_loss_is_unbiased(block_graph: Graph) -> None:
    """The mean over 600 batches of the weighted loss is the mean over training nodes, within 5 standard errors."""
    loader, losses = load(block_graph, Fixed(skewed())), random_rows(60, 1, 5)[:, 0]
    samples = []
    for _ in range(150):
        for batch in loader:
            assert batch.num_targets == 6
            samples.append(float((batch.weight * losses[batch.targets]).sum()))
    found = torch.tensor(samples)
    expected = float(losses[block_graph.masks["train"]].mean())
    assert len(found) == 600
    assert abs(float(found.mean()) - expected) <= 5 * float(found.std()) / math.sqrt(600)


@pytest.mark.parametrize("known", [0, 3, 60])
def test_no_node_is_starved(block_graph: Graph, known: int) -> None:
    """Neither nodes with a norm of zero nor nodes that were never measured are left out."""
    norms = torch.zeros(60)
    norms[:30] = 5.0
    loader = load(block_graph, Fixed(norms, torch.arange(60) < known), uniform_share=0.1)
    p = loader.probabilities()
    assert float(p.sum()) == pytest.approx(6, abs=1e-9)
    assert float(p.min()) >= 0.1 * 6 / 20 - 1e-9
    seen = torch.cat([batch.targets for _ in range(60) for batch in loader]).unique()
    assert torch.equal(seen, block_graph.masks["train"].nonzero()[:, 0])


def test_nodes_without_a_norm_have_the_mean_of_the_others(block_graph: Graph) -> None:
    train = block_graph.masks["train"].nonzero()[:, 0]
    norms, known = torch.zeros(60), torch.zeros(60, dtype=torch.bool)
    norms[train[:4]], known[train[:4]] = torch.tensor([1.0, 2, 3, 2]), True
    p = load(block_graph, Fixed(norms, known), uniform_share=0.5).probabilities()
    assert float(p[4]) == pytest.approx(float(p[1]))
    # norms are 0.5, 1 and 1.5 means, half of which is replaced by the mean
    torch.testing.assert_close(p[:3] / p[1], torch.tensor([0.75, 1, 1.25], dtype=torch.float64))


@pytest.mark.parametrize("norms", [None, torch.zeros(60)])
def test_without_norms_all_nodes_are_alike(block_graph: Graph, norms: Tensor | None) -> None:
    p = load(block_graph, None if norms is None else Fixed(norms)).probabilities()
    torch.testing.assert_close(p, torch.full((20,), 0.3, dtype=torch.float64))


def test_gradients_are_measured_at_their_time_on_exact_neighborhoods(block_graph: Graph) -> None:
    source = Fixed(skewed())
    loader = load(block_graph, source, refresh_every=3, refresh_share=0.25)
    times = [len(source.measured) for _ in range(2) for _ in loader]
    # four batches in an epoch
    assert times == [1, 1, 1, 2, 2, 2, 3, 3]
    dense, train = block_graph.adj.to_dense(), block_graph.masks["train"]
    assert not torch.equal(source.measured[0].targets, source.measured[1].targets)
    for batch in source.measured:
        assert batch.num_targets == 5
        assert bool(train[batch.targets].all())
        first, last = batch.adjs
        assert last.num_rows == 5
        assert last.num_cols == first.num_rows
        assert first.num_cols == len(batch.nodes)
        for adj in (first, last):
            rows, cols = batch.nodes[: adj.num_rows], batch.nodes[: adj.num_cols]
            assert torch.equal(adj.to_dense(), dense[rows][:, cols])
            assert int((adj.to_dense() != 0).sum()) == int((dense[rows] != 0).sum())


def test_a_batch_has_the_halo_of_its_targets(block_graph: Graph) -> None:
    dense = block_graph.adj.to_dense()
    for batch in load(block_graph):
        assert len(batch.adjs) == 2
        assert batch.adjs[0] is batch.adjs[1]
        assert torch.equal(batch.adjs[0].to_dense(), dense[batch.targets][:, batch.nodes])
        assert int((batch.adjs[0].to_dense() != 0).sum()) == int((dense[batch.targets] != 0).sum())
        assert isinstance(block_graph.x, Tensor)
        assert isinstance(batch.x, Tensor)
        assert torch.equal(batch.x, block_graph.x[batch.nodes])


def test_the_next_batch_is_unknown_until_it_is_drawn(block_graph: Graph) -> None:
    loader = load(block_graph)
    for _ in loader:
        assert loader.upcoming() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
        ({"refresh_every": 0}, "`refresh_every` must be at least 1, got 0"),
        ({"refresh_share": 0.0}, "`refresh_share` must be above 0 and at most 1, got 0.0"),
        ({"uniform_share": 1.5}, "`uniform_share` must be above 0 and at most 1, got 1.5"),
    ],
)
def test_impossible_options_are_refused(block_graph: Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(block_graph, **options)
