"""The benchmarks by name."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks import epoch as epoch_benchmark
from benchmarks import fit as fit_benchmark
from benchmarks import history as history_benchmark
from benchmarks import propagation as propagation_benchmark
from benchmarks import sampling as sampling_benchmark
from benchmarks import scaling as scaling_benchmark
from benchmarks import step as step_benchmark
from benchmarks.published import TABLES, Results
from benchmarks.report import RESULTS, Report, choose
from common.shapes import find_shape
from lazygnn.cli import Commands
from lazygnn.commands import choose_device

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Measures time and memory and checks the results, which are written to `runs/benchmarks`.",
)
Shape = Annotated[str, typer.Option(help="products, arxiv, reddit, flickr, yelp or tiny.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Root = Annotated[str | None, typer.Option(help="Folder of data files; default: $LAZYGNN_DATA, or `data`.")]
Only = Annotated[str, typer.Option(help="Names to measure, separated by commas; default: all of them.")]
Repeats = Annotated[int, typer.Option(min=1, help="Repetitions of every measurement; the median counts.")]
Warmup = Annotated[int, typer.Option(min=1, help="Epochs before the first measured one.")]


def _folder(path: Path) -> Path:
    """Rejects a folder that cannot be created, before anything is measured."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not existing.is_dir():
        raise typer.BadParameter(f"`{existing}` is a file; give a folder")
    return path


Out = Annotated[Path, typer.Option(help="Folder of the results.", callback=_folder)]


@app.command()
def step(
    shape: Shape = "products",
    device: Device = "auto",
    root: Root = None,
    only: Only = "",
    repeats: Repeats = 20,
    out: Out = RESULTS,
) -> None:
    """Measures one propagation step: ours, torch's sparse product, PyG's message passing, and a copy."""
    _end(
        step_benchmark.main(
            find_shape(shape), choose_device(device), root=root, only=_names(only), repeats=repeats, folder=out
        )
    )


@app.command()
def history(
    shape: Shape = "products",
    device: Device = "auto",
    repeats: Repeats = 10,
    scratch: Annotated[Path | None, typer.Option(help="Folder for the files of the disk tier.")] = None,
    out: Out = RESULTS,
) -> None:
    """Measures rows read and written, for every tier and type of a history."""
    _end(history_benchmark.main(find_shape(shape), choose_device(device), repeats=repeats, scratch=scratch, folder=out))


@app.command()
def propagation(
    shape: Shape = "products",
    device: Device = "auto",
    root: Root = None,
    only: Only = "",
    repeats: Repeats = 10,
    out: Out = RESULTS,
) -> None:
    """Measures the propagation of a full batch, forward and backward: exact, the paper's and ours."""
    _end(
        propagation_benchmark.main(
            find_shape(shape), choose_device(device), root=root, only=_names(only), repeats=repeats, folder=out
        )
    )


@app.command()
def epoch(
    shape: Shape = "products",
    device: Device = "auto",
    root: Root = None,
    only: Only = "",
    repeats: Repeats = 5,
    warmup: Warmup = 2,
    profile: Annotated[
        bool, typer.Option("--profile", help="Record the kernels of one more epoch, in groups.")
    ] = False,
    out: Out = RESULTS,
) -> None:
    """Measures an epoch of training: ours, the paper's recipe, GAS, exact APPNP, GraphSAGE, Cluster-GCN."""
    _end(
        epoch_benchmark.main(
            find_shape(shape),
            choose_device(device),
            root=root,
            only=_names(only),
            repeats=repeats,
            warmup=warmup,
            profiled=profile,
            folder=out,
        )
    )


@app.command()
def fit(
    dataset: Annotated[list[str] | None, typer.Argument(help="Data sets; default: wordnet-small.")] = None,
    device: Device = "cpu",
    root: Root = None,
    only: Only = "",
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs; default: those of the recipe or rule.")] = None,
    eval_every: Annotated[int, typer.Option(min=1, help="Epochs between two evaluations.")] = 1,
    repeats: Repeats = 3,
    out: Out = RESULTS,
) -> None:
    """Measures a whole training with its evaluations: lazy steps beside exact ones."""
    _end(
        fit_benchmark.main(
            dataset or ["wordnet-small"],
            choose_device(device),
            root=root,
            only=_names(only),
            epochs=epochs,
            eval_every=eval_every,
            repeats=repeats,
            folder=out,
        )
    )


@app.command()
def sampling(
    shape: Shape = "arxiv",
    device: Device = "cpu",
    root: Root = None,
    only: Only = "",
    repeats: Repeats = 20,
    out: Out = RESULTS,
) -> None:
    """Measures the draw of a sampled batch beside the training step on it, for every sampler."""
    _end(
        sampling_benchmark.main(
            find_shape(shape), choose_device(device), root=root, only=_names(only), repeats=repeats, folder=out
        )
    )


@app.command()
def scaling(
    shape: Shape = "products",
    device: Device = "auto",
    only: Only = "",
    contender: Annotated[str, typer.Option(help="A contender of `epoch`.")] = "ours",
    repeats: Repeats = 5,
    warmup: Warmup = 2,
    out: Out = RESULTS,
) -> None:
    """Measures our epoch against nodes, edges, steps and parts."""
    _end(
        scaling_benchmark.main(
            find_shape(shape),
            choose_device(device),
            only=_names(only),
            contender=contender,
            repeats=repeats,
            warmup=warmup,
            folder=out,
        )
    )


@app.command()
def summarize(
    table: Annotated[str, typer.Argument(help=f"One of: {', '.join(TABLES)}.")],
    files: Annotated[
        list[Path],
        typer.Argument(exists=True, dir_okay=False, help="Result files; the first that has a row counts."),
    ],
) -> None:
    """Writes the summary of a table of the docs to `docs/tables`; `python -m experiments tables` updates the docs."""
    ((name, make),) = choose([table], TABLES, "table").items()
    summary = make(Results(files))
    print(summary.markdown())
    print(f"wrote {summary.save(name)}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _end(report: Report) -> None:
    if report.failed():
        raise typer.Exit(1)
