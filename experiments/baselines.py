"""All methods on two larger graphs: accuracy, time and memory under one budget."""

import statistics

from experiments.grid import markdown, mean_and_deviation, run_grid
from lazygnn.methods import METHODS, recipe, resolve

DATASETS = ("arxiv", "wordnet")


def main(seeds: int, most_epochs: int, root: str | None, device: str, workers: int) -> None:
    """Fills the table and prints it."""
    cases = [(method, dataset, seed) for dataset in DATASETS for method in METHODS for seed in range(seeds)]
    configs = []
    for method, dataset, seed in cases:
        epochs = {"epochs": min(recipe(method, dataset).get("epochs", most_epochs), most_epochs)}
        configs.append(resolve(method, dataset, epochs, seed=seed, device=device, root=root))
    results = dict(zip(cases, run_grid("baselines", configs, workers=workers), strict=True))
    rows = []
    for method in METHODS:
        row = [method]
        for dataset in DATASETS:
            found = [results[method, dataset, seed] for seed in range(seeds)]
            row.append(mean_and_deviation([result["test"] for result in found]))
            row.append(f"{statistics.median(result['seconds_per_epoch'] for result in found):.3f}")
            row.append(f"{max(result['peak_memory_mib'] for result in found):.0f}")
        rows.append(row)
    header = [f"{dataset} {what}" for dataset in DATASETS for what in ("test", "s/epoch", "peak MiB")]
    print(markdown(["method", *header], rows))
