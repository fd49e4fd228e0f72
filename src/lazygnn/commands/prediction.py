"""Predicts with a run, for every node of its own graph or of a new one."""

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from lazygnn.commands.importing import add_rows
from lazygnn.commands.loading import check_meaning, check_read_labels, fitting, has_labels
from lazygnn.commands.paths import as_optional_path, as_path
from lazygnn.commands.reporting import read_temperature
from lazygnn.commands.restoring import open_run
from lazygnn.commands.smoothing import smooth
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.data import load_graph
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.run.folder import Run
from lazygnn.run.predictions import check_format, labeled_nodes, prediction_table, with_known, write_table
from lazygnn.training import infer


def predict_run(
    path: Path | str,
    graph_file: Path | str | None = None,
    *,
    nodes: Path | str | None = None,
    edges: Path | str | None = None,
    drop_unknown: bool = False,
    device: str = "auto",
    root: str | None = None,
    trained_on: Graph | None = None,
    correct_and_smooth: CorrectAndSmooth | None = None,
    known: bool = False,
    verify: bool = True,
) -> tuple[Tensor, Graph, Graph]:
    """Computes the outputs of a run for every node of its own graph, of a new one, or of new rows of its tables.

    Args:
        path: The run folder.
        graph_file: A new graph with the same features, to predict in place of that of the run.
        nodes: A table of new nodes, which are added to the run's own graph; outputs are for these alone.
        edges: A table of their edges, among each other and with the nodes of the graph.
        drop_unknown: Drops edges of unknown nodes.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        trained_on: The graph that the run was trained on, if it is loaded already; by default it is found by its name.
        correct_and_smooth: Changes the predictions; the graph then needs labels of training nodes.
        known: Whether labels of a new graph are used, so that they must mean the same as those of the run.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.

    Returns:
        The outputs, their graph, and the graph of training, which defines the task and the names of the classes.
    """
    path, graph_file = as_path(path, "path"), as_optional_path(graph_file, "graph_file")
    nodes, edges = as_optional_path(nodes, "nodes"), as_optional_path(edges, "edges")
    if nodes is None and edges is not None:
        raise ConfigError("`--edges` are edges of new nodes; give these with `--nodes`")
    if drop_unknown and edges is None:
        raise ConfigError("`--drop-unknown` has no effect without `--edges`; omit it")
    if nodes is not None and graph_file is not None:
        raise ConfigError("`--nodes` adds to the graph of the run, so that `--graph` has no effect; omit one of them")
    opened = open_run(path, device, root, trained_on=trained_on, verify=verify, own=graph_file is None)
    trained_on = opened.graph
    given = trained_on if graph_file is None else load_graph(graph_file, root)
    new = given
    if nodes is not None:
        given, new = add_rows(trained_on, nodes, edges, drop_unknown=drop_unknown)
    # a new graph need not have labels, so the task is that of training
    graph = fitting(given, trained_on)
    if correct_and_smooth is not None:
        correct_and_smooth.check(graph)
    if graph_file is not None and (known or correct_and_smooth is not None) and has_labels(given):
        check_meaning(given, trained_on)
    model, placed = opened.restore(graph)
    if graph_file is not None:
        check_read_labels(model, given, trained_on)
    logits = infer(model, placed)
    if correct_and_smooth is not None:
        own = graph_file is None
        logits, placed = smooth(correct_and_smooth, logits, placed, opened.config, opened.device, choose=own)
    # new rows are last
    return logits[-new.num_nodes :], replace(new, task=placed.task), replace(trained_on, task=placed.task)


def write_predictions(
    path: Path | str,
    out: Path | str,
    graph_file: Path | str | None = None,
    *,
    nodes: Path | str | None = None,
    edges: Path | str | None = None,
    drop_unknown: bool = False,
    device: str = "auto",
    root: str | None = None,
    trained_on: Graph | None = None,
    correct_and_smooth: CorrectAndSmooth | None = None,
    calibrated: bool = False,
    probabilities: bool = False,
    known: bool = False,
    unlabeled: bool = False,
    verify: bool = True,
) -> int:
    """Writes the predictions of a run to a CSV or Parquet file and returns their number.

    Args:
        path: The run folder.
        out: The file; its suffix is the format.
        graph_file: A new graph, to predict in place of that of the run.
        nodes: A table of new nodes.
        edges: A table of their edges.
        drop_unknown: Drops edges of unknown nodes.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        trained_on: The graph that the run was trained on, if it is loaded already; by default it is found by its name.
        correct_and_smooth: Changes the predictions; the graph then needs labels of training nodes.
        calibrated: Whether probabilities are at the temperature of the run's report; predictions do not change.
        probabilities: Whether to add a column for the probability of each class.
        known: Whether to add columns with the split and the label of every node.
        unlabeled: Whether to write nodes without a label alone.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.
    """
    path, out = as_path(path, "path"), as_path(out, "out")
    check_format(out)
    temperature = read_temperature(Run.open(path, verify=verify), correct_and_smooth) if calibrated else 1.0
    logits, graph, trained_on = predict_run(
        path,
        graph_file,
        nodes=nodes,
        edges=edges,
        drop_unknown=drop_unknown,
        device=device,
        root=root,
        trained_on=trained_on,
        correct_and_smooth=correct_and_smooth,
        known=known or unlabeled,
        verify=verify,
    )
    columns = {"probabilities": probabilities, "known": known, "unlabeled": unlabeled}
    return write_outputs(logits, graph, trained_on, out, temperature=temperature, **columns)


def write_outputs(
    logits: Tensor,
    graph: Graph,
    trained_on: Graph,
    out: Path,
    *,
    temperature: float = 1.0,
    probabilities: bool,
    known: bool,
    unlabeled: bool,
) -> int:
    """Writes the outputs of every node as a table and returns the number of its rows.

    Args:
        logits: The outputs, [N, C].
        graph: The graph that they belong to.
        trained_on: The graph of training, which defines the task and the names of the classes.
        out: The file; its suffix is the format.
        temperature: Divides the outputs for probabilities; predictions do not change.
        probabilities: Whether to add a column for the probability of each class.
        known: Whether to add columns with the split and the label of every node.
        unlabeled: Whether to write nodes without a label alone.
    """
    names = trained_on.class_names
    task = trained_on.task
    table = prediction_table(logits, graph, task, names, temperature=temperature, probabilities=probabilities)
    table = with_known(table, graph, names) if known else table
    if unlabeled:
        kept = ~labeled_nodes(graph)
        table = {name: column[kept] for name, column in table.items()}
    write_table(table, out)
    return len(table["node"])
