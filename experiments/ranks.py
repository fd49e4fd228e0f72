"""Several ranks beside one process with the same parts: scores, and the bytes that ranks send.

All take the same partition, as many parts before an update of the weights, and the same values. One process and ranks
make a batch of each part and sum the gradients. A further process makes one batch of these parts, with fresh rows
between them.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from common.summary import Cell, Column, Row, Sources, Summary, score
from experiments.best import Place, Variant
from experiments.compare import difference
from experiments.grid import Result
from experiments.torchrun import run_ranks
from lazygnn.commands.sharing import for_ranks
from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.graph import Graph
from lazygnn.methods import derive

DATASETS = ("arxiv", "wordnet")
METHODS = ("lazygnn", "lazygnn-deep")
PARTS, RANKS = 40, 4
# the key of a result does not include the number of ranks, so one process has a store of its own
STORE, ALONE = "ranks", "ranks-one"
# fields of the results of ranks
SENT = {"halo_bytes_per_epoch": "halo", "allreduce_bytes_per_epoch": "gradients"}
_MB = 1e6


def main(seeds: int, methods: Sequence[str], datasets: Sequence[str], ranks: int, place: Place) -> Summary:
    """Trains the missing runs and returns the table: test scores at the best validation, with their standard errors.

    Args:
        seeds: Number of seeds.
        methods: Names in `METHODS`.
        datasets: Names or paths of graphs.
        ranks: Number of ranks, and of parts before an update.
        place: Where and how runs are made.
    """
    graphs = {dataset: load_graph(dataset, place.root) for dataset in datasets}
    wanted = [(method, dataset, seed) for dataset in datasets for method in methods for seed in range(seeds)]
    pairs = [configure(method, dataset, seed, graphs[dataset], ranks, place) for method, dataset, seed in wanted]
    merged = [line for line in place.run(STORE, [joined for joined, _ in pairs]) if line is not None]
    single = [(split, graphs[dataset]) for (_, split), (_, dataset, _) in zip(pairs, wanted, strict=True)]
    workers = max(place.workers, 1)
    one, several = run_ranks(ALONE, single, 1, workers), run_ranks(STORE, single, ranks, workers)
    labels = ("one process", f"{ranks} ranks", "difference", f"one process, {ranks} parts a batch")
    rows, sources = [], Sources()
    for method in methods:
        scores, sent = list[list[Cell]](), list[Cell]()
        for dataset in datasets:
            cases = [number for number, case in enumerate(wanted) if case[:2] == (method, dataset)]
            kinds = [[kind[number] for number in cases] for kind in (one, several, merged)]
            scores.append(_scores(kinds, sources))
            sent += _sent(kinds[1], sources)
        for position, label in enumerate(labels):
            more = sent if position == 1 else [None] * len(sent)
            rows.append(Row(label=f"{method}, {label}", cells=[*(cells[position] for cells in scores), *more]))
    titles = [Path(dataset).stem for dataset in datasets]
    return Summary(
        origin=f"python -m experiments ranks --seeds {seeds} --ranks {ranks}{_options(methods, titles, place)}",
        label="method",
        columns=[Column(title=title, format="{mean:.2f} ± {error:.2f}") for title in titles]
        + [Column(title=f"{title}, {what}, MB", format="{value:,.2f}") for title in titles for what in SENT.values()],
        rows=rows,
        sources=sources.found,
    )


def configure(method: str, dataset: str, seed: int, graph: Graph, ranks: int, place: Place) -> tuple[Config, Config]:
    """Returns the configurations with one batch of the parts and with a batch of each, by the rule.

    Both have the norm that ranks have.
    """
    values = {"num_parts": PARTS, "parts_per_batch": ranks, "norm": "layer"}
    joined = place.configure((method, values), dataset, seed, graph, Variant())
    return joined, for_ranks(derive(joined, {"parts_per_batch": 1, "parts_per_step": ranks}), graph, ranks)


def _scores(kinds: Sequence[Sequence[Result]], sources: Sources) -> list[Cell]:
    """Returns the cells of a method: one process, ranks, their difference, and one process with merged batches.

    Each has its standard error, which one seed does not have.

    Args:
        kinds: Runs of one process, of ranks, and with merged batches.
        sources: Where these were run.
    """
    cells, tests = [], [[line["test"] for line in runs] for runs in kinds]
    for runs, values in zip(kinds, tests, strict=True):
        cell = score(values, sources.of(runs))
        cells.append(cell | {"error": cell["deviation"] / math.sqrt(len(values)) if len(values) > 1 else None})
    gain: Cell = {"mean": cells[1]["mean"] - cells[0]["mean"], "error": None, "seeds": 1}
    if len(tests[0]) > 1:
        gain = difference(tests[1], tests[0])
    cells.insert(2, gain | {"sources": sources.of([*kinds[0], *kinds[1]])})
    return cells


def _sent(runs: Sequence[Result], sources: Sources) -> list[Cell]:
    return [
        {"value": statistics.mean(line[field] for line in runs) / _MB, "sources": sources.of(runs)} for field in SENT
    ]


def _options(methods: Sequence[str], datasets: Sequence[str], place: Place) -> str:
    given = [("method", method) for method in methods] + [("dataset", dataset) for dataset in datasets]
    given += list(place.also.items())
    return "".join(f" --{name} {value}" for name, value in given)
