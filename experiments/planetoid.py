"""Cora, CiteSeer and PubMed on the public split: mean test accuracy over seeds."""

from collections.abc import Sequence

from common.summary import Column, Row, Sources, Summary, score
from experiments.grid import run_grid
from lazygnn.methods import resolve

DATASETS = ("cora", "citeseer", "pubmed")


def main(seeds: int, methods: Sequence[str], root: str | None, device: str, workers: int) -> Summary:
    """Trains the missing runs and returns the table."""
    cases = [(method, dataset, seed) for method in methods for dataset in DATASETS for seed in range(seeds)]
    configs = [resolve(method, dataset, {}, seed=seed, device=device, root=root) for method, dataset, seed in cases]
    results = dict(zip(cases, run_grid("planetoid", configs, workers=workers), strict=True))
    rows, sources = [], Sources()
    for method in methods:
        found = [[results[method, dataset, seed] for seed in range(seeds)] for dataset in DATASETS]
        cells = [score([line["test"] for line in lines], sources.of(lines)) for lines in found]
        rows.append(Row(label=method, cells=cells))
    return Summary(
        origin=f"python -m experiments planetoid --seeds {seeds}",
        label="method",
        columns=[Column(title=dataset) for dataset in DATASETS],
        rows=rows,
        sources=sources.found,
    )
