"""Rows read from a history and written to it, for every tier and type."""

import tempfile
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.report import RESULTS, Report, Row, median, verdict
from common.measure import seconds_of
from common.shapes import Shape
from lazygnn.history import Store, Tier, open_history
from lazygnn.propagation import Mix

TIERS: tuple[Tier, ...] = ("device", "host", "pinned", "disk")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}
# halo rows per target, as on ogbn-products
HALO = 4


def main(
    shape: Shape,
    device: torch.device,
    *,
    repeats: int = 10,
    scratch: Path | None = None,
    folder: Path = RESULTS,
) -> Report:
    """Measures reading a batch (targets and halo) and writing it (targets)."""
    batch = shape.num_nodes // shape.num_parts
    report = Report(
        f"history-{shape.name}",
        device,
        keys=("tier", "dtype"),
        times=("pull rows/s", "pull GB/s", "push rows/s", "push GB/s"),
        columns={
            name: name for name in ("tier", "dtype", "pull rows/s", "pull GB/s", "push rows/s", "push GB/s", "error")
        }
        | {"status": "status"},
        folder=folder,
        facts={
            "history": f"{shape.num_nodes:,} rows of {shape.num_classes} columns",
            "pull": f"{(1 + HALO) * batch:,} rows: a part and random others, decoded to float32 on the device",
            "push": f"{batch:,} rows: a part, until the writes have completed",
            "GB/s": f"bytes as stored; medians of {repeats}; files of the disk tier may stay in the page cache",
            "error": "largest difference to the pushed values, relative to the largest entry of the row",
        },
    )
    for tier in TIERS:
        for name in DTYPES:
            report.run({"tier": tier, "dtype": name}, partial(_measure, shape, device, tier, name, repeats, scratch))
    report.write()
    return report


def _measure(shape: Shape, device: torch.device, tier: Tier, dtype: str, repeats: int, scratch: Path | None) -> Row:
    with tempfile.TemporaryDirectory(dir=scratch, prefix="lazygnn-history-") as files:
        store = open_history(
            shape.num_nodes,
            shape.num_classes,
            Mix(0.0),
            tier=tier,
            dtype=DTYPES[dtype],
            device=device,
            folder=Path(files),
        ).values
        targets, nodes = _rows(shape, device)
        values = torch.randn(shape.num_nodes, shape.num_classes, device=device)
        for rows in torch.arange(shape.num_nodes, device=device).split(len(targets)):
            store.write(rows, values[rows])
        store.flush()
        error = _error(store.read(nodes), values[nodes])
        pulled = seconds_of(lambda: store.read(nodes), device, repeats=repeats)
        pushed = seconds_of(lambda: _push(store, targets, values), device, repeats=repeats)
        row_bytes = store.num_bytes / store.num_rows
    rates = {"pull": len(nodes) / median(pulled)["seconds"], "push": len(targets) / median(pushed)["seconds"]}
    return {
        **{f"{verb} rows/s": rate for verb, rate in rates.items()},
        **{f"{verb} GB/s": rate * row_bytes / 1e9 for verb, rate in rates.items()},
        "error": error,
        "pull seconds": pulled,
        "push seconds": pushed,
        **verdict(pulled_rows_equal_pushed_rows=error <= _tolerance(DTYPES[dtype])),
    }


def _rows(shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    batch = shape.num_nodes // shape.num_parts
    others = batch + torch.randperm(shape.num_nodes - batch, generator=generator)[: HALO * batch].sort().values
    nodes = torch.cat((torch.arange(batch), others)).to(device)
    return nodes[:batch], nodes


def _push(store: Store, targets: Tensor, values: Tensor) -> None:
    store.write(targets, values[: len(targets)])
    store.flush()


def _error(pulled: Tensor, pushed: Tensor) -> float:
    return float(((pulled - pushed).abs() / pushed.abs().amax(dim=1, keepdim=True)).max())


def _tolerance(dtype: torch.dtype) -> float:
    # half of a level of 127 or of the last bit; float32 is stored unchanged
    return {torch.float32: 0.0, torch.bfloat16: 2**-8, torch.int8: 1.001 / 254}[dtype]
