"""The deep model beside all others, on graphs of many kinds and with one rule for every graph."""

from collections.abc import Sequence
from typing import Any

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
# rows: a method, what it sets, and whether the recipe of its authors is taken where there is one
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


def main(
    seeds: int,
    cases: Sequence[str],
    datasets: Sequence[str],
    root: str | None,
    device: str,
    workers: int,
    stored: bool = False,
) -> Summary:
    """Trains the missing runs and returns the table: test scores at the best validation, of rule or recipe.

    With `stored`, nothing is trained, and a cell with a missing run stays empty.
    """
    known = DATASETS | PLANETOID
    graphs = {name: load_graph(name, root) for name in datasets}

    def config(case: str, dataset: str, seed: int, use_recipe: bool) -> Config:
        method, values = CASES[case]
        place: dict[str, Any] = {"seed": seed, "device": device, "root": root}
        shared = known[dataset] | {"diagnose_every": 0}
        return resolve(method, dataset, shared | values, graph=graphs[dataset], use_recipe=use_recipe, **place)

    # most expensive graphs first, so that the last runs are short
    wanted = [
        (case, dataset, seed, use_recipe)
        for dataset in datasets
        for case in cases
        for use_recipe in ((False, True) if dataset in recipe_names(CASES[case][0]) else (False,))
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
            # rule or recipe, whichever validates better
            runs = [[found[each] for each in asked if each[3] == use_recipe] for use_recipe in (False, True)]
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
