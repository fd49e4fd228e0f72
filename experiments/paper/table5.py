"""Table 5: the number of clusters, one of which is a batch."""

from pathlib import Path

from common.summary import Summary
from experiments.best import Case
from experiments.paper.frame import Experiment, Plan, cells_of, measured, scores
from experiments.paper.numbers import TABLE5
from experiments.paper.pictures import curves
from experiments.paper.released import SETTINGS
from experiments.paper.verdict import Check, Verdict, at_least, judge

CLUSTERS = (50, 100, 150, 200)
# for a graph of a few hundred nodes
FEW_CLUSTERS = (2, 4, 6, 8)
SERIES = {"LazyGNN": "lazygnn-paper", "ours": "lazygnn"}
# points that the score may fall from 50 to 200 clusters; 1.7 in the paper
FALL = 2.0


def systems(clusters: tuple[int, ...]) -> dict[str, Case]:
    """Returns the rows: a system with one cluster a batch, in 20 epochs."""
    own = {"parts_per_batch": 1, "epochs": 20, "eval_every": 1}
    return {
        f"{name}, {number} clusters": (method, SETTINGS | own | {"num_parts": number})
        for name, method in SERIES.items()
        for number in clusters
    }


def run(plan: Plan) -> Summary:
    """Trains the missing runs and returns the table."""
    return scores(plan, systems(FEW_CLUSTERS if plan.quick else CLUSTERS), "system", TABLE5)


def judge_table(summary: Summary) -> list[Verdict]:
    """Returns the verdicts: more clusters are not better, and not much worse."""
    columns = {dataset: cells_of(summary, dataset) for dataset in measured(summary)}

    def ends(system: str) -> dict[str, tuple[str, str]]:
        labels = [row.label for row in summary.rows if row.label.startswith(f"{system}, ")]
        few, many = (labels[0], labels[-1]) if labels else ("", "")
        return {name: (few, many) for name, cells in columns.items() if {few, many} <= {*cells}}

    def falls_slowly(system: str) -> list[Check]:
        found = []
        for name, (few, many) in ends(system).items():
            first, last = columns[name][few]["mean"], columns[name][many]["mean"]
            found.append(Check(name, FALL - (first - last), f"from {first:.2f} to {last:.2f}"))
        return found

    falls = [at_least(name, columns[name][few], columns[name][many]) for name, (few, many) in ends("LazyGNN").items()]
    claim = f"loses at most {FALL:.0f} points from the fewest to the most clusters"
    return [
        judge(f"LazyGNN {claim}", falls_slowly("LazyGNN"), _OLD),
        judge("LazyGNN with the fewest clusters is at least as accurate as with the most", falls, _UPDATES),
        judge(f"Ours {claim}", falls_slowly("ours"), _OLD),
    ]


_OLD = "small batches update the weights often between two visits of a node, so that its stored row is old"
_UPDATES = "in the same number of epochs, more clusters make more updates, which helps where training is short"


def draw(summary: Summary, path: Path) -> None:
    """Draws the score over the number of clusters."""
    numbers = sorted({int(row.label.split()[-2]) for row in summary.rows})
    curves(summary, path, dict.fromkeys(SERIES, numbers), "{name}, {x} clusters", "clusters, one a batch")


EXPERIMENT = Experiment(
    title="Table 5: number of clusters",
    about=(
        "Mini-batch LazyGNN and ours, one cluster a batch, 20 epochs; otherwise the settings of Table 4. The paper has "
        "ogbn-products here."
    ),
    time="six minutes of one H200",
    datasets=("arxiv", "amazon_computers"),
    seeds=3,
    systems=tuple(systems(CLUSTERS)),
    run=run,
    judge=judge_table,
    draw=draw,
)
