"""What laziness costs, and what takes the cost away: starts, steps, answers and batches on six graphs.

One recipe for every graph and every case of a table: an MLP of 3 layers, 256 wide, dropout 0.5, alpha 0.1, with batch
norm or without. A case is not tuned, and no option of it depends on the graph.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from experiments.grid import markdown, mean_and_deviation, run_grid
from lazygnn.config import Config
from lazygnn.methods import resolve

Norm = Literal["none", "batch"]
PICTURE = Path("docs") / "images" / "staleness-training.png"
DATASETS = ("arxiv", "wordnet", "cora", "pubmed", "amazon_computers", "coauthor_cs")
# bags of words are brought to one length, as their authors do
NORMALIZED = ("cora", "pubmed", "amazon_computers", "coauthor_cs")
RECIPE: dict[str, Any] = {
    "hidden_channels": 256,
    "mlp_layers": 3,
    "dropout": 0.5,
    "input_dropout": 0.0,
    "alpha": 0.1,
    "weight_decay": 0.0,
    "decay_layers": None,
    "patience": None,
    "epochs": 400,
    "eval_every": 10,
}
# without a norm, exact propagation is better at 0.01 than at 0.005 and 0.002
LEARNING_RATES: dict[Norm, float] = {"none": 0.01, "batch": 0.005}
PLAIN: dict[str, Any] = {"response": "plain"}
PAPER: dict[str, Any] = {"num_layers": 2, "beta": 0.5, "gamma": 0.5}
LABELS: dict[str, Any] = {"label_step": True}
NO_LABELS: dict[str, Any] = {"label_step": False}
FEW_PARTS: dict[str, Any] = {"num_parts": 20, "parts_per_batch": 2, "num_layers": 4, "epochs": 200}
# batches with few labels make noisy steps, which a falling learning rate averages
PARTS: dict[str, Any] = {
    "num_parts": 60,
    "parts_per_batch": 6,
    "num_layers": 4,
    "level": 0.8,
    "epochs": 200,
    "schedule": "cosine",
}
HALO_GRADIENTS = PARTS | {"halo_gradients": True}
LONG: dict[str, Any] = {"epochs": 400}
MEDIUM: dict[str, Any] = {"epochs": 100, "eval_every": 2}
# as many steps of the optimizer as a full batch takes, and as many looks
SHORT: dict[str, Any] = {"epochs": 40, "eval_every": 1}
# the rate of a full batch over the root of the number of batches
SLOW: dict[str, Any] = {"lr": 0.003}
EXACT = "exact, 10 steps"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    EXACT: ("appnp", {"num_layers": 10}),
    "exact, 2 steps": ("appnp", {"num_layers": 2}),
    "the paper: mix 0.5, 2 steps": ("lazygnn-paper", PAPER),
    "the paper: mix 0.5, 2 steps, rate 0.005": ("lazygnn-paper", PAPER | {"lr": 0.005}),
    "the paper: mix 0.5, 2 steps, rate 0.002": ("lazygnn-paper", PAPER | {"lr": 0.002}),
    "mix 0.5, no stored gradient, 2 steps": ("lazygnn", {"num_layers": 2, "start": "mix", "beta": 0.5}),
    "drift, 2 steps": ("lazygnn", PLAIN | {"num_layers": 2, "beta": 0.0}),
    "drift and mix, 2 steps": ("lazygnn", PLAIN | {"num_layers": 2}),
    "drift, stored gradient, 2 steps": ("lazygnn", PLAIN | {"num_layers": 2, "beta": 0.0, "gamma": 0.0}),
    "fitted to 0.8, no mix, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.8, "beta": 0.0}),
    "fitted to 0.6, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.6}),
    "fitted to 0.7, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.7}),
    "fitted to 0.8, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.8}),
    "fitted to 0.85, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.85}),
    "fitted to 0.9, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.9}),
    "fitted to 1.0, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 1.0}),
    "fitted to 0.8, 2 steps, cosine": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.8, "schedule": "cosine"}),
    "the paper: mix 0.5, 1 step": ("lazygnn-paper", {"num_layers": 1, "beta": 0.5, "gamma": 0.5}),
    "drift and mix, 1 step": ("lazygnn", PLAIN | {"num_layers": 1}),
    "fitted to 0.6, 1 step": ("lazygnn", NO_LABELS | {"num_layers": 1, "level": 0.6}),
    "fitted to 0.8, 1 step": ("lazygnn", NO_LABELS | {"num_layers": 1, "level": 0.8}),
    "fitted to 0.9, 1 step": ("lazygnn", NO_LABELS | {"num_layers": 1, "level": 0.9}),
    "fitted to 0.7, 1 step, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 1, "level": 0.7}),
    "fitted to 0.8, 1 step, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 1, "level": 0.8}),
    "fitted to 0.85, 1 step, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 1, "level": 0.85}),
    "fitted to 0.8, 2 steps, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 2, "level": 0.8}),
    "fitted to 0.85, 2 steps, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 2, "level": 0.85}),
    "fitted to 0.9, 2 steps, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 2, "level": 0.9}),
    "fitted to 1.0, 2 steps, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 2, "level": 1.0}),
    "2 of 20 parts, fitted to 0.8, 4 steps": ("lazygnn", FEW_PARTS | {"level": 0.8}),
    "2 of 20 parts, fitted to 0.9, 4 steps": ("lazygnn", FEW_PARTS | {"level": 0.9}),
    "6 of 60 parts": ("lazygnn", PARTS),
    "6 of 60 parts, plain steps": ("lazygnn", PARTS | PLAIN | {"level": None}),
    "6 of 60 parts, 40 epochs": ("lazygnn", PARTS | SHORT),
    "6 of 60 parts, 40 epochs, rate 0.003": ("lazygnn", PARTS | SHORT | SLOW),
    "6 of 60 parts, halo gradients": ("lazygnn", HALO_GRADIENTS),
    "6 of 60 parts, halo gradients, 100 epochs": ("lazygnn", HALO_GRADIENTS | MEDIUM),
    "6 of 60 parts, halo gradients, 40 epochs": ("lazygnn", HALO_GRADIENTS | SHORT),
    "6 of 60 parts, halo gradients, 40 epochs, rate 0.003": ("lazygnn", HALO_GRADIENTS | SHORT | SLOW),
    "6 of 60 parts, halo gradients, 100 epochs, rate 0.003": ("lazygnn", HALO_GRADIENTS | MEDIUM | SLOW),
    "6 of 60 parts, halo gradients, rate 0.003": ("lazygnn", HALO_GRADIENTS | SLOW),
    "6 of 60 parts, halo gradients, 400 epochs, rate 0.003": ("lazygnn", HALO_GRADIENTS | LONG | SLOW),
}
DRAWN = (
    EXACT,
    "the paper: mix 0.5, 2 steps",
    "drift and mix, 2 steps",
    "fitted to 0.85, 2 steps, and 1 on labels",
)

# what a log says of laziness; the gradient is compared with the exact one, in angle and in length
LOOKS = {
    "fixed_point_error": "error of stored features",
    "gradient_cosine": "cosine of the gradient",
    "gradient_length": "length of the gradient",
}


def main(
    seeds: int,
    cases: Sequence[str],
    datasets: Sequence[str],
    norm: Norm,
    root: str | None,
    device: str,
    workers: int,
) -> None:
    """Fills the table, prints it and draws the course of training."""
    runs = [(case, dataset, seed) for dataset in datasets for case in cases for seed in range(seeds)]
    configs = [configure(case, dataset, norm, seed=seed, device=device, root=root) for case, dataset, seed in runs]
    results = dict(zip(runs, run_grid("staleness", configs, workers=workers, keep_log=True), strict=True))
    scores = {
        case: [[results[case, dataset, seed]["val"] for seed in range(seeds)] for dataset in datasets] for case in cases
    }
    rows = []
    for case, by_dataset in scores.items():
        means = [100 * sum(values) / len(values) for values in by_dataset]
        rows.append([case, *map(mean_and_deviation, by_dataset), f"{sum(means) / len(means):.2f}"])
    print(markdown(["case, validation", *datasets, "mean"], rows))
    if EXACT in scores and len(cases) > 1 and seeds > 1:
        rows = [[case, *against(scores[case], scores[EXACT])] for case in cases if case != EXACT]
        print(markdown(["case, minus exact / spread, of that of exact", *datasets, "mean"], rows))
    first = [[results[case, dataset, 0] for dataset in datasets] for case in cases]
    looks = [[case, *(_look(line.get("log", [])) for line in lines)] for case, lines in zip(cases, first, strict=True)]
    print(markdown(["case, error of features / cosine and length of gradient", *datasets], looks))
    if len(cases) > 1:
        columns = [at_equal_time(lines) for lines in zip(*first, strict=True)]
        rows = [[case, *cells] for case, cells in zip(cases, zip(*columns, strict=True), strict=True)]
        title = "case, seed 0: validation in the time of the fastest (seconds after the first look)"
        print(markdown([title, *datasets], rows))
    # a part of the table must not take the place of the figure
    if set(DRAWN) <= set(cases):
        _draw({(case, dataset): results[case, dataset, 0]["log"] for case in DRAWN for dataset in datasets})


def configure(case: str, dataset: str, norm: Norm, **run: Any) -> Config:
    """The configuration of a case: the recipe of the graph itself has no say; one seed is looked at on its way."""
    method, values = CASES[case]
    own = {"normalize_features": dataset in NORMALIZED, "diagnose_every": 20 if run.get("seed", 0) == 0 else 0}
    return resolve(method, dataset, RECIPE | {"norm": norm, "lr": LEARNING_RATES[norm]} | own | values, **run)


def against(scores: Sequence[Sequence[float]], reference: Sequence[Sequence[float]]) -> list[str]:
    """What a case has over another: the difference of means in percent, its standard error, the ratio of deviations.

    One cell for every graph, and one for their mean.
    """
    cells, differences, variances = [], [], []
    for values, others in zip(scores, reference, strict=True):
        differences.append(100 * (statistics.mean(values) - statistics.mean(others)))
        spreads = [100 * statistics.stdev(part) for part in (values, others)]
        variances.append(sum(spread**2 / len(values) for spread in spreads))
        ratio = f"{spreads[0] / spreads[1]:.2f}" if spreads[1] > 0 else "-"
        cells.append(f"{differences[-1]:+.2f} ± {math.sqrt(variances[-1]):.2f} / {ratio}")
    error = math.sqrt(sum(variances)) / len(variances)
    return [*cells, f"{statistics.mean(differences):+.2f} ± {error:.2f}"]


def at_equal_time(lines: Sequence[dict[str, Any]]) -> list[str]:
    """The best score of each run within the time that the fastest one takes to its end, and the time of its own.

    Times of another machine, commit or number of epochs than the first run's say nothing, and have no cell.
    """
    alike = [line.get("log") if _setting(line) == _setting(lines[0]) else None for line in lines]
    least = min((_elapsed(log)[-1] for log in alike if log), default=0.0)
    return [_within(log, least) if log else "-" for log in alike]


def _setting(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["machine"], line["commit"], line["epochs"]


def _within(log: list[dict[str, Any]], seconds: float) -> str:
    times = _elapsed(log)
    scores = [line["scores"]["val"] for line, at in zip(log, times, strict=True) if line["scores"] and at <= seconds]
    return f"{100 * max(scores):.2f} ({times[-1]:.2f})" if scores else f"- ({times[-1]:.2f})"


def _elapsed(log: list[dict[str, Any]]) -> list[float]:
    """Seconds of training at every line; counted from the first one, since the first epochs compile."""
    return list(accumulate([0.0, *(line["seconds"] for line in log[1:])]))


def _look(log: list[dict[str, Any]]) -> str:
    seen = [line["laziness"] for line in log if line["laziness"]]
    if not seen or "fixed_point_error" not in seen[-1]:
        return "-"
    # only a full batch is differentiated as a whole
    return " / ".join(f"{seen[-1][name]:.2f}" if name in seen[-1] else "-" for name in LOOKS)


def _draw(logs: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(dataset for _, dataset in logs))
    figure = Figure(figsize=(3.4 * len(datasets), 14), layout="constrained")
    panels = figure.subplots(2 + len(LOOKS), len(datasets), squeeze=False)
    for (case, dataset), log in logs.items():
        column = panels[:, datasets.index(dataset)]
        scored = [line for line in log if line["scores"]]
        spent = {line["epoch"]: total for line, total in zip(log, _elapsed(log), strict=True)}
        values = [line["scores"]["val"] for line in scored]
        column[0].plot([line["epoch"] for line in scored], values, label=case)
        column[1].plot([spent[line["epoch"]] for line in scored], values, label=case)
        for panel, name in zip(column[2:], LOOKS, strict=True):
            looked = [line for line in log if line["laziness"] and name in line["laziness"]]
            panel.plot([line["epoch"] for line in looked], [line["laziness"][name] for line in looked], label=case)
    for at, dataset in enumerate(datasets):
        panels[0, at].set(title=dataset, xlabel="epoch", ylabel="validation")
        panels[1, at].set(xlabel="seconds since the first look", ylabel="validation")
        for panel, label in zip(panels[2:, at], LOOKS.values(), strict=True):
            panel.set(xlabel="epoch", ylabel=label)
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(DRAWN), frameon=False
    )
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=80)
