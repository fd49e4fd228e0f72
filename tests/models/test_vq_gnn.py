"""VQ-GNN against the whole graph, in float64."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory, open_history
from lazygnn.loader import ClusterLoader
from lazygnn.models import VQGNN
from lazygnn.models.gcn import GCNLayer
from lazygnn.ops import aggregate
from lazygnn.propagation import Mix
from lazygnn.propagation.codebook import Codebook

N, H, C = 60, 6, 3
# four parts, since the weights of the loss are float32: a fourth of them is exact
PTR = torch.tensor([0, 10, 25, 45, 60])


def make(num_layers: int, num_words: int = N) -> VQGNN:
    torch.manual_seed(0)
    books = [Codebook(H, num_words) for _ in range(num_layers - 1)]
    codes = [open_history(N, book.num_branches, Mix(1.0)) for book in books]
    return VQGNN(3, H, C, num_layers=num_layers, dropout=0.0, books=books, codes=codes).double()


def gradient(model: VQGNN) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def exact_rows(model: VQGNN, graph: Graph, num_batches: int) -> list[tuple[Tensor, Tensor]]:
    """Returns the input of every layer but the first, and the gradient of its sum over neighbors."""
    found, x = [], model.layers[0](graph.x, graph.adj)
    for layer in list(model.layers)[1:]:
        assert isinstance(layer, GCNLayer)
        x = F.relu(x)
        sums = aggregate(graph.adj, x)
        sums.retain_grad()
        found.append((x, sums))
        x = sums @ layer.weight + layer.bias
    weight = Batch.full(graph, 1).weight * num_batches
    (weight * graph.task.loss(x, graph.y)).sum().backward()
    model.zero_grad()
    return [(x.detach(), sums.grad) for x, sums in found if sums.grad is not None]


def give_every_node_a_word(model: VQGNN, rows: list[tuple[Tensor, Tensor]]) -> None:
    numbers = torch.arange(N)
    for book, history, (values, gradients) in zip(model.books, model.codes, rows, strict=True):
        assert isinstance(book, Codebook)
        book.words.copy_(book.standardize(values, gradients))
        codes = (numbers + 1).unsqueeze(1).expand(N, book.num_branches).float()
        history.push(numbers, codes, codes)


def codes_of(model: VQGNN) -> list[Tensor]:
    return [h.values.read(torch.arange(N)) for h in model.codes if isinstance(h, StoredHistory)]


@pytest.mark.parametrize("num_layers", [1, 2, 3, 4])
def test_a_word_for_every_node_gives_exact_outputs_and_gradients(graph: Graph, num_layers: int) -> None:
    model = make(num_layers)
    loader = ClusterLoader(graph, PTR, num_layers, halo="features")
    rows = exact_rows(model, graph, len(loader))
    assert len(rows) == num_layers - 1
    model.loss(Batch.full(graph, num_layers), graph.task).backward()
    exact, outputs = gradient(model), model.infer(graph)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    total = torch.zeros_like(exact)
    for batch in loader.sweep():
        # the batch before has moved the words
        model.load_state_dict(state)
        give_every_node_a_word(model, rows)
        model.zero_grad()
        found = model(batch)
        torch.testing.assert_close(found, outputs[batch.targets], rtol=0, atol=1e-12)
        model.loss(batch, graph.task).backward()
        total += gradient(model) / len(loader)
    torch.testing.assert_close(total, exact, rtol=0, atol=1e-12)


def test_without_the_gradients_of_the_halo_the_sum_is_off(graph: Graph) -> None:
    model = make(3)
    loader = ClusterLoader(graph, PTR, 3, halo="features")
    rows = [(values, torch.zeros_like(gradients)) for values, gradients in exact_rows(model, graph, len(loader))]
    model.loss(Batch.full(graph, 3), graph.task).backward()
    exact = gradient(model)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    total = torch.zeros_like(exact)
    for batch in loader.sweep():
        model.load_state_dict(state)
        give_every_node_a_word(model, rows)
        model.zero_grad()
        model.loss(batch, graph.task).backward()
        total += gradient(model) / len(loader)
    assert float((total - exact).norm() / exact.norm()) > 0.05


def test_a_step_encodes_its_targets_alone(graph: Graph) -> None:
    model = make(3, num_words=5)
    batch = next(iter(ClusterLoader(graph, PTR, 3, halo="features")))
    others = torch.ones(N, dtype=torch.bool)
    others[batch.targets] = False
    for _ in range(2):
        before = codes_of(model)
        model.loss(batch, graph.task).backward()
        for old, new in zip(before, codes_of(model), strict=True):
            assert torch.equal(new[others], old[others])
            assert bool(((new[batch.targets] >= 1) & (new[batch.targets] <= 5)).all())
    assert [int(book.num_updates) for book in model.books] == [2, 2]  # type: ignore[arg-type]


def test_filling_and_inference_leave_codes_and_words_alone(graph: Graph) -> None:
    model = make(3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for batch in ClusterLoader(graph, PTR, 3, halo="features").sweep():
        model.fill(batch)
    model.infer(graph)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(float(codes.abs().max()) == 0 for codes in codes_of(model))


def test_the_full_batch_is_a_gcn_and_a_halo_needs_codes(graph: Graph) -> None:
    model = make(3)
    torch.testing.assert_close(model(Batch.full(graph, 3)), model.infer(graph), rtol=0, atol=1e-12)
    batch = next(iter(ClusterLoader(graph, PTR, 3, halo="features")))
    for refusing in (model.eval(), VQGNN(3, H, C, num_layers=3).double()):
        with pytest.raises(ValueError, match="a halo needs histories in training"):
            refusing(batch)


def test_wrong_numbers_of_books_and_codes_are_named() -> None:
    with pytest.raises(ValueError, match="3 layers need 2 codebooks or none, got 1"):
        VQGNN(3, H, C, num_layers=3, books=[Codebook(H, 4)])
    with pytest.raises(ValueError, match="2 layers need 1 histories of codes or none, got 2"):
        VQGNN(3, H, C, num_layers=2, codes=make(3).codes)
