"""The experiments by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from common.summary import Summary, known_summary
from common.tables import outdated
from experiments import demo as demo_experiment
from experiments import depth as depth_experiment
from experiments import epoch_bytes as epoch_bytes_experiment
from experiments import halo as halo_experiment
from experiments import minibatch as minibatch_experiment
from experiments import oscillation as oscillation_experiment
from experiments import partition_memory as partition_memory_experiment
from experiments import products_shape as products_shape_experiment
from experiments import ranks as ranks_experiment
from experiments import rule as rule_experiment
from experiments import scale_out as scale_out_experiment
from experiments import spectrum as spectrum_experiment
from experiments import staleness as staleness_experiment
from experiments import training_figure
from experiments.best import Place
from experiments.cases import CASES, DATASETS, Norm
from experiments.paper.commands import add_commands
from experiments.paper.page import outdated as outdated_reproduction
from experiments.published import DRAWN, TABLES
from lazygnn.cli import Commands

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Makes the tables and figures of the docs. Runs with a result in `runs/experiments` are not trained again.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Root = Annotated[str | None, typer.Option(help="Folder of data files; default: $LAZYGNN_DATA, or `data`.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Workers = Annotated[int, typer.Option(min=1, help="Runs at a time.")]
Metric = Annotated[str | None, typer.Option(help="Metric of all runs; default: that of the graph.")]
Stored = Annotated[bool, typer.Option("--stored", help="Train nothing; leave cells of missing runs empty.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ...")]
Save = Annotated[bool, typer.Option("--save", help="Write the summary of the table to `docs/tables`.")]


@app.command()
def demo() -> None:
    """Trains four methods on the embedded graph and compares them."""
    demo_experiment.main()


@app.command()
def minibatch(
    seeds: Seeds = 5, root: Root = None, device: Device = "auto", workers: Workers = 1, save: Save = False
) -> None:
    """Compares mini-batches with full batch on arxiv and wordnet."""
    _show(minibatch_experiment.main(seeds, root, device, workers), "minibatch", save)


@app.command()
def depth(
    seeds: Seeds = 3,
    case: Annotated[list[str] | None, typer.Option(help="A row of the table; default: all.")] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="A name, or a file of your own, whose runs are stored by its contents; default: those of the docs."
        ),
    ] = None,
    metric: Metric = None,
    root: Root = None,
    device: Device = "auto",
    workers: Workers = 1,
    stored: Stored = False,
    save: Save = False,
    outdated: Annotated[
        bool,
        typer.Option("--outdated", help="List the cells of the docs with other options than today's; train nothing."),
    ] = False,
) -> None:
    """Compares the deep model with all others, with one rule for every graph."""
    _check("--case", case or [], list(depth_experiment.CASES))
    datasets = dataset or list(depth_experiment.DATASETS)
    cases = case or depth_experiment.rows_of(datasets)
    place = Place(root=root, device=device, workers=workers, stored=stored, also=_metric(metric))
    name = depth_experiment.table_of(datasets)
    if outdated:
        for cell in depth_experiment.outdated(cases, datasets, place):
            print(cell)
        return
    _show(depth_experiment.main(seeds, cases, datasets, place), name, save, order=list(depth_experiment.CASES))


@app.command()
def rule(
    change: Annotated[
        list[str], typer.Option(help='What a row sets in place of the rule, such as "lr=0.01 norm=none".')
    ],
    case: Annotated[list[str], typer.Option(help="A row of the table that `depth` makes, such as gcn.")],
    dataset: Annotated[list[str], typer.Option(help="A name, or a file of your own.")],
    seeds: Seeds = 3,
    metric: Metric = None,
    root: Root = None,
    device: Device = "auto",
    workers: Workers = 1,
    stored: Stored = False,
) -> None:
    """Compares changes of the rule for defaults by their gain in validation score."""
    _check("--case", case, list(depth_experiment.CASES))
    place = Place(root=root, device=device, workers=workers, stored=stored, also=_metric(metric))
    cases = {name: depth_experiment.CASES[name] for name in case}
    # a repeated name counts once
    changes, datasets = list(dict.fromkeys(change)), list(dict.fromkeys(dataset))
    print(rule_experiment.main(cases, changes, datasets, seeds, place))


@app.command()
def products_shape(
    folder: Annotated[Path, typer.Argument(help="Where to write the graph.")],
    nodes: Annotated[
        int, typer.Option(min=50, help="Number of nodes; the degree stays.")
    ] = products_shape_experiment.NODES,
) -> None:
    """Writes a graph of the shape of ogbn-products, for measurements of time and memory."""
    products_shape_experiment.main(folder, nodes)


@app.command()
def halo(root: Root = None, save: Save = False) -> None:
    """Divides three graphs for 2 to 64 ranks and counts halos, and the bytes that methods send in an epoch."""
    _show(halo_experiment.main(root), "halo", save)


@app.command()
def epoch_bytes(
    folder: Annotated[Path, typer.Argument(help="A graph that `lazygnn prepare --out` has written.")],
    save: Save = False,
) -> None:
    """Counts the bytes that ranks with one part each send in an epoch, beside those of other methods."""
    _show(epoch_bytes_experiment.main(folder), "epoch-bytes", save)


@app.command()
def ranks(
    seeds: Seeds = 3,
    method: Annotated[list[str] | None, typer.Option(help="lazygnn or lazygnn-deep; default: lazygnn.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="A graph, by name or path; default: two.")] = None,
    number: Annotated[
        int, typer.Option("--ranks", min=2, max=ranks_experiment.PARTS, help="Number of ranks.")
    ] = ranks_experiment.RANKS,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of every run; default: by the rule.")] = None,
    root: Root = None,
    device: Device = "auto",
    workers: Workers = 1,
    save: Save = False,
) -> None:
    """Compares the scores of several ranks with those of one process that has the same parts and batches."""
    _check("--method", method or [], list(ranks_experiment.METHODS))
    # a repeated name counts once
    methods = list(dict.fromkeys(method or ranks_experiment.METHODS[:1]))
    datasets = list(dict.fromkeys(dataset or ranks_experiment.DATASETS))
    also = {} if epochs is None else {"epochs": epochs}
    place = Place(root=root, device=device, workers=workers, also=also)
    _show(ranks_experiment.main(seeds, methods, datasets, number, place), "ranks", save, order=[])


@app.command()
def scale_out(save: Save = False) -> None:
    """Computes memory, bytes and time of ranks at the size of papers100M, from measured constants."""
    _show(scale_out_experiment.memory_table(), "scale-out-memory", save)
    _show(scale_out_experiment.bytes_table(), "scale-out-bytes", save)


@app.command()
def partition_memory(
    folders: Annotated[list[Path], typer.Argument(help="Graphs as folders, such as `products-shape` writes.")],
    engine: Annotated[list[str] | None, typer.Option(help="metis or kaminpar; default: kaminpar.")] = None,
    parts: Annotated[list[int] | None, typer.Option(help="Numbers of parts; default: 10 and 50.")] = None,
    save: Save = False,
) -> None:
    """Measures time and memory of `lazygnn prepare`."""
    found = partition_memory_experiment.main(folders, engine or ["kaminpar"], parts or [10, 50])
    _show(found, "partition-memory", save)


@app.command()
def spectrum(root: Root = None, save: Save = False) -> None:
    """Measures the spectra of six graphs and the effect of a lazy pass on each mode: a table and a figure."""
    _show(spectrum_experiment.main(root, spectrum_experiment.FIGURE), "spectrum", save)


@app.command()
def oscillation(root: Root = None, save: Save = False) -> None:
    """Computes how fast oscillations of training decay in the smoothest mode of six graphs: a table."""
    _show(oscillation_experiment.main(root), "oscillation", save)


@app.command()
def staleness(
    table: Annotated[str | None, typer.Option(help="A table of the docs, instead of --case and --dataset.")] = None,
    seeds: Seeds = 5,
    case: Annotated[list[str] | None, typer.Option(help="A case to compare; default: all.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="A graph to compare on; default: all.")] = None,
    norm: Annotated[Norm, typer.Option(help="Norm of the MLP, in every case.")] = "none",
    root: Root = None,
    device: Device = "auto",
    workers: Workers = 1,
    save: Save = False,
) -> None:
    """Compares lazy schemes on six graphs: tables and a figure."""
    _check("--table", [] if table is None else [table], list(TABLES))
    _check("--case", case or [], list(CASES))
    _check("--dataset", dataset or [], list(DATASETS))
    if table is not None:
        trained = staleness_experiment.train(TABLES[table], root, device, workers)
        origin = f"python -m experiments staleness --table {table}"
        summary = TABLES[table].kind(TABLES[table], trained).model_copy(update={"origin": origin})
        _show(summary, table, save)
        return
    if save:
        raise typer.BadParameter("only a table of the docs can be saved; choose one with --table", param_hint="--save")
    # a repeated name counts once
    cases, datasets = list(dict.fromkeys(case or CASES)), list(dict.fromkeys(dataset or DATASETS))
    tables = staleness_experiment.compare(cases, datasets, seeds, norm)
    trained = staleness_experiment.train(tables[0], root, device, workers)
    for one in tables:
        print(one.kind(one, trained).markdown())
    # a part of the study must not replace the figure of the docs
    if set(DRAWN) <= set(cases) and set(datasets) == set(DATASETS) and norm == "none":
        training_figure.draw(trained.logs(DRAWN), training_figure.FIGURE)


add_commands(app)


@app.command()
def tables(
    write: Annotated[bool, typer.Option("--write", help="Write the tables into the pages.")] = False,
) -> None:
    """Checks that the tables of the docs agree with their summaries in `docs/tables`."""
    # the page of the reproduction has tables of its own, so it comes last
    found = outdated() | outdated_reproduction()
    for page, content in found.items():
        if write:
            page.write_text(content)
        print(f"{'updated' if write else 'outdated'}: {page}")
    if found and not write:
        print("run `python -m experiments tables --write` to update them")
        raise typer.Exit(1)


def _show(summary: Summary, name: str, save: bool, *, order: Sequence[str] | None = None) -> None:
    """Prints a table and saves it; with an order of rows, empty cells keep what was saved before."""
    if save and order is not None and (older := known_summary(name)) is not None:
        # results of earlier runs may not be on this machine
        summary = summary.filled(older, order)
    print(summary.markdown())
    if save:
        print(f"wrote {summary.save(name)}; `python -m experiments tables --write` updates the docs")


def _metric(name: str | None) -> dict[str, str]:
    return {} if name is None else {"metric": name}


def _check(option: str, wanted: list[str], known: list[str]) -> None:
    if unknown := set(wanted) - set(known):
        names = ", ".join(sorted(unknown))
        raise typer.BadParameter(f"unknown: {names}; choose from: {'; '.join(known)}", param_hint=option)
