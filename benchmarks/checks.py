"""Checks of the values that a contender propagates, with its own propagation and batches and a constant input.

`N` nodes, `C` channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernels import kernels
from benchmarks.pyg import PygAPPNP
from lazygnn.batch import Loader
from lazygnn.fixed_point import solve
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.models import Decoupled, LazyBlock, LazyStack, Mixture
from lazygnn.ops import spmm
from lazygnn.propagation import LazyPropagation, diffuse

# large enough that a few passes reach the fixed point
ALPHA = 0.5
# error of the worst propagated row, relative to its norm
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Check:
    """The expected result of some passes over all batches: the fixed point, or `num_steps` exact steps."""

    passes: int
    num_steps: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """Returns the options of the model that is checked."""
        return dict(self.values) if "alphas" in self.values else {"alpha": ALPHA, **self.values}


# a lazy pass that uses its history in full continues where the last one ended
LAZY = Check(passes=16, values={"beta": 0.0, "gamma": 1.0})
DEEP = Check(passes=16, values={"beta": 0.0, "alphas": [ALPHA]})

Checked = Decoupled | PygAPPNP | LazyStack | Mixture


def propagation_error(check: Check, model: Checked, loader: Loader, graph: Graph, dtype: torch.dtype) -> float:
    """Returns the error of the propagated values of a model against float64: the worst row, relative to its norm.

    Of a stack of blocks, the far view of the first block is checked, and the near view with it. Of a mixture, the first
    model is checked.
    """
    if isinstance(model, Mixture):
        first = next(iter(model))
        assert isinstance(first, LazyStack)
        model = first
    device = model.device
    generator = torch.Generator(device).manual_seed(0)
    channels = _channels(_first_far(model)) if isinstance(model, LazyStack) else graph.task.num_outputs
    # positive numbers do not cancel, so that every edge counts
    x_in = torch.rand(graph.num_nodes, channels, generator=generator, device=device).to(dtype)
    (near, out), adj = _propagate(model, loader, x_in, check.passes), graph.adj.to(device).to(torch.float64)
    with kernels(plain=True):
        if check.num_steps is None:
            expected = solve(adj, x_in.double(), ALPHA, tolerance=1e-8).x
        else:
            expected = diffuse([adj] * check.num_steps, x_in.double(), x_in.double(), ALPHA)
        neighbors = spmm(adj, x_in.double()) if near is not None else None
    error = _worst_row(out, expected)
    return error if near is None or neighbors is None else max(error, _worst_row(near, neighbors))


def _worst_row(out: Tensor, expected: Tensor) -> float:
    return float(((out.double() - expected).norm(dim=1) / expected.norm(dim=1)).max())


@torch.no_grad()
def _propagate(
    model: Decoupled | PygAPPNP | LazyStack, loader: Loader, x_in: Tensor, passes: int
) -> tuple[Tensor | None, Tensor]:
    """Returns the output of the last of some passes, [N, C], after the near view of a block if there is one."""
    out, near = torch.zeros_like(x_in), torch.zeros_like(x_in) if isinstance(model, LazyStack) else None
    propagation = _first_far(model) if isinstance(model, LazyStack) else model.propagation
    model.train()
    for number in range(passes + 1):
        for batch in (part.to(model.device) for part in loader.sweep()):
            rows = x_in[batch.nodes[: batch.x.shape[0]]]
            if number == 0:
                propagation.fill(rows, batch)
            elif near is not None:
                assert isinstance(propagation, LazyPropagation)
                neighbors, far = propagation.views(rows, batch)
                near[batch.targets], out[batch.targets] = neighbors.to(out.dtype), far.to(out.dtype)
            else:
                out[batch.targets] = propagation(rows, batch).to(out.dtype)
    return near, out


def _first_far(model: LazyStack) -> LazyPropagation:
    block = model.blocks[0]
    assert isinstance(block, LazyBlock)
    far = block.far[0]
    assert isinstance(far, LazyPropagation)
    return far


def _channels(far: LazyPropagation) -> int:
    assert isinstance(far.features, StoredHistory)
    return far.features.values.channels
