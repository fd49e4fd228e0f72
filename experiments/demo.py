"""`make demo`: four methods on the graph inside the package, in under three minutes on two cores."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from lazygnn import commands
from lazygnn.data import load_graph
from lazygnn.methods import resolve
from lazygnn.run.curves import plot_curves
from lazygnn.run.folder import CURVES, Run

DATASET = "wordnet-small"
METHODS = {
    "mlp": "MLP, no graph",
    "appnp": "APPNP, 10 exact steps",
    "lazygnn": "LazyGNN, 2 lazy steps, and 1 on labeled nodes",
    "lazygnn-deep": "LazyGNN-deep, 2 lazy blocks, 10 batches an epoch",
}


def main() -> None:
    """Trains the methods, prints a table and draws the training curves."""
    console = Console(stderr=True)
    graph = load_graph(DATASET)
    console.print(f"{DATASET}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.task.num_outputs} classes")
    table = Table("method", "validation", "test", "seconds per epoch", title=f"accuracy on {DATASET}")
    curves = {}
    for method, title in METHODS.items():
        result = commands.train(resolve(method, DATASET, {}), graph=graph)
        curves[title] = Run.open(Path(result["run"])).log.read()
        scores = [f"{100 * result[split]:.1f}" for split in ("val", "test")]
        table.add_row(title, *scores, f"{result['seconds_per_epoch']:.2f}")
    Console().print(table)
    figure = Path("runs") / f"demo-{CURVES}"
    plot_curves(curves, figure)
    Console().print(f"training curves: {figure}", highlight=False, soft_wrap=True)
