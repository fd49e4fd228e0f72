"""Predictions as a table: node id, prediction, probability."""

import csv
from pathlib import Path

import numpy as np
from torch import Tensor

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.task import Task

FORMATS = (".csv", ".parquet")


def check_format(path: Path) -> None:
    """Refuses a file name whose format is not known, and Parquet where it cannot be written."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"cannot write `{path}`; choose a name that ends in {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write `{path}`: there is no folder `{path.parent}`; create it first")
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise ConfigError("Parquet needs `pyarrow`; install `lazygnn[parquet]` or write .csv") from error


def prediction_table(
    logits: Tensor, graph: Graph, task: Task, class_names: tuple[str, ...] | None
) -> dict[str, np.ndarray]:
    """The columns of the table; several outputs per node become several columns."""
    ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    values = task.activate(logits).cpu().float()
    if task.kind == "single-label":
        probability, label = values.max(dim=-1)
        named = label.numpy() if class_names is None else np.asarray(class_names)[label.numpy()]
        return {"node": ids, "prediction": named, "probability": probability.numpy()}
    table: dict[str, np.ndarray] = {"node": ids}
    for column in range(task.num_outputs):
        name = f"_{column}" if class_names is None else f"_{class_names[column]}"
        if task.kind == "multi-label":
            table[f"prediction{name}"] = (values[:, column] >= 0.5).long().numpy()
            table[f"probability{name}"] = values[:, column].numpy()
        else:
            table[f"prediction{name}"] = values[:, column].numpy()
    return table


def write_table(table: dict[str, np.ndarray], path: Path) -> None:
    """Writes CSV or Parquet, by the ending of the name."""
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(table), path)
        return
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
