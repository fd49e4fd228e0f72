"""What the reproductions share: how they are run, and their tables with the published numbers beside ours."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.summary import SCORE, Cell, Column, Row, Sources, Summary, score
from experiments.best import Case, Place, Variant
from experiments.graphs import SMALL, load
from experiments.grid import Result
from experiments.paper.numbers import COLUMNS
from experiments.paper.released import STORE
from experiments.paper.verdict import Verdict

PUBLISHED = "{published}"
Published = Mapping[str, Mapping[str, float | str]]


@dataclass(frozen=True)
class Plan:
    """What a command asks for.

    Attributes:
        datasets: Graphs.
        systems: Rows of the table; all if it is empty.
        seeds: Seeds 0, 1, ...
        place: Where and how runs are made.
        quick: Whether a few epochs are enough, to try the command.
    """

    datasets: Sequence[str]
    systems: Sequence[str]
    seeds: int
    place: Place
    quick: bool = False

    def chosen(self, known: Iterable[str]) -> list[str]:
        """Returns the systems that are asked for."""
        return [name for name in known if not self.systems or name in self.systems]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes:
        title: Of its section.
        about: What is measured, and how that differs from the paper.
        time: How long the command takes.
        datasets: Graphs if none are given.
        seeds: Number of seeds if none is given.
        systems: Names of the rows.
        run: Makes the table.
        judge: Returns the verdicts on a table.
        draw: Draws a table.
        quick: Graphs of a quick run.
        on_shapes: Whether graphs are names of shapes.
    """

    title: str
    about: str
    time: str
    datasets: Sequence[str]
    seeds: int
    systems: Sequence[str]
    run: Callable[[Plan], Summary]
    judge: Callable[[Summary], list[Verdict]]
    draw: Callable[[Summary, Path], None]
    quick: Sequence[str] = (SMALL,)
    on_shapes: bool = False

    def graphs(self, given: Sequence[str], *, quick: bool, alone: bool) -> Sequence[str]:
        """Returns the graphs to take.

        Args:
            given: Those that the user names.
            quick: Whether the run is a quick one.
            alone: Whether the user names them for this experiment alone; others may not have shapes of that name.
        """
        if given and (alone or not self.on_shapes):
            return given
        return self.quick if quick else self.datasets


def scores(plan: Plan, cases: Mapping[str, Case], label: str, published: Published) -> Summary:
    """Trains cases as they are set, without recipes, and returns the table of their test scores."""
    names = plan.chosen(cases)
    if not plan.place.stored:
        # a graph that is missing is one error, and not one for every run
        for dataset in plan.datasets:
            load(dataset, plan.place.root)
    wanted = [(case, dataset, seed) for dataset in plan.datasets for case in names for seed in range(plan.seeds)]
    configs = [plan.place.configure(cases[case], dataset, seed, variant=Variant()) for case, dataset, seed in wanted]
    lines = dict(zip(wanted, plan.place.run(STORE, configs), strict=True))
    found = {
        (case, dataset): complete([lines[case, dataset, seed] for seed in range(plan.seeds)])
        for case in names
        for dataset in plan.datasets
    }
    return table(label, names, plan.datasets, found, published)


def complete(lines: Sequence[Result | None]) -> list[Result] | None:
    """Returns the results of all seeds, or `None` if one is missing."""
    found = [line for line in lines if line is not None]
    return found if len(found) == len(lines) else None


def table(
    label: str,
    rows: Sequence[str],
    datasets: Sequence[str],
    found: Mapping[tuple[str, str], list[Result] | None],
    published: Published,
) -> Summary:
    """Returns a table of test scores; a graph of the paper has the published number beside ours."""
    columns, sources, made = list[Column](), Sources(), list[Row]()
    for dataset in datasets:
        columns.append(Column(title=dataset, format=SCORE))
        if _in_paper(dataset, published):
            columns.append(Column(title=f"paper: {COLUMNS[dataset]}", format=PUBLISHED))
    for row in rows:
        cells: list[Cell | None] = []
        for dataset in datasets:
            lines = found[row, dataset]
            cells.append(None if lines is None else score([line["test"] for line in lines], sources.of(lines)))
            if _in_paper(dataset, published):
                cells.append(published_cell(published.get(row, {}).get(COLUMNS[dataset])))
        made.append(Row(label=row, cells=cells, bold=row.startswith("ours")))
    return Summary(origin="", label=label, columns=columns, rows=made, sources=sources.found)


def published_cell(value: float | str | None) -> Cell | None:
    """Returns the cell of a published number; a text stands for itself."""
    return None if value is None else {"published": value}


def cells_of(summary: Summary, dataset: str) -> dict[str, Cell]:
    """Returns the cells of a column by row, without the empty ones."""
    at = [column.title for column in summary.columns].index(dataset)
    return {row.label: cell for row in summary.rows if (cell := row.cells[at]) is not None}


def measured(summary: Summary) -> list[str]:
    """Returns the columns with our scores."""
    return [column.title for column in summary.columns if column.format != PUBLISHED]


def _in_paper(dataset: str, published: Published) -> bool:
    return dataset in COLUMNS and any(COLUMNS[dataset] in row for row in published.values())
