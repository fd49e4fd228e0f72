"""The `lazygnn` command line. Results go to stdout, logs and progress to stderr."""

import errno
import json
import logging
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from lazygnn import commands
from lazygnn.commands.comparison import check_split, compare_runs
from lazygnn.commands.doctor import installation_table
from lazygnn.commands.embedding import write_embeddings
from lazygnn.commands.evaluation import evaluate_by_metrics
from lazygnn.commands.exporting import CODE, export_run
from lazygnn.commands.importing import parse_ratio
from lazygnn.commands.listing import list_methods, list_options
from lazygnn.commands.prediction import write_predictions
from lazygnn.commands.preparation import describe_parts
from lazygnn.commands.reporting import show_report, write_page
from lazygnn.commands.show import show_run
from lazygnn.config import parse_assignments, read_options
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.data import load_graph
from lazygnn.errors import CheckpointError, ConfigError, GraphError, check_number, reason
from lazygnn.history import HistoryFileError
from lazygnn.methods import methods_with, resolve
from lazygnn.partitioning import PartitionMethod
from lazygnn.run.saving import Interrupted
from lazygnn.run.seeds import SeedRuns, describe_scores, describe_summary


class Commands(TyperGroup):
    """Commands that report a user's error in one line, with exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except Interrupted as stop:
            Console(stderr=True).print(str(stop), markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(128 + stop.signum) from None
        except (GraphError, ConfigError, CheckpointError, HistoryFileError) as error:
            Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None
        except OSError as error:
            # a closed pipe is not an error: `lazygnn show RUN | head`
            if error.errno in (None, errno.EPIPE):
                raise
            where = "" if error.filename is None else f" `{error.filename}`"
            text = f"error: cannot read or write{where}: {reason(error)}"
            Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None


class TrainCommand(TyperCommand):
    """A command that takes its many options with `--set` instead of flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses an option that is given as a flag, or with a space, and names its `--set`."""
        # shell completion must not raise errors
        if not ctx.resilient_parsing:
            flags = {flag for option in self.params for flag in option.opts}
            for number, arg in enumerate(args):
                following = [word for word in args[number + 1 :] if word != "="]
                if arg == "--set":
                    _check_assignment(following)
                elif arg.partition("=")[0] not in flags:
                    _check_flag(arg, following)
        return super().parse_args(ctx, args)


def _check_assignment(words: list[str]) -> None:
    if words and "=" not in words[0] and not words[0].startswith("-"):
        name, value = words[0], _value_among(words[1:])
        raise ConfigError(f"`--set {name}` has no value; use `--set {name}={value}`, without spaces")


def _check_flag(arg: str, following: list[str]) -> None:
    flag, equals, value = arg.partition("=")
    option = flag.removeprefix("--").replace("-", "_")
    if flag.startswith("--") and methods_with(option):
        value = value if equals else _value_among(following)
        raise ConfigError(f"`{flag}` is not a flag; use `--set {option}={value}`")


def _value_among(words: list[str]) -> str:
    return words[0] if words and not words[0].startswith("--") else "VALUE"


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
RootOption = Annotated[str | None, typer.Option(help="Folder of data files; default: $LAZYGNN_DATA, or `data`.")]
RunRootOption = Annotated[str | None, typer.Option(help="Folder of data files; default: where the run's graph was.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
CorrectAndSmoothOption = Annotated[
    bool, typer.Option("--correct-and-smooth", help="Improve the predictions with the labels of the training nodes.")
]
CorrectAlphaOption = Annotated[
    float | None, typer.Option(help="Weight of the errors where these are spread; default: 0.2; 1 leaves it out.")
]
SmoothAlphaOption = Annotated[
    float | None,
    typer.Option(help="Weight of the predictions where these are smoothed; default: 0.2; 1 leaves it out."),
]
ScalingOption = Annotated[str | None, typer.Option(help="Factor of the spread errors, or `auto`; default: auto.")]
DropUnknownOption = Annotated[
    bool, typer.Option("--drop-unknown", help="Drop edges of nodes that are not in the table of nodes.")
]
ColumnsOption = list[str] | None
RunArgument = Annotated[Path, typer.Argument(help="A run folder that `train` wrote.")]


def main() -> None:
    """Runs the command line, with the library's warnings on stderr."""
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
    """Shows methods and data sets; with a method, its options and the data sets that it has a recipe for."""
    if method is None:
        list_methods(Console())
    else:
        list_options(method, dataset, root, Console())


@app.command()
def prepare(
    dataset: Annotated[str, typer.Argument(help="A data set's name, or a path.")],
    num_parts: Annotated[int, typer.Option(help="Number of parts of the graph.")] = 50,
    partition: Annotated[PartitionMethod, typer.Option(help="Partition method.")] = "metis",
    num_layers: Annotated[int, typer.Option(help="Hops of the paper's halo to measure.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    root: RootOption = None,
    out: Annotated[Path | None, typer.Option(help="Also write the graph as a memory-mapped folder.")] = None,
) -> None:
    """Downloads, checks and partitions a data set ahead of time; prints edge cut and halo sizes as JSON."""
    console = Console(stderr=True)
    with console.status(f"loading {dataset}") as status:
        found = commands.prepare(
            dataset, num_parts, partition, num_layers, seed=seed, root=root, out=out, tell=status.update
        )
    console.print(describe_parts(found), soft_wrap=True, highlight=False)
    typer.echo(json.dumps(found))


@app.command("import")
def import_command(
    nodes: Annotated[Path, typer.Argument(help="CSV or Parquet file with a row for every node.")],
    edges: Annotated[Path, typer.Argument(help="CSV or Parquet file with a row for every edge.")],
    out: Annotated[Path | None, typer.Option(help="Graph to write: a name.npz, or else a folder.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="Column of node ids.")] = None,
    label: Annotated[ColumnsOption, typer.Option(help="Column of labels; repeat it for several targets.")] = None,
    source: Annotated[str | None, typer.Option(help="Column with the first node of an edge.")] = None,
    target: Annotated[str | None, typer.Option(help="Column with the second node of an edge.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column of edge weights.")] = None,
    features: Annotated[ColumnsOption, typer.Option(help="Column of features; repeatable; default: others.")] = None,
    ignore: Annotated[ColumnsOption, typer.Option(help="Column to leave out; repeatable.")] = None,
    categorical: Annotated[ColumnsOption, typer.Option(help="Column of categories; repeatable.")] = None,
    numeric: Annotated[ColumnsOption, typer.Option(help="Column of numbers; repeatable.")] = None,
    task: Annotated[str, typer.Option(help="auto, single-label, multi-label or regression.")] = "auto",
    split: Annotated[str, typer.Option(help="stratified or random.")] = "stratified",
    ratio: Annotated[str, typer.Option(help="Shares of training, validation and test nodes.")] = "60/20/20",
    split_column: Annotated[str | None, typer.Option(help="Column with train, val or test.")] = None,
    split_time: Annotated[str | None, typer.Option(help="Column of times; the newest are for the test.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the splits.")] = 0,
    structural: Annotated[
        bool, typer.Option("--structural", help="Add features of the graph: degrees and random signs.")
    ] = False,
    drop_unknown: DropUnknownOption = False,
    max_categories: Annotated[int, typer.Option(help="Most categories of a column, or classes.")] = 100,
    like: Annotated[str | None, typer.Option(help="Encode like this graph, which was imported before.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and describe, but write nothing.")] = False,
) -> None:
    """Imports a table of nodes and a table of edges as a graph; prints its numbers as JSON."""
    values: dict[str, Any] = {
        "id": id_,
        "label": label or (),
        "source": source,
        "target": target,
        "weight": weight,
        "features": features or (),
        "ignore": ignore or (),
        "categorical": categorical or (),
        "numeric": numeric or (),
        "task": task,
        "split": split,
        "ratio": parse_ratio(ratio),
        "split_column": split_column,
        "split_time": split_time,
        "seed": seed,
        "structural": structural,
        "drop_unknown": drop_unknown,
        "max_categories": max_categories,
    }
    typer.echo(json.dumps(commands.import_graph(nodes, edges, out, values, like=like, dry_run=dry_run)))


@app.command(cls=TrainCommand)
def train(
    method: Annotated[str | None, typer.Argument(help="A method that `lazygnn list` shows.")] = None,
    dataset: Annotated[str | None, typer.Argument(help="A data set's name, or a path.")] = None,
    root: RootOption = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of options; overrides the recipe.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; overrides all; repeatable.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, dropout and batches; default: 0.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds to train, from `--seed` on.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: auto.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/<dataset>-<method>-<seed>.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume this run from its last checkpoint.")] = None,
    init_from: Annotated[Path | None, typer.Option(help="Start from the best weights and options of this run.")] = None,
    logger: Annotated[str | None, typer.Option(help="tensorboard: also write the log for TensorBoard.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Trains a method on a data set; the last line on stdout is the result as JSON."""

    def tell(result: dict[str, Any]) -> None:
        _say(f"seed {result['seed']}: {describe_scores(result)}", quiet=quiet)

    if resume is not None:
        longer = parse_assignments(set_ or [])
        others = (method, dataset, config, out, seed, seeds, init_from, logger)
        if longer.keys() - {"epochs"} or any(given is not None for given in others):
            raise ConfigError(
                "`--resume` uses the configuration of the run; it can only be combined with `--root`, `--device`, "
                "`--quiet` and `--set epochs=...`"
            )
        if SeedRuns.is_at(resume) and longer:
            raise ConfigError(f"`{resume}` holds several runs; extend one of them, such as `{resume}/seed-0`")
        if SeedRuns.is_at(resume):
            found = commands.resume_seeds(resume, device=device, root=root, quiet=quiet, tell=tell)
            _say(describe_summary(found), quiet=quiet)
        else:
            epochs = longer.get("epochs")
            if longer:
                check_number("epochs", epochs, whole=True)
            found = commands.resume(resume, epochs=epochs, device=device, root=root, quiet=quiet)
        typer.echo(json.dumps(found))
        return
    if init_from is None and (method is None or dataset is None):
        raise ConfigError(
            "give a method and a data set, such as `lazygnn train lazygnn wordnet-small`, or `--resume RUN`"
        )
    values = ({} if config is None else read_options(config)) | parse_assignments(set_ or [])
    values |= {} if logger is None else {"logger": logger}
    place: dict[str, Any] = {"seed": seed or 0, "device": "auto" if device is None else device, "root": root}
    if init_from is not None:
        if seeds is not None:
            raise ConfigError("`--init-from` starts all seeds from the same weights; omit `--seeds`")
        found = commands.fine_tune(init_from, values, out, method=method, dataset=dataset, quiet=quiet, **place)
        typer.echo(json.dumps(found))
        return
    assert method is not None
    assert dataset is not None
    # refuses wrong options before the graph is loaded
    resolve(method, dataset, values, **place)
    graph = load_graph(dataset, root)
    resolved = resolve(method, dataset, values, graph=graph, **place)
    if seeds is None:
        found = commands.train(resolved, out, graph=graph, quiet=quiet)
    else:
        found = commands.train_seeds(resolved, seeds, out, graph=graph, quiet=quiet, tell=tell)
        _say(describe_summary(found), quiet=quiet)
    typer.echo(json.dumps(found))


@app.command()
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
    change = _correct_and_smooth(
        correct_and_smooth, correct_alpha=correct_alpha, smooth_alpha=smooth_alpha, scaling=scaling
    )
    place: dict[str, Any] = {"device": device, "root": root, "graph_file": graph}
    for result in evaluate_by_metrics(run, metric or [], **place, correct_and_smooth=change, report=report):
        typer.echo(json.dumps(result))
    if report:
        show_report(run, Console(stderr=True))


@app.command()
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
    change = _correct_and_smooth(
        correct_and_smooth, correct_alpha=correct_alpha, smooth_alpha=smooth_alpha, scaling=scaling
    )
    new: dict[str, Any] = {"nodes": nodes, "edges": edges, "drop_unknown": drop_unknown}
    place: dict[str, Any] = {"device": device, "root": root}
    columns: dict[str, Any] = {"probabilities": probabilities, "known": known, "unlabeled": unlabeled}
    change_of: dict[str, Any] = {"correct_and_smooth": change, "calibrated": calibrated}
    count = write_predictions(run, out, graph, **new, **place, **columns, **change_of)
    _say(f"wrote {count} predictions to {out}")


@app.command()
def embed(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="File to write, .csv, .parquet or .npy.")],
    graph: Annotated[Path | None, typer.Option(help="Another graph (.npz) with the same features.")] = None,
    root: RunRootOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Writes the embedding of every node: the values that the last layer reads."""
    count, width = write_embeddings(run, out, graph, device=device, root=root)
    _say(f"wrote {count} embeddings with {width} channels to {out}")


@app.command()
def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="New folder for the weights, a description and model.py.")],
    root: RunRootOption = None,
) -> None:
    """Writes the weights and a file of plain PyTorch that predicts with them, without this package."""
    export_run(run, out, root=root)
    _say(f"wrote {out}; use it with `python {out / CODE} graph.npz predictions.npy`")


@app.command()
def show(run: RunArgument) -> None:
    """Shows the resolved configuration, the training log and the result of a run."""
    show_run(run, Console())


@app.command(cls=TrainCommand)
def tune(
    method: Annotated[str | None, typer.Argument(help="A method that `lazygnn list` shows.")] = None,
    dataset: Annotated[str | None, typer.Argument(help="A data set's name, or a path.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default: runs/<dataset>-<method>-tune.")] = None,
    space: Annotated[str, typer.Option(help="options (their own ranges), paper, or a TOML file.")] = "options",
    trials: Annotated[int | None, typer.Option(help="Number of trials in all; default: 30.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which no new trial starts.")] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes that train.")] = 1,
    pruner: Annotated[str, typer.Option(help="Ends bad trials early: median, hyperband or none.")] = "median",
    config: Annotated[Path | None, typer.Option(help="TOML file of options that stay as they are.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value that stays as it is; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search and of every training.")] = 0,
    device: DeviceOption = "auto",
    root: RootOption = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the search in this folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no trials.")] = False,
) -> None:
    """Searches options by validation score; prints the best as JSON and writes them for `train --config`."""

    def tell(line: str) -> None:
        _say(line, quiet=quiet)

    limits: dict[str, Any] = {"timeout": timeout, "jobs": jobs, "tell": tell}
    if resume is not None:
        if set_ or any(given is not None for given in (method, dataset, config, out)):
            raise ConfigError(
                "`--resume` uses the settings of the search; it can only be combined with `--trials`, `--timeout`, "
                "`--jobs` and `--quiet`"
            )
        found = commands.resume_tuning(resume, trials=trials, **limits)
    elif method is None or dataset is None:
        raise ConfigError(
            "give a method and a data set, such as `lazygnn tune lazygnn wordnet-small`, or `--resume FOLDER`"
        )
    else:
        values = ({} if config is None else read_options(config)) | parse_assignments(set_ or [])
        searched: dict[str, Any] = {"out": out, "space": space, "trials": 30 if trials is None else trials}
        place: dict[str, Any] = {"pruner": pruner, "seed": seed, "device": device, "root": root}
        found = commands.tune(method, dataset, values, **searched, **place, **limits)
    _say(f"wrote the best options to {found['config']}", quiet=quiet)
    typer.echo(json.dumps(found))


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs or of several seeds; the first is the reference.")
    ],
    split: Annotated[str | None, typer.Option(help="Judge by val or test; default: test if all runs have it.")] = None,
    out: Annotated[Path | None, typer.Option(help="PNG file of curves over epochs and over time.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line instead of a table.")] = False,
) -> None:
    """Compares runs with the first of them, by the scores of common seeds."""
    found = compare_runs(runs, split=check_split(split), picture=out)
    if as_json:
        typer.echo(json.dumps(found.record()))
        return
    Console().print(found.table())
    for sentence in found.sentences():
        typer.echo(sentence)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that `train` wrote.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    root: RunRootOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Writes a page about one or several runs: summary, curves, classes, calibration, mistakes, costs, settings."""
    write_page(runs, out, device=device, root=root)
    Console(stderr=True).print(f"wrote {out}", highlight=False, soft_wrap=True)


@app.command()
def doctor() -> None:
    """Shows versions, devices and optional packages, for a bug report."""
    Console().print(installation_table())


def _say(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def _correct_and_smooth(wanted: bool, **values: float | str | None) -> CorrectAndSmooth | None:
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if not wanted:
        if given:
            flag = f"--{next(iter(given))}".replace("_", "-")
            raise ConfigError(f"`{flag}` has no effect without `--correct-and-smooth`; add that, or omit `{flag}`")
        return None
    if "scaling" in given:
        # words other than `auto` are refused below
        with suppress(ValueError):
            given["scaling"] = float(given["scaling"])
    return CorrectAndSmooth(**given)
