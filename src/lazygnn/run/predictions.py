"""Predictions as a table of node ids, predictions and probabilities, in a CSV or Parquet file."""

import csv
from pathlib import Path

import numpy as np
from torch import Tensor

from lazygnn.errors import ConfigError, reason
from lazygnn.files import replaced
from lazygnn.graph import Graph
from lazygnn.task import Task
from lazygnn.training.metrics import predict_class

FORMATS = (".csv", ".parquet")


def check_format(path: Path, others: tuple[str, ...] = ()) -> None:
    """Refuses a file of an unknown format or in a missing folder, and Parquet without `pyarrow`."""
    if path.suffix not in (*FORMATS, *others):
        raise ConfigError(f"cannot write `{path}`; choose a name that ends in {' or '.join((*FORMATS, *others))}")
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write `{path}`: the folder `{path.parent}` does not exist; create it first")
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise ConfigError("Parquet needs `pyarrow`; install `lazygnn[parquet]` or write .csv") from error


def node_names(graph: Graph) -> np.ndarray:
    """Returns the id of every node, or its position in a graph without ids."""
    return np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids


def prediction_table(
    logits: Tensor,
    graph: Graph,
    task: Task,
    class_names: tuple[str, ...] | None,
    *,
    temperature: float = 1.0,
    probabilities: bool = False,
) -> dict[str, np.ndarray]:
    """Returns the columns of the table; several outputs per node become several columns.

    With `probabilities`, a single label has a column for the probability of each class, too. The `temperature` changes
    probabilities alone, not what is predicted.
    """
    ids = node_names(graph)
    values = task.activate(logits / temperature).cpu().float()
    if task.kind == "single-label":
        label = predict_class(logits).cpu()
        probability = values.gather(-1, label[:, None])[:, 0]
        named = label.numpy() if class_names is None else np.asarray(class_names)[label.numpy()]
        each = {
            f"probability_{column if class_names is None else class_names[column]}": values[:, column].numpy()
            for column in range(task.num_outputs if probabilities else 0)
        }
        return {"node": ids, "prediction": named, "probability": probability.numpy()} | each
    table: dict[str, np.ndarray] = {"node": ids}
    for column in range(task.num_outputs):
        name = f"_{column}" if class_names is None else f"_{class_names[column]}"
        if task.kind == "multi-label":
            table[f"prediction{name}"] = task.predict_labels(logits[:, column]).long().cpu().numpy()
            table[f"probability{name}"] = values[:, column].numpy()
        else:
            table[f"prediction{name}"] = values[:, column].numpy()
    return table


def with_known(
    table: dict[str, np.ndarray], graph: Graph, class_names: tuple[str, ...] | None
) -> dict[str, np.ndarray]:
    """Returns a table with the split of every node, and its labels; both are empty where they are unknown."""
    split = np.full(graph.num_nodes, "", dtype="U5")
    for name, mask in graph.masks.items():
        split[mask.cpu().numpy()] = name
    known, labeled = table | {"split": split}, labeled_nodes(graph)
    names = np.arange(graph.task.num_outputs).astype(str) if class_names is None else np.asarray(class_names)
    labels = graph.y.cpu().numpy()
    if graph.task.kind == "single-label":
        return known | {"label": np.where(labeled, names[labels.clip(min=0)], "")}
    if graph.task.kind == "multi-label":
        labels = labels.astype(np.int64)
    for column, name in enumerate(names):
        values = labels[:, column].astype(str) if labeled.any() else labels.astype(str)
        known[f"label_{name}"] = np.where(labeled, values, "")
    return known


def labeled_nodes(graph: Graph) -> np.ndarray:
    """Returns which nodes have a label, [N] bool; none of a graph without labels."""
    fits = graph.y.dim() == (1 if graph.task.kind == "single-label" else 2)
    return graph.task.labeled(graph.y).cpu().numpy() if fits else np.zeros(graph.num_nodes, bool)


def write_table(table: dict[str, np.ndarray], path: Path) -> None:
    """Writes CSV or Parquet, by the suffix of the name; the file appears when it is complete."""
    try:
        with replaced(path) as unfinished:
            if path.suffix == ".parquet":
                _write_parquet(table, unfinished)
            else:
                _write_csv(table, unfinished)
    except OSError as error:
        raise ConfigError(f"cannot write `{path}`: {reason(error)}; choose another `--out`") from error


def _write_parquet(table: dict[str, np.ndarray], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(table), path)


def _write_csv(table: dict[str, np.ndarray], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
