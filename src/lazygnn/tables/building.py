"""Builds a graph from a table of nodes and a table of edges, and says what it did."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph, without_warnings
from lazygnn.tables.describing import count_facts, note_edges, note_features, note_guesses, note_labels
from lazygnn.tables.encoding import encode_columns, fit_columns, read_nodes, summaries
from lazygnn.tables.linking import Edges, index_nodes, read_edges, refuse_edge_as_header
from lazygnn.tables.options import TableOptions
from lazygnn.tables.reading import Source, Tell, open_table
from lazygnn.tables.roles import NodeRoles, edge_roles, node_roles
from lazygnn.tables.schema import Schema, Target
from lazygnn.tables.splitting import Masks, split_as_before, split_by_column, split_by_shares, split_by_time
from lazygnn.tables.structural import fit_structural, structural_features
from lazygnn.tables.targets import encode_target, fit_target
from lazygnn.task import Task

logger = logging.getLogger(__name__)

# called with what is read, what is done of it, and the whole
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Imported:
    """A graph from tables.

    Attributes:
        graph: The graph; its `schema` is how the columns were encoded.
        notes: What was done, a sentence each.
        facts: Numbers for a program.
    """

    graph: Graph
    notes: tuple[str, ...]
    facts: dict[str, Any]


def import_tables(
    nodes: Any,
    edges: Any,
    options: TableOptions,
    *,
    earlier: Graph | None = None,
    name: str = "graph",
    progress: Progress = lambda *_: None,
) -> Imported:
    """Reads two tables into a graph.

    Args:
        nodes: A row for every node: a path, or a table in memory.
        edges: A row for every edge.
        options: What the columns are.
        earlier: A graph from tables, like which columns are encoded, and in whose splits its nodes stay.
        name: Name of the graph.
        progress: Called while tables are read.
    """
    node_table, edge_table = open_table(nodes, "nodes"), open_table(edges, "edges")
    like = None if earlier is None else earlier.schema
    if like is not None:
        options = _like(options, like, node_table)
    roles = node_roles(node_table, options, guess=like is None)
    ends = edge_roles(edge_table, options, guess=like is None)
    kept = [column for column in node_table.columns if column not in (*roles.ignored, *roles.features)]
    summarized = summaries(node_table, roles.features, options) if like is None else []
    table = read_nodes(node_table, kept, summarized, _told(progress, node_table, end=0.5))
    index = index_nodes(node_table, table, roles.id)
    refuse_edge_as_header(edge_table, ends, index)
    columns = fit_columns(summarized) if like is None else like.columns
    if not columns and not options.structural:
        raise ConfigError(
            f"{node_table.name} has no columns of features; add features of the graph itself with `--structural`"
        )
    encoded = encode_columns(node_table, columns, len(index), _told(progress, node_table, start=0.5))
    x = encoded.x
    target = _target(node_table, table, roles, options, like)
    y = None if target is None else encode_target(node_table, table, target)
    before = {} if earlier is None else split_as_before(earlier, index)
    masks, split = _split(node_table, table, y, target, options, before)
    linked = read_edges(edge_table, ends, index, drop_unknown=options.drop_unknown, tell=_told(progress, edge_table))
    graph = _build(x, y, masks, linked, target, name)
    graph = replace(graph, node_ids=index.node_ids())
    settings = None
    if options.structural:
        settings = fit_structural(graph.degree) if like is None or like.structural is None else like.structural
        features = structural_features(index.texts.to_pylist(), graph.adj, graph.degree, settings)
        own = torch.from_numpy(x)
        graph = replace(graph, x=torch.cat((own, features), dim=1))
    schema = Schema(
        id=roles.id,
        columns=columns,
        target=target,
        source=ends.source,
        destination=ends.target,
        weight=ends.weight,
        structural=settings,
        ignored=roles.ignored,
        split=split,
    )
    graph = replace(graph, schema=schema)
    notes = [
        *note_guesses(roles, ends),
        f"{len(index):,} nodes from {node_table.name}, with their ids in `{roles.id}`",
        *note_features(schema, encoded.missing, encoded.unknown),
        *note_labels(graph, target, split),
        *note_edges(edge_table, ends, linked, graph),
    ]
    if unused := (*roles.ignored, *ends.ignored):
        notes.append(f"columns that are not used: {', '.join(unused)}")
    return Imported(graph, tuple(notes), count_facts(graph, linked))


def _like(options: TableOptions, schema: Schema, nodes: Source) -> TableOptions:
    given = [name for name in ("features", "categorical", "numeric") if getattr(options, name)]
    if given:
        raise ConfigError(f"`--{given[0]}` has no effect with `--like`, which knows the columns; omit it")
    if options.weight is not None and schema.weight is None:
        raise ConfigError(
            f"`--weight` is `{options.weight}`, but the graph of `--like` has no weights of edges; omit `--weight`, or "
            "import both graphs with weights"
        )
    target = () if schema.target is None else schema.target.columns
    known = all(column in nodes.columns and column not in options.ignore for column in target)
    return options.model_copy(
        update={
            "id": options.id or schema.id,
            "label": options.label or (target if known else ()),
            "source": options.source or schema.source,
            "target": options.target or schema.destination,
            "weight": options.weight or schema.weight,
            "features": tuple(column.name for column in schema.columns),
            "structural": schema.structural is not None,
        }
    )


def _told(progress: Progress, source: Source, *, start: float = 0.0, end: float = 1.0) -> Tell:
    """Shows a reading as a part of the progress of its table, from one share of it to another."""

    def tell(done: int) -> None:
        progress(source.name.strip("`"), round(start * source.size + (end - start) * done), source.size)

    return tell


def _target(
    source: Source, table: pa.Table, roles: NodeRoles, options: TableOptions, like: Schema | None
) -> Target | None:
    if not roles.label:
        return None
    if like is None or like.target is None:
        return fit_target(source, table, roles.label, options)
    return like.target.model_copy(update={"columns": roles.label})


def _split(
    source: Source, table: pa.Table, y: np.ndarray | None, target: Target | None, options: TableOptions, before: Masks
) -> tuple[Masks, str | None]:
    _check_split(options)
    if y is None or target is None:
        return {}, None
    labeled = Task(target.task, max(len(target.classes), 1)).labeled(torch.from_numpy(y)).numpy()
    if options.split_column is None and options.split_time is None:
        stratified = options.split == "stratified" and target.task == "single-label"
        return _draw(labeled, y if stratified else None, options, before)
    if options.split_column is None:
        masks = split_by_time(source, table, str(options.split_time), labeled, options.ratio)
        how = f"{_ratio(options)} by time, the column `{options.split_time}`"
    else:
        masks = split_by_column(source, table, options.split_column, labeled)
        how = f"by the column `{options.split_column}`"
        if not masks["train"].any():
            raise ConfigError(
                f"column `{options.split_column}` of {source.name} marks no labeled node as train; mark some"
            )
    _warn_of_trained(masks, before)
    return masks, how


def _draw(labeled: np.ndarray, classes: np.ndarray | None, options: TableOptions, before: Masks) -> tuple[Masks, str]:
    """Draws the splits of labeled nodes that have none before."""
    kept = {split: mask & labeled for split, mask in before.items() if (mask & labeled).any()}
    rest = labeled & ~sum(kept.values(), np.zeros_like(labeled))
    masks = split_by_shares(rest, options.ratio, options.seed, classes)
    how = f"{_ratio(options)}, {'at random' if classes is None else 'stratified by class'}, seed {options.seed}"
    if not kept:
        return masks, how
    if not rest.any():
        return kept, "as in the earlier graph"
    masks = {split: mask | kept.get(split, False) for split, mask in masks.items()}
    return masks, f"as in the earlier graph for {int((labeled & ~rest).sum()):,} nodes, and of the others {how}"


def _ratio(options: TableOptions) -> str:
    return "/".join(f"{share:g}" for share in options.ratio)


def _warn_of_trained(masks: Masks, before: Masks) -> None:
    """Warns of nodes for scores that were for training in the earlier graph."""
    trained = int((before.get("train", False) & (masks["val"] | masks["test"])).sum())
    if trained:
        logger.warning(
            f"{trained:,} validation and test nodes are training nodes of the earlier graph, so that scores of models "
            "that were trained on it are too good there; omit `--split-column` and `--split-time` to keep its splits"
        )


def _check_split(options: TableOptions) -> None:
    """Refuses options of the split that would have no effect."""
    if options.split_column and options.split_time:
        raise ConfigError("`--split-column` and `--split-time` exclude each other; remove one")
    decided = "--split-column" if options.split_column else "--split-time" if options.split_time else None
    if decided is not None:
        for name in ("split", "seed", *(["ratio"] if options.split_column else [])):
            if getattr(options, name) != TableOptions.model_fields[name].default:
                raise ConfigError(f"`--{name}` has no effect with `{decided}`; omit it")


def _build(x: np.ndarray, y: np.ndarray | None, masks: Masks, edges: Edges, target: Target | None, name: str) -> Graph:
    # features of the graph itself need a graph
    given = x if x.shape[1] else np.ones((len(x), 1), dtype=np.float32)
    kind = "auto" if target is None else target.task
    # that edges count in both directions is among the notes
    with without_warnings():
        return Graph.from_edges(
            edges.index,
            given,
            y,
            **{f"{split}_mask": mask for split, mask in masks.items()},
            edge_weight=edges.weight,
            num_classes=len(target.classes) if target is not None and target.task == "single-label" else None,
            task=kind,
            class_names=target.classes or None if target is not None else None,
            name=name,
        )
