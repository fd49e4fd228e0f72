"""All methods on two larger graphs: accuracy, time and memory under one budget."""

from experiments.grid import markdown, mean_and_deviation, run_grid
from lazygnn.config import Config
from lazygnn.methods import METHODS, recipe, resolve

DATASETS = ("arxiv", "wordnet")


def main(seeds: int, most_epochs: int, root: str | None, device: str, workers: int) -> None:
    """Fills the table and prints it; time and memory are those of seed 0, whose runs have the machine to themselves."""

    def config(method: str, dataset: str, seed: int) -> Config:
        epochs = {"epochs": min(recipe(method, dataset).get("epochs", most_epochs), most_epochs)}
        return resolve(method, dataset, epochs, seed=seed, device=device, root=root)

    cases = [(method, dataset) for dataset in DATASETS for method in METHODS]
    alone = run_grid("baselines", [config(*case, 0) for case in cases], workers=1)
    others = [config(*case, seed) for seed in range(1, seeds) for case in cases]
    found = [*alone, *run_grid("baselines", others, workers=workers)]
    rows = []
    for method in METHODS:
        row = [method]
        for dataset in DATASETS:
            at = cases.index((method, dataset))
            row.append(mean_and_deviation([result["test"] for result in found[at :: len(cases)]]))
            row += [str(alone[at]["epochs"]), f"{alone[at]['seconds_per_epoch']:.3f}"]
            row.append(f"{alone[at]['peak_memory_mib']:.0f}")
        rows.append(row)
    header = [f"{dataset} {what}" for dataset in DATASETS for what in ("test", "epochs", "s/epoch", "peak MiB")]
    print(markdown(["method", *header], rows))
