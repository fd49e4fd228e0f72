from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazygnn.errors import ConfigError
from lazygnn.models import layers
from lazygnn.models.layers import (
    MLP,
    Linear,
    NormKind,
    TargetBatchNorm,
    TypedLayerNorm,
    drop,
    gelu_dropout,
    make_norm,
    relu_dropout,
)
from lazygnn.ops import Csr


def features(num_rows: int = 8, num_cols: int = 6) -> tuple[Tensor, Csr]:
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((num_rows, num_cols)) < 0.5, rng.normal(size=(num_rows, num_cols)), 0)
    sparse = scipy.sparse.csr_matrix(dense.astype(np.float32))
    return torch.from_numpy(dense.astype(np.float32)), Csr.from_arrays(
        sparse.indptr, sparse.indices, sparse.data, num_cols
    )


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("mlp_layers", [1, 3])
def test_sparse_and_dense_features_give_the_same_values_and_gradients(norm: NormKind, mlp_layers: int) -> None:
    dense, sparse = features()
    model = MLP(6, 5, 3, mlp_layers=mlp_layers, norm=norm, dropout=0.0).double()
    results = []
    for x in (dense.double(), sparse.to(torch.float64)):
        model.zero_grad()
        out = model(x)
        out.square().sum().backward()
        grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        assert len(grads) == len(list(model.parameters()))
        results.append([out.detach(), *grads])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)


def test_sparse_features_are_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Csr) -> Tensor:
        raise AssertionError("made dense")

    monkeypatch.setattr(Csr, "to_dense", refuse)
    _, sparse = features()
    model = MLP(6, 5, 3, mlp_layers=2, input_dropout=0.5)
    model(sparse).sum().backward()
    assert model.eval()(sparse).shape == (8, 3)


def test_a_linear_layer_starts_within_the_glorot_bound_and_adds_its_bias() -> None:
    layer = Linear(50, 70)
    bound = (6 / 120) ** 0.5
    assert float(layer.weight.detach().abs().max()) <= bound
    assert float(layer.weight.detach().abs().max()) > 0.9 * bound
    assert layer.bias.tolist() == [0] * 70
    dense, sparse = features()
    layer = Linear(6, 2)
    nn.init.constant_(layer.bias, 7.0)
    expected = dense @ layer.weight.detach() + 7
    torch.testing.assert_close(layer(dense).detach(), expected)
    torch.testing.assert_close(layer(sparse).detach(), expected)


def test_a_linear_layer_may_have_no_bias() -> None:
    layer = Linear(6, 2, bias=False)
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    for x in features():
        torch.testing.assert_close(layer(x).detach(), features()[0] @ layer.weight.detach())


def test_a_bias_before_a_batch_norm_would_change_nothing() -> None:
    model = MLP(6, 5, 3, mlp_layers=3, norm="batch", dropout=0.0).double()
    biases = [linear.bias for linear in model.linears if isinstance(linear, Linear)]
    assert [bias is None for bias in biases] == [True, True, False]
    x = features()[0].double()
    expected = model(x)
    for linear in model.linears[:-1]:
        linear.bias = nn.Parameter(torch.randn(5, dtype=torch.float64))
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-12)


def test_an_mlp_is_linear_relu_linear() -> None:
    model = MLP(6, 5, 3, mlp_layers=2, dropout=0.9).eval()
    x, _ = features()
    first, second = model.linears
    assert isinstance(first, Linear)
    assert isinstance(second, Linear)
    expected = (x @ first.weight + first.bias).relu() @ second.weight + second.bias
    torch.testing.assert_close(model(x), expected)


def test_an_mlp_needs_a_layer() -> None:
    with pytest.raises(ValueError, match=r"`mlp_layers` must be at least 1, got 0"):
        MLP(3, 4, 2, mlp_layers=0)


def test_dropout_acts_in_training_only() -> None:
    x, _ = features()
    torch.manual_seed(0)
    for model in (
        MLP(6, 64, 3, mlp_layers=2, dropout=0.5),
        MLP(6, 64, 3, mlp_layers=1, dropout=0.0, input_dropout=0.5),
    ):
        assert not torch.equal(model.train()(x), model(x))
        assert torch.equal(model.eval()(x), model(x))


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("mlp_layers", [1, 3])
def test_the_output_of_the_last_linear_layer_is_returned_unchanged(norm: NormKind, mlp_layers: int) -> None:
    torch.manual_seed(0)
    model = MLP(6, 64, 3, mlp_layers=mlp_layers, norm=norm, dropout=0.9, input_dropout=0.5)
    outputs: list[Tensor] = []
    model.linears[-1].register_forward_hook(lambda _module, _inputs, out: outputs.append(out.clone()))
    assert torch.equal(model(features()[0]), outputs[0])


@pytest.mark.parametrize("p", [0.2, 0.5])
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_hidden_units_are_dropped_once(norm: NormKind, p: float) -> None:
    torch.manual_seed(0)
    model = MLP(6, 400, 3, mlp_layers=2, norm=norm, dropout=p)
    with torch.no_grad():
        # every hidden unit is one
        for name, value in (*model.linears[0].named_parameters(), *model.norms.named_parameters()):
            value.fill_(name.endswith("bias"))
    found: list[Tensor] = []
    model.linears[1].register_forward_pre_hook(lambda _module, inputs: found.append(inputs[0].clone()))
    model(torch.ones(500, 6))
    kept = found[0][found[0] != 0]
    assert abs(len(kept) / found[0].numel() - (1 - p)) < 0.01
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-2, atol=0)


def test_input_dropout_of_sparse_features_drops_stored_entries() -> None:
    x = Csr.from_arrays(np.arange(0, 10_001, 10), np.tile(np.arange(10), 1000), np.full(10_000, 3.0), 10)
    torch.manual_seed(0)
    dropped = drop(x, 0.25, training=True)
    assert isinstance(dropped, Csr)
    assert torch.equal(dropped.col, x.col)
    assert torch.equal(dropped.rowptr, x.rowptr)
    assert dropped.value.unique().tolist() == [0, 4]
    assert float((dropped.value == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert x.value.unique().tolist() == [3]
    assert drop(x, 0.25, training=False) is x


def test_batch_statistics_are_those_of_the_targets() -> None:
    torch.manual_seed(0)
    x = torch.randn(10, 4, dtype=torch.float64) * torch.arange(1, 5) + 3
    ours, plain = TargetBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    for norm in (ours, plain):
        nn.init.uniform_(norm.weight, 0.5, 1.5, generator=torch.Generator().manual_seed(1))
        nn.init.uniform_(norm.bias, generator=torch.Generator().manual_seed(2))
    out = ours(x, num_targets=6)
    torch.testing.assert_close(out[:6], plain(x[:6]), rtol=0, atol=1e-12)
    assert plain.running_mean is not None
    assert plain.running_var is not None
    torch.testing.assert_close(ours.running_mean, plain.running_mean, rtol=0, atol=0)
    torch.testing.assert_close(ours.running_var, plain.running_var, rtol=0, atol=0)
    assert int(ours.num_batches_tracked or 0) == 1
    # the halo is normalized with the statistics of the targets
    mean, variance = x[:6].mean(dim=0), x[:6].var(dim=0, correction=0)
    halo = (x[6:] - mean) / (variance + ours.eps).sqrt() * ours.weight + ours.bias
    torch.testing.assert_close(out[6:], halo, rtol=0, atol=1e-12)


def test_the_halo_does_not_change_the_outputs_of_targets() -> None:
    torch.manual_seed(0)
    x = torch.randn(10, 6)
    other = torch.cat((x[:7], 100 * torch.randn(3, 6)))
    model = MLP(6, 5, 3, mlp_layers=3, norm="batch", dropout=0.0)
    assert torch.equal(model(x, 7)[:7], model(other, 7)[:7])
    assert not torch.equal(model(x)[:7], model(other)[:7])


def test_without_a_halo_or_in_evaluation_the_norm_is_plain_batch_norm() -> None:
    x = torch.randn(10, 4)
    ours, plain = TargetBatchNorm(4), nn.BatchNorm1d(4)
    for num_targets in (None, 10):
        torch.testing.assert_close(ours(x, num_targets), plain(x), rtol=0, atol=0)
    ours.eval()
    plain.eval()
    torch.testing.assert_close(ours(2 * x, 3), plain(2 * x), rtol=0, atol=0)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("mlp_layers", [1, 2, 4])
def test_layers_cover_every_parameter_once(norm: NormKind, mlp_layers: int) -> None:
    model = MLP(6, 5, 3, mlp_layers=mlp_layers, norm=norm)
    groups = model.layer_parameters()
    assert len(groups) == mlp_layers
    listed = [id(p) for group in groups for p in group]
    assert sorted(listed) == sorted(id(p) for p in model.parameters())
    # a linear layer before a batch norm has no bias
    assert all(len(group) == {"none": 2, "batch": 3, "layer": 4}[norm] for group in groups[:-1])
    assert len(groups[-1]) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.5, 0.3])
def test_fused_relu_and_dropout_drop_the_same_entries_in_both_passes(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(2, 400, 30, dtype=dtype)
    x.requires_grad_()
    out = relu_dropout(x, p, True)
    (back,) = torch.autograd.grad(out, x, grad)
    positive, kept = x > 0, out > 0
    assert not bool(out[~positive].any())
    assert float(kept[positive].double().mean()) == pytest.approx(1 - p, abs=0.03)
    scale = (out / x)[kept]
    torch.testing.assert_close(scale, torch.full_like(scale, 1 / (1 - p)), rtol=1e-4, atol=0)
    torch.testing.assert_close(back, torch.where(kept, grad * scale.mean(), 0))


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (1.0, True), (0.5, False)])
def test_fused_relu_and_dropout_equal_the_separate_ones_without_random_draws(p: float, training: bool) -> None:
    x = torch.randn(40, 30)
    assert torch.equal(relu_dropout(x, p, training), F.dropout(F.relu(x), p, training))


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the fused activations; lists the names of those that were called."""
    used: list[str] = []

    def fake(name: str) -> Callable[..., Tensor]:
        def mark(x: Tensor, *_: object) -> Tensor:
            used.append(name)
            return torch.full_like(x, 7)

        return mark

    names = ("batch_norm_relu_dropout", "gelu_dropout", "layer_norm", "relu_dropout")
    module = SimpleNamespace(MOST_COLUMNS=64, **{name: fake(name) for name in names})
    monkeypatch.setattr(layers, "activations", lambda _: module)
    return used


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_gelu_and_dropout_in_one_call(p: float, training: bool) -> None:
    x = torch.linspace(-4, 4, 200, dtype=torch.float64)
    expected = x * torch.distributions.Normal(0.0, 1.0).cdf(x)
    torch.manual_seed(0)
    out = gelu_dropout(x, p, training)
    kept = out != 0
    scale = 1 / (1 - p) if training else 1
    torch.testing.assert_close(out[kept], scale * expected[kept], rtol=1e-4, atol=1e-12)
    assert bool(kept.all()) == (p == 0 or not training)


@pytest.mark.parametrize(
    ("norm", "training", "evaluating"),
    [("batch", ["batch_norm_relu_dropout"], []), ("layer", ["layer_norm", "relu_dropout"], ["layer_norm"])],
)
def test_an_mlp_uses_fused_activations_where_available(
    norm: NormKind, training: list[str], evaluating: list[str], kernels: list[str]
) -> None:
    model = MLP(6, 5, 3, mlp_layers=3, norm=norm)
    model(features()[0])
    model(features()[0], 8)
    assert kernels == training * 4
    kernels.clear()
    model.eval()(features()[0])
    assert kernels == evaluating * 2


def test_gelu_is_fused_in_training_alone(kernels: list[str]) -> None:
    x = features()[0]
    assert torch.equal(gelu_dropout(x, 0.5, True), torch.full_like(x, 7))
    assert kernels == ["gelu_dropout"]
    torch.testing.assert_close(gelu_dropout(x, 0.5, False), nn.functional.gelu(x))
    assert kernels == ["gelu_dropout"]


@pytest.mark.parametrize(("rows", "columns"), [((4, 65), 65), ((2, 3, 5), 5)], ids=["wide", "three dimensions"])
def test_layer_norm_that_the_kernel_does_not_support_is_plain(
    rows: tuple[int, ...], columns: int, kernels: list[str]
) -> None:
    x = torch.randn(rows, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(TypedLayerNorm(columns)(x), nn.functional.layer_norm(x, [columns]))
    assert not kernels


@pytest.mark.parametrize(
    ("num_targets", "change"),
    [
        (5, lambda _: None),
        (None, lambda norm: norm.eval()),
        (None, lambda norm: norm.double()),
        (None, lambda norm: setattr(norm, "momentum", None)),
    ],
    ids=["halo", "frozen", "float64", "cumulative"],
)
def test_a_norm_that_the_kernels_do_not_support_is_plain(
    num_targets: int | None, change: Callable[[nn.Module], object], kernels: list[str]
) -> None:
    ours, plain, x = TargetBatchNorm(6), TargetBatchNorm(6), features()[0]
    for norm in (ours, plain):
        change(norm)
    x = x.to(ours.weight.dtype)
    out = ours.relu_dropout(x, num_targets, 0.0, True)
    torch.testing.assert_close(out, plain(x, num_targets).relu(), rtol=0, atol=0)
    assert kernels == []


def test_a_fused_norm_raises_the_errors_of_torch(kernels: list[str]) -> None:
    with pytest.raises(ValueError, match="a batch has one node, which has no variance; choose larger batches"):
        TargetBatchNorm(6).relu_dropout(torch.ones(1, 6), None, 0.5, True)
    with pytest.raises(RuntimeError, match="running_mean should contain 5 elements"):
        TargetBatchNorm(6).relu_dropout(torch.ones(4, 5), None, 0.5, True)
    assert kernels == []


def test_a_hidden_layer_saves_two_activations_for_backward() -> None:
    model, kept = MLP(6, 50, 3, mlp_layers=3, norm="batch", dropout=0.5), dict[int, int]()

    def pack(tensor: Tensor) -> Tensor:
        if tensor.shape == (8, 50):
            kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(features()[0])
    # the input of the norm and the input of the next layer
    assert sum(kept.values()) == 2 * 2 * 8 * 50 * 4


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_norms_return_the_dtype_of_their_input(norm: NormKind) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert make_norm(norm, 4)(torch.randn(6, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("norm", ["layernorm", "Batch", None])
def test_an_unknown_norm_is_refused(norm: Any) -> None:
    with pytest.raises(ConfigError, match=rf"`norm` is {norm!r}; choose one of: batch, layer, none"):
        make_norm(norm, 4)


def test_statistics_of_targets_are_float32_under_autocast() -> None:
    norm, x = TargetBatchNorm(4), torch.randn(9, 4)
    expected = norm(x, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = norm(x.to(torch.bfloat16), 5)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=0.05)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_sparse_and_dense_features_give_one_dtype_under_autocast() -> None:
    layer = Linear(6, 2)
    results = []
    for x in features():
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = layer(x)
        assert out.dtype == torch.bfloat16
        out.float().square().sum().backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.dtype == torch.float32
        results.append((out.detach().float(), layer.weight.grad.clone()))
    torch.testing.assert_close(results[0], results[1], rtol=0.03, atol=0.03)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("mlp_layers", [1, 2, 3])
def test_the_output_of_an_mlp_is_not_dropped(norm: NormKind, mlp_layers: int) -> None:
    torch.manual_seed(0)
    model = MLP(6, 8, 3, mlp_layers=mlp_layers, norm=norm, dropout=0.5).double().train()
    weight, bias = model.layer_parameters()[-1]
    # an output of ones, whatever is dropped before the last layer
    nn.init.zeros_(weight)
    nn.init.ones_(bias)
    out = model(features()[0].double())
    assert torch.equal(out, torch.ones(8, 3, dtype=torch.float64))
