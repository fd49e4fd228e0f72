"""The propagation of a full-batch step, forward and backward, on our kernels: exact, the paper's and ours."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.checks import LAZY, TOLERANCES, Check, propagation_error
from benchmarks.contenders import NUM_STEPS, Precision, precisions
from benchmarks.kernels import kernels
from benchmarks.report import RESULTS, Report, Row, choose, median, verdict
from benchmarks.trained import Contender
from common.measure import MIB, Memory, seconds_of
from common.shapes import Shape, load
from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.methods import Place, build
from lazygnn.models import Decoupled
from lazygnn.ops import replaying

CONTENDERS = {
    "exact": Contender(
        f"{NUM_STEPS} exact steps", "appnp", {"alpha": 0.1, "num_layers": NUM_STEPS}, Check(1, NUM_STEPS)
    ),
    "paper": Contender(
        "two steps, mix 0.5 / 0.5, gradients stored",
        "lazygnn",
        {"num_layers": 2, "start": "mix", "beta": 0.5, "gamma": 0.5},
        LAZY,
    ),
    "ours": Contender("two steps and one on labeled rows, the default", "lazygnn", {"num_layers": 2}, LAZY),
    "ours-no-labels": Contender("two steps", "lazygnn", {"num_layers": 2, "label_step": False}, LAZY),
    "ours-one-step": Contender("one step and one on labeled rows", "lazygnn", {"num_layers": 1}, LAZY),
    "ours-one-no-labels": Contender("one step", "lazygnn", {"num_layers": 1, "label_step": False}, LAZY),
    "ours-plain": Contender("two plain steps", "lazygnn", {"num_layers": 2, "response": "plain"}, LAZY),
}


def main(
    shape: Shape,
    device: torch.device,
    *,
    root: str | None = None,
    only: Sequence[str] = (),
    repeats: int = 10,
    folder: Path = RESULTS,
) -> Report:
    """Measures every contender in every number format."""
    chosen = choose(only, CONTENDERS, "contender")
    graph = load(shape, device, root).to(device)
    fields = ("contender", "dtype", "milliseconds", "step peak MiB", "history MiB", "error")
    report = Report(
        f"propagation-{shape.name}",
        device,
        keys=("contender", "dtype"),
        times=("milliseconds",),
        columns={name: name for name in fields} | {"status": "status", "settings": "settings"},
        folder=folder,
        facts={
            "graph": f"{graph.num_nodes:,} nodes, {len(graph.adj.col):,} stored entries, "
            f"{graph.task.num_outputs} columns, full batch",
            "milliseconds": f"forward and backward, histories read and written, median of {repeats}",
            "error": "of a constant input against float64, in the worst row",
        },
    )
    for precision in precisions(device):
        if precision.name != "tf32":
            for name, contender in chosen.items():
                key: Row = {"contender": name, "dtype": precision.name}
                report.run(key, partial(_measure, contender, shape.recipe, graph, precision, repeats))
    report.write()
    return report


def _measure(contender: Contender, recipe: str, graph: Graph, precision: Precision, repeats: int) -> Row:
    device, dtype = graph.device, torch.bfloat16 if precision.name == "bfloat16" else torch.float32
    lazy = contender.method == "lazygnn"
    values = precision.stored | {"num_parts": 1} if lazy else precision.options
    config = contender.resolve(recipe, values)
    # as in training
    with kernels(plain=False), replaying():
        built = build(config, graph, device, folder=None)
        assert isinstance(built.model, Decoupled)
        (batch,) = built.loader.sweep()
        propagation = built.model.propagation.train()
        x_in = torch.randn(graph.num_nodes, graph.task.num_outputs, device=device).to(dtype).requires_grad_()
        # the loss has a gradient on training nodes
        grad, memory = torch.randn_like(x_in) * graph.masks["train"].unsqueeze(1), Memory(device)

        def both_passes() -> None:
            x_in.grad = None
            propagation(x_in, batch).backward(grad)

        times = median(seconds_of(both_passes, device, repeats=repeats))
        memory.record()
        both_passes()
        memory.record()
        check = contender.check
        assert check is not None
        place = Place(device, None, compute_dtype=dtype)
        checked = contender.build_model(contender.resolve(recipe, dict(check.options) | values), graph, place)
        assert isinstance(checked, Decoupled)
        error = propagation_error(check, checked, built.loader, graph, dtype)
    return {
        "milliseconds": 1000 * times["seconds"],
        **times,
        **memory.summary(slice(1, None)),
        "history MiB": sum(history.num_bytes for history in named_histories(built.model).values()) / MIB,
        "error": error,
        "settings": contender.settings,
        **verdict(equal_to_float64=error <= TOLERANCES[dtype]),
    }
