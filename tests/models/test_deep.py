"""A stack of lazy blocks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from lazygnn import inference
from lazygnn.batch import Batch
from lazygnn.config import TrainerOptions
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.models import LazyBlock, LazyStack
from lazygnn.models.layers import NormKind
from lazygnn.propagation import Drift, ExactPropagation, LazyPropagation
from lazygnn.training import EpochReport, Trainer
from tests.helpers import exact_solution, note_scratch, open_float64, random_rows

N, H, OUT = 60, 4, 3
PTR = torch.tensor([0, 10, 25, 26, 45, N])


def lazy(channels: int, *, alpha: float = 0.2, beta: float = 0.1, halo_inputs: bool = False) -> LazyPropagation:
    history = open_float64(N, channels, Drift(beta), halo_inputs=halo_inputs)
    return LazyPropagation(alpha, history, eval_tolerance=1e-12)


def make(
    *,
    exact: int | None = None,
    dropout: float = 0.0,
    input_dropout: float = 0.0,
    norm: NormKind = "layer",
    scratch: Path | None = None,
) -> LazyStack:
    """Makes a stack of two blocks in float64, the first with two far views; `exact` is the number of exact steps."""
    torch.manual_seed(0)

    def far(channels: int, **options: Any) -> LazyPropagation | ExactPropagation:
        return lazy(channels, **options) if exact is None else ExactPropagation(0.2, exact)

    views = [[far(H, halo_inputs=True), far(H)], [far(H, halo_inputs=True)]]
    return LazyStack(
        3,
        OUT,
        [LazyBlock(H, each, norm=norm, dropout=dropout) for each in views],
        hidden_channels=H,
        norm=norm,
        dropout=dropout,
        input_dropout=input_dropout,
        scratch=scratch,
    ).double()


def histories(model: LazyStack) -> list[StoredHistory]:
    far = [view for block in model.blocks for view in cast(LazyBlock, block).far]
    found = [cast(LazyPropagation, view).features for view in far]
    assert all(isinstance(history, StoredHistory) for history in found)
    return cast(list[StoredHistory], found)


@pytest.mark.parametrize("norm", ["layer", "batch", "none"])
def test_a_stack_is_its_formula(graph: Graph, norm: NormKind) -> None:
    model = make(exact=2, norm=norm)
    batch = Batch.full(graph, 2)
    assert isinstance(graph.x, Tensor)
    h = torch.nn.functional.gelu(graph.x @ model.first.weight + model.first.bias)
    for block in model.blocks:
        h = block(h, batch)
    expected = model.norm(h) @ model.last.weight + model.last.bias
    torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-12)
    assert expected.shape == (N, OUT)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_inference_is_the_pass_of_evaluation_in_bounded_memory(
    graph: Graph,
    make_sparse: Callable[[Graph], Graph],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    norm: NormKind,
    sparse: bool,
) -> None:
    graph = make_sparse(graph) if sparse else graph
    names = note_scratch(monkeypatch)
    model = make(dropout=0.5, input_dropout=0.3, norm=norm, scratch=tmp_path)
    model.loss(Batch.full(graph, 2), graph.task)
    expected = model.eval()(Batch.full(graph, 2))
    model.train()
    for rows in (N, 7):
        monkeypatch.setattr(inference, "INFERENCE_ROWS", rows)
        monkeypatch.setattr(inference, "INFERENCE_BYTES", 5 * N * 8 * 2)
        torch.testing.assert_close(model.infer(graph), expected, rtol=0, atol=1e-10)
        assert all(module.training for module in model.modules())
        rows_of_last = model.embed(graph)
        torch.testing.assert_close(model.last(rows_of_last), expected, rtol=0, atol=1e-10)
        assert rows_of_last.shape == (N, H)
        assert all(module.training for module in model.modules())
    # the input of a block, its near view and its far views
    assert names == {"stack", *(f"block-{index}" for index in range(4))}
    assert list(tmp_path.iterdir()) == []


def test_a_first_pass_fills_every_history_and_keeps_weights_and_gradients(graph: Graph) -> None:
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for batch in ClusterLoader(graph, PTR, 2).sweep():
        assert not all(history.complete for history in histories(model))
        model.fill(batch)
    assert all(history.complete for history in histories(model))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_the_largest_error_of_a_stored_solution_is_diagnosed(graph: Graph) -> None:
    model = make()
    for index, history in enumerate(histories(model)):
        x = random_rows(N, history.values.channels, index)
        factor = 1.5 if index == 1 else 1.1
        history.push(torch.arange(N), factor * exact_solution(graph.adj, x, 0.2), x)
    assert model.diagnose(graph) == {"fixed_point_error": pytest.approx(0.5, abs=1e-2)}
    assert make(exact=2).diagnose(graph) == {}


@pytest.mark.parametrize("norm", ["layer", "none"])
def test_layers_cover_every_parameter_once(norm: NormKind) -> None:
    model = make(norm=norm)
    groups = model.layer_parameters()
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in model.parameters())
    # from input to output
    assert [id(p) for p in groups[0]] == [id(p) for p in model.first.parameters()]
    assert len(groups) == 4
    assert {id(p) for p in groups[3]} == {id(p) for p in (*model.last.parameters(), *model.norm.parameters())}


def test_one_part_trains_like_the_full_batch(graph: Graph) -> None:
    states = []
    for loader in (ClusterLoader(graph, torch.tensor([0, N]), 2), FullLoader(graph, 2)):
        model = make(dropout=0.3)
        torch.manual_seed(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            for batch in loader:
                optimizer.zero_grad()
                model.loss(batch, graph.task).backward()
                optimizer.step()
        states.append({**model.state_dict(), "outputs": model.infer(graph)})
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
def test_labels_outside_the_training_split_change_nothing(graph: Graph, in_parts: bool) -> None:
    def train(y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        used = replace(graph, y=y)
        model = make(dropout=0.2)
        loader = ClusterLoader(used, PTR, 2) if in_parts else FullLoader(used, 2)
        torch.manual_seed(1)
        trainer = Trainer(model, loader, used, TrainerOptions(epochs=4, lr=0.05))
        trainer.run()
        return {name: value.clone() for name, value in model.state_dict().items()}, model.infer(used)

    poisoned = torch.where(graph.masks["train"], graph.y, (graph.y + 1) % OUT)
    state, outputs = train(graph.y)
    other, same = train(poisoned)
    assert all(torch.equal(value, other[name]) for name, value in state.items())
    assert torch.equal(outputs, same)
    # other training labels do change the weights
    flipped, _ = train(torch.where(graph.masks["train"], (graph.y + 1) % OUT, graph.y))
    assert not torch.equal(flipped["first.weight"], state["first.weight"])


def test_a_stack_learns(block_graph: Graph) -> None:
    torch.manual_seed(0)
    blocks = [LazyBlock.for_graph(block_graph, 16, dropout=0.2) for _ in range(2)]
    model = LazyStack(3, OUT, blocks, hidden_channels=16, dropout=0.2)
    loader = ClusterLoader(block_graph, PTR, 2)
    reports: list[EpochReport] = []
    options = TrainerOptions(epochs=30, eval_every=10, lr=0.01)
    result = Trainer(model, loader, block_graph, options, on_epoch=reports.append).fit()
    assert reports[-1].loss < 0.5 * reports[0].loss
    assert result.scores["test"] > 0.8


def test_what_does_not_fit_is_named(graph: Graph) -> None:
    for blocks in ([], None, [nn.Linear(1, 1)]):
        with pytest.raises(ConfigError, match=r"`blocks` is .*; give a list of one or more `LazyBlock`"):
            LazyStack(3, OUT, blocks, hidden_channels=H)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="`batch` is of type Graph; make a batch with"):
        make()(graph)
