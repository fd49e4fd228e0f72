"""A convolution against its formula with dense matrices, in float64; autograd differentiates the formula."""

import math
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn import inference
from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.loader import ClusterLoader
from lazygnn.models import Convolution, LazyStack
from lazygnn.models.layers import NormKind
from lazygnn.propagation import Mix
from tests.helpers import open_float64, random_rows

N, H = 60, 5
PTR = torch.tensor([0, 10, 25, 26, 45, N])


def make(history: StoredHistory | None = None, *, norm: NormKind = "layer", dropout: float = 0.0) -> Convolution:
    """Makes a convolution in float64, with the same weights each time; no weight is zero or one."""
    torch.manual_seed(0)
    block = Convolution(H, history, norm=norm, dropout=dropout).double()
    for index, weight in enumerate(block.parameters()):
        weight.data += 0.1 * random_rows(1, weight.numel(), index).view_as(weight)
    return block


def formula(block: Convolution, near: Tensor) -> Tensor:
    """Returns the convolution of a sum over neighbors, written out, for `layer`."""
    weight, bias = block.norm.parameters()
    before = F.layer_norm(near @ block.linear.weight + block.linear.bias, (H,), weight, bias)
    return before * (1 + torch.erf(before / math.sqrt(2))) / 2


def assert_alike(block: Convolution, out: Tensor, expected: Tensor, h: Tensor) -> None:
    """Compares outputs and the gradients of the input and of all weights."""
    grad = random_rows(len(out), H, 7)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-11)
    wanted = torch.autograd.grad(expected, [h, *block.parameters()], grad)
    for found, one in zip(torch.autograd.grad(out, [h, *block.parameters()], grad), wanted, strict=True):
        torch.testing.assert_close(found, one, rtol=0, atol=1e-10)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_over_the_whole_graph_it_is_its_formula(graph: Graph, num_layers: int) -> None:
    block, h = make(), random_rows(N, H, 1).requires_grad_()
    assert_alike(block, block(h, Batch.full(graph, num_layers)), formula(block, graph.adj.to_dense() @ h), h)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_in_a_part_the_halo_is_what_was_stored_and_gets_no_gradient(graph: Graph, num_layers: int) -> None:
    adj, stored, h_all = graph.adj.to_dense(), random_rows(N, H, 2), random_rows(N, H, 1)
    for batch in ClusterLoader(graph, PTR, num_layers):
        history = open_float64(N, H, Mix(1.0))
        history.push(torch.arange(N), stored, stored)
        block, h = make(history), h_all[batch.targets].requires_grad_()
        out = block(h, batch)
        rows = stored.index_copy(0, batch.targets, h)
        assert_alike(block, out, formula(block, adj[batch.targets] @ rows), h)
        # and the targets are stored
        written = stored.index_copy(0, batch.targets, h.detach())
        torch.testing.assert_close(history.values.read(torch.arange(N)), written, rtol=0, atol=0)


def test_one_part_is_the_full_batch(graph: Graph) -> None:
    (part,) = ClusterLoader(graph, torch.tensor([0, N]), 2)
    h = random_rows(N, H, 1)
    assert torch.equal(make(open_float64(N, H, Mix(1.0)))(h, part), make()(h, Batch.full(graph, 2)))


@pytest.mark.parametrize("norm", ["layer", "batch", "none"])
def test_inference_is_the_pass_of_evaluation(graph: Graph, norm: NormKind, monkeypatch: pytest.MonkeyPatch) -> None:
    # blocks of rows and of columns
    monkeypatch.setattr(inference, "INFERENCE_ROWS", 7)
    monkeypatch.setattr(inference, "INFERENCE_BYTES", 5 * N * 8 * 2)
    block, h = make(norm=norm, dropout=0.5), random_rows(N, H, 1)
    block(h, Batch.full(graph, 1))
    block.eval()
    expected = block(h, Batch.full(graph, 1))
    found = block.infer(rows := h.clone(), graph.adj)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert found.data_ptr() == rows.data_ptr()
    assert block.diagnose(graph.adj) == {}


def test_dropout_is_for_training_alone(graph: Graph) -> None:
    block, h = make(dropout=0.5), random_rows(N, H, 1)
    batch = Batch.full(graph, 1)
    assert bool((block(h, batch) == 0).any())
    assert not bool((block.eval()(h, batch) == 0).any())


def test_a_part_without_a_history_is_refused(graph: Graph) -> None:
    batch = next(iter(ClusterLoader(graph, PTR, 2)))
    rows = len(batch.targets)
    with pytest.raises(
        ConfigError, match=f"the input has {rows} rows for {N} nodes; a halo needs a history in training"
    ):
        make()(random_rows(rows, H, 1), batch)


def test_a_stack_takes_convolutions_and_nothing_else() -> None:
    stack = LazyStack(3, 2, [make().float(), make().float()], hidden_channels=H, norm="none")
    assert len(cast(list[Convolution], list(stack.blocks))) == 2
    with pytest.raises(ConfigError, match=r"`blocks` .* `LazyBlock` or `Convolution`"):
        LazyStack(3, 2, [torch.nn.Linear(H, H)], hidden_channels=H)  # type: ignore[list-item]
