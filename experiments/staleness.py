"""The cost of laziness on six graphs, as tables: scores, differences to exact steps, equal time, diagnostics."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from common.summary import SCORE, Cell, Column, Row, Sources, Summary, score
from experiments.cases import EXACT, Norm, configure
from experiments.compare import Log, Result, at_equal_time, difference, last_diagnostics, mean_difference
from experiments.grid import run_grid

Seeds = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Line:
    """A row of a table: a case, the seeds on each graph, and the split of the scores."""

    case: str
    seeds: Seeds
    label: str = ""
    split: str = "val"
    bold: bool = False


Runs = Mapping[tuple[str, str, int], Result]


@dataclass(frozen=True)
class Trained:
    """The results of a table and the provenance of its cells."""

    runs: Runs
    datasets: Sequence[str]
    sources: Sources

    def of(self, line: Line, dataset: str) -> list[Result]:
        """Returns the results of a cell."""
        return [self.runs[line.case, dataset, seed] for seed in line.seeds.get(dataset, ())]

    def logs(self, cases: Sequence[str]) -> dict[tuple[str, str], Log]:
        """Returns the logs of seed 0, by case and graph."""
        return {(case, dataset): self.runs[case, dataset, 0]["log"] for case in cases for dataset in self.datasets}

    def scores(self, line: Line) -> list[Cell | None]:
        """Returns mean and deviation on each graph, and the mean over the graphs if all of them were run."""
        cells: list[Cell | None] = []
        for dataset in self.datasets:
            found = self.of(line, dataset)
            cells.append(score([run[line.split] for run in found], self.sources.of(found)) if found else None)
        means = [cell["mean"] for cell in cells if cell is not None]
        return [*cells, {"mean": statistics.mean(means)} if len(means) == len(cells) else None]

    def differences(self, line: Line) -> list[Cell | None]:
        """Returns differences to exact steps with the same seeds, on each graph and on average."""
        cells = []
        for dataset in self.datasets:
            pair = [self.of(one, dataset) for one in (line, replace(line, case=EXACT))]
            values = [[run[line.split] for run in runs] for runs in pair]
            cells.append(difference(*values) | {"sources": self.sources.of([*pair[0], *pair[1]])})
        return [*cells, mean_difference(cells)]

    def diagnostics(self, line: Line) -> list[Cell | None]:
        """Returns the diagnostics of the last epoch of the first seed."""
        cells: list[Cell | None] = []
        for dataset in self.datasets:
            run = self.of(line, dataset)[0]
            cell = last_diagnostics(run.get("log", []))
            cells.append(cell and cell | {"seeds": 1, "sources": self.sources.of([run])})
        return cells


@dataclass(frozen=True)
class Table:
    """A table of the study: its rows, the kind of its cells and the norm of the MLP."""

    title: str
    lines: Sequence[Line]
    kind: Callable[["Table", Trained], Summary]
    norm: Norm = "none"

    def runs(self) -> list[tuple[str, str, int]]:
        """Returns the runs it is made of: case, graph and seed."""
        references = [replace(line, case=EXACT) for line in self.lines if self.kind is differences]
        runs = [
            (line.case, dataset, seed)
            for line in (*references, *self.lines)
            for dataset, seeds in line.seeds.items()
            for seed in seeds
        ]
        return list(dict.fromkeys(runs))

    @property
    def datasets(self) -> list[str]:
        """Returns the graphs, in the order in which the rows name them."""
        return list(dict.fromkeys(dataset for line in self.lines for dataset in line.seeds))


def scores(table: Table, trained: Trained) -> Summary:
    """Returns a table of mean and deviation."""
    return _summary(table, trained, [trained.scores(line) for line in table.lines], SCORE, "{mean:.2f}")


def differences(table: Table, trained: Trained) -> Summary:
    """Returns a table of differences to exact steps."""
    cells = [trained.differences(line) for line in table.lines]
    return _summary(table, trained, cells, "{mean:+.2f} ± {error:.2f} / {spread:.2f}", "{mean:+.2f} ± {error:.2f}")


def equal_time(table: Table, trained: Trained) -> Summary:
    """Returns a table of the best score within the time of the fastest case, of the first seed."""
    columns = []
    for dataset in table.datasets:
        runs = [trained.of(line, dataset)[0] for line in table.lines]
        cells = zip(at_equal_time(runs), runs, strict=True)
        columns.append([cell and cell | {"sources": trained.sources.of([run])} for cell, run in cells])
    return _summary(table, trained, [list(cells) for cells in zip(*columns, strict=True)], "{mean:.2f} ({seconds:.2f})")


def diagnostics(table: Table, trained: Trained) -> Summary:
    """Returns a table of the error of the stored features, and the angle and length of the gradient."""
    form = "{fixed_point_error:.2f} / {gradient_cosine:.2f} / {gradient_length:.2f}"
    return _summary(table, trained, [trained.diagnostics(line) for line in table.lines], form)


def train(table: Table, root: str | None, device: str, workers: int) -> Trained:
    """Trains the missing runs and returns the results."""
    runs = table.runs()
    configs = [
        configure(case, dataset, table.norm, seed=seed, device=device, root=root) for case, dataset, seed in runs
    ]
    results = run_grid("staleness", configs, workers=workers, log="diagnosed")
    return Trained(dict(zip(runs, results, strict=True)), table.datasets, Sources())


def compare(cases: Sequence[str], datasets: Sequence[str], seeds: int, norm: Norm) -> list[Table]:
    """Returns the tables that compare some cases on some graphs."""
    lines = [Line(case, dict.fromkeys(datasets, range(seeds))) for case in cases]
    tables = [Table("case, validation", lines, scores, norm)]
    if EXACT in cases and len(cases) > 1 and seeds > 1:
        others = [line for line in lines if line.case != EXACT]
        tables.append(Table("case, minus exact / ratio of deviations", others, differences, norm))
    tables.append(Table("case, error of features / cosine and length of gradient", lines, diagnostics, norm))
    if len(cases) > 1:
        tables.append(Table("case, seed 0: validation at equal time (own seconds)", lines, equal_time, norm))
    return tables


def _summary(
    table: Table, trained: Trained, cells: list[list[Cell | None]], form: str, mean: str | None = None
) -> Summary:
    columns = [Column(title=dataset, format=form) for dataset in trained.datasets]
    if mean is not None:
        columns.append(Column(title="mean", format=mean))
    return Summary(
        origin="python -m experiments staleness",
        label=table.title,
        columns=columns,
        rows=[
            Row(label=line.label or line.case, cells=row, bold=line.bold)
            for line, row in zip(table.lines, cells, strict=True)
        ],
        sources=trained.sources.found,
    )
