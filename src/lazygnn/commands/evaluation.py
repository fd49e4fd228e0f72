"""Evaluates the best weights of a run."""

from pathlib import Path
from typing import Any

from lazygnn.commands.device import choose_device
from lazygnn.commands.restoring import reload_graph, restore_model
from lazygnn.commands.result import make_result
from lazygnn.graph import without_warnings
from lazygnn.methods import read_config
from lazygnn.run.folder import Run
from lazygnn.training import evaluate


def evaluate_run(path: Path, *, device: str = "auto", root: str | None = None) -> dict[str, Any]:
    """Evaluates the best weights of a run on its own data set, exactly and without histories.

    Args:
        path: The run folder.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.

    Returns:
        The result, as `train` returns it.
    """
    run = Run.open(path)
    config, weights = run.config(read_config), run.load_weights()
    chosen = choose_device(device)
    with without_warnings():
        graph = reload_graph(config, root)
    model, graph = restore_model(run, weights, graph, chosen)
    scores = evaluate(model, graph, config.trainer.metric)
    return make_result(config, graph, scores, trained=run.result(), device=chosen, path=path)
