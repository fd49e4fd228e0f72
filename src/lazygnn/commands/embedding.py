"""Writes the embeddings of a run: the values of every node that its last layer reads."""

from pathlib import Path

import numpy as np

from lazygnn.commands.loading import load_run
from lazygnn.commands.paths import as_optional_path, as_path
from lazygnn.data import load_graph
from lazygnn.errors import ConfigError, reason
from lazygnn.files import replaced
from lazygnn.graph import Graph
from lazygnn.run.predictions import check_format, node_names, write_table


def write_embeddings(
    path: Path | str,
    out: Path | str,
    graph_file: Path | str | None = None,
    *,
    device: str = "auto",
    root: str | None = None,
    trained_on: Graph | None = None,
    verify: bool = True,
) -> tuple[int, int]:
    """Writes the embeddings of a run and returns their number and width.

    Args:
        path: The run folder.
        out: The file. A table (.csv, .parquet) has a column `node` and a column for each channel; .npy is an array.
        graph_file: Another graph with the same features, to embed in place of that of the run.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        trained_on: The graph that the run was trained on, if it is loaded already; by default it is found by its name.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.
    """
    path, out, graph_file = as_path(path, "path"), as_path(out, "out"), as_optional_path(graph_file, "graph_file")
    check_format(out, others=(".npy",))
    run = load_run(path, device=device, root=root, trained_on=trained_on, verify=verify)
    graph = run.graph if graph_file is None else load_graph(graph_file, root)
    values = run.embed(None if graph_file is None else graph).cpu().float().numpy()
    if out.suffix != ".npy":
        columns = {f"channel_{index}": values[:, index] for index in range(values.shape[1])}
        write_table({"node": node_names(graph)} | columns, out)
        return values.shape[0], values.shape[1]
    try:
        with replaced(out) as unfinished, unfinished.open("wb") as file:
            np.save(file, values)
    except OSError as error:
        raise ConfigError(f"cannot write `{out}`: {reason(error)}; choose another `--out`") from error
    return values.shape[0], values.shape[1]
