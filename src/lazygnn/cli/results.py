"""Commands about one run: `evaluate`, `predict`, `embed`, `export` and `show`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lazygnn.cli.app import print_result, say
from lazygnn.cli.arguments import (
    CorrectAlphaOption,
    CorrectAndSmoothOption,
    DeviceOption,
    DropUnknownOption,
    RunArgument,
    RunRootOption,
    ScalingOption,
    SmoothAlphaOption,
    read_correct_and_smooth,
)
from lazygnn.commands.embedding import write_embeddings
from lazygnn.commands.evaluation import evaluate_by_metrics
from lazygnn.commands.exporting import CODE, export_run
from lazygnn.commands.prediction import write_predictions
from lazygnn.commands.reporting import show_report
from lazygnn.commands.show import show_run
from lazygnn.data.datasets import verifies
from lazygnn.distributed import is_launched
from lazygnn.errors import ConfigError


def evaluate(
    run: RunArgument,
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric; repeatable, with a line for each; default: the run's.")
    ] = None,
    graph: Annotated[Path | None, typer.Option(help="Another graph with the same features and classes.")] = None,
    root: RunRootOption = None,
    device: DeviceOption = "auto",
    correct_and_smooth: CorrectAndSmoothOption = False,
    correct_alpha: CorrectAlphaOption = None,
    smooth_alpha: SmoothAlphaOption = None,
    scaling: ScalingOption = None,
    report: Annotated[
        bool, typer.Option("--report", help="Show classes, calibration and where it errs; write report.json.")
    ] = False,
) -> None:
    """Evaluates the best weights of a run, exactly and without histories; prints JSON."""
    change = read_correct_and_smooth(
        correct_and_smooth, correct_alpha=correct_alpha, smooth_alpha=smooth_alpha, scaling=scaling
    )
    if is_launched():
        _refuse_for_ranks({"--graph": graph, "--correct-and-smooth": change, "--report": report})
        from lazygnn.commands.rank_inference import evaluate_with_ranks

        for result in evaluate_with_ranks(run, metric or [], device=device, root=root, verify=verifies()):
            print_result(result)
        return
    place: dict[str, Any] = {"device": device, "root": root, "graph_file": graph, "verify": verifies()}
    for result in evaluate_by_metrics(run, metric or [], **place, correct_and_smooth=change, report=report):
        print_result(result)
    if report:
        show_report(run, Console(stderr=True), verify=verifies())


def predict(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="File to write, .csv or .parquet.")],
    graph: Annotated[Path | None, typer.Option(help="Another graph (.npz) with the same features.")] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of each class.")] = False,
    known: Annotated[bool, typer.Option("--known", help="Add the split and the label of every node.")] = False,
    unlabeled: Annotated[bool, typer.Option("--unlabeled", help="Write nodes without a label alone.")] = False,
    nodes: Annotated[Path | None, typer.Option(help="Table of new nodes, encoded as `import` did.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Table of their edges, also with nodes of the graph.")] = None,
    drop_unknown: DropUnknownOption = False,
    root: RunRootOption = None,
    device: DeviceOption = "auto",
    correct_and_smooth: CorrectAndSmoothOption = False,
    correct_alpha: CorrectAlphaOption = None,
    smooth_alpha: SmoothAlphaOption = None,
    scaling: ScalingOption = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Probabilities at the temperature that `evaluate --report` fitted.")
    ] = False,
) -> None:
    """Writes node id, prediction and probability of every node."""
    change = read_correct_and_smooth(
        correct_and_smooth, correct_alpha=correct_alpha, smooth_alpha=smooth_alpha, scaling=scaling
    )
    new: dict[str, Any] = {"nodes": nodes, "edges": edges, "drop_unknown": drop_unknown}
    place: dict[str, Any] = {"device": device, "root": root, "verify": verifies()}
    columns: dict[str, Any] = {"probabilities": probabilities, "known": known, "unlabeled": unlabeled}
    change_of: dict[str, Any] = {"correct_and_smooth": change, "calibrated": calibrated}
    if is_launched():
        _refuse_for_ranks({"--graph": graph, "--nodes": nodes, "--edges": edges, "--drop-unknown": drop_unknown})
        _refuse_for_ranks({"--correct-and-smooth": change, "--calibrated": calibrated})
        from lazygnn.commands.rank_inference import predict_with_ranks

        if (written := predict_with_ranks(run, out, **place, **columns)) is not None:
            say(f"wrote {written} predictions to {out}")
        return
    count = write_predictions(run, out, graph, **new, **place, **columns, **change_of)
    say(f"wrote {count} predictions to {out}")


def embed(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="File to write, .csv, .parquet or .npy.")],
    graph: Annotated[Path | None, typer.Option(help="Another graph (.npz) with the same features.")] = None,
    root: RunRootOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Writes the embedding of every node: the values that the last layer reads."""
    count, width = write_embeddings(run, out, graph, device=device, root=root, verify=verifies())
    say(f"wrote {count} embeddings with {width} channels to {out}")


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="New folder for the weights, a description and model.py.")],
    root: RunRootOption = None,
) -> None:
    """Writes the weights and a file of plain PyTorch that predicts with them, without this package."""
    description = export_run(run, out, root=root, verify=verifies())
    labels = "; it reads known labels: `y` and `train_mask`" if description["reads_labels"] else ""
    say(f"wrote {out}; use it with `python {out / CODE} graph.npz predictions.npy`{labels}")


def _refuse_for_ranks(given: dict[str, object]) -> None:
    for flag, value in given.items():
        if value:
            raise ConfigError(f"several ranks do not take `{flag}`; omit it, or start one process without `torchrun`")


def show(run: RunArgument) -> None:
    """Shows the resolved configuration, the training log and the result of a run."""
    show_run(run, Console(), verify=verifies())
