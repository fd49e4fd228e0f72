"""Whether a contender propagates what it should: its own propagation and batches, an input that does not change.

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

# with so large a weight of the input a few passes reach the fixed point
ALPHA = 0.5
# of the worst row of what is propagated, relative to its norm
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Check:
    """What must come out after some passes over all batches: the fixed point, or so many exact steps from the input."""

    passes: int
    num_steps: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the model that is checked."""
        return {"alpha": ALPHA, **self.values}


# a lazy pass that trusts its history goes on from where the last one ended
LAZY = Check(passes=16, values={"beta": 0.0, "gamma": 1.0})


def propagation_error(
    check: Check, model: Decoupled | PygAPPNP, loader: Loader, graph: Graph, dtype: torch.dtype
) -> float:
    """How far what a model propagates is from float64: the worst row, relative to its norm."""
    device = model.device
    generator = torch.Generator(device).manual_seed(0)
    # positive numbers add up where others cancel, so that no edge is lost in the rest
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
    """What the last of some passes gives, [N, C]."""
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
