"""The deep model beside all others, on graphs of many kinds and with one rule for every graph."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from common.summary import Cell, Column, Row, Sources, Summary, score
from experiments.grid import run_grid, stored_runs
from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.methods import METHODS, recipe_names, resolve

# binary graphs and those with several labels are judged by ROC-AUC
DATASETS: dict[str, dict[str, Any]] = {
    "arxiv": {},
    "wordnet": {},
    "coauthor_cs": {},
    "amazon_computers": {},
    "facebook_pages": {},
    "dblp": {},
    "actor": {},
    "minesweeper": {"metric": "roc-auc"},
    "github_social": {"metric": "roc-auc"},
    "humloc": {},
}
PLANETOID: dict[str, dict[str, Any]] = {"cora": {}, "citeseer": {}, "pubmed": {}}
# rows: a method, and what it sets
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lazygnn-deep": ("lazygnn-deep", {}),
    "lazygnn-deep, exact": ("lazygnn-deep", {"exact": True, "num_layers": 10}),
    "lazygnn-deep, stack alone": ("lazygnn-deep", {"beside": []}),
    "lazygnn-deep, 60 parts": ("lazygnn-deep", {"num_parts": 60, "parts_per_batch": 6}),
    "lazygnn-deep, labels as input": ("lazygnn-deep", {"label_input": 0.5}),
    "lazygnn, neighbor": ("lazygnn", {"loader": "neighbor"}),
    "lazygnn, saint": ("lazygnn", {"loader": "saint"}),
    **{name: (name, {}) for name, method in METHODS.items() if method.adapt is not None and name != "lazygnn-deep"},
}

# a depth beside that of the rule: eight layers of GCNII are too many where neighbors disagree
DEPTHS = {"gcnii": 2, "gcnii-gas": 2}


class Variant(NamedTuple):
    """A way to set a method: by the rule, by the recipe of its authors, or by the rule with another depth."""

    use_recipe: bool = False
    num_layers: int | None = None


def variants(method: str, dataset: str) -> list[Variant]:
    """Returns the ways to set a method on a data set; the one that validates best counts."""
    found = [Variant()]
    if dataset in recipe_names(method):
        found.append(Variant(use_recipe=True))
    if method in DEPTHS:
        found.append(Variant(num_layers=DEPTHS[method]))
    return found


def main(
    seeds: int,
    cases: Sequence[str],
    datasets: Sequence[str],
    root: str | None,
    device: str,
    workers: int,
    stored: bool = False,
) -> Summary:
    """Trains the missing runs and returns the table: test scores at the best validation, of the best variant.

    With `stored`, nothing is trained, and a cell with a missing run stays empty.
    """
    known = DATASETS | PLANETOID
    graphs = {name: load_graph(name, root) for name in datasets}

    def config(case: str, dataset: str, variant: Variant, seed: int) -> Config:
        method, values = CASES[case]
        place: dict[str, Any] = {"seed": seed, "device": device, "root": root, "use_recipe": variant.use_recipe}
        values = known[dataset] | {"diagnose_every": 0} | values
        if variant.num_layers is not None:
            values["num_layers"] = variant.num_layers
        return resolve(method, dataset, values, graph=graphs[dataset], **place)

    # most expensive graphs first, so that the last runs are short
    wanted = [
        (case, dataset, variant, seed)
        for dataset in datasets
        for case in cases
        for variant in variants(CASES[case][0], dataset)
        for seed in range(seeds)
    ]
    configs = [config(*each) for each in wanted]
    lines = stored_runs("depth", configs) if stored else run_grid("depth", configs, workers=workers)
    found = {each: line for each, line in zip(wanted, lines, strict=True) if line is not None}
    rows, sources = [], Sources()
    for case in cases:
        cells: list[Cell | None] = []
        for dataset in datasets:
            asked = [each for each in wanted if each[:2] == (case, dataset)]
            if not all(each in found for each in asked):
                cells.append(None)
                continue
            runs = [
                [found[each] for each in asked if each[2] == variant] for variant in variants(CASES[case][0], dataset)
            ]
            best = max(runs, key=lambda lines: sum(line["val"] for line in lines))
            cells.append(score([line["test"] for line in best], sources.of(best)))
        rows.append(Row(label=case, cells=cells, bold=case == "lazygnn-deep"))
    return Summary(
        origin=f"python -m experiments depth --seeds {seeds}",
        label="method",
        columns=[Column(title=dataset) for dataset in datasets],
        rows=rows,
        sources=sources.found,
    )
