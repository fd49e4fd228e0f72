"""A stack of lazy blocks beside the decoupled model."""

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
from lazygnn.model import weighted_loss
from lazygnn.models import MLP, Decoupled, LazyBlock, LazyStack
from lazygnn.models.deep import SHARES
from lazygnn.models.layers import NormKind
from lazygnn.propagation import Drift, ExactPropagation, LazyPropagation
from lazygnn.training import EpochReport, Trainer
from tests.helpers import exact_solution, open_float64, random_rows

N, H, OUT = 60, 4, 3
PTR = torch.tensor([0, 10, 25, 26, 45, N])


def lazy(channels: int, *, alpha: float = 0.2, beta: float = 0.1, halo_inputs: bool = False) -> LazyPropagation:
    history = open_float64(N, channels, Drift(beta), halo_inputs=halo_inputs)
    return LazyPropagation(alpha, history, eval_tolerance=1e-12)


def make(
    *,
    decoupled: bool = True,
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
    beside = None
    if decoupled:
        beside = Decoupled(MLP(3, 8, OUT, mlp_layers=2, dropout=dropout), far(OUT), scratch=scratch)
    return LazyStack(
        3,
        OUT,
        [LazyBlock(H, each, norm=norm, dropout=dropout) for each in views],
        hidden_channels=H,
        norm=norm,
        dropout=dropout,
        input_dropout=input_dropout,
        decoupled=beside,
        scratch=scratch,
    ).double()


def beside(model: LazyStack) -> Decoupled:
    assert model.decoupled is not None
    return model.decoupled


def own(model: LazyStack) -> dict[str, nn.Parameter]:
    """Returns the weights of the stack alone."""
    return {name: weight for name, weight in model.named_parameters() if not name.startswith("decoupled.")}


def histories(model: LazyStack) -> list[StoredHistory]:
    far = [view for block in model.blocks for view in cast(LazyBlock, block).far]
    found = [cast(LazyPropagation, view).features for view in [*far, beside(model).propagation]]
    assert all(isinstance(history, StoredHistory) for history in found)
    return cast(list[StoredHistory], found)


def outputs_of(model: LazyStack, graph: Graph) -> tuple[Tensor, Tensor]:
    """Returns the outputs of the stack alone and those of the decoupled model."""
    share = float(model.share)
    model.share.fill_(0.0)
    stack = model.infer(graph)
    model.share.fill_(share)
    return stack, beside(model).infer(graph)


def prefers(wanted: Tensor) -> Callable[[Tensor], float]:
    """Returns a score that is high for these outputs, and low for all others."""
    return lambda outputs: 0.9 if torch.allclose(outputs, wanted, rtol=0, atol=1e-12) else 0.1


@pytest.mark.parametrize("norm", ["layer", "batch", "none"])
def test_a_stack_is_its_formula(graph: Graph, norm: NormKind) -> None:
    model = make(exact=2, decoupled=False, norm=norm)
    batch = Batch.full(graph, 2)
    assert isinstance(graph.x, Tensor)
    h = torch.nn.functional.gelu(graph.x @ model.first.weight + model.first.bias)
    for block in model.blocks:
        h = block(h, batch)
    expected = model.norm(h) @ model.last.weight + model.last.bias
    torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-12)
    assert expected.shape == (N, OUT)


def test_outputs_are_weighted_by_the_share(graph: Graph) -> None:
    model, batch = make(exact=2), Batch.full(graph, 2)
    model.share.fill_(0.0)
    stack, decoupled = model(batch), beside(model)(batch)
    for share in SHARES:
        model.share.fill_(share)
        expected = (1 - share) * stack + share * decoupled
        torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(model.infer(graph), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_outputs_under_autocast_are_weighted_too(block_graph: Graph, dtype: torch.dtype) -> None:
    model, batch = make(exact=2).float(), Batch.full(block_graph, 2)
    model.share.fill_(0.25)
    expected = model(batch)
    with torch.autocast("cpu", dtype=dtype):
        out = model(batch)
    assert out.dtype == dtype
    assert float((out - expected).detach().norm()) < 0.05 * float(expected.detach().norm())


def test_the_loss_is_the_sum_of_both(graph: Graph) -> None:
    batch = Batch.full(graph, 2)
    both, alone = make(exact=2), make(exact=2, decoupled=False)
    alone.load_state_dict({name: value for name, value in both.state_dict().items() if "decoupled" not in name})
    stack = weighted_loss(alone(batch), batch.y, batch.weight, graph.task)
    assert torch.equal(alone.loss(batch, graph.task), stack)
    decoupled = weighted_loss(beside(both)(batch), batch.y, batch.weight, graph.task)
    torch.testing.assert_close(both.loss(batch, graph.task), stack + decoupled, rtol=0, atol=1e-12)
    # it does not depend on the share
    both.share.fill_(1.0)
    torch.testing.assert_close(both.loss(batch, graph.task), stack + decoupled, rtol=0, atol=1e-12)


def gradients(model: LazyStack, batch: Batch, graph: Graph) -> dict[str, Tensor]:
    names, weights = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(model.loss(batch, graph.task), weights), strict=True))


@pytest.mark.parametrize("changed", ["stack", "decoupled"])
def test_neither_model_changes_the_gradients_of_the_other(graph: Graph, changed: str) -> None:
    model, other, batch = make(exact=2), make(exact=2), Batch.full(graph, 2)
    for index, weight in enumerate(own(other).values() if changed == "stack" else beside(other).parameters()):
        weight.data += random_rows(1, weight.numel(), index).view_as(weight)
    found, expected = gradients(other, batch, graph), gradients(model, batch, graph)
    kept = set(own(model)) if changed == "decoupled" else set(expected) - set(own(model))
    assert 0 < len(kept) < len(expected)
    for name in expected:
        assert torch.equal(found[name], expected[name]) == (name in kept), name
    # alone, the stack has the same gradients
    alone = make(exact=2, decoupled=False)
    alone.load_state_dict({name: value for name, value in model.state_dict().items() if "decoupled" not in name})
    for name, grad in gradients(alone, batch, graph).items():
        torch.testing.assert_close(grad, expected[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("share", SHARES)
def test_selection_takes_the_share_with_the_best_score(graph: Graph, share: float) -> None:
    model = make()
    stack, decoupled = outputs_of(model, graph)
    wanted = torch.lerp(stack, decoupled, share)
    asked: list[Tensor] = []

    def score(outputs: Tensor) -> float:
        asked.append(outputs)
        return prefers(wanted)(outputs)

    model.share.fill_(0.125)
    torch.testing.assert_close(model.select(graph, score), wanted, rtol=0, atol=1e-12)
    assert float(model.share) == share
    assert all(outputs.shape == (N, OUT) for outputs in asked)
    torch.testing.assert_close(model.infer(graph), wanted, rtol=0, atol=1e-12)
    # the share is stored with the weights
    state = model.state_dict()
    assert float(state["share"]) == share
    restored = make()
    restored.load_state_dict(state)
    assert torch.equal(restored.infer(graph), model.infer(graph))


@pytest.mark.parametrize(("gain", "share"), [(0.05, 1.0), (0.06, 0.25), (0.0, 1.0), (-0.1, 1.0)])
def test_the_share_is_one_unless_another_is_better_by_more_than_noise(graph: Graph, gain: float, share: float) -> None:
    """Half the standard error of a score of 0.5 on the 20 validation nodes is 0.056."""
    model = make()
    assert float(model.share) == 0.5
    stack, decoupled = outputs_of(model, graph)
    wanted = torch.lerp(stack, decoupled, 0.25)

    def score(outputs: Tensor) -> float:
        return 0.5 if prefers(wanted)(outputs) > 0.5 else 0.5 - gain

    out = model.select(graph, score)
    assert float(model.share) == share
    torch.testing.assert_close(out, torch.lerp(stack, decoupled, share), rtol=0, atol=1e-12)


@pytest.mark.parametrize("score", [7.0, -3.0], ids=str)
def test_a_score_that_is_not_a_proportion_selects_too(graph: Graph, score: float) -> None:
    model = make()
    stack, _ = outputs_of(model, graph)
    model.select(graph, lambda outputs: score if prefers(stack)(outputs) > 0.5 else score - 0.01)
    assert float(model.share) == 0


def test_with_a_share_of_zero_or_one_a_single_model_is_inferred(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    stack, decoupled = outputs_of(model, graph)
    unused: Any = refuse
    model.share.fill_(0.0)
    with monkeypatch.context() as patch:
        patch.setattr(beside(model), "infer", unused)
        assert torch.equal(model.infer(graph), stack)
    model.share.fill_(1.0)
    monkeypatch.setattr(model, "_infer_stack", unused)
    assert torch.equal(model.infer(graph), decoupled)


def refuse(graph: Graph) -> Tensor:
    raise AssertionError("a model without a share was inferred")


def test_a_stack_alone_has_nothing_to_select(graph: Graph) -> None:
    model = make(decoupled=False)
    assert float(model.share) == 0

    def score(_: Tensor) -> float:
        raise AssertionError("there is one kind of outputs alone")

    out = model.select(graph, score)
    assert torch.equal(out, model.infer(graph))
    torch.testing.assert_close(out, model.eval()(Batch.full(graph, 2)), rtol=0, atol=1e-10)
    model.train().fill(Batch.full(graph, 2))
    assert set(model.diagnose(graph)) == {"fixed_point_error"}
    assert not any(name.startswith("decoupled") for name in model.state_dict())


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
    model = make(dropout=0.5, input_dropout=0.3, norm=norm, scratch=tmp_path)
    model.loss(Batch.full(graph, 2), graph.task)
    model.share.fill_(0.5)
    expected = model.eval()(Batch.full(graph, 2))
    model.train()
    for rows in (N, 7):
        monkeypatch.setattr(inference, "INFERENCE_ROWS", rows)
        monkeypatch.setattr(inference, "INFERENCE_BYTES", 5 * N * 8 * 2)
        torch.testing.assert_close(model.infer(graph), expected, rtol=0, atol=1e-10)
        assert all(module.training for module in model.modules())
    # the input of a block, its near view and its far views, and the decoupled model
    names = {"stack.rows", "inference.rows", *(f"block-{index}.rows" for index in range(4))}
    assert {path.name for path in tmp_path.iterdir()} == names


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
    # that of the decoupled model counts too
    x = random_rows(N, OUT, 9)
    histories(model)[-1].push(torch.arange(N), 3 * exact_solution(graph.adj, x, 0.2), x)
    assert model.diagnose(graph) == {"fixed_point_error": pytest.approx(2, abs=1e-2)}
    assert make(exact=2).diagnose(graph) == {}


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("norm", ["layer", "none"])
def test_layers_cover_every_parameter_once(norm: NormKind, decoupled: bool) -> None:
    model = make(norm=norm, decoupled=decoupled)
    groups = model.layer_parameters()
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in model.parameters())
    # from input to output, then the decoupled model
    assert [id(p) for p in groups[0]] == [id(p) for p in model.first.parameters()]
    assert len(groups) == 4 + (2 if decoupled else 0)
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
def test_labels_outside_the_training_split_change_the_share_alone(
    graph: Graph, in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(y: Tensor, *, select: bool) -> tuple[dict[str, Tensor], Tensor]:
        used = replace(graph, y=y)
        model = make(dropout=0.2)
        if not select:
            monkeypatch.setattr(model, "select", lambda graph, _: model.infer(graph))
        loader = ClusterLoader(used, PTR, 2) if in_parts else FullLoader(used, 2)
        torch.manual_seed(1)
        trainer = Trainer(model, loader, used, TrainerOptions(epochs=4, lr=0.05))
        trainer.run()
        return {name: value.clone() for name, value in model.state_dict().items()}, model.infer(used)

    poisoned = torch.where(graph.masks["train"], graph.y, (graph.y + 1) % OUT)
    state, outputs = train(graph.y, select=False)
    other, same = train(poisoned, select=False)
    assert all(torch.equal(value, other[name]) for name, value in state.items())
    assert torch.equal(outputs, same)
    # with selection, all but the share is the same
    for y in (graph.y, poisoned):
        chosen, _ = train(y, select=True)
        assert [name for name in state if not torch.equal(state[name], chosen[name])] in ([], ["share"])
    # other training labels do change the weights
    flipped, _ = train(torch.where(graph.masks["train"], (graph.y + 1) % OUT, graph.y), select=False)
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
