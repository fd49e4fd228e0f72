"""Helpers of the tests of propagation."""

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.propagation import Propagation


def gradient(prop: Propagation, batch: Batch, x: Tensor, grad: Tensor) -> Tensor:
    """Returns the gradient of the input, for a gradient of the output."""
    leaf = x.clone().requires_grad_()
    prop(leaf, batch).backward(grad)
    assert leaf.grad is not None
    return leaf.grad


def saved_for_backward(prop: Propagation, batch: Batch, x: Tensor) -> list[Tensor]:
    """Returns the tensors that autograd, or the node of the backward graph, stores between the passes."""
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = prop(x.clone().requires_grad_(), batch)
    return saved + [value for value in vars(out.grad_fn).values() if isinstance(value, Tensor)]
