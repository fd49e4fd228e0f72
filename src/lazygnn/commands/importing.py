"""Imports tables as a graph, with a progress bar, and says what was done."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from lazygnn.commands.paths import as_optional_path, as_path
from lazygnn.data import load_graph
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.tables import require_arrow
from lazygnn.tables.options import read_table_options


def import_graph(
    nodes: Path | str,
    edges: Path | str,
    out: Path | str | None,
    values: Mapping[str, Any],
    *,
    like: str | None = None,
    dry_run: bool = False,
    console: Console | None = None,
) -> dict[str, Any]:
    """Imports a table of nodes and a table of edges; returns the numbers of the import.

    Args:
        nodes: A CSV or Parquet file with a row for every node.
        edges: A CSV or Parquet file with a row for every edge.
        out: The graph: an `.npz` file, or else a folder.
        values: Options of `TableOptions` by name.
        like: Another graph from tables, whose encoding is used again, and whose nodes stay in their splits.
        dry_run: Checks everything and writes nothing.
        console: Where progress and notes are shown.
    """
    nodes, edges, out = as_path(nodes, "nodes"), as_path(edges, "edges"), as_optional_path(out, "out")
    if out is None and not dry_run:
        raise ConfigError("give the graph to write with `--out`, or `--dry-run` to write nothing")
    require_arrow()
    from lazygnn.tables.building import import_tables

    options, earlier = read_table_options(values), None if like is None else _load_imported(like)
    shown = console or Console(stderr=True)
    with _bars(shown) as bars:
        name = nodes.stem if out is None else out.stem
        imported = import_tables(nodes, edges, options, earlier=earlier, name=name, progress=bars.show)
    for note in imported.notes:
        shown.print(f"- {note}", markup=False, highlight=False, soft_wrap=True)
    if not dry_run and out is not None:
        imported.graph.save(out)
        shown.print(f"wrote {out}", markup=False, highlight=False, soft_wrap=True)
    return {"graph": None if dry_run else str(out), "dry_run": dry_run} | imported.facts


def parse_ratio(text: str) -> tuple[float, float, float]:
    """Reads three shares, such as `60/20/20`."""
    try:
        first, second, third = (float(part) for part in text.split("/"))
    except ValueError:
        raise ConfigError(f"`--ratio` is `{text}`; give three shares, such as 60/20/20") from None
    return first, second, third


def add_rows(graph: Graph, nodes: Path, edges: Path | None, *, drop_unknown: bool = False) -> tuple[Graph, Graph]:
    """Adds new rows to a graph from tables; returns the whole graph, with the new nodes last, and the new nodes.

    Args:
        graph: The graph of a run.
        nodes: A table of new nodes.
        edges: A table of their edges.
        drop_unknown: Drops edges of unknown nodes.
    """
    require_arrow()
    from lazygnn.tables.extending import extend_graph

    extended = extend_graph(graph, nodes, edges, drop_unknown=drop_unknown)
    for note in extended.notes:
        Console(stderr=True).print(f"- {note}", markup=False, highlight=False, soft_wrap=True)
    return extended.whole, extended.new


def _load_imported(path: str) -> Graph:
    graph = load_graph(path)
    if graph.schema is None:
        raise GraphError(f"graph `{path}` has no schema, since it was not imported from tables; give one that was")
    return graph


class _Bars:
    """A bar for every table; none if the console is not a terminal."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.tasks: dict[str, TaskID] = {}

    def show(self, name: str, done: int, total: int) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.progress.add_task(f"reading {Path(name).name}", total=total)
        self.progress.update(self.tasks[name], completed=done)


@contextmanager
def _bars(console: Console) -> Iterator[_Bars]:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        yield _Bars(progress)
