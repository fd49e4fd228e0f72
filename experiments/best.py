"""Runs of several methods on several graphs, each set by the rule, by its recipe, or by the rule with a change."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from experiments.graphs import load
from experiments.grid import Log, Result, remember, run_most, stored_runs
from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.methods import recipe, recipe_names, resolve
from lazygnn.run.inputs import fingerprint
from lazygnn.training.metrics import find_metric, gain

# graphs of two classes are judged by ROC-AUC
METRICS = {"minesweeper": "roc-auc", "github_social": "roc-auc"}
# graphs that the recipes of most authors are for
PLANETOID = ("cora", "citeseer", "pubmed")
# parts where a recipe has none: four batches an epoch
PARTS: dict[str, Any] = {"num_parts": 40, "parts_per_batch": 10}
# eight layers are too many where neighbors disagree, and there two may be better with batch norm
_GCNII: tuple[Mapping[str, Any], ...] = ({"num_layers": 2}, {"num_layers": 2, "norm": "batch"})
# further ways to set a method: changes of what the rule sets
CHANGES: dict[str, tuple[Mapping[str, Any], ...]] = {
    "gcn": ({"norm": "layer"},),
    "gcnii": _GCNII,
    "gcnii-gas": _GCNII,
}
# the store of all runs that are set this way, so that no table trains a run of another
STORE = "depth"

KeyT = TypeVar("KeyT")
# a method, and what it sets
Case = tuple[str, Mapping[str, Any]]


class Variant(NamedTuple):
    """A way to set a method: by the rule, by the recipe of its authors, or by the rule with a change."""

    use_recipe: bool = False
    changes: tuple[tuple[str, Any], ...] = ()


def variants(method: str, dataset: str, *, recipe_alone: bool = False, rule_alone: bool = False) -> list[Variant]:
    """Returns the ways to set a method on a data set; the one that validates best counts.

    With `recipe_alone`, a method that has a recipe for the data set is set by that, and with `rule_alone` by the rule.
    """
    if rule_alone:
        return [Variant()]
    if recipe_alone and dataset in recipe_names(method):
        return [Variant(use_recipe=True)]
    found = [Variant()]
    if dataset in recipe_names(method):
        found.append(Variant(use_recipe=True))
    return [*found, *(Variant(changes=tuple(changes.items())) for changes in CHANGES.get(method, ()))]


@dataclass(frozen=True)
class Place:
    """Where and how runs are made.

    Attributes:
        root: Folder of data files.
        device: auto, cpu or cuda.
        workers: Runs at a time; 0 trains in this process.
        stored: Train nothing; a run that is not stored is missing.
        folder: Folder of the store below `runs/experiments`.
        also: Values of every run.
        keep_going: Leave out runs that fail, and go on with the others.
    """

    root: str | None = None
    device: str = "auto"
    workers: int = 1
    stored: bool = False
    folder: str = ""
    also: Mapping[str, Any] = field(default_factory=dict)
    keep_going: bool = False

    def run(
        self, store: str, configs: Sequence[Config], *, log: Log = "none", alone: bool = False
    ) -> list[Result | None]:
        """Returns the results of configurations; `alone` runs one at a time, so that times can be compared."""
        name = f"{self.folder}{store}"
        if self.stored:
            return stored_runs(name, configs)
        workers = min(self.workers, 1) if alone else self.workers
        return run_most(name, configs, workers=workers, log=log, keep_going=self.keep_going)

    def measure(self, store: str, config: Config, measure: Callable[[], Result]) -> Result | None:
        """Returns what is stored of a configuration, or measures it; `None` if it is missing and not to be measured."""
        return remember(f"{self.folder}{store}", config, measure, stored=self.stored)

    def configure(
        self, case: Case, dataset: str, seed: int, graph: Graph | None = None, variant: Variant | None = None
    ) -> Config:
        """Returns a configuration; without a variant the recipe counts where there is one."""
        method, values = case
        chosen = Variant(use_recipe=True) if variant is None else variant
        values = {"metric": METRICS[dataset]} | dict(values) if dataset in METRICS else dict(values)
        if chosen.use_recipe and "num_parts" in recipe(method, dataset):
            values = {name: value for name, value in values.items() if (name, value) not in PARTS.items()}
        values |= dict(chosen.changes)
        values = {"diagnose_every": 0} | values | dict(self.also)
        place: dict[str, Any] = {"seed": seed, "device": self.device, "root": self.root}
        return resolve(method, dataset, values, graph=graph, use_recipe=chosen.use_recipe, **place)


def best_runs(
    cases: Mapping[str, Case],
    datasets: Sequence[str],
    seeds: int,
    place: Place,
    *,
    recipe_alone: Collection[str] = (),
    rule_alone: Collection[str] = (),
) -> dict[tuple[str, str], list[Result] | None]:
    """Trains the missing runs and returns those of the variant that validates best, by case and graph.

    `None` stands for a cell with a missing run of the rule or of the recipe. On the graphs `recipe_alone`, methods with
    a recipe are set by that. The cases `rule_alone` are set by the rule.
    """

    def ways(case: str, dataset: str) -> list[Variant]:
        alone = {"recipe_alone": dataset in recipe_alone, "rule_alone": case in rule_alone}
        return variants(cases[case][0], dataset, **alone)

    graphs = load_checked(datasets, place)
    # graphs in their order, the most expensive first, so that the last runs are short
    wanted = [
        (case, dataset, variant, seed)
        for dataset in datasets
        for case in cases
        for variant in ways(case, dataset)
        for seed in range(seeds)
    ]
    lines = run_stored(
        {
            (case, dataset, variant, seed): place.configure(cases[case], dataset, seed, graphs[dataset], variant)
            for case, dataset, variant, seed in wanted
        },
        graphs,
        place,
    )
    found: dict[tuple[str, str], list[Result] | None] = {}
    for dataset in datasets:
        for case in cases:
            asked = ways(case, dataset)
            runs = {one: [lines[case, dataset, one, seed] for seed in range(seeds)] for one in asked}
            complete = {one: [line for line in run if line is not None] for one, run in runs.items()}
            complete = {one: run for one, run in complete.items() if len(run) == seeds}
            missing = [one for one in asked if not one.changes and one not in complete]
            found[case, dataset] = (
                None if missing else max(complete.values(), key=lambda run: sum(map(validation_gain, run)))
            )
    return found


def load_checked(datasets: Sequence[str], place: Place) -> dict[str, Graph]:
    """Loads graphs by name, and refuses a metric that does not fit one of them before any run."""
    graphs = {name: load(name, place.root) for name in datasets}
    for graph in graphs.values():
        find_metric(place.also.get("metric", "auto"), graph.task)
    return graphs


def run_stored(configs: Mapping[KeyT, Config], graphs: Mapping[str, Graph], place: Place) -> dict[KeyT, Result | None]:
    """Returns the results of configurations by their keys; runs on a file are stored by its contents."""
    lines: dict[KeyT, Result | None] = {}
    stores = {name: _store(name, graph) for name, graph in graphs.items()}
    for store in dict.fromkeys(stores.values()):
        chosen = {key: config for key, config in configs.items() if stores[config.dataset] == store}
        lines |= zip(chosen, place.run(store, list(chosen.values())), strict=True)
    return lines


def validation_gain(line: Result) -> float:
    """Returns the validation score of a run such that higher is better."""
    return gain(line["metric"], line["val"])


def _store(dataset: str, graph: Graph) -> str:
    """Returns the store of the runs on a graph; those on a file are stored by its contents, since it may change."""
    path = Path(dataset)
    return STORE if path == Path(path.stem) else f"files/{path.stem}-{fingerprint(graph)[:12]}"
