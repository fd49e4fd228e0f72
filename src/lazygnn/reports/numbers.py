"""How well numbers are predicted: errors of every output, and the mean prediction of nodes with similar targets.

`T` nodes, `C` outputs.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lazygnn.task import Task
from lazygnn.training.metrics import find_metric

NUM_GROUPS = 10


def number_table(outputs: Tensor, y: Tensor, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a row for every output: `name`, `mae`, `rmse`, `r2`, `bias`, `mean` and `deviation` of the targets.

    `r2` is None where a single node has none.
    """
    rows = []
    for column, name in enumerate(names):
        found, wanted = outputs[:, column : column + 1].double(), y[:, column : column + 1].double()
        task = Task("regression", 1)
        errors = {metric: find_metric(metric, task)[1](found, wanted) for metric in ("mae", "rmse")}
        r2 = find_metric("r2", task)[1](found, wanted) if len(y) > 1 else None
        spread = {"mean": float(wanted.mean()), "deviation": float(wanted.std(correction=0))}
        rows.append({"name": name, **errors, "r2": r2, "bias": float((found - wanted).mean()), **spread})
    return rows


def by_target(outputs: Tensor, y: Tensor, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns ten groups of nodes by target for every output: `name`, `nodes`, mean `target` and mean `prediction`."""
    rows = []
    for column, name in enumerate(names):
        order = y[:, column].sort(stable=True).indices
        for part in order.tensor_split(min(NUM_GROUPS, len(order))):
            target, prediction = (float(values[part, column].double().mean()) for values in (y, outputs))
            rows.append({"name": name, "nodes": len(part), "target": target, "prediction": prediction})
    return rows
