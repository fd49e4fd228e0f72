"""Helpers of the tests of propagation."""

from collections.abc import Callable

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.propagation import Propagation, Response


def gradient(prop: Propagation, batch: Batch, x: Tensor, grad: Tensor) -> Tensor:
    """Returns the gradient of the input, for a gradient of the output."""
    leaf = x.clone().requires_grad_()
    prop(leaf, batch).backward(grad)
    assert leaf.grad is not None
    return leaf.grad


def saved_for_backward(prop: Callable[[Tensor, Batch], Tensor], batch: Batch, x: Tensor) -> list[Tensor]:
    """Returns the tensors that autograd, or the node of the backward graph, stores between the passes."""
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = prop(x.clone().requires_grad_(), batch)
    return saved + [value for value in vars(out.grad_fn).values() if isinstance(value, Tensor)]


def negative(graph: Graph) -> Graph:
    """Returns the graph with `-A` for its matrix `A`; its low-pass is the high-pass of the graph."""
    return Graph(graph.x, graph.y, graph.adj.with_value(-graph.adj.value), graph.degree, graph.task, graph.masks)


def dense_views(
    adj: Tensor,
    targets: Tensor,
    u: Tensor,
    stored: tuple[Tensor, Tensor],
    response: Response,
    *,
    alpha: float,
    beta: float = 0.0,
    sign: int = 1,
) -> tuple[Tensor, Tensor]:
    """Returns `A u` and `P u` of a pass over some targets, in dense form; autograd differentiates it.

    Args:
        adj: Matrix of the whole graph, [N, N].
        targets: The nodes of the pass; all others keep what is stored, [T].
        u: Input of the targets, [T, C].
        stored: Solutions and inputs of all nodes, which are constants, [N, C] each.
        response: Weights of a change of the input.
        alpha: Weight of the input in every step.
        beta: Weight of the input in the start value.
        sign: Sign of the products.
    """
    solutions, inputs = stored
    before = inputs[targets]
    near = (adj @ inputs.index_copy(0, targets, u))[targets]
    x = solutions.index_copy(0, targets, torch.lerp(solutions[targets], before, beta) + response.start * (u - before))
    for weight in response.sources:
        source = before + weight * (u - before)
        x = x.index_copy(0, targets, sign * (1 - alpha) * (adj @ x)[targets] + alpha * source)
    return near, x[targets]
