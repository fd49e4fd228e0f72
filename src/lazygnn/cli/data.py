"""Commands about data: `list`, `prepare` and `import`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lazygnn import commands
from lazygnn.cli.app import print_result
from lazygnn.cli.arguments import ColumnsOption, DropUnknownOption, RootOption
from lazygnn.commands.importing import parse_ratio
from lazygnn.commands.listing import list_methods, list_options
from lazygnn.commands.preparation import describe_parts
from lazygnn.partitioning import Balance, PartitionMethod


def list_command(
    method: Annotated[str | None, typer.Argument(help="Show the options of this method.")] = None,
    dataset: Annotated[str, typer.Argument(help="Show what its recipe or rule sets for this data set.")] = "default",
    root: RootOption = None,
    all_: Annotated[bool, typer.Option("--all", help="With a data set, show all options.")] = False,
) -> None:
    """Shows methods and data sets; with a method, its options and the data sets that it has a recipe for."""
    if method is None:
        list_methods(Console())
    else:
        list_options(method, dataset, root, Console(), everything=all_)


def prepare(
    dataset: Annotated[str, typer.Argument(help="A data set's name, or a path.")],
    num_parts: Annotated[int, typer.Option(help="Number of parts of the graph.")] = 50,
    partition: Annotated[PartitionMethod, typer.Option(help="Partition method.")] = "auto",
    num_layers: Annotated[int, typer.Option(help="Hops of the paper's halo to measure.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    balance: Annotated[Balance, typer.Option(help="What parts have about equal amounts of.")] = "nodes",
    root: RootOption = None,
    out: Annotated[Path | None, typer.Option(help="Also write the graph as a memory-mapped folder.")] = None,
) -> None:
    """Downloads, checks and partitions a data set ahead of time; prints edge cut and halo sizes as JSON."""
    console = Console(stderr=True)
    with console.status(f"loading {dataset}") as status:
        found = commands.prepare(
            dataset,
            num_parts,
            partition,
            num_layers,
            seed=seed,
            balance=balance,
            root=root,
            out=out,
            tell=status.update,
        )
    console.print(describe_parts(found), soft_wrap=True, highlight=False)
    print_result(found)


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
    print_result(commands.import_graph(nodes, edges, out, values, like=like, dry_run=dry_run))
