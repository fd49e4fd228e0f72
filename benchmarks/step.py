"""One step `(1 - alpha) A x + alpha r`: ours, torch's sparse product, PyG's message passing, and a plain copy."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.kernels import kernels
from benchmarks.pyg import pyg_edges
from benchmarks.report import RESULTS, Report, Row, choose, median, verdict
from common.measure import copy_bandwidth, seconds_of
from common.shapes import Shape, load
from lazygnn import ops
from lazygnn.ops import Adjacency, reference

ALPHA = 0.1
COLUMNS = (16, 47, 48, 128)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# error of the worst row, relative to its norm
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
SAMPLED_ROWS = 4096
HUBS = 64

Step = Callable[[Tensor, Tensor], Tensor]
MakeStep = Callable[[Adjacency, torch.dtype], Step]


def ours(adj: Adjacency, dtype: torch.dtype) -> Step:  # noqa: ARG001
    """Returns the library's step, on the matrix as the library stores it: in float32 for every type of `x`."""
    return lambda x, source: ops.step(adj, x, source, ALPHA)


def ours_narrow(adj: Adjacency, dtype: torch.dtype) -> Step:
    """Returns the library's step on a matrix in the type of `x`, which a CPU widens to float32 in every step."""
    return ours(adj.to(dtype), dtype)


def torch_csr(adj: Adjacency, dtype: torch.dtype) -> Step:
    """Returns the reference: torch's sparse product (cuSPARSE, MKL or torch's own), 32-bit indices, all in one type.

    On a CPU the matrix is widened to float32, since MKL has no product for 16-bit numbers.
    """
    narrow = adj.to(dtype)
    return lambda x, source: reference.step(narrow, x, source, ALPHA)


def pyg_messages(adj: Adjacency, dtype: torch.dtype) -> Step:
    """Returns PyG's step, which gathers a message for every edge and adds them; weights are normalized beforehand."""
    from torch_geometric.nn import APPNP

    conv = APPNP(1, ALPHA, normalize=False)
    edges, weight = pyg_edges(adj.to(dtype), "edge_index")
    return lambda x, source: (1 - ALPHA) * conv.propagate(edges, x=x, edge_weight=weight) + ALPHA * source


CONTENDERS: dict[str, MakeStep] = {
    "ours": ours,
    "ours-narrow": ours_narrow,
    "torch-csr": torch_csr,
    "pyg-messages": pyg_messages,
}


def main(
    shape: Shape,
    device: torch.device,
    *,
    root: str | None = None,
    only: Sequence[str] = (),
    repeats: int = 20,
    folder: Path = RESULTS,
) -> Report:
    """Measures every contender, width and type."""
    chosen = choose(only, CONTENDERS, "contender")
    adj, bandwidth = load(shape, device, root).adj.to(device), copy_bandwidth(device)
    facts = {
        "step": f"(1 - {ALPHA}) A x + {ALPHA} r, medians of {repeats}",
        "graph": f"{shape.name}, {adj.num_rows:,} rows, {len(adj.col):,} stored entries",
        "copy bandwidth, GB/s": bandwidth / 1e9,
        "share of copy": "bytes of a perfect step (columns, degrees, x, r and the result, each once) over the time "
        "of the step, relative to the copy bandwidth",
        "error": "against float64 on a sample of rows and the longest rows, relative to their norm",
    }
    report = Report(
        f"step-{shape.name}",
        device,
        keys=("contender", "columns", "dtype"),
        times=("milliseconds",),
        columns={
            name: name
            for name in ("contender", "columns", "dtype", "milliseconds", "share of copy", "error", "worst row")
        }
        | {"status": "status"},
        folder=folder,
        facts=facts,
    )
    for name, dtype in DTYPES.items():
        for columns in COLUMNS:
            for contender, make_step in chosen.items():
                if make_step is ours_narrow and dtype == adj.value.dtype:
                    continue
                key: Row = {"contender": contender, "columns": columns, "dtype": name}
                report.run(key, partial(_measure, make_step, adj, columns, dtype, repeats, bandwidth))
    report.write()
    return report


def _measure(
    make_step: MakeStep, adj: Adjacency, columns: int, dtype: torch.dtype, repeats: int, bandwidth: float
) -> Row:
    generator = torch.Generator(adj.device).manual_seed(0)
    x, source = (torch.randn(adj.num_rows, columns, generator=generator, device=adj.device).to(dtype) for _ in range(2))
    step = make_step(adj, dtype)
    with kernels(plain=False):
        # as in a chain of steps, where ours pads rows to a multiple of 16 bytes once
        x, source = (step(x, source).copy_(rows) for rows in (x, source))
        error, worst = _error(adj, x, source, step(x, source))
        times = median(seconds_of(lambda: step(x, source), adj.device, repeats=repeats))
    least_bytes = adj.rowptr.nbytes + adj.col.nbytes + 4 * adj.num_rows + 3 * x.nbytes
    return {
        "milliseconds": 1000 * times["seconds"],
        "share of copy": least_bytes / times["seconds"] / bandwidth,
        "error": error,
        "worst row": worst,
        **times,
        **verdict(equal_to_float64=worst <= TOLERANCES[dtype]),
    }


def _error(adj: Adjacency, x: Tensor, source: Tensor, out: Tensor) -> tuple[float, float]:
    """Returns the error against float64 on some rows, including the longest: of all of them, and of the worst one."""
    rows = torch.arange(0, adj.num_rows, -(-adj.num_rows // SAMPLED_ROWS), device=adj.device)
    rows = torch.cat((rows, adj.rowptr.diff().topk(min(HUBS, adj.num_rows)).indices)).unique()
    block = adj.select(rows)
    exact = ALPHA * source[rows].double()
    weighted = (1 - ALPHA) * block.value.double().unsqueeze(1) * x[block.col].double()
    exact.index_add_(0, block.row_index(), weighted)
    wrong = out[rows].double() - exact
    return float(wrong.norm() / exact.norm()), float((wrong.norm(dim=1) / exact.norm(dim=1)).max())
