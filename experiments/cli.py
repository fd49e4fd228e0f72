"""The experiments by name."""

from pathlib import Path
from typing import Annotated

import typer

from experiments import baselines as baselines_experiment
from experiments import demo as demo_experiment
from experiments import minibatch as minibatch_experiment
from experiments import planetoid as planetoid_experiment
from experiments import products_shape as products_shape_experiment
from experiments import ringing as ringing_experiment
from experiments import spectrum as spectrum_experiment
from experiments import staleness as staleness_experiment
from lazygnn.cli import Commands
from lazygnn.methods import METHODS

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Makes the tables and figures of the docs; runs whose results are kept are not run again.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Root = Annotated[str | None, typer.Option(help="Folder of data files; default: $LAZYGNN_DATA, or `data`.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Workers = Annotated[int, typer.Option(min=1, help="Runs at a time.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many: seeds 0, 1, ...")]


@app.command()
def demo() -> None:
    """Trains three methods on the embedded graph and compares them."""
    demo_experiment.main()


@app.command()
def planetoid(
    methods: Annotated[list[str] | None, typer.Argument(help="Methods to compare; default: all of them.")] = None,
    seeds: Seeds = 10,
    root: Root = None,
    device: Device = "auto",
    workers: Workers = 2,
) -> None:
    """Cora, CiteSeer and PubMed, public split."""
    planetoid_experiment.main(seeds, methods or list(METHODS), root, device, workers)


@app.command()
def minibatch(seeds: Seeds = 5, root: Root = None, device: Device = "auto", workers: Workers = 1) -> None:
    """Mini-batches against full batch on arxiv and wordnet."""
    minibatch_experiment.main(seeds, root, device, workers)


@app.command()
def products_shape(folder: Annotated[Path, typer.Argument(help="Where to write the graph.")]) -> None:
    """Writes a graph of the shape of ogbn-products, for measurements of time and memory."""
    products_shape_experiment.main(folder)


@app.command()
def spectrum(root: Root = None) -> None:
    """What a lazy pass does to each mode of six graphs: a table and a figure."""
    spectrum_experiment.main(root)


@app.command()
def ringing(root: Root = None) -> None:
    """How long training swings in the smoothest mode of six graphs, by the level of the fit: a table."""
    ringing_experiment.main(root)


@app.command()
def staleness(
    seeds: Seeds = 5,
    case: Annotated[list[str] | None, typer.Option(help="A case of the table; default: all of them.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="A graph of the table; default: all of them.")] = None,
    norm: Annotated[staleness_experiment.Norm, typer.Option(help="Of the MLP, in every case.")] = "none",
    root: Root = None,
    device: Device = "auto",
    workers: Workers = 1,
) -> None:
    """What laziness costs on six graphs, and what takes the cost away: tables and a figure."""
    cases, datasets = staleness_experiment.CASES, staleness_experiment.DATASETS
    for name, wanted, known in (("--case", case, list(cases)), ("--dataset", dataset, list(datasets))):
        if unknown := set(wanted or ()) - set(known):
            raise typer.BadParameter(
                f"unknown: {', '.join(sorted(unknown))}; choose from: {'; '.join(known)}", param_hint=name
            )
    # a name that is given twice is meant once
    wanted_cases, wanted_datasets = dict.fromkeys(case or cases), dict.fromkeys(dataset or datasets)
    staleness_experiment.main(seeds, list(wanted_cases), list(wanted_datasets), norm, root, device, workers)


@app.command()
def baselines(
    seeds: Seeds = 3,
    most_epochs: Annotated[int, typer.Option(help="Cap on the epochs of every recipe.")] = 200,
    root: Root = None,
    device: Device = "auto",
    workers: Workers = 1,
) -> None:
    """All methods on arxiv and wordnet: accuracy, time, memory."""
    baselines_experiment.main(seeds, most_epochs, root, device, workers)
