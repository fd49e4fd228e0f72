"""The `lazygnn` command. Results go to stdout, logs and progress to stderr."""

import json
import logging
import math
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from typer.core import TyperCommand, TyperGroup

from lazygnn import workflow
from lazygnn.config import Options, TrainerOptions, allowed, parse_assignments, read_options
from lazygnn.data.datasets import EMBEDDED, find_graph, unknown_dataset
from lazygnn.data.download import SOURCES
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from lazygnn.history import HistoryFileError
from lazygnn.methods import METHODS, find_method, methods_with, read_config, recipe, recipe_for, recipe_names, resolve
from lazygnn.ops import describe_kernels
from lazygnn.partitioning import PartitionMethod
from lazygnn.run.folder import Run
from lazygnn.run.saving import Interrupted
from lazygnn.training.predict import check_format, prediction_table, write_table


class Commands(TyperGroup):
    """Commands that answer an error users can mend with one line and a status of 2."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was asked for."""
        try:
            return super().invoke(ctx)
        except Interrupted as stop:
            Console(stderr=True).print(str(stop), markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(128 + stop.signum) from None
        except (GraphError, ConfigError, CheckpointError, HistoryFileError) as error:
            Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None


class Train(TyperCommand):
    """A command whose options, too many to be flags, are given with `--set`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses an option that is given as a flag, with the way to give it."""
        for arg, after in zip(args, [*args[1:], "--"], strict=False):
            flag, equals, value = arg.partition("=")
            option = flag.removeprefix("--").replace("-", "_")
            # a shell that completes a line wants no errors
            if flag.startswith("--") and methods_with(option) and not ctx.resilient_parsing:
                value = value if equals else "VALUE" if after.startswith("--") else after
                raise ConfigError(f"`{flag}` is no flag; give the option with `--set {option}={value}`")
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
RootOption = Annotated[str | None, typer.Option(help="Folder of data files; default: $LAZYGNN_DATA, or `data`.")]
RunRootOption = Annotated[str | None, typer.Option(help="Folder of data files; default: where the run's graph was.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
# so many lines make a course
ENOUGH = 5
RunArgument = Annotated[Path, typer.Argument(help="A run folder that `train` wrote.")]


def main() -> None:
    """Runs the command, with the library's warnings on stderr."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s: %(message)s")
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lazygnn {metadata.version('lazygnn')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Trains graph neural networks with long reach on large graphs, by lazy propagation."""


@app.command("list")
def list_command(
    method: Annotated[str | None, typer.Argument(help="Show the options of this method.")] = None,
    dataset: Annotated[str, typer.Argument(help="Show its recipe for this data set.")] = "default",
    root: RootOption = None,
) -> None:
    """Shows methods and data sets, a line each; with a method, its options and the data sets it has a recipe for."""
    console = Console()
    if method is not None:
        options = find_method(method).options
        _check_dataset(dataset, root)
        name = recipe_for(method, dataset)
        source = "default recipe" if name == "default" else f"recipe for {name}"
        for group, fields in (("training", TrainerOptions), (method, options)):
            console.print(_options_table(f"{group}, {source}", fields, recipe(method, dataset)))
        console.print(_recipes_line(method), soft_wrap=True, highlight=False)
        return
    width = max(map(len, METHODS))
    for name, entry in METHODS.items():
        paper = "" if entry.paper == "-" else f" ({entry.paper})"
        console.print(f"[bold]{name:{width}}[/bold]  {entry.summary}{paper}", soft_wrap=True, highlight=False)
    console.print(f"data sets: {EMBEDDED} (inside the package), {', '.join(SOURCES)}, or the path of an .npz file")


@app.command()
def prepare(
    dataset: Annotated[str, typer.Argument(help="A data set's name, or a path.")],
    num_parts: Annotated[int, typer.Option(help="Parts to cut the graph into.")] = 50,
    partition: Annotated[PartitionMethod, typer.Option(help="How to cut.")] = "metis",
    num_layers: Annotated[int, typer.Option(help="Hops of the paper's halo to measure.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    root: RootOption = None,
    out: Annotated[Path | None, typer.Option(help="Also write the graph as a folder that is memory-mapped.")] = None,
) -> None:
    """Downloads, checks and partitions a data set ahead of time; prints edge cut and halo sizes as JSON."""
    console = Console(stderr=True)
    with console.status(f"loading {dataset}") as status:
        found = workflow.prepare(dataset, num_parts, partition, num_layers, seed, root, out, status.update)
    console.print(_in_words(found), soft_wrap=True, highlight=False)
    typer.echo(json.dumps(found))


@app.command(cls=Train)
def train(
    method: Annotated[str | None, typer.Argument(help="A method that `lazygnn list` shows.")] = None,
    dataset: Annotated[str | None, typer.Argument(help="A data set's name, or a path.")] = None,
    root: RootOption = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of options, over the recipe.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, over everything; repeatable.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, dropout and batches; default: 0.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: auto.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/<dataset>-<method>-<seed>.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run from its last checkpoint.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Trains a method on a data set; the last line on stdout is the result as JSON."""
    if resume is not None:
        if (
            method is not None
            or dataset is not None
            or config is not None
            or set_
            or out is not None
            or seed is not None
        ):
            raise ConfigError(
                "`--resume` goes on with the run's own configuration; give `--root`, `--device` and `--quiet` at most"
            )
        typer.echo(json.dumps(workflow.resume(resume, device=device, root=root, quiet=quiet)))
        return
    if method is None or dataset is None:
        raise ConfigError(
            "give a method and a data set, such as `lazygnn train lazygnn wordnet-small`, or `--resume RUN`"
        )
    values = ({} if config is None else read_options(config)) | parse_assignments(set_ or [])
    resolved = resolve(method, dataset, values, seed=seed or 0, device="auto" if device is None else device, root=root)
    typer.echo(json.dumps(workflow.train(resolved, out, quiet=quiet)))


@app.command()
def evaluate(run: RunArgument, root: RunRootOption = None, device: DeviceOption = "auto") -> None:
    """Scores the best weights of a run, exactly and without any history; prints JSON."""
    typer.echo(json.dumps(workflow.evaluate_run(run, device=device, root=root)))


@app.command()
def predict(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="File to write, .csv or .parquet.")],
    graph: Annotated[Path | None, typer.Option(help="Another graph (.npz) with the same features.")] = None,
    root: RunRootOption = None,
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
    console.print_json(opened.config(read_config).record(opened.chosen()))
    log = opened.history()
    shown = _course(log)
    console.print(_course_table(shown))
    # a table of its own: beside the scores, the numbers would not fit a terminal
    if looked := _looked_at(log, shown):
        console.print(_laziness_table(looked))
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
    table.add_row("kernels", describe_kernels())
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


def _check_dataset(dataset: str, root: str | None) -> None:
    """Refuses a data set that is neither known by name nor a file."""
    known = {EMBEDDED, *SOURCES, *(name for method in METHODS for name in recipe_names(method))}
    if dataset not in {"default", *known} and find_graph(dataset, root) is None:
        raise unknown_dataset(dataset, root, known)


def _recipes_line(method: str) -> str:
    """The data sets a method has a recipe for; a star and a second line for those that are not for download."""
    names = recipe_names(method)
    own = [name for name in names if name != EMBEDDED and name not in SOURCES]
    line = f"recipes for: {', '.join(f'{name}*' if name in own else name for name in names)}"
    legend = "\n* not for download: needs `<name>.npz` of your own in the folder of data files (`--root`)"
    return line + legend if own else line


def _in_words(found: dict[str, Any]) -> str:
    """What `prepare` found, with units."""
    return (
        f"{found['nodes']:,} nodes, {found['edges']:,} edges, in {found['num_parts']} parts of "
        f"{found['smallest_part']:,} to {found['largest_part']:,} nodes; {found['edge_cut']:.1%} of the edges lie "
        f"between parts; nodes around a part, for each node in it: {found['mean_halo']:.2f} within 1 hop (at most "
        f"{found['max_halo']:.2f}), {found['mean_deep_halo']:.2f} within {found['num_layers']} hops"
    )


def _course(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines spread over the course: with scores if there are enough, and laziness too; the last of all among them."""
    scored = [line for line in log if line["scores"]]
    both = [line for line in scored if line.get("laziness")]
    chosen = next((lines for lines in (both, scored) if len(lines) >= ENOUGH), log)
    # few scores are all shown
    kept = _about_twenty(chosen) + (scored if len(scored) < ENOUGH else scored[-1:]) + log[-1:]
    epochs = {line["epoch"] for line in kept}
    return [line for line in log if line["epoch"] in epochs]


def _looked_at(log: list[dict[str, Any]], shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of those shown whose histories were looked at; where these are too few, others of the log."""
    looked = [line for line in shown if line.get("laziness")]
    return looked if len(looked) >= ENOUGH else _about_twenty([line for line in log if line.get("laziness")])


def _about_twenty(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most twenty lines, evenly spread; the last is one of them."""
    return lines[:: -max(math.ceil(len(lines) / 20), 1)][::-1]


def _course_table(lines: list[dict[str, Any]]) -> Table:
    table = Table("epoch", "loss", "train", "val", "test", "seconds", title="course")
    for line in lines:
        scores = line["scores"] or {}
        cells = [f"{scores[split]:.4f}" if split in scores else "" for split in ("train", "val", "test")]
        table.add_row(str(line["epoch"]), f"{line['loss']:.4f}", *cells, f"{line['seconds']:.3f}")
    return table


def _laziness_table(lines: list[dict[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for line in lines for name in line["laziness"]))
    # in two lines, the names fit a terminal
    table = Table("epoch", *("_\n".join(name.rsplit("_", 1)) for name in names), title="laziness")
    for line in lines:
        seen = line["laziness"]
        table.add_row(str(line["epoch"]), *(f"{seen[name]:.3f}" if name in seen else "" for name in names))
    return table


def _options_table(title: str, options: type[Options], tuned: dict[str, Any]) -> Table:
    table = Table(Column("option", no_wrap=True), "default", "recipe", "allowed", "meaning", title=title)
    for name, field in options.model_fields.items():
        cells = _value(field.default), _value(tuned.get(name)), allowed(field), field.description or ""
        table.add_row(name, *map(escape, cells))
    return table


def _value(value: object) -> str:
    """A value as `--set` takes it; nothing for none."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
