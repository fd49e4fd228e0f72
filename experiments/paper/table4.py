"""Table 4: the number of propagation layers, APPNP (GAS) against LazyGNN and ours."""

from pathlib import Path

from common.summary import Summary
from experiments.best import Case
from experiments.paper.frame import Experiment, Plan, cells_of, measured, scores
from experiments.paper.numbers import TABLE4
from experiments.paper.pictures import curves
from experiments.paper.released import ABOUT, SETTINGS
from experiments.paper.verdict import Check, Verdict, above, at_least, judge

SERIES: dict[str, tuple[str, tuple[int, ...]]] = {
    "APPNP (GAS)": ("appnp-gas", (1, 2, 3, 4, 5, 8, 10)),
    "LazyGNN": ("lazygnn-paper", (1, 2, 3)),
    "ours": ("lazygnn", (1, 2, 3)),
}
SYSTEMS: dict[str, Case] = {
    f"{name}, L={depth}": (method, SETTINGS | {"num_layers": depth})
    for name, (method, depths) in SERIES.items()
    for depth in depths
}


def run(plan: Plan) -> Summary:
    """Trains the missing runs and returns the table."""
    return scores(plan, SYSTEMS, "system", TABLE4)


def judge_table(summary: Summary) -> list[Verdict]:
    """Returns the verdicts."""
    columns = {dataset: cells_of(summary, dataset) for dataset in measured(summary)}
    deep, shallow = "APPNP (GAS), L=10", "APPNP (GAS), L=1"

    def against_deep(system: str) -> list[Check]:
        return [
            at_least(name, cells[system], cells[deep]) for name, cells in columns.items() if {system, deep} <= {*cells}
        ]

    rises = [above(name, cells[deep], cells[shallow]) for name, cells in columns.items() if {deep, shallow} <= {*cells}]
    return [
        judge(
            "APPNP (GAS) improves from 1 to 10 layers", rises, "distant nodes add little to what near ones tell here"
        ),
        judge(
            "LazyGNN with 2 layers is at least as accurate as APPNP (GAS) with 10", against_deep("LazyGNN, L=2"), _MIX
        ),
        judge(
            "LazyGNN with 1 layer is at least as accurate as APPNP (GAS) with 10", against_deep("LazyGNN, L=1"), _MIX
        ),
        judge("Ours with 2 layers is at least as accurate as APPNP (GAS) with 10", against_deep("ours, L=2"), _OURS),
        judge("Ours with 1 layer is at least as accurate as APPNP (GAS) with 10", against_deep("ours, L=1"), _OURS),
    ]


_MIX = "half of every start value is fresh, so that a pass keeps half of what earlier ones have propagated"
_OURS = "few steps from stored values follow a change of the weights with a delay"


def draw(summary: Summary, path: Path) -> None:
    """Draws the score over the number of layers."""
    curves(summary, path, {name: depths for name, (_, depths) in SERIES.items()}, "{name}, L={x}", "propagation layers")


EXPERIMENT = Experiment(
    title="Table 4: number of propagation layers",
    about=f"{ABOUT} `ours` is the method `lazygnn` in the same batches.",
    time="five minutes of one H200",
    datasets=("arxiv", "amazon_computers"),
    seeds=3,
    systems=tuple(SYSTEMS),
    run=run,
    judge=judge_table,
    draw=draw,
)
