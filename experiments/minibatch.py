"""Mini-batches against full batch: 60 METIS parts, 6 a batch, the frozen halo and the paper's."""

import statistics

from experiments.grid import markdown, mean_and_deviation, run_grid
from lazygnn.methods import resolve

DATASETS = ("wordnet", "arxiv")
# as it was measured: before steps were fitted to the graph
PLAIN: dict[str, object] = {"response": "plain", "beta": 0.1}
MINI: dict[str, object] = {"num_parts": 60, "parts_per_batch": 6, "epochs": 80, "eval_every": 4}
LONG = MINI | {"epochs": 200, "eval_every": 10}
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "full batch, drift, 2 steps, 400 epochs": ("lazygnn", PLAIN),
    "frozen halo, drift, 2 steps, 80 epochs": ("lazygnn", PLAIN | MINI),
    "frozen halo, drift, 4 steps, 80 epochs": ("lazygnn", PLAIN | MINI | {"num_layers": 4}),
    "paper halo, drift, 2 steps, 80 epochs": ("lazygnn", PLAIN | MINI | {"halo": "paper"}),
    "paper halo, the paper's mix, 2 steps, 80 epochs": ("lazygnn-paper", MINI),
    "frozen halo, drift, 4 steps, 200 epochs": ("lazygnn", PLAIN | LONG | {"num_layers": 4}),
    "paper halo, drift, 2 steps, 200 epochs": ("lazygnn", PLAIN | LONG | {"halo": "paper"}),
}


def main(seeds: int, root: str | None, device: str, workers: int) -> None:
    """Fills the table and prints it."""
    cases = [(title, dataset, seed) for dataset in DATASETS for title in CASES for seed in range(seeds)]
    configs = [
        resolve(CASES[title][0], dataset, CASES[title][1], seed=seed, device=device, root=root)
        for title, dataset, seed in cases
    ]
    results = dict(zip(cases, run_grid("minibatch", configs, workers=workers), strict=True))
    rows = []
    for title in CASES:
        row = [title]
        for dataset in DATASETS:
            found = [results[title, dataset, seed] for seed in range(seeds)]
            row.append(mean_and_deviation([result["val"] for result in found]))
            row.append(mean_and_deviation([result["test"] for result in found]))
            row.append(f"{statistics.median(result['seconds_per_epoch'] for result in found):.3f}")
        rows.append(row)
    header = [f"{dataset} {what}" for dataset in DATASETS for what in ("validation", "test", "s/epoch")]
    print(markdown(["setting", *header], rows))
