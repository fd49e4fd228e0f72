"""Cora, CiteSeer and PubMed on the public split: mean test accuracy over seeds."""

from experiments.grid import markdown, mean_and_deviation, run_grid
from lazygnn.methods import resolve

DATASETS = ("cora", "citeseer", "pubmed")


def main(seeds: int, methods: list[str], root: str | None, device: str, workers: int) -> None:
    """Fills the table and prints it."""
    cases = [(method, dataset, seed) for method in methods for dataset in DATASETS for seed in range(seeds)]
    configs = [resolve(method, dataset, {}, seed=seed, device=device, root=root) for method, dataset, seed in cases]
    results = run_grid("planetoid", configs, workers=workers)
    scores = {case: result["test"] for case, result in zip(cases, results, strict=True)}
    rows = [
        [
            method,
            *(mean_and_deviation([scores[method, dataset, seed] for seed in range(seeds)]) for dataset in DATASETS),
        ]
        for method in methods
    ]
    print(markdown(["method", *DATASETS], rows))
