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
from lazygnn.models import Decoupled
from lazygnn.propagation import diffuse

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
        return {"alpha": ALPHA, **self.values}


# a lazy pass that uses its history in full continues where the last one ended
LAZY = Check(passes=16, values={"beta": 0.0, "gamma": 1.0})


def propagation_error(
    check: Check, model: Decoupled | PygAPPNP, loader: Loader, graph: Graph, dtype: torch.dtype
) -> float:
    """Returns the error of the propagated values of a model against float64: the worst row, relative to its norm."""
    device = model.device
    generator = torch.Generator(device).manual_seed(0)
    # positive numbers do not cancel, so that every edge counts
    x_in = torch.rand(graph.num_nodes, graph.task.num_outputs, generator=generator, device=device).to(dtype)
    out, adj = _propagate(model, loader, x_in, check.passes), graph.adj.to(device).to(torch.float64)
    with kernels(plain=True):
        if check.num_steps is None:
            expected = solve(adj, x_in.double(), ALPHA, tolerance=1e-8).x
        else:
            expected = diffuse([adj] * check.num_steps, x_in.double(), x_in.double(), ALPHA)
    return float(((out.double() - expected).norm(dim=1) / expected.norm(dim=1)).max())


@torch.no_grad()
def _propagate(model: Decoupled | PygAPPNP, loader: Loader, x_in: Tensor, passes: int) -> Tensor:
    """Returns the output of the last of some passes, [N, C]."""
    out = torch.zeros_like(x_in)
    model.train()
    for number in range(passes + 1):
        for batch in (part.to(model.device) for part in loader.sweep()):
            rows = x_in[batch.nodes[: batch.x.shape[0]]]
            if number == 0:
                model.propagation.fill(rows, batch)
            else:
                out[batch.targets] = model.propagation(rows, batch).to(out.dtype)
    return out
