"""All methods on two larger graphs: accuracy, time and memory with a common limit on epochs."""

from common.summary import SCORE, Cell, Column, Row, Sources, Summary, score
from experiments.grid import run_grid
from lazygnn.config import Config
from lazygnn.methods import METHODS, recipe, resolve

DATASETS = ("arxiv", "wordnet")
FORMATS = {"test": SCORE, "epochs": "{value}", "s/epoch": "{value:.3f}", "peak MiB": "{value:.0f}"}


def main(seeds: int, most_epochs: int, root: str | None, device: str, workers: int) -> Summary:
    """Trains the missing runs and returns the table.

    Time and memory are those of seed 0, which is trained with one worker.
    """

    def config(method: str, dataset: str, seed: int) -> Config:
        epochs = {"epochs": min(recipe(method, dataset).get("epochs", most_epochs), most_epochs)}
        return resolve(method, dataset, epochs, seed=seed, device=device, root=root)

    cases = [(method, dataset) for dataset in DATASETS for method in METHODS]
    first = run_grid("baselines", [config(*case, 0) for case in cases], workers=1)
    others = [config(*case, seed) for seed in range(1, seeds) for case in cases]
    found = [*first, *run_grid("baselines", others, workers=workers)]
    rows, sources = [], Sources()
    for method in METHODS:
        cells: list[Cell | None] = []
        for dataset in DATASETS:
            at = cases.index((method, dataset))
            lines, alone = found[at :: len(cases)], first[at]
            cells.append(score([line["test"] for line in lines], sources.of(lines)))
            cells += [
                {"value": _short(alone[name]), "seeds": 1, "sources": sources.of([alone])}
                for name in ("epochs", "seconds_per_epoch", "peak_memory_mib")
            ]
        rows.append(Row(label=method, cells=cells))
    return Summary(
        origin=f"python -m experiments baselines --seeds {seeds} --most-epochs {most_epochs}",
        label="method",
        columns=[
            Column(title=f"{dataset} {name}", format=form) for dataset in DATASETS for name, form in FORMATS.items()
        ],
        rows=rows,
        sources=sources.found,
    )


def _short(value: float) -> float:
    return round(value, 5) if isinstance(value, float) else value
