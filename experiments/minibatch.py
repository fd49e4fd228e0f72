"""Mini-batches and full batch: 60 METIS parts, 6 per batch, with the frozen halo and the paper's."""

import statistics

from common.summary import SCORE, Cell, Column, Row, Sources, Summary, score
from experiments.grid import run_grid
from lazygnn.methods import resolve

DATASETS = ("wordnet", "arxiv")
# the published runs predate the fitted response
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
FORMATS = {"validation": SCORE, "test": SCORE, "s/epoch": "{value:.3f}"}


def main(seeds: int, root: str | None, device: str, workers: int) -> Summary:
    """Trains the missing runs and returns the table."""
    cases = [(title, dataset, seed) for dataset in DATASETS for title in CASES for seed in range(seeds)]
    configs = [
        resolve(CASES[title][0], dataset, CASES[title][1], seed=seed, device=device, root=root)
        for title, dataset, seed in cases
    ]
    results = dict(zip(cases, run_grid("minibatch", configs, workers=workers), strict=True))
    rows, sources = [], Sources()
    for title in CASES:
        cells: list[Cell | None] = []
        for dataset in DATASETS:
            found = [results[title, dataset, seed] for seed in range(seeds)]
            numbers = sources.of(found)
            cells += [score([line[split] for line in found], numbers) for split in ("val", "test")]
            seconds = statistics.median(line["seconds_per_epoch"] for line in found)
            cells.append({"value": round(seconds, 5), "seeds": seeds, "sources": numbers})
        rows.append(Row(label=title, cells=cells))
    return Summary(
        origin=f"python -m experiments minibatch --seeds {seeds}",
        label="setting",
        columns=[
            Column(title=f"{dataset} {name}", format=form) for dataset in DATASETS for name, form in FORMATS.items()
        ],
        rows=rows,
        sources=sources.found,
    )
