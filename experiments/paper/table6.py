"""Table 6: the weights of fresh values in the start of a pass, beta forward and gamma backward."""

from pathlib import Path

from common.summary import Summary
from experiments.best import Case
from experiments.paper.frame import Experiment, Plan, cells_of, measured, scores
from experiments.paper.numbers import TABLE6
from experiments.paper.pictures import dots
from experiments.paper.released import SETTINGS
from experiments.paper.verdict import Check, Verdict, at_least, judge

WEIGHTS = ((0.0, 0.0), (1.0, 1.0), (0.5, 0.1), (0.5, 0.5), (0.5, 0.9), (0.1, 0.5), (0.9, 0.5))
PAPER: dict[str, Case] = {
    f"beta {beta}, gamma {gamma}": ("lazygnn-paper", SETTINGS | {"num_layers": 2, "beta": beta, "gamma": gamma})
    for beta, gamma in WEIGHTS
}
OURS = "ours"
NEITHER, HALF = "beta 0.0, gamma 0.0", "beta 0.5, gamma 0.5"
SYSTEMS: dict[str, Case] = PAPER | {OURS: ("lazygnn", SETTINGS | {"num_layers": 2})}


def run(plan: Plan) -> Summary:
    """Trains the missing runs and returns the table."""
    return scores(plan, SYSTEMS, "setting", TABLE6)


def judge_table(summary: Summary) -> list[Verdict]:
    """Returns the verdicts."""
    worst, best, ours = list[Check](), list[Check](), list[Check]()
    for name in measured(summary):
        cells = cells_of(summary, name)
        others = {label: cell for label, cell in cells.items() if label in PAPER}
        if PAPER.keys() - others.keys():
            continue
        least = min((cell for label, cell in others.items() if label != NEITHER), key=lambda cell: cell["mean"])
        most = max((cell for label, cell in others.items() if label != HALF), key=lambda cell: cell["mean"])
        worst.append(at_least(name, least, others[NEITHER]))
        best.append(at_least(name, others[HALF], most))
        if OURS in cells:
            ours.append(at_least(name, cells[OURS], max(others.values(), key=lambda cell: cell["mean"])))
    return [
        judge("beta = gamma = 0 is the worst setting", worst, _TRUST),
        judge("beta = gamma = 0.5 is the best setting of the paper", best, _HALF),
        judge("Ours is at least as accurate as the best setting of the paper", ours, _OURS),
    ]


_TRUST = "stored values are not as outdated here as the paper found, so that trusting them costs less"
_HALF = "the best weight depends on how far a graph asks to look and on how fast the weights change"
_OURS = "a weight that is chosen for the graph is worth more here than a drifting start"


def draw(summary: Summary, path: Path) -> None:
    """Draws the score of every setting."""
    dots(summary, path, measured(summary), "test accuracy (%)")


EXPERIMENT = Experiment(
    title="Table 6: beta and gamma",
    about="Mini-batch LazyGNN with 2 layers, and ours beside it; the settings of Table 4.",
    time="four minutes of one H200",
    datasets=("arxiv", "amazon_computers"),
    seeds=3,
    systems=tuple(SYSTEMS),
    run=run,
    judge=judge_table,
    draw=draw,
)
