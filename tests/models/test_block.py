"""A block against its formula with dense matrices, in float64; autograd differentiates the formula."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn import inference
from lazygnn.batch import Batch
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.history import NoHistory, StoredHistory
from lazygnn.loader import ClusterLoader
from lazygnn.models import LazyBlock
from lazygnn.models.layers import NormKind
from lazygnn.propagation import Drift, ExactPropagation, LazyPropagation, Mix, Response, fit_response
from tests.helpers import dense_steps, exact_solution, open_float64, random_rows
from tests.propagation.helpers import dense_views

N, H, K = 60, 5, 3
PTR = torch.tensor([0, 10, 25, 26, 45, N])
# weights of a bank of far views; a negative one means the high-pass
BANK = (0.1, 0.5, -0.5)
Stored = tuple[Tensor, Tensor]


def sign_of(alpha: float) -> int:
    return 1 if alpha > 0 else -1


def lazy(alpha: float, *, beta: float = 0.0, halo_inputs: bool = False, channels: int = K) -> LazyPropagation:
    history = open_float64(N, channels, Drift(beta), halo_inputs=halo_inputs)
    return LazyPropagation(abs(alpha), history, eval_tolerance=1e-12, sign=sign_of(alpha))


def bank(alphas: Sequence[float] = BANK, **options: Any) -> list[LazyPropagation]:
    return [lazy(alpha, halo_inputs=index == 0, **options) for index, alpha in enumerate(alphas)]


def exact(num_layers: int, alphas: Sequence[float] = BANK) -> list[ExactPropagation]:
    return [ExactPropagation(abs(alpha), num_layers, sign=sign_of(alpha)) for alpha in alphas]


def make(far: Any, *, view_channels: int | None = K, norm: NormKind = "layer", dropout: float = 0.0) -> LazyBlock:
    """Makes a block in float64, with the same weights for the same views; no weight is zero or one."""
    torch.manual_seed(0)
    block = LazyBlock(H, far, view_channels=view_channels, norm=norm, dropout=dropout).double()
    for index, weight in enumerate(block.parameters()):
        weight.data += 0.1 * random_rows(1, weight.numel(), index).view_as(weight)
    return block


def formula(block: LazyBlock, h: Tensor, views: list[Tensor]) -> Tensor:
    """Returns the block of its views, written out, for `layer` and no dropout."""
    joined = torch.cat((normed(block, h), *views), dim=1)
    before = joined @ block.first.weight + block.first.bias
    # the Gaussian error linear unit
    hidden = before * (1 + torch.erf(before / math.sqrt(2))) / 2
    return h + hidden @ block.last.weight + block.last.bias


def normed(block: LazyBlock, h: Tensor) -> Tensor:
    weight, bias = block.norm.parameters()
    return F.layer_norm(h, (H,), weight, bias)


def viewed(block: LazyBlock, h: Tensor) -> Tensor:
    u = normed(block, h)
    return u if block.narrow is None else u @ cast(Tensor, block.narrow.weight)


def gradients(block: LazyBlock, out: Tensor, h: Tensor, seed: int = 7) -> list[Tensor]:
    grad = random_rows(len(out), out.shape[1], seed)
    return list(torch.autograd.grad(out, [h, *block.parameters()], grad))


def assert_alike(block: LazyBlock, out: Tensor, expected: Tensor, h: Tensor, error: float = 1e-11) -> None:
    """Compares outputs and the gradients of the input and of all weights."""
    torch.testing.assert_close(out, expected, rtol=0, atol=error)
    for found, wanted in zip(gradients(block, out, h), gradients(block, expected, h), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=10 * error)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("view_channels", [None, K])
def test_a_block_is_its_formula(graph: Graph, view_channels: int | None, num_layers: int) -> None:
    block, adj = make(exact(num_layers), view_channels=view_channels), graph.adj.to_dense()
    h = random_rows(N, H, 1).requires_grad_()
    v = viewed(block, h)
    far = [dense_steps(adj, v, v, abs(a), num_layers, sign=sign_of(a)) for a in BANK]
    assert_alike(block, block(h, Batch.full(graph, num_layers)), formula(block, h, [adj @ v, *far]), h)


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_the_gradient_is_that_of_the_formula_with_histories_held_constant(
    graph: Graph, num_layers: int, fitted: bool, in_parts: bool
) -> None:
    adj, h_all = graph.adj.to_dense(), random_rows(N, H, 1)
    stored: list[Stored] = [(random_rows(N, K, seed), random_rows(N, K, seed + 10)) for seed in range(len(BANK))]
    loader = ClusterLoader(graph, PTR, num_layers) if in_parts else [Batch.full(graph, num_layers)]
    responses = {
        alpha: fit_response(graph.adj, abs(alpha), num_layers, beta=0.2, sign=sign_of(alpha))
        if fitted
        else Response.plain(num_layers)
        for alpha in BANK
    }
    for batch in loader:
        views = bank(beta=0.2)
        for alpha, view, pair in zip(BANK, views, stored, strict=True):
            view.features.push(torch.arange(N), *pair)
            view.response = responses[alpha]
        block, h = make(views), h_all[batch.targets].requires_grad_()
        v = viewed(block, h)
        dense = [
            dense_views(adj, batch.targets, v, pair, responses[alpha], alpha=abs(alpha), beta=0.2, sign=sign_of(alpha))
            for alpha, pair in zip(BANK, stored, strict=True)
        ]
        expected = formula(block, h, [dense[0][0], *[far for _, far in dense]])
        assert_alike(block, block(h, batch), expected, h)


def test_a_second_pass_over_a_part_reads_what_the_first_passes_stored_for_its_halo(graph: Graph) -> None:
    loader, h = ClusterLoader(graph, PTR, 2), random_rows(N, H, 1)
    block = make(bank([0.2]))
    for batch in loader.sweep():
        block(h[batch.targets], batch)
    first, *_ = loader.sweep()
    history = cast(LazyPropagation, block.far[0]).features
    assert isinstance(history, StoredHistory)
    assert history.inputs is not None
    stored = history.values.read(torch.arange(N)).clone(), history.inputs.read(torch.arange(N)).clone()
    torch.testing.assert_close(stored[1], viewed(block, h), rtol=0, atol=1e-12)
    moved = random_rows(N, H, 2)[first.targets].requires_grad_()
    adj, response = graph.adj.to_dense(), Response.plain(2)
    views = dense_views(adj, first.targets, viewed(block, moved), stored, response, alpha=0.2)
    assert_alike(block, block(moved, first), formula(block, moved, list(views)), moved)


@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
def test_with_histories_at_their_fixed_point_the_lazy_block_is_the_exact_one(
    graph: Graph, in_parts: bool, fitted: bool
) -> None:
    views, h = bank(), random_rows(N, H, 1)
    block, adj = make(views), graph.adj.to_dense()
    v = viewed(block, h).detach()
    solved = [exact_solution(graph.adj, v, abs(a), sign=sign_of(a)) for a in BANK]
    for view, solution in zip(views, solved, strict=True):
        view.features.push(torch.arange(N), solution, v)
        if fitted:
            view.fit(graph.adj, 2)
    expected = formula(block, h, [adj @ v, *solved])
    for batch in ClusterLoader(graph, PTR, 2) if in_parts else [Batch.full(graph, 2)]:
        torch.testing.assert_close(block(h[batch.targets], batch), expected[batch.targets], rtol=0, atol=1e-11)
    # exact steps reach the same solution, and so does evaluation
    many = make(exact(300))
    torch.testing.assert_close(many(h, Batch.full(graph, 300)), expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(block.eval()(h, Batch.full(graph, 2)), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
def test_passes_over_an_unchanging_input_reach_the_exact_block(graph: Graph, in_parts: bool) -> None:
    block, h = make(bank()), random_rows(N, H, 1)
    cast(LazyPropagation, block.far[0]).fit(graph.adj, 2)
    loader = list(ClusterLoader(graph, PTR, 2).sweep()) if in_parts else [Batch.full(graph, 2)]
    with torch.no_grad():
        for _ in range(120):
            found = torch.cat([block(h[batch.targets], batch) for batch in loader])
    torch.testing.assert_close(found, block.eval()(h, Batch.full(graph, 2)), rtol=0, atol=1e-9)


def test_one_part_is_the_full_batch(graph: Graph) -> None:
    (part,) = ClusterLoader(graph, torch.tensor([0, N]), 2)
    results = []
    for batch in (part, Batch.full(graph, 2)):
        block = make(bank(beta=0.1))
        for seed in range(3):
            h = random_rows(N, H, seed).requires_grad_()
            out = block(h, batch)
            results.append([out, *gradients(block, out, h)])
    for one, other in zip(results[:3], results[3:], strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("norm", ["layer", "batch", "none"])
@pytest.mark.parametrize("view_channels", [None, K])
@pytest.mark.parametrize("kind", ["lazy", "exact"])
def test_inference_is_the_pass_of_evaluation(
    graph: Graph, kind: str, view_channels: int | None, norm: NormKind
) -> None:
    channels = H if view_channels is None else view_channels
    far: Any = bank(channels=channels) if kind == "lazy" else exact(3)
    block, h = make(far, view_channels=view_channels, norm=norm, dropout=0.5), random_rows(N, H, 1)
    # gives batch norm statistics of its own
    block(h, Batch.full(graph, 3))
    expected = block.eval()(h, Batch.full(graph, 3))
    for mode in (False, True):
        block.train(mode)
        given = h.clone()
        out = block.infer(given, graph.adj)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
        # the result is in the place of the input, and the mode is as before
        assert out is given
        assert block.training is block.norm.training is mode
        assert not out.requires_grad


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize(("rows", "columns"), [(7, 1), (1, 2), (N, 2)])
def test_inference_runs_in_blocks_of_rows_and_columns(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, on_disk: bool
) -> None:
    block, h = make(bank()).eval(), random_rows(N, H, 1)
    expected = block(h, Batch.full(graph, 2))
    monkeypatch.setattr(inference, "INFERENCE_ROWS", rows)
    monkeypatch.setattr(inference, "INFERENCE_BYTES", 5 * N * 8 * columns)
    seen: list[int] = []
    block.norm.register_forward_hook(lambda _module, inputs, _out: seen.append(len(inputs[0])))
    solved: list[int] = []
    monkeypatch.setattr("lazygnn.propagation.base.solve", listed(solved))
    files: dict[str, int] = {}
    monkeypatch.setattr("lazygnn.history.disk.map_files", counted(files))
    out = block.infer(h.clone(), graph.adj, scratch=tmp_path if on_disk else None)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    assert max(seen) == rows
    assert max(solved) == columns
    # the input of the views, the near view and one file for each far view
    assert files == ({f"block-{index}": N * K for index in range(2 + len(BANK))} if on_disk else {})
    assert list(tmp_path.iterdir()) == []


def counted(files: dict[str, int]) -> Any:
    from lazygnn.history.disk import map_files

    def call(layout: Any, folder: Path, name: str) -> Any:
        parts = map_files(layout, folder, name)
        files[name.rpartition("-")[0]] = parts["rows"].numel()
        return parts

    return call


def listed(widths: list[int]) -> Any:
    from lazygnn.fixed_point import solve

    def call(adj: Any, x: Tensor, *given: Any, **named: Any) -> Any:
        widths.append(x.shape[1])
        return solve(adj, x, *given, **named)

    return call


def test_evaluation_of_a_part_is_refused(graph: Graph) -> None:
    batch = next(iter(ClusterLoader(graph, PTR, 2).sweep()))
    with pytest.raises(ValueError, match=r"use `model\.infer\(graph\)` or `Batch\.full`"):
        make(bank()).eval()(random_rows(batch.num_targets, H, 1), batch)


def test_dropout_acts_on_the_hidden_units_alone(graph: Graph) -> None:
    block, h = make(exact(2), dropout=0.9), random_rows(N, H, 1)
    seen: list[Tensor] = []
    block.last.register_forward_hook(lambda _module, inputs, _out: seen.append(inputs[0]))
    out, batch = block(h, Batch.full(graph, 2)), Batch.full(graph, 2)
    assert 0.8 < float((seen[0] == 0).double().mean()) < 1
    torch.testing.assert_close(out, h + seen[0] @ block.last.weight + block.last.bias, rtol=0, atol=1e-12)
    assert not torch.equal(block(h, batch), block(h, batch))
    block.eval()
    assert torch.equal(block(h, batch), block(h, batch))


def test_a_block_for_a_graph_trains_in_full_batch_and_in_parts(block_graph: Graph) -> None:
    block = LazyBlock.for_graph(block_graph, 6, num_layers=3, alpha=0.3, beta=0.2, norm="none", dropout=0.1)
    (far,) = cast(list[LazyPropagation], list(block.far))
    assert isinstance(far.features, StoredHistory)
    assert (far.alpha, far.features.warm, block.dropout) == (0.3, Drift(0.2), 0.1)
    assert (far.features.values.num_rows, far.features.values.channels) == (60, 6)
    assert far.response == fit_response(block_graph.adj, 0.3, 3, beta=0.2)
    assert [name for name, _ in block.named_parameters()] == ["first.weight", "first.bias", "last.weight", "last.bias"]
    h = random_rows(60, 6, 1, torch.float32)
    for batch in [Batch.full(block_graph, 3), *ClusterLoader(block_graph, PTR, 3)]:
        out = block(h[batch.targets], batch)
        assert out.shape == (batch.num_targets, 6)
        out.sum().backward()
    with pytest.raises(GraphError, match="`graph` is 3, of type int"):
        LazyBlock.for_graph(3, 6)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("channels", "6", "`channels` is '6', of type str; give a whole number"),
        ("channels", 2.5, "`channels` is 2.5, of type float; give a whole number"),
        ("num_layers", None, "`num_layers` is None, of type NoneType; give a whole number"),
        ("beta", None, "`beta` is None, of type NoneType; give a number"),
        ("alpha", "small", "`alpha` is 'small', of type str; give a number"),
    ],
)
def test_an_argument_of_another_type_is_named(block_graph: Graph, name: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LazyBlock.for_graph(block_graph, **{"channels": 6} | {name: value})


@pytest.mark.parametrize("far", [None, [], 0.1, [ExactPropagation(0.1, 2), "A"]], ids=str)
def test_what_is_not_a_propagation_is_named(far: Any) -> None:
    with pytest.raises(ConfigError, match=r"`far` is .*; give one or more `LazyPropagation`"):
        LazyBlock(H, far)


@pytest.mark.parametrize(
    ("h", "said"),
    [
        (random_rows(N, H + 1, 1), "6 columns, and the layer was built for 5"),
        (random_rows(N - 1, H, 1), "59 rows, and the graph has 60 nodes"),
        ([[0.0] * H] * N, "of type list; give a tensor"),
    ],
    ids=["columns", "rows", "type"],
)
def test_an_input_that_does_not_fit_is_refused(graph: Graph, h: Any, said: str) -> None:
    block, batch = make(bank(), norm="none").eval(), Batch.full(graph, 2)
    with pytest.raises(ConfigError, match=said):
        block(h, batch)
    with pytest.raises(ConfigError, match=said):
        block.infer(h, graph.adj)


def test_the_stored_solution_farthest_from_the_exact_one_is_diagnosed(graph: Graph) -> None:
    views, x = bank(), random_rows(N, K, 1)
    for factor, alpha, view in zip((1.0, 1.5, 1.25), BANK, views, strict=True):
        solution = exact_solution(graph.adj, x, abs(alpha), sign=sign_of(alpha))
        view.features.push(torch.arange(N), factor * solution, x)
    assert make(views).diagnose(graph.adj) == {"fixed_point_error": pytest.approx(0.5, abs=5e-3)}


def test_without_stored_inputs_nothing_is_diagnosed(graph: Graph) -> None:
    mixing = LazyPropagation(0.1, open_float64(N, K, Mix(0.5)))
    for far in (exact(2), LazyPropagation(0.1, NoHistory()), mixing):
        assert make(far).diagnose(graph.adj) == {}
