"""An epoch of training: ours in its modes, the paper's recipe, and the alternatives of other libraries."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.contenders import contenders
from benchmarks.profile import profile_table
from benchmarks.report import RESULTS, Report, choose
from benchmarks.trained import measure
from common.shapes import Shape, load

COLUMNS = {
    "contender": "contender",
    "s/epoch": "seconds",
    "step peak MiB": "step peak MiB",
    "resident MiB": "resident MiB",
    "batches": "batches",
    "accuracy": "accuracy",
    "error": "error",
    "status": "status",
    "settings": "settings",
}


def main(
    shape: Shape,
    device: torch.device,
    *,
    root: str | None = None,
    only: Sequence[str] = (),
    repeats: int = 5,
    warmup: int = 2,
    profiled: bool = False,
    folder: Path = RESULTS,
) -> Report:
    """Measures the contenders in turn; each starts from the graph in host memory."""
    chosen = choose(only, contenders(shape, device), "contender")
    graph = load(shape, device, root).to("cpu")
    report = Report(
        f"epoch-{shape.name}",
        device,
        keys=("contender",),
        times=("seconds",),
        columns=COLUMNS,
        folder=folder,
        facts={
            "graph": f"{graph.num_nodes:,} nodes, {len(graph.adj.col):,} stored entries, {graph.in_channels} features, "
            f"{graph.task.num_outputs} classes, {shape.num_parts} parts, {shape.parts_per_batch} a batch",
            "transform": f"MLP, {shape.mlp_layers} layers, {shape.hidden_channels} wide, batch norm, dropout 0.5, Adam",
            "s/epoch": f"median of {repeats} epochs after {warmup}, by the trainer's clock, without evaluation",
            "step peak MiB": "peak memory of a step above the memory that is resident between epochs, on a GPU",
            "accuracy": f"validation, after {warmup + repeats + 1} epochs, too few to compare; the loss must decrease",
            "error": "of the propagated values against float64 (the fixed point or the exact steps), in the worst row",
        },
    )
    for name, contender in chosen.items():
        once = partial(measure, contender, shape.recipe, graph, device, repeats, warmup, profiled=profiled)
        row = report.run({"contender": name}, once)
        if row.get("profile"):
            print(profile_table(row["profile"]), flush=True)
    report.write()
    return report
