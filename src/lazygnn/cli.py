"""The `lazygnn` command. Results go to stdout, logs and progress to stderr."""

import json
import logging
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from lazygnn import workflow
from lazygnn.config import Options, TrainerOptions, parse_assignments, read_toml
from lazygnn.data.datasets import EMBEDDED
from lazygnn.data.download import SOURCES
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from lazygnn.methods import METHODS, find_method, recipe_names, resolve
from lazygnn.training.predict import check_format, prediction_table, write_table
from lazygnn.training.run import Run

app = typer.Typer(
    help="Trains graph neural networks with long reach on large graphs, by lazy propagation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
RootOption = Annotated[str | None, typer.Option(help="Folder of data files; default: $LAZYGNN_DATA, or `data`.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
RunArgument = Annotated[Path, typer.Argument(help="A run folder that `train` wrote.")]


def main() -> None:
    """Runs the command; an error that users can mend is one line and a status of 2."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        app()
    except (GraphError, ConfigError, CheckpointError) as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


@app.command("list")
def list_command(
    method: Annotated[str | None, typer.Argument(help="Show the options of this method.")] = None,
) -> None:
    """Shows methods, data sets and recipes; with a method, its options."""
    console = Console()
    if method is not None:
        for group, options in (("training", TrainerOptions), (method, find_method(method).options)):
            console.print(_options_table(group, options))
        return
    table = Table("method", "what it is", "paper", "recipes for", title="methods")
    for name, entry in METHODS.items():
        table.add_row(name, entry.summary, entry.paper, ", ".join(recipe_names(name)))
    console.print(table)
    console.print(f"data sets: {EMBEDDED} (inside the package), {', '.join(SOURCES)}, or the path of an .npz file")


@app.command()
def train(
    method: Annotated[str, typer.Argument(help="A method that `lazygnn list` shows.")],
    dataset: Annotated[str, typer.Argument(help="A data set's name, or the path of an .npz file.")],
    root: RootOption = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of options, over the recipe.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, over everything; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, dropout and batches.")] = 0,
    device: DeviceOption = "auto",
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/<dataset>-<method>-<seed>.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Trains a method on a data set; the last line on stdout is the result as JSON."""
    values = ({} if config is None else read_toml(config)) | parse_assignments(set_ or [])
    resolved = resolve(method, dataset, values, seed=seed, device=device, root=root)
    typer.echo(json.dumps(workflow.train(resolved, out, quiet=quiet)))


@app.command()
def evaluate(run: RunArgument, root: RootOption = None, device: DeviceOption = "auto") -> None:
    """Scores the best weights of a run, exactly and without any history; prints JSON."""
    typer.echo(json.dumps(workflow.evaluate_run(run, device=device, root=root)))


@app.command()
def predict(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="File to write, .csv or .parquet.")],
    graph: Annotated[Path | None, typer.Option(help="Another graph (.npz) with the same features.")] = None,
    root: RootOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Writes node id, prediction and probability for every node."""
    check_format(out)
    logits, target, trained_on = workflow.predict_run(run, graph, device=device, root=root)
    table = prediction_table(logits, target, trained_on.task, trained_on.class_names)
    write_table(table, out)
    Console(stderr=True).print(f"wrote {len(table['node'])} predictions to {out}", highlight=False, soft_wrap=True)


@app.command()
def show(run: RunArgument) -> None:
    """Prints the resolved configuration, the course and the result of a run."""
    opened = Run.open(run)
    console = Console()
    console.print_json(opened.config().record())
    log = opened.history()
    table = Table("epoch", "loss", "train", "val", "test", "seconds", title="course")
    for line in log[:: max(len(log) // 20, 1)]:
        scores = line["scores"] or {}
        cells = [f"{scores[split]:.4f}" if split in scores else "" for split in ("train", "val", "test")]
        table.add_row(str(line["epoch"]), f"{line['loss']:.4f}", *cells, f"{line['seconds']:.3f}")
    console.print(table)
    result = opened.result()
    console.print_json(json.dumps(result) if result else '{"result": "training has not ended"}')


@app.command()
def doctor() -> None:
    """Prints versions, devices and optional packages, for a bug report."""
    table = Table("what", "found")
    table.add_row("lazygnn", metadata.version("lazygnn"))
    table.add_row("python", platform.python_version())
    table.add_row("platform", platform.platform())
    table.add_row(
        "torch",
        f"{torch.__version__}, {torch.get_num_threads()} threads, MKL {_yes(torch.backends.mkl.is_available())}",
    )
    table.add_row("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none")
    for package in (
        "numpy",
        "pydantic",
        "safetensors",
        "torchmetrics",
        "matplotlib",
        "pymetis",
        "torch_geometric",
        "pyarrow",
        "triton",
    ):
        table.add_row(package, _version(package))
    Console().print(table)


def _options_table(title: str, options: type[Options]) -> Table:
    table = Table("option", "default", "meaning", title=title)
    for name, field in options.model_fields.items():
        table.add_row(name, "" if field.default is None else str(field.default), field.description or "")
    return table


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
