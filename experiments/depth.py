"""The deep model beside all others, on graphs of many kinds and with one rule for every graph."""

from collections.abc import Sequence
from pathlib import Path

from common.summary import Cell, Column, Row, Sources, Summary, load_summary, score
from experiments.best import PARTS, PLANETOID, Case, Place, best_runs, load_checked, variants
from experiments.grid import Result, key_of
from lazygnn.methods import METHODS

DATASETS = (
    "arxiv",
    "wordnet",
    "coauthor_cs",
    "amazon_computers",
    "facebook_pages",
    "dblp",
    "actor",
    "minesweeper",
    "github_social",
    "humloc",
)
# methods for mini-batches of parts; with one part they are the plain method
PARTED = ("gcn-gas", "gcnii-gas", "appnp-gas", "gcn-graphfm", "gcn-lmc", "vq-gnn", "cluster-gcn")
# set by the rule, also where there is a recipe
BY_RULE = "lazygnn, by the rule"
# what a cell records of its options: the key of its first run
_OPTIONS = "options"
# rows: a method, and what it sets
CASES: dict[str, Case] = {
    "lazygnn-deep": ("lazygnn-deep", {}),
    "lazygnn-deep, exact": ("lazygnn-deep", {"exact": True, "num_layers": 10}),
    "lazygnn-deep, stack alone": ("lazygnn-deep", {"beside": []}),
    "lazygnn-deep, 60 parts": ("lazygnn-deep", {"num_parts": 60, "parts_per_batch": 6}),
    "lazygnn-deep, labels as input": ("lazygnn-deep", {"label_input": 0.5}),
    "lazygnn-deep, no labels as input": ("lazygnn-deep", {"label_input": 0.0}),
    "lazygnn, neighbor": ("lazygnn", {"loader": "neighbor"}),
    "lazygnn, saint": ("lazygnn", {"loader": "saint"}),
    BY_RULE: ("lazygnn", {}),
    **{
        name: (name, PARTS if name in PARTED else {})
        for name, method in METHODS.items()
        if method.adapt is not None and name != "lazygnn-deep"
    },
}


def table_of(datasets: Sequence[str]) -> str:
    """Returns the name of the table of the docs that graphs belong to."""
    if set(datasets) <= set(PLANETOID):
        return "depth-planetoid"
    return "depth" if set(datasets) <= {*DATASETS, *PLANETOID} else "depth-others"


def rows_of(datasets: Sequence[str]) -> list[str]:
    """Returns the rows of a table; the rule alone is a row of its own only where all graphs have a recipe."""
    return [case for case in CASES if case != BY_RULE or set(datasets) <= set(PLANETOID)]


def main(seeds: int, cases: Sequence[str], datasets: Sequence[str], place: Place) -> Summary:
    """Trains the missing runs and returns the table: test scores at the best validation, of the best variant."""
    found = best_runs({case: CASES[case] for case in cases}, datasets, seeds, place, rule_alone=(BY_RULE,))
    rows, sources = [], Sources()
    for case in cases:
        cells: list[Cell | None] = []
        for dataset in datasets:
            runs = found[case, dataset]
            cells.append(None if runs is None else _cell(runs, sources))
        rows.append(Row(label=case, cells=cells, bold=case == "lazygnn-deep"))
    return Summary(
        origin=f"python -m experiments depth --seeds {seeds}",
        label="method",
        columns=[Column(title=Path(dataset).stem) for dataset in datasets],
        rows=rows,
        sources=sources.found,
    )


def outdated(cases: Sequence[str], datasets: Sequence[str], place: Place) -> list[str]:
    """Returns the cells of the docs that no way to set a method today has given; trains nothing.

    The rule may have changed since, or the recipe. Cells that did not record their options are named apart.
    """
    graphs, summary, found = load_checked(datasets, place), load_summary(table_of(datasets)), list[str]()
    titles, rows = [column.title for column in summary.columns], {row.label: row.cells for row in summary.rows}
    for dataset in datasets:
        for case in cases:
            title = Path(dataset).stem
            cell = rows[case][titles.index(title)] if case in rows and title in titles else None
            if cell is None:
                continue
            if _OPTIONS not in cell:
                found.append(f"{title}, {case}: options not recorded")
                continue
            ways = variants(CASES[case][0], dataset, rule_alone=case == BY_RULE)
            today = {key_of(place.configure(CASES[case], dataset, 0, graphs[dataset], way)) for way in ways}
            if cell[_OPTIONS] not in today:
                found.append(f"{title}, {case}: other options today")
    return found


def _cell(runs: Sequence[Result], sources: Sources) -> Cell:
    """Returns the score of some seeds, with the key of the first one."""
    return score([line["test"] for line in runs], sources.of(runs)) | {_OPTIONS: runs[0]["key"]}
